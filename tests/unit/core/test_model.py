"""The model's rules: deadlines grow with a target's slowdown, and a suite needs certain servers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.core.model import Abilities, Suite
from tests.support import fakes


@pytest.mark.parametrize(("slowdown", "expected"), [(1, 10), (3, 10), (4, 40 / 3), (15, 50), (30, 100)])
def test_a_short_tasks_deadline_grows_only_beyond_its_margin(slowdown: float, expected: float) -> None:
    assert fakes.target(slowdown=slowdown).deadline_seconds(10.0) == pytest.approx(expected)


ABILITIES = Abilities(
    commands=("config", "config|get", "debug", "set"),
    options=("io-threads",),
    fields=("master_replid",),
    forms=("RESTORE IDLETIME",),
    api=("RedisModule_Scan",),
    asked=True,
)


@pytest.mark.parametrize(
    ("need", "met"),
    [
        ("command set", True),
        ("command get", False),
        ("command config|get", True),
        ("command config|rewrite", False),
        # The server lists no subcommand of DEBUG.
        ("command debug|sleep", True),
        ("command xinfo|stream", False),
        ("option io-threads", True),
        ("option port", False),
        ("info master_replid", True),
        ("info maxmemory", False),
        ("form RESTORE IDLETIME", True),
        ("form RESTORE ABSTTL", False),
        ("api RedisModule_Scan", True),
        ("api RedisModule_Call", False),
    ],
)
def test_a_need_is_met_by_what_the_server_said(need: str, met: bool) -> None:
    assert ABILITIES.lacks([need]) == ("" if met else need)
    assert ABILITIES.lacks(["command set", need, "command get"]) == ("command get" if met else need)


def test_what_nobody_could_ask_counts_as_met() -> None:
    of_source = Abilities(commands=("set",), options=("port",))
    assert not of_source.lacks(["info maxmemory", "form RESTORE IDLETIME", "api RedisModule_Scan"])
    assert of_source.lacks(["option io-threads"])
    assert of_source.lacks(["command get"])
    # A source without a table of commands says nothing about them.
    assert not Abilities().lacks(["command get"])


def test_a_need_of_another_kind_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no such kind of need: since 7"):
        ABILITIES.lacks(["since 7"])


@pytest.mark.parametrize(
    ("needs", "family", "why"),
    [
        ((), "", ""),
        (("command set", "file src/tls.c"), "redis", ""),
        (("command set", "option tls-port"), "redis", "the server lacks what it tests: option tls-port"),
        (("file src/io_threads.c",), "redis", "the server's source has no src/io_threads.c"),
        ((), "valkey", "only Valkey has what it tests"),
    ],
)
def test_a_suite_gives_the_reason_why_a_server_lacks_its_features(
    tmp_path: Path, needs: tuple[str, ...], family: str, why: str
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tls.c").touch()
    suite = msgspec.structs.replace(
        Suite(name="one", title="", path=Path(), needs_server=True), needs=needs, family=family
    )
    tree = msgspec.structs.replace(fakes.opened(tmp_path), abilities=ABILITIES)
    assert suite.absent_from(tree) == why
