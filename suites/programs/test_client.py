"""In each of its modes, the client prints and sends the same on the target as natively."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.protocol.resp import Client
from suites._shared.formats import rdb
from suites._shared.keyspace import dataset, server
from suites._shared.keyspace.values import differences
from suites._shared.programs import address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest
    from suites._shared.programs import Programs

REQUESTS = rb"""
SET text "a \"quoted\" text"
SET bytes "\x00\x01\x7f\x80\xff\r\n\t\a\b\\"
SET number -9223372036854775808
GET text
GET bytes
GET absent
GET "every byte"
INCR number
STRLEN "packed:65536"
GET "packed:65536"
LRANGE list:integers 0 -1
LRANGE absent 0 -1
SMEMBERS "set:16 bits"
HGETALL hash:small
HGETALL hash:binary
ZRANGE zset:small 0 -1 WITHSCORES
ZADD zset:small INCR 0.1 member:3
ZSCORE zset:small member:3
XRANGE stream - +
XINFO STREAM stream:groups
XPENDING stream:groups g
XREAD STREAMS stream stream:long 0 5-290
GEOADD place 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
GEOSEARCH place FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHCOORD WITHDIST WITHHASH
EVAL "return {1, {2, 'three', {4.9}}, redis.error_reply('MY error'), redis.status_reply('fine'), false, true}" 0
EVAL "redis.setresp(3); return {map={a=1, b={double=3.141592653589793}}, 1}" 0
EVAL "return {double=3.141592653589793}" 0
EVAL "return {double=-1e300}" 0
EVAL "return {map={a=1, b={c=2}}}" 0
EVAL "return {set={a=true}}" 0
EVAL "return {big_number='123456789012345678901234567890'}" 0
EVAL "return {verbatim_string={string='some text', format='txt'}}" 0
DEBUG PROTOCOL double
DEBUG PROTOCOL map
DEBUG PROTOCOL set
DEBUG PROTOCOL attrib
DEBUG PROTOCOL push
DEBUG PROTOCOL verbatim
DEBUG PROTOCOL true
DEBUG PROTOCOL false
DEBUG PROTOCOL null
DEBUG PROTOCOL bignum
CONFIG GET *max-*
COMMAND INFO get
CLIENT SETNAME someone
CLIENT GETNAME
OBJECT HELP
NOSUCH command
GET
MULTI
SET a 1
GET a
NOSUCH
EXEC
SUBSCRIBE
SELECT 1
GET "of database 1"
SELECT 99
3 INCR counter
LOLWUT VERSION 4
"""
MODES = {
    "as it is": [],
    "raw": ["--raw"],
    "for people": ["--no-raw"],
    "csv": ["--csv"],
    "json": ["--json"],
    "quoted json": ["--quoted-json"],
    "resp3 for people": ["-3", "--no-raw"],
    "resp3 raw": ["-3", "--raw"],
    "resp3 csv": ["-3", "--csv"],
    "resp3 json": ["-3", "--json"],
    "delimiters": ["--raw", "-d", ";", "-D", "!\n"],
    "pushes": ["-3", "--no-raw", "--show-pushes", "yes"],
    "errors end it": ["-e"],
    "of database 1": ["-n", "1"],
}
LINES = {
    "version": ["--version"],
    "help": ["--help"],
    "help of clusters": ["--cluster", "help"],
    "help of a command": ["help", "set"],
    "help of a group": ["help", "@stream"],
    "a command": ["SET", "a", "1"],
    "quoted input": ["--quoted-input", "SET", r'"quoted\x00\xff"', r'"a\r\n"'],
    "repeated": ["-r", "5", "-i", "0.01", "INCRBY", "counter", "9223372036854"],
    "big keys": ["--bigkeys"],
    "big keys with pauses": ["--bigkeys", "-i", "0.001"],
    "keys by memory": ["--memkeys"],
    "keys by some memory": ["--memkeys-samples", "3"],
    "hot keys": ["--hotkeys"],
    "scan": ["--scan"],
    "scan for a pattern": ["--scan", "--pattern", "i*:*8"],
    "scan for bytes": ["--scan", "--quoted-pattern", r'"\x*"', "--count", "3"],
    "a script": ["--eval", "script", "text", "absent", ",", "-5", "7.5"],
    "a user": ["--user", "nobody", "--pass", "wrong", "PING"],
    "no such option": ["--nosuch"],
    "cluster of no cluster": ["--cluster", "check", "127.0.0.1:1"],
}
DEBUGGED = b"""local text = redis.call('GET', KEYS[1])
local number = ARGV[1] + ARGV[2]
redis.debug(number, {1, 2, {three = 3}}, "\\0\\255")
local count = redis.call('INCRBY', 'counter', '-9223372036854775807')
return {text, number, count}
"""
DEBUGGER = b"""list
step
print text
step
print
eval 2^53 + 1
redis get number
redis lrange list:integers 0 3
trace
maxlen 20
break 4
break
continue
print number
next
whole
quit
"""
SCRIPT = b"return {KEYS[1], KEYS[2], ARGV[1] + ARGV[2], redis.call('GET', KEYS[1]), #KEYS, #ARGV}\n"


def filled(oracle: Guest, family: str) -> None:
    """Write the data set to the native server."""
    with server.client(oracle) as client:
        # Releases before 7.0 refuse the second one.
        client.pipeline([["FLUSHALL"], ["FUNCTION", "FLUSH"]])
    server.write(oracle, family)


def without_durations(output: bytes) -> bytes:
    """The output without the lines that report the duration of a slow reply."""
    return re.sub(rb"^\(\d+\.\d\ds\)\n", b"", output, flags=re.MULTILINE)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_replies_are_printed_as_on_this_machine(
    programs: Programs, oracle: Guest, family: str, mode: list[str]
) -> None:
    programs.same(
        *("cli", *address(oracle), *mode),
        sent=REQUESTS.lstrip(),
        shown=without_durations,
        before=lambda: filled(oracle, family),
    )


STORED = [
    ["RPUSH", "list", b'a "b" \\', b"\x00\x7f\xff", b"\r\n\t\a\b", b"", str(-(2**63))],
    ["HSET", "hash", "field", "v,w"],
    ["ZADD", "scores", "1.5", "member"],
    ["SET", "number", str(1 - 2**63)],
]
ASKED = b"""LRANGE list 0 -1
LRANGE absent 0 -1
HGETALL hash
ZSCORE scores member
DECR number
INCR number
GET absent
GET list
"""
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


def in_csv(score: str) -> str:
    return rf"""
"a \"b\" \\","\x00\x7f\xff","\r\n\t\a\b","","-9223372036854775808"

"field","v,w"
{score}
-9223372036854775808
-9223372036854775807
NULL
ERROR,"{WRONG_TYPE}"
"""


def for_people(pair: str, score: str) -> str:
    return rf"""
1) "a \"b\" \\"
2) "\x00\x7f\xff"
3) "\r\n\t\a\b"
4) ""
5) "-9223372036854775808"
(empty array)
{pair}
{score}
(integer) -9223372036854775808
(integer) -9223372036854775807
(nil)
(error) {WRONG_TYPE}
"""


PRINTED = {
    "--csv": in_csv(score='"1.5"'),
    "-3 --csv": in_csv(score="1.5"),
    "--no-raw": for_people(pair='1) "field"\n2) "v,w"', score='"1.5"'),
    "-3 --no-raw": for_people(pair='1# "field" => "v,w"', score="(double) 1.5"),
    "--quoted-json": rf"""
["a \\"b\\" \\\\","\\x00\\x7f\\xff","\\r\\n\\t\\a\\b","","-9223372036854775808"]
[]
{{"field":"v,w"}}
1.5
-9223372036854775808
-9223372036854775807
null
error:"{WRONG_TYPE}"
""",
}
"""The client's output for the replies to these commands. In JSON, quotes and backslashes in texts are escaped."""


@pytest.mark.parametrize("mode", PRINTED)
def test_replies_are_printed_as_they_were_stored(programs: Programs, oracle: Guest, mode: str) -> None:
    """The native client may print them wrongly as well, so the replies are compared with what was stored."""
    option = mode.split(maxsplit=1)[0]
    if option in {"-3", "--quoted-json"} and not programs.offers("cli", option):
        pytest.skip(f"the client has no {option}")
    with server.client(oracle) as client:
        client.command("FLUSHALL")
        client.pipeline(STORED)
    output = programs.run("cli", *address(oracle), *mode.split(), sent=ASKED).text
    expected = PRINTED[mode].lstrip()
    if not programs.offers("cli", "-3"):
        # The client's words changed with RESP3.
        expected = expected.replace("(empty array)", "(empty list or set)").replace("NULL", "NIL")
    assert output == expected, output


def without_order(output: bytes) -> bytes:
    """The lines in a fixed order. On big-endian machines the client's table of types has a different order, because
    SipHash is a different function there (docs/found/siphash-byte-order.md).
    """
    return b"\n".join(sorted(output.splitlines()))


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_command_line_does_what_it_does_on_this_machine(
    programs: Programs, oracle: Guest, family: str, line: list[str]
) -> None:
    programs.file("script", SCRIPT)
    filled(oracle, family)
    with server.client(oracle) as client:
        client.command("SET", "text", "some text")
        programs.same(
            *("cli", *address(oracle), *line),
            shown=without_order if "keys" in line[0] else lambda output: output,
            before=lambda: client.command("SET", "counter", "0"),
        )


# `quit` ends the session. If the end of the script did, SIGPIPE would sometimes end the client, on every machine.
@pytest.mark.parametrize("mode", ["--ldb", "--ldb-sync-mode"])
def test_a_script_is_debugged_as_on_this_machine(programs: Programs, oracle: Guest, family: str, mode: str) -> None:
    programs.file("script", DEBUGGED)
    filled(oracle, family)
    with server.client(oracle) as client:
        output = programs.same(
            *("cli", *address(oracle), mode, "--eval", "script", "integer:-1", ",", "-5", "7.5"),
            sent=DEBUGGER,
            before=lambda: client.command("SET", "counter", "0"),
        )
    assert b"-9223372036854775807" in output, output[-1000:]


@pytest.mark.parametrize("option", ["-x", "-X"])
def test_an_argument_comes_from_the_standard_input(programs: Programs, oracle: Guest, option: str) -> None:
    if option == "-X" and not programs.offers("cli", "-X"):
        pytest.skip("the client has no -X")
    content = dataset.noise(70_000)
    words = ["-x", "SET", "input"] if option == "-x" else ["-X", "tag", "SET", "input", "tag"]
    programs.same("cli", *address(oracle), *words, sent=content)
    with server.client(oracle) as client:
        assert client.command("GET", "input") == content


def test_what_is_piped_is_stored(programs: Programs, oracle: Guest, cell: CellSpec, family: str) -> None:
    items = [item for item in dataset.items(cell.version, family) if item.key.database == 0]
    requests = [command for item in items for command in item.commands]
    with server.client(oracle) as client:
        client.command("FLUSHALL")
        result = programs.run("cli", *address(oracle), "--pipe", sent=Client.pack(requests))
        assert f"errors: 0, replies: {len(requests)}" in result.text, result.text
    expected = {item.key: item.entry for item in items}
    lines = differences(server.without_times(expected, cell), server.snapshot(oracle))
    assert not lines, "; ".join(lines[:3])


def test_a_file_that_the_client_fetches_holds_what_was_stored(
    programs: Programs, oracle: Guest, cell: CellSpec, family: str
) -> None:
    filled(oracle, family)
    with server.client(oracle) as client:
        # There is no second replica, so the server must not wait for one.
        client.pipeline([["CONFIG", "SET", "repl-diskless-sync-delay", 0]])
    path = programs.file("fetched.rdb", b"")
    result = programs.run("cli", *address(oracle), "--rdb", str(path))
    assert result.code == 0, result.text[-500:]
    found = rdb.read(path.read_bytes())
    lines = differences(dataset.expected(cell.version, family), found.entries)
    assert not lines, "; ".join(lines[:3])
    if not cell.lacks("command function"):
        programs.run("cli", *address(oracle), "--functions-rdb", str(path))
        found = rdb.read(path.read_bytes())
        assert (found.functions, found.entries) == ([dataset.FUNCTION], {})


def assert_latencies(words: Sequence[str]) -> None:
    """Check the least, the greatest and the average latency in milliseconds, and the number of samples."""
    least, most, average, count = (float(word) for word in words)
    assert 0 <= least <= average <= most < 10_000, words
    assert count > 0, words


def test_latencies_are_measured(programs: Programs, oracle: Guest) -> None:
    output = programs.run("cli", *address(oracle), "--raw", "--latency").text
    assert_latencies(output.split())
    output = programs.run("cli", *address(oracle), "--csv", "--latency").text
    assert_latencies(output.split(","))
    output = programs.run("cli", "--intrinsic-latency", "1").text
    found = re.search(r"(\d+) total runs \(avg latency: ([\d.]+) microseconds / ([\d.]+) nanoseconds per run\)", output)
    assert found, output
    runs, micro, nano = (float(word) for word in found.groups())
    assert 0.5e9 < runs * nano < 5e9, output
    assert abs(micro * 1000 - nano) <= 1, output
