"""The benchmark sends as many requests as it is told, and says so, whatever the machine on which it runs."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from suites._shared.keyspace import server

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites.programs.program import Programs

REQUESTS = 1000
TESTS = "ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset,xadd"
WAYS = {
    "as it is": ["-c", "5"],
    "pipelines": ["-c", "5", "-P", "16"],
    "threads": ["-c", "8", "--threads", "3"],
    "large values": ["-c", "5", "-d", "20000"],
    "resp3": ["-c", "5", "-3"],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_it_sends_what_it_is_told_and_measures_it(
    programs: Programs, oracle: Guest, cell: CellSpec, way: list[str]
) -> None:
    if ("--threads" in way and cell.version < (6,)) or ("-3" in way and cell.version < (6, 2)):
        pytest.skip("the option came with a later release")
    with server.client(oracle) as client:
        client.command("FLUSHALL")
        words = ["-s", str(oracle.socket_path), "-n", str(REQUESTS), *way]
        output = programs.run("benchmark", *words, "-t", TESTS, "--csv").text
        rows = [row for row in csv.reader(output.splitlines()) if len(row) > 1 and row[0] != "test"]
        rates = {row[0]: float(row[1]) for row in rows}
        assert len(rates) >= 15, output
        assert all(10 < rate < 1e7 for rate in rates.values()), output
        if cell.version >= (6, 2):
            for row in rows:
                _, _, average, least, p50, p95, p99, most = row
                latencies = [float(word) for word in (least, p50, p95, p99, most)]
                assert latencies == sorted(latencies), output
                assert float(least) <= float(average) <= float(most), output
        size = int(way[way.index("-d") + 1]) if "-d" in way else 3
        assert client.command("STRLEN", "key:__rand_int__") == size
        # A pipeline or several threads may send a few more.
        assert REQUESTS <= int(client.command("GET", "counter:__rand_int__")) <= REQUESTS + 8 * 16  # type: ignore[arg-type]


def test_its_random_keys_fill_their_range(programs: Programs, oracle: Guest) -> None:
    with server.client(oracle) as client:
        client.command("FLUSHALL")
        words = ["-s", str(oracle.socket_path), "-n", "2000", "-r", "100", "-q"]
        programs.run("benchmark", *words, "SET", "k:__rand_int__", "v")
        names = sorted(client.command("KEYS", "*"))  # type: ignore[arg-type,type-var]
    assert names == [b"k:%012d" % number for number in range(100)]
