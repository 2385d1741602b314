"""A run that did not check a change is not a PASS, also when it is judged again or joined with another run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.errors import ExitCode, UsageError
from harness.judge.change import unchecked_changes
from harness.judge.change.unchecked_changes import Change
from harness.judge.conclusion import conclude
from harness.judge.merge import join
from harness.plan.catalog import Catalog
from harness.record import run_folder, stored_run
from harness.record.run_record import Unentered
from harness.workflows.suite_selection import choose, read_ignored_paths
from tests.support import fakes
from tests.support.judgements import cell
from tests.support.stored import StoredRun, concluded

if TYPE_CHECKING:
    from pathlib import Path

SUITES = Catalog().suites
QUICK = [name for name, suite in SUITES.items() if suite.tier == "quick" and suite.needs_server]


def changes(*files: str) -> list[Change]:
    return choose(files, SUITES, read_ignored_paths()).changes


@pytest.mark.parametrize("verdict", ["PASS", "XFAIL", "FAIL", "UNKNOWN"])
def test_one_covering_suite_checks_a_covered_file(verdict: str) -> None:
    assert unchecked_changes.remarks(changes("src/cluster.c"), [cell("armv5", "cluster", verdict)]) == []
    assert unchecked_changes.remarks(changes("src/bitops.c"), [cell("armv5", "units", verdict)]) == []


def test_suites_that_do_not_cover_a_file_do_not_check_it() -> None:
    others = [cell("armv5", name, "PASS") for name in QUICK]
    assert unchecked_changes.remarks(changes("src/cluster.c"), others) == [
        "NOT CHECKED: src/cluster.c is covered only by `cluster`, `moduleapi` and `width`: not run"
    ]


def test_a_suite_checks_a_file_if_at_least_one_target_did_not_skip_it() -> None:
    skipped = cell("armv5", "cluster", "SKIP", "it came with release 3.0")
    assert unchecked_changes.remarks(changes("src/cluster.c"), [skipped]) == [
        "NOT CHECKED: src/cluster.c is covered only by `cluster`, `moduleapi` and `width`: it came with release 3.0"
    ]
    for both in ([skipped, cell("sparc64", "cluster", "PASS")], [cell("sparc64", "cluster", "PASS"), skipped]):
        assert unchecked_changes.remarks(changes("src/cluster.c"), both) == []


def test_only_the_whole_quick_tier_checks_a_file_that_no_suite_covers() -> None:
    all_of_it = [cell("armv5", name, "PASS") for name in QUICK]
    assert unchecked_changes.remarks(changes("src/object.c"), all_of_it) == []
    assert unchecked_changes.remarks(changes("src/object.c"), all_of_it[:-1]) == [
        f"NOT CHECKED: src/object.c requires suites that did not run: {QUICK[-1]}"
    ]
    one_skipped = [cell("armv5", QUICK[0], "SKIP", "not in 2.8"), *all_of_it[1:]]
    assert unchecked_changes.remarks(changes("src/object.c"), one_skipped) == []
    skipped = [cell("armv5", name, "SKIP", "none") for name in QUICK]
    assert len(unchecked_changes.remarks(changes("src/object.c"), skipped)) == 1


def test_a_part_tested_by_longer_suites_is_checked_by_them_and_the_whole_quick_tier() -> None:
    quick = [cell("armv5", name, "PASS") for name in QUICK]
    longer = [cell("armv5", name, "PASS") for name in ("clock", "eviction", "width")]
    assert unchecked_changes.remarks(changes("src/server.c"), [*quick, *longer]) == []
    assert unchecked_changes.remarks(changes("src/server.c"), [*quick, *longer[:2]]) == [
        "NOT CHECKED: src/server.c requires suites that did not run: width"
    ]
    assert len(unchecked_changes.remarks(changes("src/server.c"), longer)) == 1


def test_a_part_that_no_target_can_test_is_reported() -> None:
    """`clock` preloads a shared object. A program that contains its C library cannot load it."""
    changed, why = changes("src/server.c", "src/db.c", "src/networking.c"), "its servers preload a shared object"
    quick = [cell("armv5", name, "PASS") for name in [*QUICK, "eviction"]]
    skipped = [*quick, cell("armv5", "clock", "SKIP", why)]
    assert unchecked_changes.partly(changed, skipped) == [
        f"no target ran `clock`, which alone tests a part of src/server.c, src/db.c: {why}"
    ]
    assert unchecked_changes.partly(changed, [*skipped, cell("sparc64", "clock", "PASS")]) == []
    assert unchecked_changes.partly(changes("src/expire.c"), skipped) == [], "it covers all of this one"


def test_a_document_requires_nothing_and_another_program_is_never_checked() -> None:
    assert unchecked_changes.remarks(changes("README.md"), []) == []
    all_of_it = [cell("armv5", name, "PASS") for name in SUITES]
    (remark,) = unchecked_changes.remarks(changes("src/fuzzer_client.c"), all_of_it)
    assert remark.startswith("NOT CHECKED: src/fuzzer_client.c is not tested by any suite: another program")


@pytest.mark.usefixtures("fake_symbols")
def test_a_run_that_did_not_check_a_change_is_unknown_also_when_it_is_joined(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    with unchecked_changes.noted(run.folder, changes("src/bitops.c")):
        judgement, code = concluded(tmp_path, run)
    assert (judgement.verdict, code, judgement.unchecked) == ("PASS", ExitCode.PASS, [])
    with unchecked_changes.noted(run.folder, changes("src/bitops.c", "src/cluster.c")):
        pass
    judgement, code = concluded(tmp_path, run)
    assert (judgement.verdict, code) == ("UNKNOWN", ExitCode.INCONCLUSIVE)
    assert judgement.unchecked == judgement.remarks[:1]
    assert "src/cluster.c" in judgement.unchecked[0]
    assert join([judgement, judgement]).verdict == "UNKNOWN"


@pytest.mark.usefixtures("fake_symbols")
def test_a_judgement_names_a_part_that_no_target_tested(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", suites=("canary", "eviction", "clock"))
    run.canary("armv5")
    run.test("armv5", "eviction", "test_expiry", guest="guest-1")
    run.problem("armv5", "clock", "no shared object is preloaded there", "absent")
    changed = [msgspec.structs.replace(changes("src/server.c")[0], suites=["eviction", "clock"])]
    with unchecked_changes.noted(run.folder, changed):
        judgement, code = concluded(tmp_path, run)
    assert (judgement.verdict, code, judgement.unchecked) == ("PASS", ExitCode.PASS, [])
    message = "no target ran `clock`, which alone tests a part of src/server.c: no shared object is preloaded there"
    assert judgement.remarks[0] == message


@pytest.mark.usefixtures("fake_symbols")
def test_a_judgement_names_sources_whose_changes_are_unknown(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    hidden = [Change(file=name, suites=[], why="git ignores it", unseen=True) for name in ("src/a.h", "src/b.c")]
    with unchecked_changes.noted(run.folder, [*changes("src/bitops.c"), *hidden]):
        judgement, code = concluded(tmp_path, run)
    assert (judgement.verdict, code, judgement.unchecked) == ("PASS", ExitCode.PASS, [])
    assert "git does not look for changes in src/a.h, src/b.c, so any change there was not checked" in judgement.remarks


@pytest.mark.usefixtures("fake_symbols")
def test_a_run_whose_list_of_changes_is_missing_or_altered_is_not_a_pass(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", guest="guest-1")
    folder = run.finish()
    listed = fakes.write(tmp_path / "known.toml", "findings = []\n")
    with unchecked_changes.noted(folder, changes("src/bitops.c")):
        recorded = run_folder.read_run(folder)
        run_folder.write_run(folder, msgspec.structs.replace(recorded, beside=unchecked_changes.digests(folder)))
    assert conclude(stored_run.read(folder), listed, fakes.quiet())[0].verdict == "PASS"
    whole = (folder / unchecked_changes.NAME).read_bytes()
    (folder / unchecked_changes.NAME).write_bytes(b"[]")
    for why in ("differs from what was recorded", "is missing"):
        judgement, code = conclude(stored_run.read(folder), listed, fakes.quiet())
        assert (judgement.verdict, code) == ("UNKNOWN", ExitCode.INCONCLUSIVE)
        assert judgement.unchecked == [f"NOT CHECKED: changes.json, which {why}"]
        (folder / unchecked_changes.NAME).unlink(missing_ok=True)
    (folder / unchecked_changes.NAME).write_bytes(whole)
    assert conclude(stored_run.read(folder), listed, fakes.quiet())[0].verdict == "PASS"


@pytest.mark.usefixtures("fake_symbols")
def test_a_finding_remains_if_something_was_not_checked(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="boom")
    with unchecked_changes.noted(run.folder, changes("src/cluster.c")):
        judgement, code = concluded(tmp_path, run)
    assert (judgement.verdict, code) == ("FAIL", ExitCode.FINDINGS)


def test_a_folder_without_records_keeps_nothing_and_damage_is_reported(tmp_path: Path) -> None:
    with unchecked_changes.noted(tmp_path / "run", changes("src/cluster.c")):
        assert unchecked_changes.read(tmp_path / "run") == changes("src/cluster.c")
    assert list((tmp_path / "run").iterdir()) == []
    assert unchecked_changes.read(tmp_path / "run") == []
    (tmp_path / "run" / unchecked_changes.NAME).write_text("{", "utf-8")
    with pytest.raises(UsageError, match="the list of changes is damaged"):
        unchecked_changes.read(tmp_path / "run")


def entered(tmp_path: Path, *unnoted: str, **targets: tuple[str, int, bool]) -> tuple[list[str], list[str]]:
    """The messages about functions that differ from the base: those about unchecked ones, and the remarks."""
    record = run_folder.read_run(StoredRun(tmp_path / "run").finish())
    record = msgspec.structs.replace(
        record,
        unentered={
            target: Unentered(functions=functions.split(), of=of, data_differ=data, unnoted=[*unnoted])
            for target, (functions, of, data) in targets.items()
        },
    )
    remarks = [*unchecked_changes.partly_entered(record), *unchecked_changes.without_effect(record)]
    return unchecked_changes.unentered(record), remarks


def test_targets_on_which_a_change_alters_nothing_are_named(tmp_path: Path) -> None:
    """An example is code only for another machine. Regression: such a change passed without a message."""
    message = "the change does not alter the server's code on armv5, armv6"
    nothing = ("", 0, False)
    assert entered(tmp_path, armv5=nothing, armv6=nothing, armv7=("", 2, False)) == ([], [message])
    assert entered(tmp_path, armv5=("", 0, True)) == ([], []), "data differ"


def test_changed_code_that_no_test_enters_is_not_checked_and_partly_entered_code_is_a_remark(tmp_path: Path) -> None:
    nothing = ("plumbIdle", 1, False)
    everywhere = "NOT CHECKED: no test enters the code that differs from BASE on armv5, armv6: plumbIdle"
    assert entered(tmp_path, armv5=nothing, armv6=nothing) == ([everywhere], [])
    message = (
        "these functions differ from BASE, but no test is known to enter them: plumbIdle on armv5, "
        "armv6; they may be inlined"
    )
    assert entered(tmp_path, armv5=nothing, armv6=("plumbIdle", 2, False)) == ([], [message])
    assert entered(tmp_path, armv5=nothing, armv6=("plumbIdle", 1, True)) == ([], [message]), "tests may use the data"
    assert entered(tmp_path, armv5=("", 1, False)) == ([], [])
    assert entered(tmp_path, armv5=nothing, armv6=("", 0, False))[0] == [everywhere.replace(", armv6", "")]
    assert entered(tmp_path) == ([], []), "it is unknown whether tests entered them"
    message += ", or upstream may enter them"
    assert entered(tmp_path, "upstream", armv5=nothing, armv6=nothing) == ([], [message])


def of_lines(
    tmp_path: Path, *lines: str, of: int, whole: bool = True, unnoted: str = ""
) -> tuple[list[str], list[str]]:
    """The messages about edited lines that no test executed, when a test enters a changed function."""
    record = run_folder.read_run(StoredRun(tmp_path / "run").finish())
    armv5 = Unentered(
        functions=[], of=1, data_differ=True, unnoted=unnoted.split(), lines=[*lines], of_lines=of, whole=whole
    )
    record = msgspec.structs.replace(record, unentered={"armv5": armv5})
    return unchecked_changes.unentered(record), unchecked_changes.partly_executed(record)


def test_edited_lines_that_no_test_executes_are_named_and_are_not_checked_if_there_are_no_others(
    tmp_path: Path,
) -> None:
    """Regression: a fault in a branch that no test takes passed without a message if tests enter its function."""
    lines = ("src/a.c:9", "src/a.c:10", "src/b.c:7")
    message = "no test executes any changed line on armv5: src/a.c:9-10, src/b.c:7"
    assert of_lines(tmp_path, *lines, of=3) == ([f"NOT CHECKED: {message}"], [])
    part = ["no test executes these changed lines: src/a.c:9-10, src/b.c:7 on armv5"]
    assert of_lines(tmp_path, *lines, of=4) == ([], part)
    assert of_lines(tmp_path, *lines, of=3, whole=False) == ([], part), "tests may use edited code that has no line"
    assert of_lines(tmp_path, *lines, of=3, unnoted="programs") == ([], part)
    assert of_lines(tmp_path, of=3) == of_lines(tmp_path, of=0) == ([], [])


def beside_the_server(tmp_path: Path, *lines: str, of: int, whole: bool = True, differs: bool = False) -> list[str]:
    """The messages about edited lines of the client that no test executed."""
    record = run_folder.read_run(StoredRun(tmp_path / "run").finish())
    armv5 = Unentered(
        functions=[], of=int(differs), data_differ=False, unnoted=[], beside=[*lines], of_beside=of, whole_beside=whole
    )
    record = msgspec.structs.replace(record, unentered={"armv5": armv5})
    return [*unchecked_changes.unentered(record), *unchecked_changes.partly_executed(record)]


def test_edited_lines_of_only_the_client_that_no_test_executes_are_not_checked(tmp_path: Path) -> None:
    """Regression: the only message was that the server equals the base's."""
    lines = ("src/redis-cli.c:9", "src/redis-cli.c:10")
    message = "NOT CHECKED: no test executes any changed line on armv5: src/redis-cli.c:9-10"
    assert beside_the_server(tmp_path, *lines, of=2) == [message]
    part = ["no test executes these changed lines: src/redis-cli.c:9-10 on armv5"]
    assert beside_the_server(tmp_path, *lines, of=3) == part
    assert beside_the_server(tmp_path, *lines, of=2, whole=False) == part, "a header may be another part of it"
    assert beside_the_server(tmp_path, *lines, of=2, differs=True) == part, "tests enter another part in the server"
    assert beside_the_server(tmp_path, of=2) == beside_the_server(tmp_path, of=0) == []


def test_if_a_comparison_with_the_base_is_impossible_a_message_says_so(tmp_path: Path) -> None:
    """The base does not compile, or objects cannot be read. Regression: code that no test enters passed without a
    message.
    """
    record = run_folder.read_run(StoredRun(tmp_path / "run").finish())
    assert unchecked_changes.not_compared(record, changes("src/bitops.c")) == [], (
        "an older run, which did not record it"
    )
    record = msgspec.structs.replace(record, uncompared=True)
    message = (
        "the server's code could not be compared with BASE's on every target, so changed code that no "
        "test enters is not listed"
    )
    assert unchecked_changes.not_compared(record, changes("src/bitops.c")) == [message]
    assert unchecked_changes.not_compared(record, changes("README.md")) == []
    assert unchecked_changes.not_compared(record, []) == [], "a check without a change"
