"""Runs of several jobs make one judgement: the worst verdict counts, and a cell that no job ran is unknown."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.errors import UsageError
from harness.core.finding import Verdict
from harness.core.model import Cell
from harness.judge.merge import join
from harness.judge.verdict import EVERYWHERE
from harness.record.cell_events import Counters
from tests.support.judgements import cell, judgement

if TYPE_CHECKING:
    from harness.core.finding import Finding
    from harness.judge.findings import Judgement
    from harness.judge.verdict import CellVerdict

CLEAN = msgspec.structs.replace(
    judgement(),
    run="/run/2",
    verdict=Verdict.PASS,
    seed=8,
    cells=[cell("armv7", "canary", "PASS"), cell("armv7", "bitops", "PASS")],
    findings=[],
    remarks=[],
    stages={"build": 5.0, "suites": 1.0},
)


def everywhere() -> Judgement:
    """A run whose finding the native build shows as well."""
    shown = judgement().findings[0]
    witnesses = [msgspec.structs.replace(one, cells=["armv5/bitops"]) for one in shown.witnesses]
    finding = msgspec.structs.replace(shown, scope="everywhere", known=EVERYWHERE, witnesses=witnesses)
    cells = [cell("armv5", "canary", "PASS"), cell("armv5", "bitops", "XFAIL")]
    return msgspec.structs.replace(CLEAN, run="/run/3", findings=[finding], cells=cells)


def test_a_finding_that_one_run_shows_on_its_machine_alone_is_on_no_every_machine() -> None:
    """In one run of both targets it would fail, too."""
    assert join([everywhere(), CLEAN]).verdict == Verdict.PASS
    noted = everywhere().findings[0]
    witnesses = [msgspec.structs.replace(one, target="armv7", cells=["armv7/bitops"]) for one in noted.witnesses]
    found = msgspec.structs.replace(noted, scope="machine", known="", targets=["armv7"], witnesses=witnesses)
    cells = [cell("armv7", "canary", "PASS"), cell("armv7", "bitops", "FAIL")]
    joined = join([everywhere(), msgspec.structs.replace(CLEAN, verdict=Verdict.FAIL, cells=cells, findings=[found])])
    assert [(one.scope, one.known) for one in joined.findings] == [("machine", "")]
    verdicts = {(one.target, one.suite): one.verdict for one in joined.cells}
    assert verdicts["armv5", "bitops"] == Verdict.FAIL


def test_a_cell_whose_failures_the_host_shares_at_times_passes_in_a_join() -> None:
    passed = msgspec.structs.replace(cell("armv7", "sds", "PASS"), failed=1, unsteady=1)
    assert join([msgspec.structs.replace(CLEAN, cells=[*CLEAN.cells, passed])]).verdict == Verdict.PASS
    lying = msgspec.structs.replace(passed, unsteady=0)
    assert join([msgspec.structs.replace(CLEAN, cells=[*CLEAN.cells, lying])]).verdict == Verdict.FAIL


def test_a_cell_whose_tests_passed_in_its_audit_alone_needs_a_finding_that_shows_why() -> None:
    found = msgspec.structs.replace(judgement().findings[0], known="issue 3273", targets=["armv7"])
    found = msgspec.structs.replace(
        found, witnesses=[msgspec.structs.replace(found.witnesses[0], target="armv7", cells=["armv7/sds"])]
    )
    audited = msgspec.structs.replace(cell("armv7", "sds", "XFAIL"), passed=0, failed=1, audited=1)

    def verdict(one: CellVerdict, *findings: Finding) -> Verdict:
        return join([msgspec.structs.replace(CLEAN, cells=[*CLEAN.cells, one], findings=list(findings))]).verdict

    assert verdict(audited, found) == Verdict.PASS
    assert verdict(audited) == verdict(msgspec.structs.replace(audited, audited=0), found) == Verdict.UNKNOWN


def test_joining_one_run_changes_nothing_and_two_have_the_worse_verdict_and_all_cells() -> None:
    assert join([CLEAN]) == CLEAN
    both = join([CLEAN, judgement()])
    assert both.verdict == "FAIL"
    assert [one.target for one in both.cells] == ["armv7"] * 2 + ["armv5"] * 2 + ["sparc64"] * 2 + ["armv6"]
    assert both.stages == {"build": 5.0, "suites": 1.0}
    assert both.remarks == ["the runs had seeds 8, 7", "known finding x expired"]


def test_joined_runs_have_a_tier_only_in_common_and_are_incomplete_if_one_was() -> None:
    full = msgspec.structs.replace(CLEAN, tier="full", tests=["hll"])
    assert (join([full, full]).tier, join([full, full]).tests) == ("full", ["hll"])
    assert (join([full, CLEAN]).tier, join([CLEAN, full]).tests) == ("", ["hll"])


def test_every_emulator_that_ran_a_target_is_named_once() -> None:
    """Machines that compile their own emulators have different ones."""
    one, other, third = (
        msgspec.structs.replace(CLEAN, emulators=emulators)
        for emulators in ({"armv7": ["a" * 64]}, {"armv7": ["b" * 64, "a" * 64], "mips": ["c" * 64]}, {})
    )
    assert join([one, other, third]).emulators == {"armv7": ["a" * 64, "b" * 64], "mips": ["c" * 64]}


def test_a_finding_of_two_targets_is_one_finding() -> None:
    first = judgement()
    finding = first.findings[0]
    witness = msgspec.structs.replace(finding.witnesses[0], target="sparc64")
    there = msgspec.structs.replace(finding, targets=["sparc64"], witnesses=[witness], known="fixed upstream")
    other = msgspec.structs.replace(first, findings=[there])
    (joined,) = join([other, first]).findings
    assert (joined.targets, joined.occurrences) == (["sparc64", "armv5"], 4)
    assert [one.target for one in joined.witnesses] == ["sparc64", "armv5"]
    # A finding that is known on only one of its targets is new.
    assert joined.known == ""
    assert join([other, other]).findings[0].known == "fixed upstream"


@pytest.mark.parametrize(
    ("planned", "ran", "refused"),
    [
        ("redis-3.2.6", "redis-3.2.6", False),
        ("redis-7.0.15", "redis-3.2.6", True),
        (".", "/trees/redis", False),
        ("../redis", "/trees/redis", False),
        # A folder with the name of a release that may not be in the catalog.
        ("redis-7.0.14", "/trees/redis-7.0.14", False),
        ("redis-7.0.15", "/trees/redis", True),
        ("redis-7.0.15", "debian:bookworm/redis-server=5:7.0.15-1", True),
        ("../redis", "redis-7.0.15", True),
    ],
)
def test_a_plan_of_another_release_is_refused(planned: str, ran: str, *, refused: bool) -> None:
    cells = [Cell(target="armv7", server=planned, suite="bitops")]
    runs = [msgspec.structs.replace(CLEAN, server=ran)]
    if not refused:
        assert join(runs, planned=cells).verdict == "PASS"
        return
    with pytest.raises(UsageError, match="the plan is for another server"):
        join(runs, planned=cells)


def test_a_planned_cell_that_no_run_has_makes_a_pass_unknown() -> None:
    planned = [Cell(target=target, server="redis-3.2.6", suite="bitops") for target in ("armv7", "mips")]
    joined = join([CLEAN], planned=planned)
    assert joined.verdict == "UNKNOWN"
    (absent,) = (one for one in joined.cells if one.target == "mips")
    assert (absent.verdict, absent.reason) == ("UNKNOWN", "it was planned, but no run contains it")
    assert (absent.passed, absent.failed, absent.skipped, absent.seconds) == (0, 0, 0, 0.0)
    assert join([CLEAN], planned=planned[:1]).verdict == "PASS"


def test_a_planned_cell_of_which_only_some_tests_ran_makes_a_pass_unknown() -> None:
    planned = [Cell(target="armv7", server="redis-3.2.6", suite=suite) for suite in ("canary", "bitops")]
    canary = msgspec.structs.replace(CLEAN.cells[0], suite="canary")
    clean = msgspec.structs.replace(CLEAN, cells=[canary, *CLEAN.cells])
    some = msgspec.structs.replace(clean, tests=["bit*"])
    joined = join([some, msgspec.structs.replace(some, tests=["a b"])], planned=planned)
    assert joined.verdict == "UNKNOWN"
    why = "it was planned with all of its tests, but only tests that match --test 'a b' 'bit*' ran"
    assert [(one.suite, one.reason) for one in joined.cells] == [("canary", ""), ("bitops", why)]
    assert join([some, clean], planned=planned).verdict == "PASS"
    assert join([some], planned=planned, tests=["bit*"]).verdict == "PASS"
    assert join([some], planned=planned, tests=["bit*", "a b"]).verdict == "UNKNOWN"
    assert join([some]).verdict == "PASS", "without a plan, it is not specified what should have run"


def test_a_planned_cell_that_only_ran_in_a_lower_tier_makes_a_pass_unknown() -> None:
    planned = [Cell(target="armv7", server="redis-3.2.6", suite="bitops")]
    quick, full, old = (msgspec.structs.replace(CLEAN, tier=tier) for tier in ("quick", "full", ""))
    lower = join([quick], planned=planned, tier="full")
    assert lower.verdict == "UNKNOWN"
    assert [one.reason for one in lower.cells] == ["", "it was planned in the tier full, and only ran in: quick"]
    assert join([old], planned=planned, tier="full").verdict == "UNKNOWN"
    assert join([quick, full], planned=planned, tier="full").verdict == "PASS"
    assert join([full], planned=planned, tier="quick").verdict == "PASS"
    bad = msgspec.structs.replace(judgement(), tier="quick")
    planned = [msgspec.structs.replace(planned[0], target="armv5")]
    assert join([bad], planned=planned, tier="full").verdict == "FAIL"


@pytest.mark.parametrize(
    ("option", "ran", "other", "words"),
    [
        ("toolchain", "gcc", "clang-musl", "--toolchain clang-musl"),
        ("policy", "signal", "fixup", "--policy fixup"),
        ("policy", "signal", "audit-fixup", "--audit --policy fixup"),
        ("optimisation", "O2", "O3-lto", "--optimisation O3-lto"),
        ("allocator", "libc", "jemalloc", "--allocator jemalloc"),
        ("environment", "usual", "musl-stack", "--environment musl-stack"),
        ("memory-order", "usual", "weak", "--memory-order weak"),
        ("io", "unix", "tcp", "--io tcp"),
    ],
)
def test_a_plan_with_other_options_is_refused(option: str, ran: str, other: str, words: str) -> None:
    """A plan named neither policy, optimisation level nor allocator, and runs with any of them passed for it."""
    assert join([CLEAN], options={option: ran}).verdict == "PASS"
    with pytest.raises(UsageError, match="the plan is for other options") as refused:
        join([CLEAN], options={option: other})
    assert (refused.value.because, refused.value.remedy) == (
        f"it plans {words}, and the runs have --{option} {ran}",
        f"plan again with --{option} {ran}, or check again with {words}",
    )
    with pytest.raises(UsageError, match="the plan is for other options"):
        join([msgspec.structs.replace(CLEAN, **{option.replace("-", "_"): other})], options={option: ran})


def test_a_plan_of_another_commit_is_refused() -> None:
    """Runs of an earlier commit passed for the planned one."""
    run = msgspec.structs.replace(CLEAN, server="/work/1/redis", revision="0123")
    for planned in ("", "0123", "0123+changes"):
        assert join([run], revision=planned).verdict == "PASS"
    with pytest.raises(UsageError, match="the plan is for another commit") as refused:
        join([run], revision="4567+changes")
    assert refused.value.because == "it plans 4567, and the runs are of 0123"
    assert join([msgspec.structs.replace(run, revision="")], revision="4567").verdict == "PASS"


def test_a_plan_says_all_that_differs_at_once() -> None:
    run = msgspec.structs.replace(CLEAN, settings=["--make=A=1"], policy="audit")
    with pytest.raises(UsageError) as refused:
        join([run], options={"policy": "signal", "optimisation": "O3", "io": "unix"}, settings=[])
    assert refused.value.because == (
        "it plans --policy signal --optimisation O3, "
        "and the runs have --audit --policy signal --optimisation O2 --make=A=1"
    )


@pytest.mark.parametrize(
    ("planned", "ran", "refused"),
    [
        ([], [], False),
        (["--cflags=-O1"], ["--cflags=-O1"], False),
        ([], ["--cflags=-O1"], True),
        (["--cflags=-O1"], [], True),
        (["--make=A=1", "--make=B=1"], ["--make=B=1", "--make=A=1"], True),
        (None, ["--cflags=-O1"], False),
    ],
    ids=["none", "same", "more", "fewer", "other-order", "an-old-plan"],
)
def test_a_plan_of_another_build_is_refused(planned: list[str] | None, ran: list[str], *, refused: bool) -> None:
    """Regression: a plan did not contain the build settings, so runs of any build fulfilled it."""
    run = msgspec.structs.replace(CLEAN, settings=ran)
    with pytest.raises(UsageError, match="the plan is for other options") if refused else contextlib.nullcontext():
        assert join([run], settings=planned).verdict == "PASS"


def test_a_run_of_some_tests_and_one_of_a_lower_tier_do_not_fulfil_a_plan_together() -> None:
    """Regression: each run lacked what the other had, but the cell passed."""
    planned = [Cell(target="armv7", server="redis-3.2.6", suite="bitops")]
    quick = msgspec.structs.replace(CLEAN, tier="quick")
    some = msgspec.structs.replace(CLEAN, tier="full", tests=["bit*"])
    joined = join([quick, some], planned=planned, tier="full")
    assert [one.reason for one in joined.cells] == ["", "it was planned in the tier full, and only ran in: quick"]
    assert joined.verdict == "UNKNOWN"
    assert join([quick, some], planned=planned, tier="quick").verdict == "PASS"
    assert join([quick, some], planned=planned, tier="full", tests=["bit*"]).verdict == "PASS"


@pytest.mark.parametrize(
    ("verdict", "failed", "why"),
    [("XFAIL", 3, "no finding shows why"), ("SKIP", 0, "tests ran in it"), ("SKIP", 3, "tests ran in it")],
)
def test_a_cell_that_claims_more_than_its_file_shows_is_unknown(verdict: str, failed: int, why: str) -> None:
    """Regression: an expected failure without a finding passed, and so did a skipped cell with failed tests."""
    claimed = msgspec.structs.replace(cell("armv7", "bitops", verdict), failed=failed)
    run = msgspec.structs.replace(CLEAN, cells=[cell("armv7", "canary", "PASS"), claimed, cell("armv7", "sds", "PASS")])
    joined = join([run])
    assert (joined.verdict, joined.cells[1].reason) == ("UNKNOWN", f"its file says {verdict}, but {why}")


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN])
def test_a_verdict_that_nothing_in_its_file_explains_counts(verdict: Verdict) -> None:
    """Only the cells counted: such a run passed with others, and alone."""
    run = msgspec.structs.replace(CLEAN, verdict=verdict)
    assert join([run]).verdict == join([CLEAN, run]).verdict == verdict


def test_runs_whose_suites_all_skip_say_nothing_joined_as_alone() -> None:
    absent = msgspec.structs.replace(cell("armv7", "selftests", "SKIP", "it has none"), passed=0)
    cells = [cell("armv7", "canary", "PASS"), absent]
    silent = msgspec.structs.replace(CLEAN, verdict=Verdict.UNKNOWN, cells=cells)
    assert join([silent]).verdict == "UNKNOWN"
    assert join([silent, CLEAN]).verdict == "PASS"


def test_the_worst_of_a_cell_that_two_runs_have_counts() -> None:
    bad = msgspec.structs.replace(CLEAN, verdict=Verdict.UNKNOWN, cells=[cell("armv7", "canary", "UNKNOWN", "silent")])
    for runs in ([CLEAN, bad], [bad, CLEAN]):
        canary = [one for one in join(runs).cells if one.suite == "canary"]
        assert [one.verdict for one in canary] == ["UNKNOWN"]


def test_a_cell_with_only_known_findings_stays_one_when_it_is_joined() -> None:
    found = judgement().findings[0]
    finding = msgspec.structs.replace(found, id="x", known="issue 1", targets=["armv7"])
    finding = msgspec.structs.replace(
        finding,
        witnesses=[msgspec.structs.replace(found.witnesses[0], target="armv7", suite="bitops", cells=["armv7/bitops"])],
    )
    cells = [cell("armv7", "canary", "PASS"), cell("armv7", "bitops", "XFAIL")]
    run = msgspec.structs.replace(CLEAN, cells=cells, findings=[finding])
    assert [one.verdict for one in join([run]).cells] == ["PASS", "XFAIL"]
    hidden = msgspec.structs.replace(run, cells=[cells[0], cell("armv7", "bitops", "PASS")])
    assert [one.verdict for one in join([hidden]).cells] == ["PASS", "FAIL"]


def test_a_known_finding_of_another_run_counts_as_seen() -> None:
    finding = msgspec.structs.replace(judgement().findings[0], known="issue 1")
    unseen = [
        "known finding alignment-* (redis-3.2.6) was not seen in this run",
        "known finding x (y) was not seen in this run",
    ]
    without = msgspec.structs.replace(CLEAN, remarks=unseen)
    assert join([without, msgspec.structs.replace(CLEAN, findings=[finding])]).remarks == unseen[1:]
    assert join([without, CLEAN]).remarks == unseen


def test_counts_of_a_target_in_several_runs_are_added() -> None:
    counted = Counters(user=1, skipped=2, half=3, word=4, dword=5, multi=6)
    one = msgspec.structs.replace(CLEAN, counters={"armv5": counted}, kernel_counters={"armv6": counted})
    joined = join([one, one, CLEAN])
    twice = Counters(user=2, skipped=4, half=6, word=8, dword=10, multi=12)
    assert (joined.counters, joined.kernel_counters) == ({"armv5": twice}, {"armv6": twice})


def test_checkouts_of_one_tree_in_two_folders_are_the_same() -> None:
    first, second = (msgspec.structs.replace(CLEAN, server=f"/work/{n}/redis") for n in (1, 2))
    assert join([first, second]).server == "/work/1/redis"


@pytest.mark.parametrize(
    ("field", "called"),
    [
        ("server", "servers"),
        ("place", "folders of the tree in its repository"),
        ("revision", "revisions"),
        ("policy", "policies"),
        ("optimisation", "optimisation levels"),
        ("allocator", "allocators"),
        ("toolchain", "toolchains"),
        ("environment", "environments"),
        ("memory_order", "memory orders"),
        ("io", r"transports \(--io\)"),
        ("settings", r"build settings \(--cflags, --make\)"),
    ],
)
def test_runs_of_different_things_are_refused(field: str, called: str) -> None:
    other = ["other"] if field == "settings" else "other"
    with pytest.raises(UsageError, match=rf"different {called} \(.*; other: /run/2\)"):
        join([CLEAN, msgspec.structs.replace(CLEAN, **{field: other})])


def test_runs_that_were_compared_with_different_revisions_are_refused() -> None:
    one, another = (msgspec.structs.replace(CLEAN, base=f"{commit * 12} 'it' (why)") for commit in "12")
    assert join([CLEAN, one]).base == one.base
    with pytest.raises(UsageError, match="different revisions to compare with"):
        join([one, another])


def test_runs_of_two_revisions_are_refused_with_a_list_and_advice() -> None:
    runs = [("runs/1", "0123"), ("runs/2 b", "0123+changes"), ("runs/3 c", "0123+changes"), ("runs/4", "")]
    with pytest.raises(UsageError) as refused:
        join([msgspec.structs.replace(CLEAN, run=run, revision=revision) for run, revision in runs])
    error = refused.value
    assert error.what == "the runs have different revisions"
    assert error.where == "0123: runs/1; 0123+changes: runs/2 b, runs/3 c; (none): runs/4"
    assert error.remedy == (
        "check again like the others, and join the new folder instead: runs/1, runs/4; "
        "or join the runs that match: plumb join 'runs/2 b' 'runs/3 c'"
    )


def test_joining_no_runs_is_refused() -> None:
    with pytest.raises(UsageError, match="no runs"):
        join([])
