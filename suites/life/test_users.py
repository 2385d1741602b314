"""Users may do what their rules allow, on every machine. Another machine reads the file of users."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from suites._shared.keyspace import server

if TYPE_CHECKING:
    from harness.protocol.resp import Client, Reply
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.paired_servers import PairedServers

ALLOWED = b"OK"
EVERYTHING = ["on", "nopass", "allkeys", "allchannels"]
FILE = "users.acl"
SELECTORS = [
    *("reset", "on", "nopass", "+@hash", "~own:*", "&own:*"),
    *("(%R~read:* +get +strlen +copy)", "(%W~write:* +set +copy)", "(~both:* +@list -lpop)"),
]
ACCESSES = {
    "HSET own:1 f v": True,
    "HSET read:1 f v": False,
    "GET own:1": False,
    "GET read:1": True,
    "GET write:1": False,
    "SET write:1 v": True,
    "SET write:1 v GET": False,
    "SET read:1 v": False,
    "COPY read:1 read:2": False,
    # No selector alone allows both reading the first and writing the second.
    "COPY read:1 write:1": False,
    "RPUSH both:1 v": True,
    "LPOP both:1": False,
    "RPUSH own:1 v": False,
    "PUBLISH own:1 v": False,
}
"""Requests of the user that SELECTORS describe -> whether they are allowed."""


class CommandTable:
    """The commands of a release, except containers of subcommands and commands that everyone may call, such as AUTH."""

    def __init__(self, native: Any) -> None:
        names = sorted(bytes(name).decode() for name in native.command("COMMAND", "LIST"))
        containers = {name.partition("|")[0] for name in names if "|" in name}
        found = {name: native.command("COMMAND", "INFO", name)[0] for name in names if name not in containers}
        self.names = [name for name, about in found.items() if b"no_auth" not in about[2]]
        self._arities = [found[name][1] for name in self.names]

    def trial(self, user: str) -> list[list[str]]:
        """For each command, a request that asks whether the user may call it."""
        return [
            ["ACL", "DRYRUN", user, *words, *["0"] * (abs(arity) - len(words))]
            for words, arity in zip((name.split("|") for name in self.names), self._arities, strict=True)
        ]


@pytest.fixture
def commands(both: PairedServers) -> CommandTable:
    """The release's commands."""
    return CommandTable(both.oracle)


def users_by_bit(commands: CommandTable) -> dict[str, list[str]]:
    """One user for each bit of a command's number. Each may call the commands in whose numbers this bit is set.

    No two commands are allowed to the same users, which distinguishes each bit of the servers' bitmaps from all others.
    """
    most = len(commands.names).bit_length()
    numbered = [(number, name) for number, name in enumerate(commands.names, 1)]
    return {f"bit{bit}": [name for number, name in numbered if number >> bit & 1] for bit in range(most)}


def allowed(replies: list[Reply], commands: CommandTable) -> set[str]:
    return {name for name, reply in zip(commands.names, replies, strict=True) if reply == ALLOWED}


def test_a_user_may_call_what_was_allowed_and_nothing_else(both: PairedServers, commands: CommandTable) -> None:
    for user, names in users_by_bit(commands).items():
        both.ask([["ACL", "SETUSER", user, "reset", *EVERYTHING, *(f"+{name}" for name in names)]])
        assert allowed(both.ask(commands.trial(user)), commands) == set(names)
        both.ask([["ACL", "SETUSER", user, "+@all", *(f"-{name}" for name in names)]])
        assert allowed(both.ask(commands.trial(user)), commands) == set(commands.names) - set(names)
        both.ask([["ACL", "DELUSER", user]])


def test_a_category_allows_the_commands_that_it_lists(both: PairedServers, commands: CommandTable) -> None:
    replies: Any = both.oracle.command("ACL", "CAT")
    for category in sorted(bytes(name).decode() for name in replies):
        listed: Any = both.guest.command("ACL", "CAT", category)
        names = {bytes(name).decode() for name in listed} & set(commands.names)
        both.ask([["ACL", "SETUSER", "user", "reset", *EVERYTHING, f"+@{category}"]])
        assert allowed(both.ask(commands.trial("user")), commands) == names, category
        both.ask([["ACL", "SETUSER", "user", "+@all", f"-@{category}"]])
        assert allowed(both.ask(commands.trial("user")), commands) == set(commands.names) - names, category
    both.ask([["ACL", "DELUSER", "user"]])


def test_each_selector_allows_its_keys_alone(both: PairedServers) -> None:
    both.ask([["ACL", "SETUSER", "user", *SELECTORS]])
    replies = both.ask([["ACL", "DRYRUN", "user", *request.split()] for request in ACCESSES])
    may = {request: reply == ALLOWED for request, reply in zip(ACCESSES, replies, strict=True)}
    assert may == ACCESSES
    both.ask([["ACL", "DELUSER", "user"]])


def test_each_refusal_of_a_password_is_told(guest: Guest) -> None:
    """Since 7.2, a refusal is lost after another reply (docs/FOUND.md). No later reply may take its place."""
    with server.client(guest) as client:
        client.send(client.pack([("PING",), ("AUTH", "nobody", "wrong"), ("AUTH", "nobody", "wrong"), ("ECHO", "end")]))
        replies = [client.receive() for _ in range(2)]
        assert replies[0] == b"PONG"
        assert str(replies[1]).startswith("WRONGPASS"), f"AUTH got no reply; the next reply is {replies[1]!r}"
        assert str(client.receive()).startswith("WRONGPASS")
        assert client.receive() == b"end"


def test_passwords_are_kept_as_their_digests(both: PairedServers, guest: Guest) -> None:
    passwords = [both.some_bytes(length) for length in (1, 54, 55, 56, 63, 64, 65, 119, 120, 1000)]
    digests = [hashlib.sha256(one).hexdigest() for one in passwords]
    both.ask([["ACL", "SETUSER", "user", "reset", "on", "+@all", *(b">" + one for one in passwords)]])
    kept: Any = both.guest.command("ACL", "GETUSER", "user")
    assert [bytes(one).decode() for one in kept[kept.index(b"passwords") + 1]] == digests
    both.ask([["ACL", "SETUSER", "user", b"<" + passwords[0], f"!{digests[1]}", f"#{digests[0]}"]])
    refused = {1}
    for number, password in enumerate(passwords):
        with server.client(guest) as client:
            # One connection for each: some releases send no refusal that follows other requests in the same write.
            reply = client.pipeline([["AUTH", "user", password]])[0]
            assert (reply == ALLOWED) == (number not in refused), f"{number}: {reply!r}"
            reply = client.pipeline([["HELLO", 2, "AUTH", "user", password]])[0]
            assert isinstance(reply, list) == (number not in refused), f"{number}: {reply!r}"
    both.ask([["ACL", "DELUSER", "user"]])


LOGGED = ["count", "reason", "context", "object", "username"]


def test_the_log_tells_each_refusal_once_with_its_reason(both: PairedServers, guest: Guest, oracle: Guest) -> None:
    both.ask([["ACL", "LOG", "RESET"], ["CONFIG", "SET", "acllog-max-len", 6]])
    both.ask(
        [["ACL", "SETUSER", "user", "reset", "on", ">secret", "resetchannels", "~own:*", "&own:*", "+@all", "-set"]]
    )
    script = "return redis.pcall('GET', 'other')['err'] ~= nil"
    stream: list[list[Any]] = [
        ["SET", "own:1", "v"],
        *[["SET", "own:1", "v"]] * 4,
        ["GET", "other"],
        ["PUBLISH", "other", "v"],
        ["EVAL", script, 0],
        ["MULTI"],
        ["GET", "third"],
        ["DISCARD"],
    ]
    logs = []
    for one in (guest, oracle):
        with server.client(one) as client:
            client.pipeline([["AUTH", "user", "wrong"]])
            client.command("AUTH", "user", "secret")
            client.pipeline(stream)
        with server.client(one) as client:
            entries: Any = client.command("ACL", "LOG")
            named = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in entries]
            logs.append([[entry[word.encode()] for word in LOGGED] for entry in named])
    assert logs[0] == logs[1]
    reasons = {(bytes(entry[1]), bytes(entry[2])) for entry in logs[0]}
    assert {(b"channel", b"toplevel"), (b"key", b"lua"), (b"key", b"multi"), (b"key", b"toplevel")} <= reasons
    assert [5, b"command", b"toplevel", b"set", b"user"] in logs[0]
    both.ask([["ACL", "DELUSER", "user"], ["ACL", "LOG", "RESET"], ["CONFIG", "SET", "acllog-max-len", 128]])


def described(client: Client) -> list[list[bytes]]:
    """The words that describe each user, as sets: the order of commands is that of a hash table with a random seed."""
    lines: Any = client.command("ACL", "LIST")
    return [
        sorted(bytes(line).replace(b"(", b"( ").replace(b")", b" )").split()) for line in lines if b"bit" not in line
    ]


def test_a_file_of_users_is_read_on_another_machine(
    companion: str, commands: CommandTable, start_guest: StartGuest
) -> None:
    options, empty = ["--aclfile", FILE], {FILE: b""}
    writer = start_guest(options=options, files=empty)
    users = users_by_bit(commands)
    with server.client(writer) as client:
        for user, names in users.items():
            client.command("ACL", "SETUSER", user, *EVERYTHING, *(f"+{name}" for name in names))
        client.command("ACL", "SETUSER", "digests", ">secret", ">", "off", "~\x01*")
        client.command("ACL", "SETUSER", "selectors", *EVERYTHING, "(%R~read:* +get)")
        assert client.command("ACL", "SAVE") == b"OK"
        written = described(client)
    reader = start_guest(target=companion, options=options, files={FILE: writer.read(FILE)})
    with server.client(reader) as client:
        assert described(client) == written
        for user, names in users.items():
            assert allowed(client.pipeline(commands.trial(user)), commands) == set(names), user
        client.command("ACL", "DELUSER", *users)
        assert client.command("ACL", "LOAD") == b"OK"
        assert described(client) == written
