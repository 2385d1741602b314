"""The results and errors of the client of Tcl suites (resp.c), tested with servers that send fixed bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.core.cache import Cache
from harness.core.processes import environment, process
from harness.plan.catalog import Catalog
from harness.run.tcl.client import compile_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEADLINE = "0.2"
TCL_ENVIRONMENT = {**process.PLAIN_ENVIRONMENT, **environment.CELL_SETTINGS}
"""As a cell starts tclsh."""


@pytest.fixture(scope="module")
def client() -> Path:
    return compile_client(Cache.default(), Catalog().toolchains["gcc"])


@pytest.fixture
def served(client: Path, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Run a script with `connection`. Its server replies to any request with the pieces, and then closes it if
    `closes`.
    """
    servers: list[socket.socket] = []

    def run(script: str, *pieces: bytes, closes: bool = True, deadline: str = DEADLINE) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        threading.Thread(target=_serve, args=(server, pieces, closes), daemon=True).start()
        endpoint = endpoint_of(server)
        return tcl(client, tmp_path, f"set connection [resp::connect {endpoint} {deadline}]\n{script}")

    yield run
    for server in servers:
        server.close()


def endpoint_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def _serve(server: socket.socket, pieces: tuple[bytes, ...], closes: bool) -> None:
    with contextlib.suppress(OSError):
        accepted, _ = server.accept()
        with accepted:
            while accepted.recv(65536):
                for piece in pieces:
                    accepted.sendall(piece)
                    time.sleep(0.02 if len(pieces) > 1 else 0)
                if closes:
                    return


def tcl(client: Path, folder: Path, script: str) -> str:
    """The value that a script returns, or the code and message of its error. `$folder` is this folder."""
    file = folder / "script.tcl"
    file.write_text(
        "lassign $argv client folder\nload $client Resp\n"
        f"if {{[catch {{\n{script}\n}} result options]}} {{\n"
        "set result [list [dict get $options -errorcode] $result]\n}\n"
        "chan configure stdout -translation binary\nputs -nonewline $result\n",
        "utf-8",
    )
    result = process.run(["tclsh", file, client, folder], deadline_seconds=30, environment=TCL_ENVIRONMENT)
    assert result.code == 0, result.text
    return result.text


REPLIES = {
    "a simple string": (b"+OK\r\n", "simple OK"),
    "an empty simple string": (b"+\r\n", "simple {}"),
    "an error": (b"-ERR no\r\n", "error {ERR no}"),
    "an integer": (b":-9223372036854775808\r\n", "integer -9223372036854775808"),
    "an empty bulk": (b"$0\r\n\r\n", "bulk {}"),
    "a null bulk": (b"$-1\r\n", "null bulk"),
    "a null array": (b"*-1\r\n", "null array"),
    "an array in an array": (b"*2\r\n*0\r\n*1\r\n:1\r\n", "array {{array {}} {array {{integer 1}}}}"),
    "a map": (b"%1\r\n+a\r\n:1\r\n", "map {{simple a} {integer 1}}"),
    "a set": (b"~2\r\n:1\r\n:2\r\n", "set {{integer 1} {integer 2}}"),
    "doubles": (b"*3\r\n,1.5\r\n,-inf\r\n,nan\r\n", "array {{double 1.5} {double -inf} {double nan}}"),
    "booleans": (b"*2\r\n#t\r\n#f\r\n", "array {{boolean t} {boolean f}}"),
    "a null": (b"_\r\n", "null plain"),
    "a big number": (b"(-12345678901234567890123\r\n", "bignumber -12345678901234567890123"),
    "a verbatim text": (b"=8\r\ntxt:a  b\r\n", "verbatim {txt {a  b}}"),
    "a push": (b">1\r\n+x\r\n", "push {{simple x}}"),
    "an attribute before its reply": (
        b"|1\r\n+ttl\r\n:3\r\n+OK\r\n",
        "attribute {{{simple ttl} {integer 3}} {simple OK}}",
    ),
    "a long error": (b"!7\r\nERR a b\r\n", "bloberror {ERR a b}"),
    "arrays in arrays, 900 times": (
        b"*1\r\n" * 900 + b":1\r\n",
        "array {" + "{array {" * 899 + "{integer 1}" + "}}" * 899 + "}",
    ),
}


@pytest.mark.parametrize("what", REPLIES)
def test_a_reply_is_typed_and_keeps_the_received_bytes(served: Callable[..., str], what: str) -> None:
    content, expected = REPLIES[what]
    script = (
        "resp::send $connection x; set typed [resp::reply $connection]\n"
        "list $typed [binary encode hex [resp::replyBytes $connection]]"
    )
    assert served(script, content + content) == f"{{{expected}}} {content.hex()}"


@pytest.mark.parametrize("content", [b"\r\n\x00\xff", bytes(range(256)), b"\xc3\xa4", b"x" * 300_000], ids=len)
def test_every_byte_of_a_bulk_arrives(served: Callable[..., str], content: bytes) -> None:
    bulk = b"$%d\r\n%s\r\n" % (len(content), content)
    assert (
        served("resp::send $connection x; binary encode hex [lindex [resp::reply $connection] 1]", bulk)
        == content.hex()
    )


@pytest.mark.parametrize("content", [b"\x00", b"a\xff", b"\xc3\xa4\x00b"])
def test_every_byte_of_a_text_arrives(served: Callable[..., str], content: bytes) -> None:
    script = "resp::send $connection x; binary encode hex [lindex [resp::reply $connection] 1]"
    assert served(script, b"+" + content + b"\r\n") == content.hex()


def test_replies_do_not_depend_on_the_sizes_of_received_pieces(served: Callable[..., str]) -> None:
    content = b"*3\r\n$5\r\nab\r\nc\r\n:12\r\n+OK\r\n"
    pieces = [content[at : at + 1] for at in range(len(content))]
    script = "resp::send $connection x; list [resp::reply $connection] [resp::reply $connection]"
    expected = "{array {{bulk {ab\r\nc}} {integer 12} {simple OK}}} {simple last}"
    assert served(script, *pieces, b"+last\r\n", deadline="10") == expected


def test_thousands_of_replies_in_one_piece_are_read_one_by_one(served: Callable[..., str]) -> None:
    values = [b"%d" % number * (number % 97) for number in range(5000)]
    script = """
        resp::send $connection x
        for {set number 0} {$number < 5000} {incr number} { append all [lindex [resp::reply $connection] 1] , }
        return -level 0 $all
    """
    replies = b"".join(b"$%d\r\n%s\r\n" % (len(value), value) for value in values)
    assert served(script, replies, deadline="10") == b"".join(value + b"," for value in values).decode()


FAILURES = {
    "a connection closed without a byte": (b"", "CLOSED", "connection closed by server (0 bytes into a reply)"),
    "a connection closed within a line": (b"+O", "CLOSED", "connection closed by server (2 bytes into a reply)"),
    "a connection closed within a bulk": (b"$9\r\nabc", "CLOSED", "connection closed by server (7 bytes into a reply)"),
    "silence": (b"", "TIMEOUT", "the server did not finish its reply within 0.2 seconds"),
    "silence within a line": (b"+O", "TIMEOUT", "the server did not finish its reply within 0.2 seconds"),
    "silence within an array": (b"*2\r\n:1\r\n", "TIMEOUT", "the server did not finish its reply within 0.2 seconds"),
    "a type that does not exist": (b"?\r\n", "MALFORMED", "a reply begins with: '?'"),
    "an empty line": (b"\r\n", "MALFORMED", "a reply begins with: ''"),
    "a length that is not a number": (b"$x\r\n", "MALFORMED", "a reply has the length: 'x'"),
    "a length that is missing": (b"*\r\n", "MALFORMED", "a reply has the length: ''"),
    "a length that is only negative": (b"*-2\r\n", "MALFORMED", "a reply has the length: '-2'"),
    "a length beyond 64 bits": (
        b"$18446744073709551616\r\n",
        "MALFORMED",
        "a reply has the length: '18446744073709551616'",
    ),
    "a length beyond Tcl's": (b"$2147483646\r\n", "MALFORMED", "Tcl holds no reply of the length: '2147483646'"),
    "a set that is null": (b"~-1\r\n", "MALFORMED", "a reply has the length: '-1'"),
    "a streamed aggregate": (b"*?\r\n", "MALFORMED", "a reply has the length: '?'"),
    "a bulk without its CRLF": (b"$1\r\nabc", "MALFORMED", "a block of bytes is followed by no CRLF, but by: 'bc'"),
    "a line that ends in LF alone": (b"+OK\n", "MALFORMED", "a line of a reply does not end in CRLF: '+OK'"),
    "a boolean that is neither": (b"#x\r\n", "MALFORMED", "a boolean is neither t nor f: '#x'"),
    "a verbatim text without a format": (b"=2\r\nab\r\n", "MALFORMED", "a verbatim text has no format: 'ab'"),
    "arrays in arrays without end": (b"*1\r\n" * 1001, "MALFORMED", "a reply has more than 1000 levels"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_failures_have_different_codes(served: Callable[..., str], what: str) -> None:
    content, code, message = FAILURES[what]
    said = served("resp::send $connection x; resp::reply $connection", content, closes=code == "CLOSED")
    assert said == f"{{RESP {code}}} {{{message}}}"


@pytest.mark.parametrize(
    ("script", "ends_early"),
    [("expr 0", True), ("expr 1", False), ("expr {[incr asked] % 2}", False), ("error unknown", False)],
    ids=["denied", "affirmed", "denied at times", "unknown"],
)
def test_the_wait_for_a_reply_ends_early_if_a_script_denies_it_twice(
    served: Callable[..., str], script: str, *, ends_early: bool
) -> None:
    seconds = "30" if ends_early else "0.5"
    said = served(
        f"resp::onSilence 0.01 {{{script}}}\nresp::send $connection x\nresp::reply $connection",
        b"+O",
        closes=False,
        deadline=seconds,
    )
    waited = "0" if ends_early else seconds
    assert said == f"{{RESP TIMEOUT}} {{the server did not finish its reply within {waited} seconds}}"


def test_a_failure_shows_only_the_first_bytes(served: Callable[..., str]) -> None:
    shown = served("resp::send $connection x; resp::reply $connection", b"$" + b"y" * 5000 + b"\r\n")
    assert shown == "{RESP MALFORMED} {a reply has the length: '" + "y" * 80 + "'}"


@pytest.mark.parametrize(
    ("content", "closes", "expected"),
    [
        (b"+OK\r\n", True, "closed"),
        (b"+OK\r\n", False, "open after 0.2 seconds"),
        (b"+OK\r\n:1\r\n", True, "sent 4 more bytes: :1\r\n"),
    ],
)
def test_closing_reports_the_state_of_the_connection(
    served: Callable[..., str], content: bytes, closes: bool, expected: str
) -> None:
    script = "resp::send $connection x; resp::reply $connection; resp::closing $connection"
    assert served(script, content, closes=closes) == expected


def test_a_hung_up_connection_was_read_to_its_end(served: Callable[..., str]) -> None:
    script = "resp::send $connection x; resp::hangUp $connection; resp::close $connection; resp::reply $connection"
    assert served(script, b"+more\r\n", closes=False) == "{RESP CLOSED} {connection connection1 is closed on this side}"


def test_a_server_that_keeps_a_hung_up_connection_open_is_a_timeout(client: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = endpoint_of(server)
        said = tcl(client, tmp_path, f"resp::hangUp [resp::connect {endpoint} {DEADLINE}]")
    assert said.startswith("{RESP TIMEOUT} {timed out waiting for the server to close a connection that was hung up")


def test_a_port_and_a_socket_without_a_listener_refuse(client: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    expected = f"{{RESP REFUSED}} {{cannot connect to 127.0.0.1:{port}: Connection refused}}"
    assert tcl(client, tmp_path, f"resp::connect 127.0.0.1:{port} 1") == expected
    assert "No such file or directory" in tcl(client, tmp_path, "resp::connect $folder/none 1")
    assert "File name too long" in tcl(client, tmp_path, f"resp::connect /{'x' * 200} 1")


def test_a_unix_socket_with_a_full_backlog_is_a_timeout(client: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen(0)
        script = f"for {{set i 0}} {{$i < 9}} {{incr i}} {{resp::connect $folder/s {DEADLINE}}}"
        expected = "{RESP TIMEOUT} {the server did not accept a connection within 0.2 seconds}"
        assert tcl(client, tmp_path, script) == expected


def test_a_command_is_an_array_of_bulks_counted_in_bytes(client: Path, tmp_path: Path) -> None:
    expected = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\n\xff\r\n"
    assert tcl(client, tmp_path, r'binary encode hex [resp::encode SET "" "a\r\n\xff"]') == expected.hex()


def test_a_call_sends_a_command_and_returns_its_reply(served: Callable[..., str]) -> None:
    assert served("resp::call $connection GET key", b"$1\r\nv\r\n") == "bulk v"


def test_commands_to_a_server_that_reads_nothing_are_a_timeout(client: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = endpoint_of(server)
        script = f"set c [resp::connect {endpoint} {DEADLINE}]; while 1 {{resp::send $c [string repeat x 100000]}}"
        said = tcl(client, tmp_path, script)
    assert said.startswith("{RESP TIMEOUT} {the server did not take what was sent (")


def test_large_requests_arrive_completely(client: Path, tmp_path: Path) -> None:
    received = bytearray()

    def take(server: socket.socket) -> None:
        accepted, _ = server.accept()
        with accepted:
            while content := accepted.recv(1 << 20):
                received.extend(content)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=take, args=(server,))
        thread.start()
        endpoint = endpoint_of(server)
        script = f"set c [resp::connect {endpoint} 10]; resp::send $c [string repeat ab 4000000]; resp::hangUp $c"
        assert tcl(client, tmp_path, script) == ""
        thread.join()
    assert bytes(received) == b"ab" * 4_000_000
