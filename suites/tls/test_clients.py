"""A TLS client gets the same replies as a plain one, whatever their length; a client with a wrong certificate gets
none.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from harness.core.sockets import connect
from harness.protocol.resp import Client
from suites._shared.keyspace import dataset, server
from suites.tls import certificates, tls_server

if TYPE_CHECKING:
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports
    from suites.tls.certificates import KeyKind

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
RECORD = 16384
"""Maximum number of bytes in a TLS record (RFC 8446, 5.1)."""
LENGTHS = [0, 1, 2, 3, 7, 255, 4095, RECORD - 9, RECORD - 1, RECORD, RECORD + 1, 3 * RECORD + 5, 300_001]
WAITING = 8
"""Number of large replies that a client leaves unread, so that the server must retry writes to a full socket."""
LARGE = 700_001


@pytest.mark.parametrize("key", ["rsa", "ec"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_length_of_a_value_crosses_either_version(
    version: str, key: KeyKind, start_guest: StartGuest, ports: Ports
) -> None:
    guest, port = tls_server.start(start_guest, ports, key=key)
    with tls_server.connected(guest, port, tls_server.context(version=VERSIONS[version])) as connection:
        assert connection.version() == f"TLSv{version}"
        speaking = Client(connection)
        for length in LENGTHS:
            content = dataset.noise(length)
            replies = speaking.pipeline([("SET", length, content), ("GET", length), ("STRLEN", length)])
            assert replies == [b"OK", content, length], f"{length} bytes"
        # Many requests in few records, and one request in many.
        many = [("INCR", "counter") for _ in range(2000)]
        assert speaking.pipeline(many) == list(range(1, 2001))
        for byte in Client.pack([("ECHO", "byte by byte")]):
            speaking.send(bytes([byte]))
        assert speaking.receive() == b"byte by byte"


def test_the_data_set_is_the_same_by_both_ways(start_guest: StartGuest, ports: Ports, family: str) -> None:
    guest, port = tls_server.start(start_guest, ports)
    server.write(guest, family)
    with server.client(guest) as plain, tls_server.client(guest, port) as speaking:
        for database in range(16):
            names = _sorted(_both([plain, speaking], [("SELECT", database), ("KEYS", "*")])[-1])
            dumps = _both([plain, speaking], [("DUMP", name) for name in names])
            assert len(dumps) == len(names)
            assert all(isinstance(one, bytes) for one in dumps)


def _both(clients: list[Client], requests: list[tuple[Any, ...]]) -> list[Any]:
    """The replies of both clients, which must be equal, to requests whose replies do not depend on earlier ones."""
    plain, speaking = (client.pipeline(requests) for client in clients)
    assert [_sorted(reply) for reply in plain] == [_sorted(reply) for reply in speaking]
    return plain


def _sorted(reply: Any) -> Any:
    return sorted(reply) if isinstance(reply, list) else reply


def test_replies_that_wait_for_a_slow_client_arrive_whole(start_guest: StartGuest, ports: Ports) -> None:
    guest, port = tls_server.start(start_guest, ports)
    contents = [dataset.noise(LARGE + number) for number in range(WAITING)]
    with tls_server.client(guest, port) as slow, tls_server.client(guest, port) as other:
        for number, content in enumerate(contents):
            assert other.command("SET", number, content) == b"OK"
        slow.send(Client.pack([("GET", number) for number in range(WAITING)]))
        # The server serves others while the first client's replies wait.
        assert other.pipeline([("PING",)] * 100) == [b"PONG"] * 100
        assert [slow.receive() for _ in contents] == contents


def test_messages_reach_subscribers_of_both_kinds(start_guest: StartGuest, ports: Ports) -> None:
    guest, port = tls_server.start(start_guest, ports)
    with tls_server.client(guest, port) as speaking, server.client(guest) as plain, server.client(guest) as publisher:
        for one in (speaking, plain):
            assert one.command("SUBSCRIBE", "channel") == [b"subscribe", b"channel", 1]
        for length in LENGTHS:
            content = dataset.noise(length)
            assert publisher.command("PUBLISH", "channel", content) == 2
            for one in (speaking, plain):
                assert one.receive() == [b"message", b"channel", content], f"{length} bytes"


@pytest.mark.parametrize("name", ["", certificates.STRANGER], ids=["no certificate", "a stranger's certificate"])
@pytest.mark.parametrize("demand", ["yes", "optional", "no"])
def test_clients_are_let_in_by_their_certificates(
    demand: str, name: str, start_guest: StartGuest, ports: Ports, family: str, cell: Any
) -> None:
    # A server without TLS, as the native one that tells its abilities, does not have the option.
    if demand == "optional" and family == "redis" and cell.version < (6, 0, 6):
        pytest.skip("a client may leave its certificate out since 6.0.6")
    guest, port = tls_server.start(start_guest, ports, "--tls-auth-clients", demand)
    by = tls_server.context(name=name)
    welcome = demand == "no" or (demand == "optional" and not name)
    if welcome:
        with tls_server.client(guest, port, by) as stranger:
            assert stranger.command("PING") == b"PONG"
    else:
        # In version 1.3 a client completes its handshake before the server has checked the certificate.
        with pytest.raises((ssl.SSLError, ConnectionError)), tls_server.client(guest, port, by) as stranger:
            stranger.command("PING")
    _still_serves(guest, port)


def test_what_is_no_tls_is_refused(start_guest: StartGuest, ports: Ports) -> None:
    guest, port = tls_server.start(start_guest, ports)
    for content in (b"PING\r\n", b"*1\r\n$4\r\nPING\r\n", b"\x16\x03\x01\xff\xff" + dataset.noise(70_000), b"\x16"):
        with connect((certificates.ADDRESS, port), deadline_seconds=guest.deadline_seconds) as connection:
            reply = b""
            try:
                connection.sendall(content)
                if len(content) > 1:
                    reply = connection.recv(100)
            except ConnectionError:
                pass
            assert b"PONG" not in reply
    _still_serves(guest, port)


def test_a_server_takes_another_certificate_while_it_runs(start_guest: StartGuest, ports: Ports) -> None:
    guest, port = tls_server.start(start_guest, ports, key="ec")
    before = _shown(guest, port)
    with server.client(guest) as plain, tls_server.client(guest, port) as speaking:
        assert plain.command("CONFIG", "SET", "tls-cert-file", "rsa.crt", "tls-key-file", "rsa.key") == b"OK"
        after = _shown(guest, port)
        assert speaking.command("PING") == b"PONG"
        with pytest.raises(hiredis.ReplyError, match=r"Unable to (update|configure) TLS"):
            plain.command("CONFIG", "SET", "tls-cert-file", "missing.crt")
    assert before == _der("ec")
    assert after == _der("rsa")
    assert _shown(guest, port) == after


def _shown(guest: Guest, port: int) -> bytes | None:
    """The certificate that a server presents."""
    with tls_server.connected(guest, port) as connection:
        return connection.getpeercert(binary_form=True)


def _der(name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificates.files()[f"{name}.crt"].decode())


def _still_serves(guest: Guest, port: int) -> None:
    with tls_server.client(guest, port) as speaking:
        assert speaking.command("PING") == b"PONG"
