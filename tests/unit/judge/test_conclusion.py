"""The conclusion of a run: known findings are expected where their entries match, until the entries expire."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.errors import ExitCode
from harness.core.model import BuildSettings
from harness.judge.conclusion import KnownLists, conclude
from harness.record import run_folder, stored_run
from tests.support import fakes
from tests.support.fakes import fault
from tests.support.stored import StoredRun, a_fault, concluded, entry, known_file, reproducer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("fake_symbols")


def test_a_cell_with_only_known_findings_is_an_expected_failure_and_the_run_passes(
    tmp_path: Path, run: StoredRun
) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_bitpos")
    judgement, code = concluded(tmp_path, run, entry("alignment-bitopCommand-*"))
    assert [cell.verdict for cell in judgement.cells] == ["PASS", "XFAIL"]
    assert (code, [finding.known for finding in judgement.findings]) == (ExitCode.PASS, ["issue 3273"])
    assert "issue 3273" in judgement.cells[1].reason


def test_rejected_connections_have_a_remark(tmp_path: Path, run: StoredRun) -> None:
    def remarked() -> list[str]:
        return [remark for remark in concluded(tmp_path, run)[0].remarks if "rejected connections" in remark]

    assert remarked() == []
    for number in (2, 1):
        run.guest("armv5", "bitops", f"guest-{number}", end="stopped", strangers=number)
    (remark,) = remarked()
    assert remark.endswith(": 3")


def test_one_unknown_finding_beside_a_known_one_still_fails(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_wrong", outcome="failed", message="1 != 2")
    judgement, code = concluded(tmp_path, run, entry("alignment-*"))
    assert (judgement.verdict, code) == ("FAIL", ExitCode.FINDINGS)


def test_a_known_finding_is_permanent_unless_its_entry_is_intermittent(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    stored = stored_run.read(run.finish())

    def lasting(*entries: str) -> bool:
        (finding,) = conclude(stored, known_file(tmp_path, *entries), fakes.quiet())[0].findings
        return KnownLists.read(stored.folder, stored.record, known_file(tmp_path, *entries)).lasting(finding)

    known = entry("alignment-*")
    assert lasting(known)
    assert lasting(f"{known}\nconditional = true")
    assert not lasting(f"{known}\nintermittent = true")
    assert not lasting(entry("assertion-*"))
    assert not lasting(entry("alignment-*", days=-1))


def test_a_finding_that_one_of_its_entries_expects_only_at_times_is_not_permanent(
    tmp_path: Path, run: StoredRun
) -> None:
    pc = run.place("armv5", "bitopCommand")
    for name, guest in (("test_bitop", "guest-1"), ("test_bitpos", "guest-2")):
        run.fault("armv5", "bitops", guest, fault(pc=pc))
        run.test("armv5", "bitops", name, outcome="failed", message="closed", guest=guest, faults=(0, 1))
        run.guest("armv5", "bitops", guest, end="signal", detail="killed by SIGBUS", test=name)
    stored = stored_run.read(run.finish())
    entries = [f'{entry("alignment-*")}\ntest = "test_bit{name}"' for name in ("op", "pos")]

    def lasting(*known: str) -> bool:
        (finding,) = conclude(stored, known_file(tmp_path, *known), fakes.quiet())[0].findings
        assert finding.known
        return KnownLists.read(stored.folder, stored.record, known_file(tmp_path, *known)).lasting(finding)

    assert lasting(*entries)
    assert not lasting(f"{entries[0]}\nintermittent = true", entries[1])


def test_an_entry_is_in_force_until_its_last_day(tmp_path: Path, run: StoredRun) -> None:
    stored = stored_run.read(run.finish())
    entries = (entry("alignment-*", days=-1), entry("assertion-*", days=0), entry("exit-*"))
    lists = KnownLists.read(stored.folder, stored.record, known_file(tmp_path, *entries))
    assert [one.id for one in lists.in_force] == ["assertion-*", "exit-*"]


def test_an_expired_entry_excuses_nothing_and_is_remarked(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    judgement, code = concluded(tmp_path, run, entry("alignment-*", days=-1))
    assert (judgement.verdict, code) == ("FAIL", ExitCode.FINDINGS)
    assert any("expired" in remark and "issue 3273" in remark for remark in judgement.remarks)


def test_an_entry_counts_on_its_last_day(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_bitpos")
    assert concluded(tmp_path, run, entry("alignment-*", days=0))[1] is ExitCode.PASS


def test_the_known_list_excuses_no_unknown_cell(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5", outcome="failed", message="load-word@1: expected trap, got done")
    a_fault(stored)
    assert concluded(tmp_path, stored, entry("*"))[1] is ExitCode.INCONCLUSIVE


def test_a_report_names_the_patterns_that_no_test_matches(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "bitops/test_bitops.py::test_bitpos")
    run.test("armv5", "bitops", "bitops/test_bitops.py::test_count[one]")
    folder = run.finish()
    wanted = ["bitpos", "*::test_count*", "no such test", "canary"]
    run_folder.write_run(folder, msgspec.structs.replace(run_folder.read_run(folder), tests=wanted))
    judgement, _ = conclude(stored_run.read(folder), known_file(tmp_path), fakes.quiet())
    assert judgement.remarks == [
        "only the tests that match were run: --test bitpos '*::test_count*' 'no such test' canary",
        "no test matches --test 'no such test'",
        "no test matches --test canary",
    ]


def test_a_report_says_which_release_a_development_tree_was_taken_for(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    description = "a development tree (255.255.255), treated as 7.0.0 because of the features of its source"
    for development, remarks in (("", []), (description, [f"the server is {description}"])):
        folder = run.finish()
        run_folder.write_run(folder, msgspec.structs.replace(run_folder.read_run(folder), development=development))
        judgement, _ = conclude(stored_run.read(folder), known_file(tmp_path, entry("alignment-*")), fakes.quiet())
        assert judgement.remarks == remarks


def test_a_report_and_its_reproducers_name_a_distributions_additions(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    folder = run.finish()
    settings = BuildSettings(cflags=("-march=armv7-a", "-DX=a b"), make=("BUILD_TLS=yes",))
    run_folder.write_run(folder, msgspec.structs.replace(run_folder.read_run(folder), settings=settings))
    judgement, _ = conclude(stored_run.read(folder), known_file(tmp_path, entry("alignment-*")), fakes.quiet())
    words = shlex.join(["--cflags=-march=armv7-a '-DX=a b'", "--make=BUILD_TLS=yes"])
    said = f"targets were built with {words}; the native build that they are compared with was not"
    assert judgement.remarks == [said]
    assert reproducer(judgement.findings[0]).settings == settings


def test_an_entry_that_matched_nothing_is_remarked(tmp_path: Path, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_bitop")
    judgement, _ = concluded(tmp_path, run, entry("alignment-gone-load"))
    assert judgement.remarks == ["known finding alignment-gone-load (redis-3.2.6) was not seen in this run"]
    (run.folder / "armv5" / "bitops" / "events.jsonl").unlink()
    judgement, _ = conclude(
        stored_run.read(run.folder), known_file(tmp_path, entry("alignment-gone-load")), fakes.quiet()
    )
    assert (judgement.verdict, judgement.remarks) == ("UNKNOWN", [])


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_entry_of_a_suite_that_was_not_judged_is_not_remarked(tmp_path: Path, is_killed: bool) -> None:
    run = StoredRun(tmp_path / "run", suites=("canary", "bitops", "units"))
    run.canary("armv5")
    run.test("armv5", "bitops", "test_bitop")
    run.test("armv5", "units", "test_unit", outcome="passed" if is_killed else "skipped")
    if is_killed:
        run.problem("armv5", "units", "its deadline passed", "deadline")
    judgement, _ = concluded(tmp_path, run, f'{entry("alignment-gone-load")}suite = "units"\n')
    assert [cell.verdict for cell in judgement.cells if cell.suite == "units"] == ["UNKNOWN"]
    assert judgement.remarks == []
