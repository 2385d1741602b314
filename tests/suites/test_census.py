"""The list of commands that no request contains is exact, and the suites that it names send these commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from suites._shared.census import documented, names_only
from suites.visible import census, table

if TYPE_CHECKING:
    from harness.protocol.resp import Reply

SUITES = ROOT / "suites"
UNASKED = [
    pytest.param(command, option, one.suites, id=f"{command} {option}".strip())
    for one in table.requests().unasked
    if one.suites
    for command, options in [*((name, [""]) for name in one.commands), *one.options.items()]
    for option in options
]
READ = {".py", ".testsuite", ".toml"}
"""Suffixes of files with requests."""
DOCUMENTS: Reply = [
    b"get",
    [b"summary", b"Returns a value.", b"arguments", [[b"name", b"key", b"type", b"key"]]],
    b"set",
    [
        b"arguments",
        [
            [b"name", b"key", b"type", b"key"],
            [
                b"name",
                b"expiration",
                b"type",
                b"oneof",
                b"arguments",
                [[b"name", b"seconds", b"token", b"EX"], [b"name", b"keepttl", b"token", b"KEEPTTL"]],
            ],
        ],
    ],
    b"client",
    [b"subcommands", [b"client|invented", [b"arguments", [[b"name", b"x", b"token", b"NEWLY"]]], b"client|id", []]],
    b"invented",
    [],
]


def test_a_servers_documentation_lists_its_commands_subcommands_and_options() -> None:
    assert documented(DOCUMENTS) == {
        "GET": set(),
        "SET": {"EX", "KEEPTTL"},
        "CLIENT INVENTED": {"NEWLY"},
        "CLIENT ID": set(),
        "INVENTED": set(),
    }


def test_new_commands_of_a_release_are_reported_as_missing() -> None:
    known = documented(DOCUMENTS)
    known["SET"].add("NEWER")
    known["CLIENT KILL"] = {"ID", "OLDEST"}
    assert census.missing(known) == ["CLIENT INVENTED", "INVENTED", "CLIENT KILL OLDEST", "SET NEWER"]


def test_a_table_without_subcommands_matches_the_listed_subcommands() -> None:
    assert census.missing(names_only([[b"get"], [b"cluster"], [b"invented"]])) == ["INVENTED"]


def test_no_requested_command_is_listed_as_unasked() -> None:
    unasked = {name: set[str]() for one in table.requests().unasked for name in one.commands}
    assert not set(census.asked(unasked)) & set(unasked)
    options = {name: set(words) for one in table.requests().unasked for name, words in one.options.items()}
    asked = census.asked(options)
    assert not {name: options[name] & asked[name] for name in options if name in asked and options[name] & asked[name]}


@pytest.mark.parametrize(("command", "option", "suites"), UNASKED)
def test_the_suite_that_is_named_for_a_command_contains_it(command: str, option: str, suites: list[str]) -> None:
    assert set(suites) <= set(Catalog().suites)
    name = r"""["'\s,]{1,4}""".join(map(re.escape, command.split()))
    words = re.compile(rf"\b{name}\b" + (rf".*\W{re.escape(option)}(?!\w)" if option else ""))
    for suite in suites:
        texts = [path.read_text("utf-8") for path in (SUITES / suite).rglob("*") if path.suffix in READ]
        assert any(words.search(line) for text in texts for line in text.splitlines()), f"{suite}: {words.pattern}"
