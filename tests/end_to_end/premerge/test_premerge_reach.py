"""Before a merge, on a real checkout, the tests that a change cannot reach are omitted, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness.build.sources.source_tree import with_newer
from harness.core.errors import ExitCode
from harness.core.strict_toml import ROOT
from harness.record.run_folder import read_run
from tests.end_to_end.support.changed_checkouts import UNITS, commit, edit, premerge, unentered
from tests.end_to_end.support.machines import build, quiet_workbench
from tests.end_to_end.support.plumb_runs import document, run

pytestmark = pytest.mark.end_to_end

BITOP = "void bitopCommand(client *c) {\n"
BITOPS = ("--suite", "bitops")
REACHING = (*BITOPS, "--suite", "units")
LEFT = "tests not run, because they do not reach the changed code"


def first_run(checkout: Path, tmp_path: Path) -> tuple[Path, int, dict[str, Any]]:
    """A premerge of a change, in which all tests run: the changed file, a number in the change, the judgement.

    The number makes the tree different in each run, so the cache has nothing of it.
    """
    source = checkout / "src" / "bitops.c"
    unique = 100_000 + time.time_ns() % 1_000_000_000
    edit(source, BITOP, BITOP + f"    if (c->argc == {unique}) return;\n")
    code, first, errors = premerge(checkout, tmp_path / "first", *REACHING)
    assert (code, first["left_out"]) == (ExitCode.PASS, 0), errors
    return source, unique, first


@pytest.mark.slow(
    instead=(
        "tests/unit/workflows/test_reached_tests.py, which chooses tests by recorded functions; "
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named, which records them"
    )
)
def test_tests_that_a_change_cannot_reach_are_omitted_and_its_bug_is_still_found(
    checkout: Path, tmp_path: Path
) -> None:
    source, unique, first = first_run(checkout, tmp_path)
    assert not any(LEFT in remark for remark in first["remarks"])

    # One line more: the numbers of the assertions behind it are in the code, and say nothing about what it does.
    line = f"    if (c->argc == {unique}) return;\n"
    edit(source, line, line + f"    if (c->argc == {unique} + 1) return;\n")
    code, second, errors = premerge(checkout, tmp_path / "second", *REACHING)
    assert code == ExitCode.PASS, errors
    ran = {cell["suite"]: cell["passed"] for cell in second["cells"]}
    all_of = {cell["suite"]: cell["passed"] for cell in first["cells"]}
    assert 0 < ran["bitops"] < all_of["bitops"]
    # The change reaches no unit. The units that fail on this target have known findings, and would only fail again.
    assert ran["units"] == 0
    (units,) = [cell for cell in second["cells"] if cell["suite"] == "units"]
    assert (units["verdict"], units["failed"], units["skipped"]) == ("SKIP", 0, 0)
    assert any(finding["witnesses"][0]["suite"] == "units" for finding in first["findings"])
    assert ran["canary"] == all_of["canary"]
    (others,) = [cell["failed"] + cell["skipped"] for cell in first["cells"] if cell["suite"] == "units"]
    assert second["left_out"] == sum(all_of.values()) - sum(ran.values()) + others
    (remark,) = [one for one in second["remarks"] if LEFT in one]
    assert f"{LEFT} (bitopCommand) and ended as expected in {tmp_path / 'first'}: " in remark
    assert f"not running {second['left_out']} tests that the change cannot reach" in errors

    head = "long redisBitpos(void *s, unsigned long count, int bit) {"
    edit(source, head, head + " (void)*(volatile int *)((char *)s + 1);")
    code, planted, errors = premerge(checkout, tmp_path / "planted", *REACHING)
    assert code == ExitCode.FINDINGS, errors
    assert planted["left_out"] > 0
    assert {one["function"] for one in planted["findings"] if not one["known"]} == {"redisBitpos"}


@pytest.mark.slow(instead="tests/unit/workflows/test_reached_tests.py")
def test_tests_are_omitted_only_with_regard_to_a_run_of_the_same_request_that_passed(
    checkout: Path, tmp_path: Path
) -> None:
    source, unique, first = first_run(checkout, tmp_path)
    all_of = {cell["suite"]: cell["passed"] for cell in first["cells"]}

    # Only the native build changes; the tests enter no changed function on the target.
    stores = "void setUnsignedBitfield(unsigned char *p, uint64_t offset, uint64_t bits, uint64_t value) {"
    elsewhere = " if (sizeof(long) == 8 && bits == 7) return;"
    edit(source, stores, stores + elsewhere)
    edit(source, f"== {unique}", f"== {unique} + 9")
    code, parted, errors = premerge(checkout, tmp_path / "parted", *REACHING)
    assert code == ExitCode.FINDINGS, errors
    assert parted["left_out"] > 0
    assert {one["kind"] for one in parted["findings"] if not one["known"]} == {"wrong-result"}
    edit(source, elsewhere, "")
    edit(source, f"== {unique} + 9", f"== {unique} + 1")

    # Failed runs are not kept, so the next run is compared with the one that passed. Other suites do not matter.
    edit(source, f"== {unique} + 1", f"== {unique} + 2")
    code, alone, errors = premerge(checkout, tmp_path / "alone", *BITOPS)
    assert code == ExitCode.PASS, errors
    assert alone["left_out"] == all_of["bitops"] - alone["cells"][1]["passed"] > 0

    # A different seed makes different tests. With a different list of known findings the expected results are unknown.
    # A fixed seed would equal that of an earlier run of this test, whose kept cells also count.
    listed = (ROOT / "ci" / "known.toml").read_text("utf-8")
    other = tmp_path / "known.toml"
    other.write_text(f'{listed}\n[[findings]]\nid = "none"\nreason = "a test"\nexpires = 2099-01-01\n', "utf-8")
    otherwise = {"all": ["--all-tests"], "seed": ["--seed", str(unique)], "known": ["--known", str(other)]}
    for name, options in otherwise.items():
        code, whole, errors = premerge(checkout, tmp_path / name, *BITOPS, *options)
        assert (code, whole["left_out"]) == (ExitCode.PASS, 0), errors


@pytest.mark.slow(instead="tests/unit/workflows/test_reached_tests.py")
def test_late_code_is_found_although_the_tests_that_reached_it_do_not_reach_it_again(
    checkout: Path, tmp_path: Path
) -> None:
    """The function was attributed to the tests that ran when its timer expired. Alone, these tests end before that."""
    source, server = checkout / "src" / "bitops.c", checkout / "src" / "server.c"
    unique = 100_000 + time.time_ns() % 1_000_000_000
    head = "void call(client *c, int flags) {\n"
    due = "    if (server.stat_numcommands == 3000) { static long long at[2]; plumbTick((char *)at); }\n"
    edit(server, head, f"void plumbTick(char *at);\n{head}{due}")
    tick = f"void plumbTick(char *at) {{ if (server.hz == {unique}) at[1] = 1; }}\n"
    edit(source, BITOP, f"{tick}{BITOP}")
    commit(checkout)
    edit(source, f"== {unique})", f"== {unique} + 1)")
    code, first, errors = premerge(checkout, tmp_path / "first", "--suite", "bitops")
    assert (code, first["left_out"]) == (ExitCode.PASS, 0), errors

    edit(source, f"== {unique} + 1) at[1] = 1;", f"!= {unique} + 2) *(volatile int *)(at + 1) = 1;")
    code, planted, errors = premerge(checkout, tmp_path / "planted", "--suite", "bitops")
    assert code == ExitCode.FINDINGS, errors
    assert {one["function"] for one in planted["findings"] if not one["known"]} == {"plumbTick"}
    assert "armv5/bitops: the changed code was not entered as before, so all tests run" in errors


@pytest.mark.slow(
    instead="test_changed_files_are_newer_than_all_others_and_equally_old, for the times that make compares"
)
def test_a_table_made_from_a_changed_file_is_regenerated_whatever_its_time(checkout: Path) -> None:
    """Regression: a changed argument in a command table passed, because make considered the old table newer."""
    described, table = checkout / "src" / "commands" / "getbit.json", checkout / "src" / "commands.c"
    marker = f"plumb {time.time_ns()}"
    edit(described, '"summary": "Returns the bit value', f'"summary": "{marker}. Returns the bit value')

    def built(*changed: Path) -> bytes:
        files = [str(path.relative_to(checkout)) for path in changed]
        tree = with_newer(quiet_workbench().open_server(str(checkout)), files)
        return build(tree, "armv5").server_binary.read_bytes()

    os.utime(described, (0, 0))
    assert marker.encode() in built(described)
    os.utime(described)
    # If a user has changed both files, the table has been generated already.
    edit(table, "Returns the bit value", f"Of hand: {marker}. Returns the bit value")
    os.utime(table, (0, 0))
    assert b"Of hand: " in built(described, table)


@pytest.mark.slow(instead="test_changed_files_are_newer_than_all_others_and_equally_old")
def test_a_premerge_regenerates_a_table_made_from_a_changed_file(checkout: Path, tmp_path: Path) -> None:
    described = checkout / "src" / "commands" / "getbit.json"
    marker = f"plumb {time.time_ns()}"
    edit(described, '"summary": "Returns the bit value', f'"summary": "{marker}. Returns the bit value')
    os.utime(described, (0, 0))
    code, read, errors = premerge(checkout, tmp_path / "run", *UNITS)
    assert (code, {cell["verdict"] for cell in read["cells"]}) == (ExitCode.INCONCLUSIVE, {"PASS", "XFAIL"}), errors
    assert marker.encode() in Path(read_run(tmp_path / "run").binaries["armv5"]).read_bytes()


IDLE = "int plumbIdle(int n) {{ return n + {}; }}\n"
NOT_ENTERED = ["NOT CHECKED: no test enters the code that differs from BASE on armv5: plumbIdle"]


def idle_function(checkout: Path) -> int:
    """Add a function that nothing calls. Returns the number in it, which the cache has not seen."""
    unique = 100_000 + time.time_ns() % 1_000_000_000
    # At the end of the file, because assertions contain their line numbers.
    with (checkout / "src" / "bitops.c").open("a", encoding="utf-8") as file:
        file.write(IDLE.format(unique))
    return unique


@pytest.mark.slow(
    instead=(
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named; "
        "tests/unit/judge/test_unchecked_changes.py"
    )
)
def test_a_change_that_no_test_enters_is_not_checked(checkout: Path, tmp_path: Path) -> None:
    """Regression: it passed in the first check of a checkout, and after a check of another checkout."""
    idle_function(checkout)
    code, idle, errors = premerge(checkout, tmp_path / "idle", *UNITS)
    assert (code, idle["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN"), errors
    assert idle["unchecked"] == NOT_ENTERED
    assert document(run("judge", tmp_path / "idle", "--json"))["unchecked"] == idle["unchecked"]


@pytest.mark.slow(instead="tests/unit/workflows/test_reached_tests.py; tests/unit/judge/test_unchecked_changes.py")
def test_what_omitted_tests_entered_in_an_earlier_run_is_checked(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src" / "bitops.c"
    unique = idle_function(checkout)
    code, idle, errors = premerge(checkout, tmp_path / "idle", *UNITS, "--all-tests")
    assert (code, idle["unchecked"]) == (ExitCode.INCONCLUSIVE, NOT_ENTERED), errors

    fields = "void bitfieldCommand(client *c) {\n"
    edit(source, fields, f"{fields}    if (c->argc == {unique}) return;\n")
    position = "void bitposCommand(client *c) {\n"
    edit(source, position, f"{position}    if (c->argc == {unique + 1}) return;\n")
    code, entered, errors = premerge(checkout, tmp_path / "entered", "--suite", "bitops")
    assert (code, entered["unchecked"], entered["left_out"]) == (ExitCode.PASS, [], 0), errors
    assert "plumbIdle" in unentered(entered)
    assert not {"bitfieldCommand", "bitposCommand"} & unentered(entered)

    # The omitted tests entered the current bitfieldCommand in an earlier run.
    edit(source, f"== {unique + 1}", f"== {unique + 2}")
    code, part, errors = premerge(checkout, tmp_path / "part", "--suite", "bitops")
    assert (code, part["unchecked"]) == (ExitCode.PASS, []), errors
    assert part["left_out"] > 0
    assert unentered(part) == unentered(entered)


@pytest.mark.slow(instead="test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named, for another suite")
def test_functions_entered_by_suites_whose_tests_all_run_are_recorded_too(checkout: Path, tmp_path: Path) -> None:
    """Regression: a change that no test enters got no verdict if such a suite ran, for example `persistence`."""
    source = checkout / "src" / "rdb.c"
    unique = 100_000 + time.time_ns() % 1_000_000_000
    with source.open("a", encoding="utf-8") as file:
        file.write(f"int plumbIdle(int n) {{ return n + {unique}; }}\n")
    head = "int rdbSaveInfoAuxFields(rio *rdb, int rdbflags, rdbSaveInfo *rsi) {\n"
    edit(source, head, f"{head}    if (rdbflags == {unique}) return -1;\n")
    code, read, errors = premerge(checkout, tmp_path / "run", "--suite", "persistence", "--suite", "interfaces")
    assert (code, read["left_out"]) == (ExitCode.PASS, 0), errors
    assert "plumbIdle" in unentered(read)
    assert "rdbSaveInfoAuxFields" not in unentered(read)
    assert not any("may enter them" in remark for remark in read["remarks"]), (
        "the functions that the suites enter are known"
    )


@pytest.mark.slow(instead="tests/unit/judge/test_unchecked_changes.py")
def test_a_change_without_an_executed_line_is_not_checked_although_its_function_is_entered(
    checkout: Path, tmp_path: Path
) -> None:
    """Regression: a fault in a branch that no test takes passed without a remark."""
    source = checkout / "src" / "bitops.c"
    unique = 100_000 + time.time_ns() % 1_000_000_000
    branch = f"    if (c->argc == {unique}) {{\n        addReplyLongLong(c, 1);\n        return;\n    }}\n"
    edit(source, BITOP, BITOP + branch)
    commit(checkout)
    line = source.read_text("utf-8").partition("        addReplyLongLong(c, 1);\n")[0].count("\n") + 1
    edit(source, "        addReplyLongLong(c, 1);\n", f"        addReplyLongLong(c, {unique});\n")
    code, read, errors = premerge(checkout, tmp_path / "run", "--suite", "bitops")
    assert (code, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN"), errors
    assert read["unchecked"] == [f"NOT CHECKED: no test executes any changed line on armv5: src/bitops.c:{line}"]
