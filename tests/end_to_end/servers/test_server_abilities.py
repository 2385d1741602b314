"""A server's own answers decide which tests it gets, and not its release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.sources.source_tree import open_tree
from harness.build.sources.tree_files import copy_tree
from harness.core.target_model import ORACLE
from harness.workflows.server_abilities import with_abilities
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.model import Abilities, SourceTree

pytestmark = pytest.mark.end_to_end


def asked(tree: SourceTree) -> Abilities:
    return with_abilities(machines.quiet_workbench(), tree, machines.build(tree, ORACLE)).abilities


@pytest.mark.parametrize(
    ("release", "has", "lacks"),
    [
        (
            "redis-3.2.6",
            ["command bitfield", "info cluster_enabled", "info maxmemory", "form EVAL struct", "command debug|sleep"],
            ["command xadd", "command module", "option io-threads", "info master_replid", "form RESTORE IDLETIME"],
        ),
        (
            "redis-7.0.15",
            [
                *("command xinfo|stream", "command acl|dryrun", "command debug|replybuffer", "option io-threads"),
                # CONFIG GET with a pattern leaves it out.
                "option list-max-ziplist-size",
                *("info lazyfreed_objects", "form SHUTDOWN ABORT", "form RESTORE ABSTTL", "form COMMAND DOCS"),
                "api RedisModule_RegisterNumericConfig",
            ],
            [
                *("command waitaof", "command config|none", "command debug|none", "option events-per-io-thread"),
                "api RedisModule_RegisterAuthCallback",
            ],
        ),
    ],
)
def test_a_release_says_what_it_can_do(release: str, has: list[str], lacks: list[str]) -> None:
    found = asked(machines.quiet_workbench().open_server(release))
    assert found.asked
    assert found.lacks(has) == ""
    assert [need for need in lacks if not found.lacks([need])] == []


def test_a_server_that_ends_at_once_is_described_by_its_source(tmp_path: Path) -> None:
    tree = machines.quiet_workbench().open_server("redis-7.0.15")
    build = msgspec.structs.replace(machines.build(tree, ORACLE), key="none of that key", tls=False)
    cannot_start = msgspec.structs.replace(build, server_binary=tmp_path / "redis-server")
    cannot_start.server_binary.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    cannot_start.server_binary.chmod(0o755)
    found = with_abilities(machines.quiet_workbench(), tree, cannot_start)
    assert found.abilities == tree.abilities
    assert not found.abilities.asked


@pytest.mark.slow(instead="tests/unit/build/test_tree_features.py; test_a_release_says_what_it_can_do")
def test_a_tree_of_an_old_number_with_a_new_command_gets_the_commands_tests(tmp_path: Path) -> None:
    """redis-7.0.15 that calls itself 6.0.0: its version number would skip what it has."""
    tree = tmp_path / "redis"
    copy_tree(machines.release("redis-7.0.15"), tree)
    header = tree / "src" / "version.h"
    header.write_text('#define REDIS_VERSION "6.0.0"\n#define REDIS_VERSION_NUM 0x00060000\n', "utf-8")
    assert open_tree(tree).version == (6, 0, 0)
    words = ["--target", "native", "--suite", "width", "--test", "absolute_time_of_restore", "--seed", "1"]
    answer = document(run("check", "--server", tree, *words, "--json", "--run", tmp_path / "run"))
    assert answer["verdict"] == "PASS"
    (cell,) = [cell for cell in answer["cells"] if cell["suite"] == "width"]
    assert (cell["passed"], cell["skipped"]) == (1, 0)
