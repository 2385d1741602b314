"""A run as a whole: concludes findings, verdicts and the exit code."""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.analysis import implicated_code, source_excerpt, suspects
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.core.finding import Finding, Verdict
from harness.core.model import CANARY_SUITE
from harness.core.processes.timeouts import if_slow
from harness.core.wanted_tests import is_wanted
from harness.judge import baseline, provenance, warning_findings
from harness.judge.causes import causes_of, ordered
from harness.judge.change import left_out, unchecked_changes
from harness.judge.findings import SCHEMA, Judgement, findings_of_cell, judge, kernel_counters
from harness.judge.known import known_list, matching, tree_list
from harness.judge.program_runs.program_evidence import program_remarks
from harness.judge.upstream_tests import tally
from harness.judge.verdict import EVERYWHERE, cell_verdicts, overall
from harness.record import cell_events, compiler_warnings, event_log, program_launch, run_folder, stored_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.progress import Progress
    from harness.judge.change.unchecked_changes import Change
    from harness.judge.verdict import CellOutcome, CellVerdict
    from harness.record.compiler_warnings import CompilerReport
    from harness.record.run_record import CellRecord, RunRecord
    from harness.record.stored_run import TrustedRun


class KnownLists(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that makes a run's findings known: the known list, the tree's own list, and the base's findings."""

    run: RunRecord
    own: tree_list.OwnList
    listed: known_list.KnownList
    """The entries of both lists."""
    old: baseline.Baseline | None
    sources: source_excerpt.Sources
    """The lines around the places of the run's findings."""
    today: datetime.date

    @classmethod
    def read(cls, folder: Path, run: RunRecord, known_file: Path) -> KnownLists:
        """The known lists of a run in a folder. Raises UsageError for an invalid list."""
        own = tree_list.own_list(folder, run)
        listed = known_list.load_known(known_file, run.machines, known_list.Settings.of(run))
        return cls(
            run=run,
            own=own,
            listed=known_list.KnownList(findings=[*listed.findings, *own.entries]),
            old=baseline.of_run(folder, run),
            sources=source_excerpt.read(folder).sources,
            today=datetime.datetime.now(tz=datetime.UTC).date(),
        )

    @property
    def in_force(self) -> list[known_list.KnownFinding]:
        """The entries that count today."""
        return [entry for entry in self.listed.findings if entry.expires >= self.today]

    def after_judging(self, folder: Path) -> KnownLists:
        """The same lists, for use after judging: with the source lines around the findings, which judging stores in the
        run's folder.
        """
        return msgspec.structs.replace(self, sources=source_excerpt.read(folder).sources)

    def lasting(self, finding: Finding) -> bool:
        """Whether entries make a finding known, and none of them is for findings that depend on chance."""
        entries = self._matching(finding)
        return bool(entries) and not any(entry.intermittent for entry in entries)

    def marked(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings, each with the reason for which it is known, or with none."""
        return [self._marked(finding) for finding in findings]

    def _marked(self, finding: Finding) -> Finding:
        reason = "; ".join(dict.fromkeys(entry.reason for entry in self._matching(finding)))
        if not reason and self.old:
            reason = baseline.reason(self.old, finding, self.sources)
        if not reason and finding.scope == "everywhere" and self.run.everywhere == "note":
            reason = EVERYWHERE
        return msgspec.structs.replace(finding, known=reason)

    def _matching(self, finding: Finding) -> list[known_list.KnownFinding]:
        """The entries that count today and together make a finding known; none if it is new."""
        release = known_list.release_name(self.run)
        return matching.match(self.listed, finding, self.run.server, self.today, release=release, sources=self.sources)


class EndedCell(NamedTuple):
    """What a cell that has ended shows by itself, while others run."""

    known: set[str]
    """The failed tests in which only known findings were seen."""
    new: list[Finding]
    """Its findings that are not known."""

    @property
    def seen(self) -> set[str]:
        """The failed tests in which findings were seen."""
        return self.known | _tests_of(self.new)


def of_ended_cell(folder: Path, run: RunRecord, record: CellRecord, known_file: Path) -> EndedCell:
    """Judge a cell of a run in this folder alone."""
    findings = KnownLists.read(folder, run, known_file).marked(findings_of_cell(folder, run, record))
    new = [one for one in findings if not one.known]
    return EndedCell(known=_tests_of(one for one in findings if one.known) - _tests_of(new), new=new)


def _tests_of(findings: Iterable[Finding]) -> set[str]:
    return {test for finding in findings for witness in finding.witnesses for test in witness.tests}


def conclude(
    stored: TrustedRun, known_file: Path, progress: Progress, *, tree: Path | None = None, made_here: bool = False
) -> tuple[Judgement, ExitCode]:
    """Judge a run, with the same result just after the run and years later. `tree`: its source, for excerpts.

    `made_here`: this command made the run, so its reproducers may be replayed without `--trust`. Raises
    InconclusiveError as `judge` does, and UsageError for damaged files beside the evidence.
    """
    folder, run = stored.folder, stored.record
    with progress.stage("judge", "judging"):
        findings, outcomes, counters = judge(stored)
        if made_here:
            provenance.seal_all(Cache.default(), folder)
        findings = _with_code(folder, run, findings, tree)
        # Keeping excerpts has added their digest to the record.
        recorded = run_folder.read_run(folder)
        run = msgspec.structs.replace(run, beside=recorded.beside, digest=recorded.digest)
    lists = KnownLists.read(folder, run, known_file)
    marked = ordered(lists.marked(findings))
    compiler_reports = compiler_warnings.read(folder, run)
    warned = lists.marked(warning_findings.of_targets_alone(run, compiler_reports))
    failing = warned if run.warnings == "fail" else []
    uncompared = baseline.uncompared(lists.old, marked, lists.sources) if lists.old else {}
    judged = cell_verdicts(outcomes, marked, uncompared)
    changes = unchecked_changes.read(folder)
    left = _unchecked(folder, run, changes, judged, compiler_reports)
    verdict = Verdict.merge([overall(judged), *warning_findings.verdicts(failing), *(Verdict.UNKNOWN for _ in left)])
    judgement = Judgement(
        schema=SCHEMA,
        verdict=verdict,
        server=run.server,
        seed=run.seed,
        run=str(folder),
        policy=run.policy,
        optimisation=run.optimisation,
        cells=judged,
        findings=[*marked, *failing],
        causes=causes_of([*marked, *failing], run.machines),
        warnings=[] if failing else warned,
        remarks=[
            *left,
            *_of_change(run, changes, judged),
            *_of_run(folder, run),
            *_of_programs(outcomes, judged),
            *_of_hangs(run, marked),
            *_of_audits(judged),
            *_of_host(outcomes),
            *_of_lists(lists, [*marked, *warned], judged),
            *(baseline.remarks(lists.old, [*marked, *failing], lists.sources) if lists.old else []),
            *warning_findings.remarks(compiler_reports, warned),
            *stored_run.remarks(stored, marked),
        ],
        stages=run.stages,
        counters=counters,
        kernel_counters=kernel_counters(folder, run),
        allocator=run.allocator,
        toolchain=run.toolchain,
        environment=run.environment,
        memory_order=run.memory_order,
        io=run.io,
        tier=run.tier,
        tests=run.tests,
        base=str(lists.old.base) if lists.old else "",
        place=_place(run.server),
        revision=run.revision,
        emulators=_emulators(run),
        unchecked=left,
        left_out=left_out.tests(run),
        settings=list(run.settings.words),
        timeout_multiplier=run.timeout_multiplier,
        record=run.digest,
    )
    return judgement, exit_code(judgement.verdict)


def _with_code(folder: Path, run: RunRecord, findings: list[Finding], tree: Path | None) -> list[Finding]:
    """The findings with the code that they implicate. Keeps excerpts of the source in the run's folder."""
    source_excerpt.collect(folder, run, findings, tree)
    return suspects.collect(folder, implicated_code.collect(folder, findings, tree))


def _unchecked(
    folder: Path,
    run: RunRecord,
    changes: Sequence[Change],
    cells: Sequence[CellVerdict],
    reports: Mapping[str, CompilerReport],
) -> list[str]:
    """Sentences about what the run should have checked but did not, so its verdict is UNKNOWN."""
    return [
        *([] if run.ended else ["the run did not end: only the cells that had ended were judged"]),
        *unchecked_changes.remarks(changes, cells),
        *unchecked_changes.unentered(run),
        *unchecked_changes.broken(folder, run),
        *baseline.unrecorded(folder, run),
        *(warning_findings.unanswered(run, reports) if run.warnings == "fail" else []),
    ]


def _of_change(run: RunRecord, changes: Sequence[Change], cells: Sequence[CellVerdict]) -> list[str]:
    """Sentences on how far the run checks the change that it was made for."""
    return [
        *unchecked_changes.unseen(changes),
        *unchecked_changes.partly(changes, cells),
        *unchecked_changes.partly_entered(run),
        *unchecked_changes.partly_executed(run),
        *unchecked_changes.without_effect(run),
        *unchecked_changes.not_compared(run, changes),
    ]


def _of_run(folder: Path, run: RunRecord) -> list[str]:
    """Sentences about the parts of the run, and about what its evidence shows besides findings."""
    return [
        *_part(folder, run),
        *left_out.remarks(run),
        *([f"the server is {run.development}"] if run.development else []),
        *_settings(run),
        *_turned_away(folder),
        *_of_order(folder, run),
        *tally.remarks(folder, run),
        *program_remarks(folder, run),
    ]


def _of_programs(outcomes: Sequence[CellOutcome], cells: Sequence[CellVerdict]) -> list[str]:
    """Sentences on what was not observed of a command whose findings make its verdict: the reason of a cell without
    them says the same.
    """
    failed = {cell.target for cell in cells if cell.suite == program_launch.SUITE and cell.verdict == Verdict.FAIL}
    return [
        doubt for one in outcomes if one.suite == program_launch.SUITE and one.target in failed for doubt in one.doubts
    ]


def _of_hangs(run: RunRecord, findings: Sequence[Finding]) -> list[str]:
    """A sentence on new findings that may be due to a slow machine; empty if there are none."""
    hanging = [one for one in findings if one.kind == "hang" and not one.known]
    if not hanging:
        return []
    targets = ", ".join(dict.fromkeys(name for one in hanging for name in one.targets))
    return [f"servers did not answer in time on {targets}; {if_slow(run.timeout_multiplier)} tells whether they hang"]


def _of_audits(cells: Sequence[CellVerdict]) -> list[str]:
    """A sentence for each target on which tests passed only in audits, and no new finding kept them from passing."""
    alone: dict[str, list[CellVerdict]] = {}
    for cell in cells:
        if cell.verdict == Verdict.XFAIL and cell.audited and not cell.passed:
            alone.setdefault(cell.target, []).append(cell)
    return [
        f"{target}: because of known findings no test of {', '.join(cell.suite for cell in those)} passed; in the "
        f"audits that followed, in which misaligned accesses succeed, {sum(cell.audited for cell in those)} passed"
        for target, those in alone.items()
    ]


def _of_host(outcomes: Sequence[CellOutcome]) -> list[str]:
    """Sentences on failed tests that fail on the host at times, and on those that could not be tried there."""
    unsteady: dict[str, list[str]] = {}
    for one in outcomes:
        for test in [*one.unsteady, *one.unsteady_in_audit]:
            unsteady.setdefault(test, []).append(one.target)
    return [
        *(f"{test} failed on {', '.join(on)}, and at times on the host too" for test, on in unsteady.items()),
        *(
            f"{one.target}/{one.suite}: its failed tests have no result on the host: {one.unasked}"
            for one in outcomes
            if one.unasked
        ),
    ]


def _of_lists(lists: KnownLists, found: Sequence[Finding], cells: Sequence[CellVerdict]) -> list[str]:
    """Sentences about the known lists: what the tree's own list excuses, and which entries to remove."""
    run = lists.run
    # A suite that was skipped does not show that a bug is gone.
    entered = {cell.suite for cell in cells if cell.verdict != Verdict.SKIP}
    return [
        *lists.own.remarks,
        *tree_list.excused_by_own(lists.own, found, lists.today, lists.sources),
        *matching.remarks(
            lists.listed,
            found,
            run.server,
            run.targets,
            lists.today,
            release=known_list.release_name(run),
            suites=sorted(entered),
            part=bool(run.tests) or left_out.tests(run) > 0,
            unjudged=[(cell.target, cell.suite) for cell in cells if cell.verdict == Verdict.UNKNOWN],
            sources=lists.sources,
        ),
    ]


def _emulators(run: RunRecord) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for cell in run.cells:
        if cell.emulator and cell.emulator not in found.setdefault(cell.target, []):
            found[cell.target].append(cell.emulator)
    return found


def _part(folder: Path, run: RunRecord) -> list[str]:
    """Sentences on the selection of tests; none if all tests ran."""
    if not run.tests:
        return []
    # The canaries always run, whatever they are called.
    files = [path for path in sorted(folder.glob(f"*/*/{event_log.NAME}")) if path.parent.name != CANARY_SUITE]
    events = (event for path in files for event in event_log.read_events(path))
    tests = {(event.name, event.upstream) for event in events if isinstance(event, cell_events.TestEvent)}
    idle = [word for word in run.tests if not any(is_wanted(*test, [word]) for test in tests)]
    return [
        f"only the tests that match were run: --test {' '.join(map(shlex.quote, run.tests))}",
        *(f"no test matches --test {shlex.quote(word)}" for word in idle),
    ]


def _settings(run: RunRecord) -> list[str]:
    words = shlex.join(run.settings.words)
    return [f"targets were built with {words}; the native build that they are compared with was not"] if words else []


def _of_order(folder: Path, run: RunRecord) -> list[str]:
    """Sentences on how much each target's stores were reordered, if the run had another memory order than the host."""
    remarks = []
    for target in run.targets if run.memory_order != "usual" else []:
        cells = sorted((folder / target).glob("*"))
        counts = [one for cell in cells for one in stored_run.store_counts(cell)]
        stores, overtakes, pauses = (
            sum(getattr(one, name) for one in counts) for name in ("stores", "overtakes", "pauses")
        )
        seen = {(cell, one.pid, one.early, one.late) for cell in cells for one in stored_run.overtakes(cell)}
        remarks.append(
            f"{target}: {stores} stores waited in its programs, {overtakes} overtook older ones, and threads paused "
            f"{pauses} times in between; other threads saw {len(seen)} pairs of stores in another order"
        )
    return remarks


def _turned_away(folder: Path) -> list[str]:
    """A sentence on connections that the proxies turned away; empty if there were none. No test depends on them."""
    guests = [event for path in sorted(folder.rglob("events.jsonl")) for event in event_log.read_events(path)]
    number = sum(event.strangers for event in guests if isinstance(event, cell_events.GuestEvent))
    if not number:
        return []
    return [f"rejected connections to servers under test, from another user or closed at once: {number}"]


def exit_code(verdict: str) -> ExitCode:
    """The exit code for a verdict, of a judgement or of a porting report."""
    codes: dict[str, ExitCode] = {Verdict.FAIL: ExitCode.FINDINGS, Verdict.UNKNOWN: ExitCode.INCONCLUSIVE}
    return codes.get(verdict, ExitCode.PASS)


def _place(server: str) -> str:
    tree = Path(server)
    # The name of a release is not a path, and the source of a release is not in a repository.
    return folder_in_repository(tree, Path.cwd()) if tree.is_absolute() else ""


def folder_in_repository(tree: Path, here: Path) -> str:
    """A tree's folder relative to the root of its repository, with forward slashes; empty if it is the root.

    Without a .git above the tree (an archive, GitHub's own checkout without git), `here` counts as the root if it
    contains the tree.
    """
    above = [tree, *tree.parents]
    top = next((folder for folder in above if (folder / ".git").exists()), here if here in above else tree)
    folder = tree.relative_to(top).as_posix()
    return "" if folder == "." else folder
