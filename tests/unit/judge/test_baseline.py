"""The base excuses only findings that it shows too, in the same cells and on the same targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.errors import ExitCode, UsageError
from harness.core.finding import Occasion
from harness.judge import baseline, conclusion
from harness.judge.baseline import BaseRevision
from harness.record import run_folder, stored_run
from tests.support import fakes, judgements
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

    from harness.analysis.source_excerpt import Sources
    from harness.judge.findings import Judgement

BASE = BaseRevision(commit="0123456789abcdef" * 2, subject="before", why="because")
WRONG = "wrong-result-test_bitop"


@pytest.fixture
def stored(tmp_path: Path) -> StoredRun:
    """A run in which a test fails on two targets."""
    run = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for target in run.targets:
        run.canary(target)
        run.test(target, "bitops", "test_bitop", outcome="failed", message="1 != 2")
        run.test(target, "bitops", "test_bitpos")
    return run


def concluded(
    stored: StoredRun,
    findings: dict[str, list[str]],
    *,
    unjudged: dict[str, str] | None = None,
    unbuilt: dict[str, str] | None = None,
    known: str = "",
    suite: str = "bitops",
    title: str = "test_bitop: # != #",
) -> tuple[Judgement, ExitCode]:
    """The judgement of a run whose base showed these findings, in a suite, with a title."""
    folder = stored.finish()
    ways = {
        name: [baseline.Appearance(target=target, suite=suite, title=title, test="test_bitop") for target in targets]
        for name, targets in findings.items()
    }
    old = baseline.Baseline(
        base=BASE, findings=findings, unjudged=unjudged or {}, appearances=ways, unbuilt=unbuilt or {}
    )
    baseline.keep(folder, old)
    listed = fakes.write(folder / "known.toml", known or "findings = []\n")
    return conclusion.conclude(stored_run.read(folder), listed, fakes.quiet())


def test_whole_suites_of_the_base_decide_what_its_single_tests_left_open() -> None:
    way = baseline.Appearance(target="armv5", suite="bitops", title="a")
    other = msgspec.structs.replace(way, target="sparc64")
    of_tests = baseline.Baseline(
        base=BASE,
        findings={"a": ["armv5"], "b": ["armv5"]},
        unjudged={"armv5/bitops": "no test ran", "armv5/units": "boom"},
        appearances={"a": [way], "b": [way]},
    )
    of_suites = baseline.Baseline(
        base=BASE,
        findings={"a": ["armv5", "sparc64"]},
        unjudged={"sparc64/bitops": "late"},
        appearances={"a": [other]},
    )
    both = baseline.together(of_tests, of_suites, ["bitops"])
    assert both.findings == {"a": ["armv5", "sparc64"], "b": ["armv5"]}
    assert both.unjudged == {"armv5/units": "boom", "sparc64/bitops": "late"}
    assert both.appearances == {"a": [way, other], "b": [way]}


def test_another_runs_base_excuses_nothing(stored: StoredRun, tmp_path: Path) -> None:
    """A file excuses nothing if the run did not record it, or if it has changed since."""
    judgement, code = concluded(stored, {WRONG: ["armv5", "sparc64"]})
    assert (code, judgement.verdict) == (ExitCode.PASS, "PASS")
    path = stored.folder / baseline.NAME
    listed = fakes.write(tmp_path / "known.toml", "findings = []\n")
    path.write_bytes(path.read_bytes() + b"\n")
    for said in ("differs from what was recorded", "is missing"):
        judgement, code = conclusion.conclude(stored_run.read(stored.folder), listed, fakes.quiet())
        assert (code, judgement.base) == (ExitCode.FINDINGS, "")
        assert judgement.unchecked == [f"NOT CHECKED: inherited.json, which {said}"]
        path.unlink(missing_ok=True)
    record = run_folder.read_run(stored.folder)
    others = {name: digest for name, digest in record.beside.items() if name != baseline.NAME}
    run_folder.write_run(stored.folder, msgspec.structs.replace(record, beside=others))
    baseline.write(stored.folder, baseline.Baseline(base=BASE, findings={}, unjudged={}))
    judgement, code = conclusion.conclude(stored_run.read(stored.folder), listed, fakes.quiet())
    assert judgement.unchecked == ["NOT CHECKED: inherited.json, which differs from what was recorded"]


def test_without_a_base_every_finding_is_new(stored: StoredRun, tmp_path: Path) -> None:
    listed = fakes.write(tmp_path / "known.toml", "findings = []\n")
    judgement, code = conclusion.conclude(stored_run.read(stored.finish()), listed, fakes.quiet())
    assert (code, judgement.base) == (ExitCode.FINDINGS, "")


def test_a_finding_of_the_base_on_all_its_targets_is_known_and_passes(stored: StoredRun) -> None:
    judgement, code = concluded(stored, {WRONG: ["armv5", "sparc64"]})
    assert code == ExitCode.PASS
    (finding,) = judgement.findings
    assert finding.known == "also in BASE 0123456789ab"
    assert [cell.verdict for cell in judgement.cells if cell.suite == "bitops"] == ["XFAIL", "XFAIL"]
    assert judgement.base.startswith("0123456789ab 'before'")


def test_a_finding_that_the_base_does_not_show_is_new(stored: StoredRun) -> None:
    judgement, code = concluded(stored, {"wrong-result-test_bitcount": ["armv5", "sparc64"]})
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")


def test_a_finding_on_another_target_is_new_there_and_has_a_remark(stored: StoredRun) -> None:
    judgement, code = concluded(stored, {WRONG: ["armv5"]})
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")
    assert judgement.remarks == [f"{WRONG} is new on sparc64; BASE shows it on armv5"]


@pytest.mark.parametrize(
    "way", [{"suite": "sds"}, {"title": "test_bitop: the connection was lost"}], ids=["suite", "title"]
)
def test_a_finding_that_the_base_shows_in_another_form_is_new(stored: StoredRun, way: dict[str, str]) -> None:
    judgement, code = concluded(stored, {WRONG: ["armv5", "sparc64"]}, **way)  # type: ignore[arg-type]
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")
    assert judgement.remarks == [
        (
            f"{WRONG} is in BASE as well, but here it also has a suite, test, message or source line "
            "that BASE does not show"
        )
    ]


def of_start(folder: Path, message: str) -> StoredRun:
    """A run in which the server does not start and reports the reason."""
    run = StoredRun(folder, targets=("armv5",))
    run.canary("armv5")
    run.guest("armv5", "bitops", "guest-1", end="start-failed", detail=f"exit status 1; {message}")
    run.test("armv5", "bitops", "test_bitop", outcome="failed", blocked=True)
    return run


@pytest.mark.parametrize(
    ("message", "inherits"),
    [
        ("812:M 03 Feb 2027 10:11:12.345 # Can't load /cache/ef01/plumb.so: aborting", True),
        ("812:M 03 Feb 2027 10:11:12.345 # Out of memory allocating 12 bytes", False),
    ],
)
def test_a_failed_start_is_inherited_only_for_the_bases_reason(tmp_path: Path, message: str, *, inherits: bool) -> None:
    listed = fakes.write(tmp_path / "known.toml", "findings = []\n")
    base = of_start(tmp_path / "base", "71:M 22 Nov 2026 02:03:46.124 # Can't load /cache/abcd/plumb.so: aborting")
    old, _ = conclusion.conclude(stored_run.read(base.finish()), listed, fakes.quiet())
    folder = of_start(tmp_path / "run", message).finish()
    baseline.keep(folder, baseline.of_judgement(BASE, old, {}))
    judgement, _ = conclusion.conclude(stored_run.read(folder), listed, fakes.quiet())
    assert [(one.id, bool(one.known)) for one in judgement.findings] == [("exit-start", inherits)]


def test_an_unknown_cell_stays_unknown_whatever_the_base_shows(stored: StoredRun) -> None:
    stored.canary("sparc64", outcome="failed", message="it did not fault")
    judgement, code = concluded(stored, {WRONG: ["armv5", "sparc64"]})
    assert (code, judgement.verdict) == (ExitCode.INCONCLUSIVE, "UNKNOWN")


def test_a_base_that_could_not_be_judged_excuses_nothing_and_has_a_remark(stored: StoredRun) -> None:
    judgement, code = concluded(stored, {}, unjudged={"armv5/bitops": "its canaries misbehaved"})
    assert code == ExitCode.FINDINGS
    assert "BASE could not be judged on armv5/bitops" in judgement.remarks[0]
    assert judgement.remarks[0].endswith(": its canaries misbehaved")


@pytest.mark.parametrize(
    ("unbuilt", "verdict"),
    [(["armv5", "sparc64"], "UNKNOWN"), (["armv5"], "FAIL"), ([], "FAIL")],
    ids=["for no target", "for one target", "built"],
)
def test_no_change_is_blamed_for_what_a_base_that_does_not_compile_cannot_show(
    stored: StoredRun, unbuilt: list[str], verdict: str
) -> None:
    """Regression: a change that mended a build was blamed for every bug of the target."""
    cells = {f"{target}/bitops": "it does not compile" for target in unbuilt}
    judgement, _ = concluded(stored, {}, unbuilt=cells)
    assert judgement.verdict == verdict
    reasons = {cell.reason for cell in judgement.cells if cell.verdict == "UNKNOWN"}
    assert reasons == ({"1 findings in 1 failed tests; BASE does not compile here"} if verdict == "UNKNOWN" else set())
    assert [remark.split(",")[0] for remark in judgement.remarks] == [
        f"BASE could not be tested on {cell}" for cell in cells
    ]


def test_a_finding_is_known_where_the_base_shows_it_and_unclear_where_the_base_does_not_compile(
    stored: StoredRun,
) -> None:
    judgement, _ = concluded(stored, {WRONG: ["sparc64"]}, unbuilt={"armv5/bitops": "it does not compile"})
    verdicts = {cell.target: (cell.verdict, cell.reason) for cell in judgement.cells if cell.suite == "bitops"}
    assert verdicts == {
        "armv5": ("UNKNOWN", "1 findings in 1 failed tests; BASE does not compile here"),
        "sparc64": ("XFAIL", "known: BASE shows it here"),
    }


def test_a_base_that_does_not_compile_for_a_target_says_so_of_its_cells(tmp_path: Path) -> None:
    judged = judgements.judgement()
    witness = msgspec.structs.replace(judged.findings[0].witnesses[0], cells=["armv5/bitops"])
    unbuilt = msgspec.structs.replace(
        judged.findings[0], kind="build", title="it does not compile", witnesses=[witness], targets=["armv5"]
    )
    found = baseline.of_judgement(BASE, msgspec.structs.replace(judged, findings=[unbuilt]), {})
    assert (found.unbuilt, list(found.findings)) == ({"armv5/bitops": "it does not compile"}, [unbuilt.id])
    baseline.write(tmp_path, found)
    assert baseline.read(tmp_path) == found


def test_the_known_list_precedes_the_base_and_its_expired_and_unused_entries_are_reported(
    stored: StoredRun,
) -> None:
    entries = [(WRONG, "2999-01-01", "for now"), ("gone", "2999-01-01", "fixed"), ("old", "2001-01-01", "forgotten")]
    listed = "".join(
        f'[[findings]]\nid = "{name}"\nserver = "*"\ntargets = ["*"]\nreason = "{why}"\nexpires = {day}\n'
        for name, day, why in entries
    )
    judgement, code = concluded(stored, {WRONG: ["armv5", "sparc64"]}, known=listed)
    assert (code, judgement.findings[0].known) == (ExitCode.PASS, "for now")
    assert judgement.remarks == [
        "known finding gone (*) was not seen in this run",
        "known finding old (*) expired on 2001-01-01: forgotten",
    ]


def test_a_judgement_of_the_base_is_kept_with_its_unknown_cells(stored: StoredRun, tmp_path: Path) -> None:
    stored.canary("sparc64", outcome="failed", message="it did not fault")
    listed = fakes.write(tmp_path / "known.toml", "findings = []\n")
    judgement, _ = conclusion.conclude(stored_run.read(stored.finish()), listed, fakes.quiet())
    found = baseline.of_judgement(BASE, judgement, {})
    assert found.findings == {WRONG: ["armv5"]}, "an UNKNOWN cell must excuse none of its findings"
    assert [(way.target, way.suite, way.title) for way in found.appearances[WRONG]] == [
        ("armv5", "bitops", "test_bitop: # != #")
    ]
    assert set(found.unjudged) == {"sparc64/canary", "sparc64/bitops"}
    baseline.write(tmp_path, found)
    assert baseline.read(tmp_path) == found


def misaligned(*lines: int) -> Judgement:
    """A judgement whose only finding is a misaligned load at these lines of a function."""
    judged = judgements.judgement()
    (finding,), (witness,) = judged.findings, judged.findings[0].witnesses
    seen = Occasion(test="test_bitop", command="BITOP", title=finding.title, said="", functions=("bitopCommand",))
    witnesses = [msgspec.structs.replace(witness, line=line, occasions=[seen]) for line in lines]
    return msgspec.structs.replace(judged, findings=[msgspec.structs.replace(finding, witnesses=witnesses)])


def test_a_second_misaligned_line_in_a_function_of_the_base_is_new_and_a_moved_one_is_not() -> None:
    """Regression: an identity names the function, so the second line passed because the base had the first."""
    base_text = {"src/bitops.c": {10: "    a = *(int *)p;", 20: "    b = *(int *)q;"}}
    old = baseline.of_judgement(BASE, misaligned(10), base_text)
    text = {"src/bitops.c": {30: "        a = *(int *)p;", 31: "    b = *(int *)q;"}}
    for lines, known in (((30,), True), ((30, 31), False), ((31,), False)):
        (finding,) = misaligned(*lines).findings
        assert (baseline.reason(old, finding, text) != "") is known, lines
    (finding,) = misaligned(30, 31).findings
    remark = (
        "alignment-bitopCommand-load is in BASE as well, but here it also has a suite, test, message or source line "
        "that BASE does not show"
    )
    assert remark in baseline.remarks(old, [finding], text)


def test_of_tests_that_fail_in_the_same_way_the_base_is_asked_one_first() -> None:
    (finding,) = misaligned(10).findings
    (witness,) = finding.witnesses
    (seen,) = witness.occasions
    three = [msgspec.structs.replace(seen, test=f"test_{name}") for name in "abc"]
    others = [msgspec.structs.replace(seen, test="test_d", title="another way")]
    elsewhere = [msgspec.structs.replace(seen, test="test_e")]
    witnesses = [
        msgspec.structs.replace(witness, occasions=[*three, *others]),
        msgspec.structs.replace(witness, line=20, occasions=three[1:]),
        msgspec.structs.replace(witness, suite="hashing", occasions=elsewhere),
    ]
    text = {witness.file: {10: "a = *(int *)p;", 20: "b = *(int *)q;"}}
    fault = msgspec.structs.replace(finding, witnesses=witnesses)
    assert baseline.sample_tests([fault], text) == ["test_a", "test_b", "test_d", "test_e"]
    # Where a server died between tests, all must run, unless it did the same in a test.
    nameless = msgspec.structs.replace(seen, test="", title="a third way")
    between = [msgspec.structs.replace(nameless, title=seen.title), *three, nameless]
    fault = msgspec.structs.replace(finding, witnesses=[msgspec.structs.replace(witness, occasions=between)])
    assert baseline.sample_tests([fault], text) == []
    fault = msgspec.structs.replace(finding, witnesses=[msgspec.structs.replace(witness, occasions=between[:-1])])
    assert baseline.sample_tests([fault], text) == ["test_a"]
    # Each test of a wrong result is a way of its own.
    wrong = msgspec.structs.replace(finding, kind="wrong-result", witnesses=witnesses[:1])
    assert baseline.sample_tests([wrong], text) == ["test_a", "test_b", "test_c", "test_d"]


def crashing(line: str) -> tuple[Judgement, Sources]:
    """A judgement whose only finding is a SIGSEGV in a function, and the source around it."""
    judged = misaligned(10)
    finding = msgspec.structs.replace(judged.findings[0], id="sigsegv-bitopCommand", kind="sigsegv")
    return msgspec.structs.replace(judged, findings=[finding]), {"src/bitops.c": {10: f"    {line}"}}


@pytest.mark.parametrize(
    ("line", "again", "decided", "known"),
    [
        ("a = p->x;", None, True, True),
        ("b = q->y;", None, False, False),
        ("b = q->y;", "a = p->x;", True, False),
        ("b = q->y;", "b = q->y;", True, True),
        ("c = r->z;", "b = q->y;", True, False),
    ],
    ids=["alike", "another-line", "another-line-for-sure", "the-bases-by-chance", "neither-of-the-bases"],
)
def test_a_crash_at_another_line_of_a_function_that_crashes_in_the_base_is_new(
    line: str, again: str | None, *, decided: bool, known: bool
) -> None:
    """Regression: only misaligned accesses had lines, so a second null pointer in the function passed as the base's."""
    old = baseline.of_judgement(BASE, *crashing("a = p->x;"))
    if again is not None:
        old = msgspec.structs.replace(old, again=baseline.of_judgement(BASE, *crashing(again)).appearances)
    judged, sources = crashing(line)
    assert bool(baseline.reason(old, judged.findings[0], sources)) is known
    assert (baseline.undecided(old, judged.findings, sources) == []) is decided


def test_an_older_baseline_has_no_lines_of_crashes() -> None:
    old = baseline.of_judgement(BASE, *crashing("a = p->x;"))
    ways = {name: [msgspec.structs.replace(one, line="") for one in each] for name, each in old.appearances.items()}
    old = msgspec.structs.replace(old, appearances=ways, every_line=False)
    judged, sources = crashing("b = q->y;")
    assert baseline.reason(old, judged.findings[0], sources)


def wrong(folder: Path, *messages: str, asserted: str = "") -> Judgement:
    """A judgement of a run in which two cases of a test fail with these messages, in an assertion at this place."""
    run = StoredRun(folder, targets=("armv5",))
    run.canary("armv5")
    for case, message in zip(("one", "two"), messages, strict=False):
        run.test("armv5", "bitops", f"test_bitop[{case}]", outcome="failed", message=message, asserted=asserted)
    listed = fakes.write(folder / "known.toml", "findings = []\n")
    return conclusion.conclude(stored_run.read(run.finish()), listed, fakes.quiet())[0]


AT = "7 keys\n/work/{}/a.py:{}: got 3, port 4{}, native 5"
THERE = AT.format("base", 10, 100)


@pytest.mark.parametrize(
    ("here", "second", "decided", "known"),
    [
        ([THERE], None, True, True),
        ([AT.format("tree", 11, 100)], None, True, True),
        ([AT.format("tree", 11, 100).replace("got 3", "got 2")], None, False, False),
        ([AT.format("tree", 11, 100).replace("got 3", "got 2")], [THERE], True, False),
        ([AT.format("tree", 11, 200)], [THERE], True, False),
        ([AT.format("tree", 11, 200)], [AT.format("again", 12, 300)], True, True),
        ([AT.format("tree", 11, 200).replace("got 3", "got 2")], [AT.format("again", 12, 300)], True, False),
        ([THERE.replace("got", "got also")], [AT.format("again", 12, 300)], True, False),
        ([THERE.replace("port", "at")], [THERE], True, False),
        ([THERE.replace("port", "at")], [THERE.replace("port", "socket")], True, True),
        ([THERE.replace("port", "at").replace("got 3", "got 2")], [THERE.replace("port", "socket")], True, False),
        ([THERE.replace("port", "at the")], [THERE.replace("port", "in this")], True, True),
        ([THERE.replace("port", "at the").replace("got 3", "got 2")], [THERE.replace("port", "in this")], True, False),
        (
            [THERE.replace("port", "at the").replace("native 5", "native 6")],
            [THERE.replace("port", "in this")],
            True,
            False,
        ),
        ([THERE.replace(" port 4100,", "")], [THERE.replace("port", "in this")], True, False),
        ([THERE + " " + THERE], [THERE], True, False),
        ([THERE.replace("got 3", "got 2")], [], True, False),
        ([THERE.replace("7 keys", "8 keys")], [THERE], True, False),
        ([THERE, THERE], None, False, False),
        ([THERE, THERE], [THERE], True, False),
    ],
    ids=[
        "alike",
        "elsewhere",
        "other-value",
        "other-value-for-sure",
        "other-port-for-sure",
        "chance",
        "other-value-beside-chance",
        "other-words-beside-chance",
        "other-words",
        "words-by-chance",
        "other-value-beside-words-by-chance",
        "more-words-by-chance",
        "other-value-before-more-words-by-chance",
        "other-value-behind-more-words-by-chance",
        "a-part-is-missing",
        "something-behind",
        "base-did-not-fail-again",
        "other-title",
        "other-case",
        "other-case-for-sure",
    ],
)
def test_another_wrong_value_of_a_test_that_fails_in_the_base_is_new_unless_the_base_varies_there(
    tmp_path: Path, here: list[str], second: list[str] | None, *, decided: bool, known: bool
) -> None:
    """Regression: all numbers counted as equal, so a second bug in the same test passed as the base's."""
    old = baseline.of_judgement(BASE, wrong(tmp_path / "base", THERE), {})
    if second is not None:
        again = baseline.of_judgement(BASE, wrong(tmp_path / "again", *second), {}).appearances
        old = msgspec.structs.replace(old, again=again)
    findings = wrong(tmp_path / "run", *here).findings
    assert all(baseline.reason(old, finding, {}) for finding in findings) is known
    assert (baseline.undecided(old, findings, {}) == []) is decided
    bare = [msgspec.structs.replace(finding, witnesses=[]) for finding in findings]
    assert baseline.undecided(old, bare, {}) == [], "a second run of the base would not decide it"


@pytest.mark.parametrize(
    ("further", "asserted", "known"),
    [
        (["keys a, b, c left"], "a/b.py:7", True),
        (["keys x, y left"], "a/b.py:7", False),
        (["keys a, b, c left"], "a/b.py:8", False),
        (["keys c, d left"], "a/b.py:7", True),
    ],
    ids=["the-values-vary", "the-values-do-not-vary", "another-assertion", "the-same-words"],
)
def test_values_of_an_assertion_that_vary_in_the_base_excuse_other_values_of_it(
    tmp_path: Path, further: list[str], asserted: str, *, known: bool
) -> None:
    """Regression: the order of evictions lists other keys in each run, and was taken for another finding."""
    place = "a/b.py:7"
    old = baseline.of_judgement(BASE, wrong(tmp_path / "base", "keys x, y left", asserted=place), {})
    again = baseline.of_judgement(BASE, wrong(tmp_path / "again", *further, asserted=place), {}).appearances
    old = msgspec.structs.replace(old, again=baseline.merged([again]))
    (finding,) = wrong(tmp_path / "run", "keys c, d left", asserted=asserted).findings
    assert bool(baseline.reason(old, finding, {})) is known


def test_a_failure_that_a_further_run_of_the_base_shows_is_the_bases(tmp_path: Path) -> None:
    """Before a change is blamed for a failed test, the base is asked again: it may fail there at times."""
    old = baseline.Baseline(base=BASE, findings={}, unjudged={})
    (finding,) = wrong(tmp_path / "run", "no reply", asserted="a/b.py:7").findings
    assert baseline.undecided(old, [finding], {}) == [finding]
    again = baseline.of_judgement(BASE, wrong(tmp_path / "again", "no reply", asserted="a/b.py:7"), {}).appearances
    assert baseline.reason(msgspec.structs.replace(old, again={}), finding, {}) == ""
    assert baseline.reason(msgspec.structs.replace(old, again=again), finding, {})


def test_a_damaged_baseline_is_reported(stored: StoredRun) -> None:
    fakes.write(stored.finish() / baseline.NAME, "{")
    with pytest.raises(UsageError, match="the findings of the base are damaged"):
        baseline.read(stored.folder)
