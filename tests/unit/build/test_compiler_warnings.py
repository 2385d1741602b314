"""Warnings that a compiler gives only for a target are notes by default, failures on request, and never silently
unknown.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis.compiler_output import compilations, read
from harness.core import json_codec
from harness.core.errors import ExitCode
from harness.judge import baseline
from harness.judge.baseline import BaseRevision
from harness.judge.change import unchecked_changes
from harness.judge.conclusion import conclude
from harness.judge.merge import join
from harness.record import compiler_warnings, run_folder, stored_run
from harness.record.compiler_warnings import CompilerReport, Diagnostic
from harness.report.formats import junit, sarif
from tests.support import fakes
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from harness.core.model import CompilerWarnings
    from harness.judge.findings import Judgement

pytestmark = pytest.mark.usefixtures("fake_symbols")


def warning(
    line: int = 3, *, kind: str = "cast-align", function: str = "intsetGet", file: str = "src/intset.c"
) -> Diagnostic:
    text = "cast increases required alignment of target type"
    return Diagnostic(severity="warning", file="src/intset.c", line=line, text=text, warning=kind, function=function)


def passed(tmp_path: Path, *, wanted: CompilerWarnings, **reports: CompilerReport) -> Path:
    """A run that passed, with its compiler output."""
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for name in stored.targets:
        stored.canary(name)
        stored.test(name, "bitops", "test_bitop", guest="guest-1")
        stored.guest(name, "bitops", "guest-1", end="stopped")
    folder = stored.finish()
    run_folder.write_run(folder, msgspec.structs.replace(run_folder.read_run(folder), warnings=wanted))
    for target, report in reports.items():
        compiler_warnings.write(folder, target, report)
    return folder


def judged(folder: Path, known: str = "findings = []\n") -> tuple[Judgement, ExitCode]:
    listed = folder.parent / "known.toml"
    listed.write_text(known, "utf-8")
    return conclude(stored_run.read(folder), listed, fakes.quiet())


SILENT = CompilerReport(warnings=[])


def test_by_default_warnings_are_notes_beside_the_findings_and_the_run_passes(tmp_path: Path) -> None:
    words = CompilerReport(warnings=[warning(3), warning(9), warning(5, kind="overflow", function="")])
    judgement, code = judged(passed(tmp_path, wanted="note", native=SILENT, armv5=words, sparc64=words))
    assert (judgement.verdict, code, judgement.findings) == ("PASS", ExitCode.PASS, [])
    assert [(one.id, one.kind, one.file, one.line, one.origin, one.targets) for one in judgement.warnings] == [
        ("warning-cast-align-intsetGet", "warning", "src/intset.c", 3, "server", ["armv5", "sparc64"]),
        ("warning-overflow-src_intset.c", "warning", "src/intset.c", 5, "server", ["armv5", "sparc64"]),
    ]
    remark = (
        "compiler warnings that the native build does not have: 2 of cast-align, 1 of overflow "
        "(findings.json: warnings)"
    )
    assert judgement.remarks[0] == f"armv5: {remark}"
    assert [one.id for one in join([judgement, judgement]).warnings] == [one.id for one in judgement.warnings]


def test_warnings_of_the_oracles_compiler_and_of_other_kinds_are_no_targets_finding(tmp_path: Path) -> None:
    both = CompilerReport(warnings=[warning()])
    more = CompilerReport(warnings=[warning(), warning(4, kind="unused-parameter"), warning(5, kind="")])
    judgement, _ = judged(passed(tmp_path, wanted="fail", native=both, armv5=more, sparc64=both))
    assert (judgement.verdict, judgement.findings, judgement.warnings) == ("PASS", [], [])


def test_with_failure_requested_warnings_are_findings_and_exit_1_unless_they_are_known(tmp_path: Path) -> None:
    folder = passed(tmp_path, wanted="fail", native=SILENT, armv5=CompilerReport(warnings=[warning()]), sparc64=SILENT)
    judgement, code = judged(folder)
    assert (judgement.verdict, code, judgement.warnings) == ("FAIL", ExitCode.FINDINGS, [])
    assert join([judgement]).verdict == "FAIL"
    (finding,) = judgement.findings
    assert (finding.id, finding.targets) == ("warning-cast-align-intsetGet", ["armv5"])
    assert finding.replay.endswith("--target armv5 --suite canary --warnings fail")
    entry = '[[findings]]\nid = "warning-cast-align-*"\nserver = "*"\nreason = "seen"\nexpires = 2999-01-01\n'
    judgement, code = judged(folder, entry)
    assert (judgement.verdict, code, judgement.findings[0].known) == ("PASS", ExitCode.PASS, "seen")


@pytest.mark.parametrize("absent", ["native", "armv5"])
def test_with_failure_requested_uncollected_warnings_are_no_pass(tmp_path: Path, absent: str) -> None:
    reports = {"native": SILENT, "armv5": SILENT, "sparc64": SILENT}
    folder = passed(tmp_path, wanted="fail", **reports)
    assert judged(folder)[0].verdict == "PASS"
    (folder / compiler_warnings.FOLDER / f"{absent}.json").unlink()
    judgement = judged(folder)[0]
    assert (judgement.verdict, join([judgement]).verdict) == ("UNKNOWN", "UNKNOWN")
    assert judgement.unchecked == [f"NOT CHECKED: the compiler warnings of {absent}: not collected"]
    compiler_warnings.write(
        folder, absent, CompilerReport(warnings=[], problem="2 of 90 files do not compile by themselves")
    )
    judgement, code = judged(folder)
    assert (judgement.verdict, code) == ("UNKNOWN", ExitCode.INCONCLUSIVE)
    assert "2 of 90 files do not compile by themselves" in judgement.remarks[0]


def test_warnings_of_the_base_are_known_and_one_in_another_function_is_new(tmp_path: Path) -> None:
    old = passed(
        tmp_path / "old", wanted="note", native=SILENT, armv5=CompilerReport(warnings=[warning()]), sparc64=SILENT
    )
    base = BaseRevision(commit="a" * 40, subject="base", why="asked for")
    words = CompilerReport(warnings=[warning(33), warning(44, function="intsetSet")])
    new = passed(tmp_path / "new", wanted="fail", native=SILENT, armv5=words, sparc64=SILENT)
    baseline.keep(new, baseline.of_judgement(base, judged(old)[0], {}))
    judgement, _ = judged(new)
    assert judgement.verdict == "FAIL"
    assert {one.function: one.known for one in judgement.findings} == {
        "intsetGet": "also in BASE aaaaaaaaaaaa",
        "intsetSet": "",
    }


def test_a_damaged_record_is_reported_and_the_rest_of_the_run_is_judged(tmp_path: Path) -> None:
    words = CompilerReport(warnings=[warning()])
    folder = passed(tmp_path, wanted="note", native=SILENT, armv5=SILENT, sparc64=words)
    record = run_folder.read_run(folder)
    run_folder.write_run(folder, msgspec.structs.replace(record, beside=unchecked_changes.digests(folder)))
    assert judged(folder)[1] == ExitCode.PASS
    (folder / compiler_warnings.FOLDER / "armv5.json").write_text("{", "utf-8")
    judgement, code = judged(folder)
    assert code == ExitCode.INCONCLUSIVE
    assert [one.targets for one in judgement.warnings] == [["sparc64"]]
    assert judgement.unchecked == ["NOT CHECKED: warnings/armv5.json, which differs from what was recorded"]
    assert any("armv5.json is damaged: " in remark for remark in judgement.remarks)


def test_formats_show_warnings_as_warnings_and_their_failure_as_a_failure(tmp_path: Path) -> None:
    words = {"native": SILENT, "armv5": CompilerReport(warnings=[warning()]), "sparc64": SILENT}
    judgement_with_note, _ = judged(passed(tmp_path / "a", wanted="note", **words))
    (result,) = json.loads(sarif.render(judgement_with_note))["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("warning", "warning")
    assert 'failures="0"' in junit.render(judgement_with_note)
    failing, _ = judged(passed(tmp_path / "b", wanted="fail", **words))
    assert 'name="armv5/warnings"' in junit.render(failing)
    assert 'failures="1"' in junit.render(failing)
    assert json_codec.pretty(failing)


@pytest.mark.parametrize(
    "between",
    ["/w/gcc -O2 -c b.c -o b.o\n", "make: Leaving directory '/t/src'\nmake: Entering directory '/t/other'\n"],
    ids=["call", "folder"],
)
def test_a_warning_outside_functions_does_not_get_the_previous_files_function(between: str) -> None:
    output = "make: Entering directory '/t/src'\na.c: In function 'first':\na.c:1:1: warning: one [-Woverflow]\n"
    output += between + "b.c:2:2: warning: two [-Woverflow]\n"
    assert [(one.file.rpartition("/")[2], one.function) for one in read(output, Path("/t"))] == [
        ("a.c", "first"),
        ("b.c", ""),
    ]


def test_a_command_line_that_is_not_valid_shell_is_recognised() -> None:
    output = "make: Entering directory '/t/src'\n/w/gcc -DX=\"a;b -c a.c\n"
    (call,) = compilations(output, ("/w/gcc",))
    assert (call.folder, call.words[-2:]) == ("/t/src", ["-c", "a.c"])
    assert compilations(output, ("/w/g++",)) == []


def test_without_the_oracles_warnings_no_warning_counts_as_target_specific(tmp_path: Path) -> None:
    broken = CompilerReport(warnings=[], problem="the tree does not compile natively")
    reports = {"armv5": CompilerReport(warnings=[warning()]), "sparc64": SILENT, "native": broken}
    judgement, code = judged(passed(tmp_path, wanted="fail", **reports))
    assert (judgement.findings, code) == ([], ExitCode.INCONCLUSIVE)


def test_a_warning_knows_its_function() -> None:
    output = (
        "make: Entering directory '/t/src'\n"
        "intset.c: In function '_intsetGet':\nintset.c:3:9: warning: cast [-Wcast-align]\n"
        "intset.c: At top level:\nintset.c:5:1: warning: big [-Woverflow]\n"
        "x.cpp: In member function 'int a::b::get(char*) const':\nx.cpp:6:1: warning: cast [-Wcast-align]\n"
    )
    from pathlib import Path as ThePath

    found = [(one.file, one.line, one.function, one.warning) for one in read(output, ThePath("/t"))]
    assert found == [
        ("src/intset.c", 3, "_intsetGet", "cast-align"),
        ("src/intset.c", 5, "", "overflow"),
        ("src/x.cpp", 6, "a::b::get", "cast-align"),
    ]
