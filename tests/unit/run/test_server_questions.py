"""What a server answers becomes its abilities, in the forms of every era."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.protocol.resp import ReplyError
from harness.run import server_questions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.model import Abilities
    from harness.protocol.resp import Reply

UNKNOWN = ReplyError("ERR unknown command")
INFO = b"# Server\r\nredis_version:7.0.15\r\nmaster_replid:1\r\n"


class Replies:
    """Replies to requests by their words, case ignored; to others, an unknown command."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self.replies = replies

    def pipeline(self, requests: list[tuple[str, ...]]) -> list[Reply]:
        return [self.replies.get(" ".join(request).upper(), UNKNOWN) for request in requests]


def ask(replies: Mapping[str, Any], *words: str) -> Abilities:
    return server_questions.ask(Replies(replies), words=words, api=())  # type: ignore[arg-type]


def row(name: str, *inner: list[Any]) -> list[Any]:
    return [name.encode(), 2, [], 0, 0, 0, [], [], [], list(inner)]


def test_subcommands_are_listed_since_seven() -> None:
    commands = [row("config", row("config|get"), row("config|set")), row("set")]
    assert ask({"COMMAND": commands}).commands == ("config", "config|get", "config|set", "set")


@pytest.mark.parametrize(
    "lines",
    [
        [b"DEBUG <subcommand> arg arg ... arg. Subcommands are:", b"JMAP -- Dump.", b"SLEEP <seconds> -- Stop."],
        [b"DEBUG <subcommand> [<arg> ...]. Subcommands are:", b"JMAP", b"    Dump.", b"SLEEP <seconds>", b"    Stop."],
    ],
    ids=["one line each", "explained on lines of their own"],
)
def test_other_subcommands_are_those_of_the_containers_help(lines: list[bytes]) -> None:
    old = [[b"debug", -2, [], 0, 0, 0], [b"get", 2, [], 1, 1, 1]]
    assert ask({"COMMAND": old, "DEBUG HELP": lines}).commands == ("debug", "debug|jmap", "debug|sleep", "get")


def test_hidden_parameters_are_asked_by_name() -> None:
    replies = {"CONFIG GET *": [b"port", b"1"], "CONFIG GET HIDDEN": [b"hidden", b"no"], "CONFIG GET YES": []}
    assert ask(replies, "hidden", "yes").options == ("hidden", "port")


def test_fields_of_info_are_known() -> None:
    assert ask({"INFO ALL": INFO}).fields == ("master_replid", "redis_version")


@pytest.mark.parametrize(
    ("reply", "understood"),
    [
        (ReplyError("ERR syntax error"), False),
        (ReplyError("ERR unknown command 'RESTORE', with args beginning with: 'none'"), False),
        (ReplyError("ERR wrong number of arguments for 'restore' command"), False),
        (ReplyError("ERR DUMP payload version or checksum are wrong"), True),
        (b"OK", True),
    ],
)
def test_a_form_is_understood_unless_its_words_are_refused(reply: Reply, understood: bool) -> None:
    found = ask({"RESTORE NONE 0 PAYLOAD IDLETIME 1": reply}).forms
    assert ("RESTORE IDLETIME" in found) == understood


def test_old_servers_without_a_table_have_no_commands_here() -> None:
    found = ask({})
    assert found.asked
    assert found.commands == found.forms == found.fields == ()
