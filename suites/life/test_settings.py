"""What CONFIG SET accepts, CONFIG GET returns and CONFIG REWRITE writes. Another machine must read the same values."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from harness.core.target_model import ORACLE
from suites._shared.keyspace import server
from suites._shared.paired_servers import differing

if TYPE_CHECKING:
    from harness.protocol.resp import Client, Reply
    from harness.run.cell_spec import CellSpec
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest

FILE = "server.conf"
START = b"""# A comment that remains.
maxmemory 100mb
hz 20
# The test would change a number of bytes as it changes all numbers, and evict its own client.
maxmemory-clients 70%

save 900 1
client-output-buffer-limit pubsub 1gb 8mb 60
user someone on nopass ~key:* +@all
"""
LEFT = {
    "bind": "the test's own address",
    "*port": "the test's own address",
    "dir": "the server's own folder",
    "*file*": "names of files in that folder, and of certificates",
    "unixsocket*": "the test's own address",
    "save": "the command line has it too",
    "maxclients": "it depends on how many files the machine lets a process open",
    "ignore-warnings": "some emulators need it",
    "watchdog-period": "an emulated server would report many slow commands",
    "appendonly": "the server would write its data",
    "replicaof": "there is no primary",
    "requirepass": "the test's own client would need it",
    "rdma-*": "no machine has the device",
    "tls-*": "some of them crash a server without TLS: a separate test changes these",
}
"""Globs of parameters that no test changes, or reads on another machine -> the reason."""
WIDE = {
    "maxmemory": ["4294967299", "5gb", "1099511627775"],
    "maxmemory-clients": ["1gb", "71%"],
    "auto-aof-rewrite-min-size": ["5gb", "4294967299"],
    "cluster-node-timeout": ["4294967299"],
    "cluster-link-sendbuf-limit": ["6gb"],
    "repl-backlog-size": ["4294967299"],
    "slowlog-log-slower-than": ["4294967299", "-1"],
    "stream-node-max-entries": ["4294967299"],
    "latency-monitor-threshold": ["4294967299"],
    "timeout": ["2147483647"],
    "tcp-keepalive": ["2147483647"],
    "list-max-listpack-size": ["-2147483648"],
    "client-output-buffer-limit": [
        "normal 8589934591 6442450943 2147483647",
        "normal 5gb 2gb 60 replica 1gb 4294967299 1 pubsub 0 0 0",
    ],
    "latency-tracking-info-percentiles": ["50 99.99 0.1"],
    "notify-keyspace-events": ["KEA", "Kg$lshzxe"],
    "oom-score-adj-values": ["-1000 0 1000"],
    "shutdown-on-sigterm": ["save now force"],
}
"""Parameter -> values that exceed 32 bits but are valid on 32-bit machines, or that consist of several words."""
TRIED = ["4294967299", "2147483648", "2147483647", "4294967295", "-1", "-2147483649", "5gb", "3g", "1kb", "7k", "1tb"]
TRIED += ["0x10", "1e3", "1.5", "99999999999999999999", "18446744073709551615", "9223372036854775807", "1b", "1 b", "x"]
"""Values to try for each numeric parameter."""
TEXT = 'a "quoted" \\ word\t\xe4'
_RANGE = re.compile(r"must be between .*")


def left(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in LEFT)


def settings(client: Client, names: str = "*") -> dict[str, str]:
    """Parameter -> value, from CONFIG GET."""
    found: Any = client.command("CONFIG", "GET", names)
    words = [bytes(word).decode("latin-1") for word in found]
    return dict(zip(words[::2], words[1::2], strict=True))


def shown(reply: Reply) -> str:
    """A reply as text, without the limits of numbers, which depend on the machine's width."""
    return _RANGE.sub("…", str(reply)) if isinstance(reply, hiredis.ReplyError) else repr(reply)


def reply_to(client: Client, *words: str) -> str:
    return shown(client.pipeline([words])[0])


def others(client: Client) -> dict[str, str]:
    """Parameter -> a value that it does not have: the next number, the opposite of yes or no, another of the words that
    a refusal lists, or TEXT. A parameter that accepts any text keeps TEXT.
    """
    found = {}
    for name, value in settings(client).items():
        if left(name) or name in WIDE:
            continue
        if value in {"yes", "no"}:
            found[name] = "no" if value == "yes" else "yes"
        elif value.lstrip("-").isdigit():
            found[name] = str(int(value) + 1)
        else:
            reply = reply_to(client, "CONFIG", "SET", name, TEXT)
            listed = re.search(r"one of the following: (.*)", reply)
            found[name] = next(word for word in listed[1].split(", ") if word != value) if listed else TEXT
    return found


@pytest.fixture
def twins(start_guest: StartGuest) -> dict[str, Guest]:
    """A guest and a native server, each with a configuration file."""
    return {target: start_guest(target=target, options=[FILE], files={FILE: START}) for target in ("", ORACLE)}


def kept(guest: Guest) -> list[str]:
    """The lines of the server's configuration file, without those that depend on its folder or address."""
    lines = guest.read(FILE).decode("latin-1").splitlines()
    # The order of appended lines is that of a hash table with a random seed.
    return sorted(line for line in lines if (line and not left(line.split()[0])) or line.startswith("save "))


def test_settings_that_are_rewritten_are_read_on_another_machine(
    companion: str, twins: dict[str, Guest], cell: CellSpec, start_guest: StartGuest
) -> None:
    guest, native = twins.values()
    own = cell.runner.target.name
    with server.client(guest) as client, server.client(native) as reference:
        changes = [*others(reference).items(), *((name, values[0]) for name, values in WIDE.items())]
        changes.append(("save", "3600 1 2147483647 2147483647"))
        for name, value in changes:
            words = ("CONFIG", "SET", name, value)
            ours, theirs = (reply_to(one, *words) for one in (client, reference))
            if ours != theirs:
                raise differing(words, ours.encode(), theirs.encode(), own)
        values, expected = settings(client), settings(reference)
        for name in expected:
            if not left(name) and values[name] != expected[name]:
                raise differing(("CONFIG", "GET", name), values[name].encode(), expected[name].encode(), own)
        changed = [name for name, value in changes if expected.get(name) != value]
        assert len(changed) < len(changes) / 2, f"most of {len(changes)} changes were refused"
        for one in (client, reference):
            assert one.command("CONFIG", "REWRITE") == b"OK"
    assert kept(guest) == kept(native)
    reader = start_guest(target=companion, options=[FILE], files={FILE: guest.read(FILE)})
    with server.client(reader) as client:
        found = settings(client)
    wrong = [name for name in values if not left(name) and found[name] != values[name]]
    assert not wrong, "; ".join(f"{name} {found[name]}, and {values[name]} on {own}" for name in wrong)


def test_a_file_with_every_setting_is_read_on_another_machine(
    companion: str, start_guest: StartGuest, cell: CellSpec
) -> None:
    guest = start_guest(options=[FILE], files={FILE: START})
    with server.client(guest) as client:
        values = settings(client)
        assert client.command("DEBUG", "CONFIG-REWRITE-FORCE-ALL") == b"OK"
    content = guest.read(FILE)
    names = {line.split()[0] for line in content.decode("latin-1").splitlines() if line and not line.startswith("#")}
    missing = [name for name in values if name not in names and values[name] and not left(name)]
    assert len(missing) < len(values) / 4, missing
    # The reader must use the folder and address on its own command line, not those of this server.
    own = [line for line in content.split(b"\n") if not line or not left(line.split()[0].decode("latin-1"))]
    reader = start_guest(target=companion, options=[FILE], files={FILE: b"\n".join(own)})
    with server.client(reader) as client:
        found = settings(client)
    wrong = [name for name in values if not left(name) and found[name] != values[name]]
    own_name = cell.runner.target.name
    assert not wrong, "; ".join(f"{name} {found[name]}, and {values[name]} on {own_name}" for name in wrong)


def test_a_number_is_kept_whole_or_refused(twins: dict[str, Guest], cell: CellSpec) -> None:
    """On a 32-bit machine, a parameter may refuse values that the native build accepts. Accepted values are kept."""
    guest, native = twins.values()
    own, narrow = cell.runner.target.name, cell.runner.target.width_bits == 32
    with server.client(guest) as client, server.client(native) as reference:
        present = settings(reference)
        tried = {name: TRIED for name, value in present.items() if value.lstrip("-").isdigit() and not left(name)}
        wrong: dict[str, tuple[list[str], str, str]] = {}
        for name, values in (tried | WIDE).items():
            every = [*values, *TRIED] if name in tried else values
            for value in every:
                # Each trial begins with the parameter's former value.
                asked = [["CONFIG", "SET", name, value], ["CONFIG", "GET", name]]
                asked.append(["CONFIG", "SET", name, present.get(name, "")])
                ours, theirs = (list(map(shown, one.pipeline(asked))) for one in (client, reference))
                if narrow and ours[0].endswith("…"):
                    continue
                for here, there in zip(ours, theirs, strict=True):
                    if here != there:
                        wrong.setdefault(name, (asked[0], here, there))
    if wrong:
        lines = [f"{' '.join(words)}: {here}, native {there}" for words, here, there in wrong.values()]
        words, here, there = next(iter(wrong.values()))
        message = f"{len(wrong)} parameters differ: {'; '.join(lines[:3])}"
        raise differing(words, here.encode(), there.encode(), own, message)


@pytest.mark.parametrize("words", [("tls-cluster", "yes"), ("tls-replication", "yes"), ("tls-port", "1")])
def test_a_server_without_tls_survives_its_settings(words: tuple[str, str], start_guest: StartGuest) -> None:
    """The server may refuse or accept them."""
    with server.client(start_guest()) as client:
        client.pipeline([("CONFIG", "SET", *words)])
        assert client.command("PING") == b"PONG"
