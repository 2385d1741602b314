"""The release's client and benchmark connect over TLS to a server. All run on the target. The tests check the stored
data through the server's Unix socket, and compare the output with that of a native run.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from harness.protocol.resp import Client
from suites._shared.formats import rdb
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import differences
from suites.tls import certificates, tls_server
from suites.tls.certificates import ADDRESS

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from suites._shared.ports import Ports
    from suites._shared.programs import Programs

VERSIONS = ["TLSv1.2", "TLSv1.3"]
LARGE = 70_001
"""Bytes of a value that takes several TLS records, and several reads of the client."""
REQUESTS = 100


def words(programs: Programs, port: int, *, authority: str = certificates.AUTHORITY) -> list[str]:
    """The options with which a program uses TLS, and accepts only certificates of that authority."""
    for name, content in certificates.files().items():
        programs.file(name, content)
    keys = ["--cert", "ec.crt", "--key", "ec.key"]
    return ["-h", ADDRESS, "-p", str(port), "--tls", "--cacert", authority, *keys]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_stores_and_fetches(
    version: str, programs: Programs, start_guest: StartGuest, ports: Ports, cell: CellSpec, family: str
) -> None:
    guest, port = tls_server.start(start_guest, ports, "--tls-protocols", version, *server.OPTIONS)
    over_tls = words(programs, port)
    large = dataset.noise(LARGE)
    programs.same("cli", *over_tls, "-x", "SET", "large", sent=large)
    with server.client(guest) as plain:
        assert plain.command("GET", "large") == large
    assert programs.same("cli", *over_tls, "--raw", "GET", "large") == large + b"\n"
    with server.client(guest) as plain:
        plain.command("FLUSHALL")
        # There is no second replica, so the server must not wait for one.
        plain.pipeline([("CONFIG", "SET", "repl-diskless-sync-delay", 0)])
    items = [item for item in dataset.items(cell.version, family) if item.key.database == 0]
    requests = [command for item in items for command in item.commands]
    result = programs.run("cli", *over_tls, "--pipe", sent=Client.pack(requests))
    assert f"errors: 0, replies: {len(requests)}" in result.text, result.text
    expected = {item.key: item.entry for item in items}
    lines = differences(server.without_times(expected, cell), server.snapshot(guest))
    assert not lines, "; ".join(lines[:3])
    path = programs.file("fetched.rdb", b"")
    result = programs.run("cli", *over_tls, "--rdb", str(path))
    assert result.code == 0, result.text[-500:]
    lines = differences(expected, rdb.read(path.read_bytes()).entries)
    assert not lines, "; ".join(lines[:3])


def test_the_client_trusts_its_authority_alone(programs: Programs, start_guest: StartGuest, ports: Ports) -> None:
    _, port = tls_server.start(start_guest, ports)
    assert programs.same("cli", *words(programs, port), "PING") == b"PONG\n"
    distrustful = words(programs, port, authority=f"{certificates.STRANGER}.crt")
    assert b"certificate verify failed" in programs.same("cli", *distrustful, "PING")
    # A client without TLS gets no reply.
    assert b"PONG" not in programs.same("cli", *words(programs, port)[:4], "PING")


@pytest.mark.parametrize("way", [[], ["--threads", "2"]], ids=["alone", "threads"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_benchmark_sends_what_it_counts(
    version: str, way: list[str], programs: Programs, start_guest: StartGuest, ports: Ports
) -> None:
    # The option came with the percentiles.
    if not programs.offers("benchmark", "--precision"):
        pytest.skip("the benchmark's report has no percentiles")
    guest, port = tls_server.start(start_guest, ports, "--tls-protocols", version)
    asked = ["-n", str(REQUESTS), "-c", "5", "-d", "20000", "-t", "set,get,incr,lpush", "--csv", *way]
    output = programs.run("benchmark", *words(programs, port), *asked).text
    rows = [row[0] for row in csv.reader(output.splitlines()) if len(row) > 1]
    assert rows == ["test", "SET", "GET", "INCR", "LPUSH"], output
    with server.client(guest) as plain:
        counted = [("STRLEN", "key:__rand_int__"), ("GET", "counter:__rand_int__"), ("LLEN", "mylist")]
        assert plain.pipeline(counted) == [20000, b"%d" % REQUESTS, REQUESTS]
