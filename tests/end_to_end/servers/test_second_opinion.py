"""A server that a change alters on every machine passes with a note. What only one machine does fails beside it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from harness.judge.verdict import EVERYWHERE
from harness.workflows.cells.cell_runs import EARLIER_CLIENTS
from tests.end_to_end.support.changed_checkouts import edit, premerge
from tests.end_to_end.support.machines import release
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

COUNT = "        addReplyLongLong(c,count);"
OTHER_COUNT = "        addReplyLongLong(c,count + (count == 3));"
POSITION = "        addReplyLongLong(c,pos);"
POSITION_ON_32_BITS = "        plumblineAsked = 1; addReplyLongLong(c,pos + (pos == 9 && sizeof(long) == 4));"
STATE = "/* SETBIT key offset bitvalue */"
OLD_BIT = "    bitval = byteval & (1 << bit);"
AFTER_BITPOS = (
    (STATE, f"static int plumblineAsked;\n{STATE}"),
    (OLD_BIT, f"{OLD_BIT}\n    if (plumblineAsked && bitoffset > 9) bitval = !bitval;"),
)
"""After a request for BITPOS, SETBIT returns the wrong bit on every machine."""
AUTHENTICATE = "void authCommand(client *c) {"
STATIC_CRASH = f"""static void __attribute__((noinline)) plumblineStatic(volatile char *at) {{ *at = 1; }}
{AUTHENTICATE}
    plumblineStatic(NULL);"""


def changed(tmp_path: Path, *edits: tuple[str, str]) -> Path:
    tree = tmp_path / "my-redis"
    shutil.copytree(release("redis-7.0.15"), tree)
    for anchor, replacement in edits:
        edit(tree / "src" / "bitops.c", anchor, replacement)
    return tree


def _reproducer(finding: dict[str, str]) -> str:
    """A finding's reproducer, by its place in the run folder: the last word of the command that replays it."""
    return "reproducers/" + finding["replay"].rpartition("/")[2].rstrip("'")


@pytest.mark.slow(
    instead=(
        "test_a_crash_of_a_static_function_that_the_host_shares_fails_no_check; tests/unit/judge/test_second_opinion.py"
    )
)
def test_a_reply_that_is_changed_on_every_machine_fails_no_check_and_another_on_32_bits_does(tmp_path: Path) -> None:
    tree = changed(tmp_path, *AFTER_BITPOS, (COUNT, OTHER_COUNT), (POSITION, POSITION_ON_32_BITS))
    words = ("--server", tree, "--suite", "bitops", "--target", "armv5", "--run", tmp_path / "armv5", "--json")
    finished = run("check", *words)
    found = document(finished)["findings"]
    asked = "SETBIT", "BITPOS", "BITCOUNT"
    scopes = {next(word for word in asked if word in one["title"]): (one["scope"], one["known"]) for one in found}
    everywhere = "everywhere", EVERYWHERE
    assert scopes == {"SETBIT": everywhere, "BITCOUNT": everywhere, "BITPOS": ("machine", "")}, found
    assert finished.returncode == ExitCode.FINDINGS
    alone = [one for one in found if "SETBIT" not in one["title"]]
    hosts = {one["scope"]: document(run("replay", tmp_path / "armv5" / _reproducer(one), "--json")) for one in alone}
    assert [(hosts[scope]["outcome"], hosts[scope]["host"]) for scope in ("everywhere", "machine")] == [
        ("reproduced", "reproduced"),
        ("reproduced", "gone"),
    ]


@pytest.mark.slow(
    instead=(
        "test_a_crash_of_a_static_function_that_the_host_shares_fails_no_check; tests/unit/judge/test_second_opinion.py"
    )
)
def test_on_64_bits_the_same_tree_differs_from_the_host_in_nothing(tmp_path: Path) -> None:
    tree = changed(tmp_path, *AFTER_BITPOS, (COUNT, OTHER_COUNT), (POSITION, POSITION_ON_32_BITS))
    words = ("check", "--server", tree, "--suite", "bitops", "--json", "--target", "aarch64")
    finished = run(*words, "--run", tmp_path / "aarch64")
    assert {one["scope"] for one in document(finished)["findings"]} == {"everywhere"}
    assert finished.returncode == ExitCode.PASS, finished.stderr
    finished = run(*words, "--everywhere", "fail", "--run", tmp_path / "strict")
    assert finished.returncode == ExitCode.FINDINGS, finished.stderr
    finished = run(*words, "--everywhere", "off", "--run", tmp_path / "alone")
    assert {one["scope"] for one in document(finished)["findings"]} == {"machine"}
    assert not list((tmp_path / "alone").glob("*/*/host-*")), "the native build was asked"


def test_a_crash_of_a_static_function_that_the_host_shares_fails_no_check(tmp_path: Path) -> None:
    """The host's crash report has only the address of such a function."""
    tree = changed(tmp_path)
    edit(tree / "src" / "acl.c", AUTHENTICATE, STATIC_CRASH)
    words = ("check", "--server", tree, "--suite", "life", "--test", "refusal_of_a_password", "--target", "armv5")
    finished = run(*words, "--json", "--run", tmp_path / "run")
    crashed = [one for one in document(finished)["findings"] if one["function"] == "plumblineStatic"]
    assert [(one["kind"], one["scope"], one["known"]) for one in crashed] == [("sigsegv", "everywhere", EVERYWHERE)]
    cells = (tmp_path / "run" / "armv5" / "life").glob("host-*/cell.json")
    earlier = [json.loads(cell.read_text("utf-8"))["earlier_clients"] for cell in cells]
    assert sorted(earlier)[:3] == [0, EARLIER_CLIENTS, 2 * EARLIER_CLIENTS], "counts of clients differ by chance"


@pytest.mark.slow(
    instead=(
        "test_a_crash_of_a_static_function_that_the_host_shares_fails_no_check; tests/unit/judge/test_second_opinion.py"
    )
)
def test_a_pre_merge_check_passes_a_reply_that_is_changed_on_every_machine(checkout: Path) -> None:
    edit(checkout / "src" / "bitops.c", COUNT, OTHER_COUNT)
    code, judgement, errors = premerge(checkout, checkout.with_name("run"), "--suite", "bitops")
    assert {one["known"] for one in judgement["findings"]} == {EVERYWHERE}, errors
    assert code == ExitCode.PASS, errors
