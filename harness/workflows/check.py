"""The main job: prepares a run, runs every cell in its own process, and has the evidence judged at the end."""

from __future__ import annotations

import functools
import math
import os
import shutil
import tempfile
import threading
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.analysis import source_excerpt
from harness.build import host_packages
from harness.build.allocator import refuse_unused_options
from harness.build.sources import source_tree
from harness.core.processes import process
from harness.judge import baseline
from harness.judge.conclusion import EndedCell, KnownLists, conclude, of_ended_cell
from harness.judge.known import tree_list
from harness.record import run_folder, stored_run
from harness.run.environments import inherited_limits
from harness.run.scheduler import CellCount
from harness.workflows.cell_process import cell_server
from harness.workflows.cells.cell_runs import CellRuns, jobs_of
from harness.workflows.preparation import request_support
from harness.workflows.preparation.cell_specs import CellSpecs
from harness.workflows.preparation.reach.changed_run import ChangedRun
from harness.workflows.preparation.reach.reach_selection import ReachSelection
from harness.workflows.preparation.reach.untested_change import UntestedChange
from harness.workflows.preparation.run_record import run_record
from harness.workflows.preparation.run_setup import RunSetup
from harness.workflows.preparation.warning_record import record_warnings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from harness.analysis.source_excerpt import Sources
    from harness.core.errors import ExitCode
    from harness.core.finding import Finding
    from harness.core.model import Cell, SourceTree
    from harness.judge.baseline import Baseline
    from harness.judge.findings import Judgement
    from harness.plan.plan import Plan
    from harness.plan.request import Request
    from harness.record.run_record import CellRecord, RunRecord
    from harness.workflows.preparation.prepared_run import PreparedRun
    from harness.workflows.preparation.reach.base_code import BaseCode
    from harness.workflows.preparation.reach.edited_lines import EditedLines
    from harness.workflows.workbench import Workbench


class CheckedChange(NamedTuple):
    """The change for which a tree is checked."""

    files: Sequence[str]
    """The files that it changes."""
    known_in_base: str
    """The base's own list of known findings, or empty."""
    base_code: BaseCode
    edited: EditedLines
    every_test: bool
    """Whether tests run, too, that ended as expected in an earlier run and that no change since can reach."""
    sampled: Collection[str] = ()
    """As in CellRuns."""
    base_findings: Callable[[Plan, Sequence[Finding], Sources], Baseline] | None = None
    """What the base shows in the cells of a plan, in tests with these findings; None if it is not asked. The last
    argument: the lines around their places.
    """
    idle: bool = False
    """Whether no test need run on a target where none reaches the change. Otherwise all run there."""
    keeps: bool = True
    """Whether later runs may leave tests out because of this run."""


class _EndedCells:
    """Stores the cells of a run that have ended, so that they can be judged even if the run is killed."""

    def __init__(self, folder: Path, planned: RunRecord) -> None:
        self._folder = folder
        self._planned = planned
        self._records: dict[tuple[str, str], CellRecord] = {}
        self._lock = threading.Lock()

    def add(self, record: CellRecord) -> None:
        """Store a cell that has ended, in place of an earlier attempt. Several threads call this."""
        with self._lock:
            self._records[record.target, record.suite] = record
            run_folder.write_run(self._folder, msgspec.structs.replace(self._planned, cells=[*self._records.values()]))


class Check:
    """One run of the main job."""

    def __init__(
        self,
        bench: Workbench,
        request: Request,
        *,
        change: CheckedChange | None = None,
        without: Collection[str] = (),
        one_failure: bool = False,
        patient: bool = False,
        until: float = math.inf,
    ) -> None:
        """`change`: the change for which the tree is checked. `without`: names of tests that do not run. `one_failure`:
        as in CellRuns. `patient`: as in CellSpec. `until`: as in CellRuns.
        """
        self.bench = bench
        self.request = request
        self.change = change
        self.without = sorted(without)
        self.one_failure = one_failure
        self.patient = patient
        self.until = until
        self._judging = threading.Lock()

    @cached_property
    def tree(self) -> SourceTree:
        """The server's source, opened on first use. Raises UsageError for a name or a path that is not a server."""
        tree = self.bench.open_server(self.request.server, self.request.settings, packages=True)
        return source_tree.with_newer(tree, self.change.files) if self.change is not None else tree

    @property
    def _sampled(self) -> Collection[str]:
        return self.change.sampled if self.change is not None else ()

    def run(self) -> tuple[Judgement, ExitCode]:
        """Prepare, run every cell, judge. Raises PlumblineError for a problem that is not the server's fault."""
        request = self.request
        self._check_request()
        refuse_unused_options(self.tree, request.settings, request.allocator)
        known_in_tree = tree_list.text_in(self.tree.path)
        prepared = RunSetup(self.bench, request, self.tree, sampled=self._sampled).prepare()
        request.run.mkdir(parents=True, exist_ok=True)
        record_warnings(self.bench, request, prepared)
        change = self.change
        tree_list.record(request.run, known_in_tree, None if change is None else change.known_in_base)
        # The plan is stored first: in a run that is killed, the cells that did not end are then judged UNKNOWN.
        planned = msgspec.structs.replace(run_record(self.bench, request, prepared, []), ended=False)
        run_folder.write_run(request.run, planned)
        before = os.getloadavg()[0]
        try:
            records, selection = self._run_cells(prepared, planned)
        except (KeyboardInterrupt, process.StoppedError):
            self.bench.progress.say(f"for the cells that have ended: {run_folder.command_to_judge(request.run)}")
            raise
        self.bench.refuse_damage(read_again=True)
        unentered = UntestedChange(selection).unentered() if selection is not None else {}
        record = msgspec.structs.replace(
            run_record(self.bench, request, prepared, records),
            load=(round(before, 2), round(os.getloadavg()[0], 2)),
            unentered=unentered,
            uncompared=selection is not None and not unentered,
        )
        run_folder.write_run(request.run, record)
        stored = stored_run.read(request.run)
        judgement, code = conclude(stored, request.known, self.bench.progress, tree=self.tree.content, made_here=True)
        if selection is not None and self.change is not None and self.change.keeps:
            selection.keep(judgement, record)
        return judgement, code

    def _check_request(self) -> None:
        """Raise UsageError for a request that a target does not support, and InfrastructureError for a low limit of
        this process; install packages.
        """
        inherited_limits.refuse_low()
        request_support.check_supported(self.bench.catalog, self.request)
        diagnosis = host_packages.diagnose(
            self.bench.catalog, self.request.plan.targets, emulator=self.request.emulator
        )
        host_packages.install_missing(diagnosis, self.bench.progress, install=self.request.install)

    def _run_cells(self, prepared: PreparedRun, planned: RunRecord) -> tuple[list[CellRecord], ReachSelection | None]:
        """Run all cells. Returns their records, and the choice of their tests as `_selection` does."""
        request, progress = self.request, self.bench.progress
        many = len(request.plan.cells)
        cells = CellCount(many)
        with (
            progress.stage(
                "suites", f"running {many} cell{'' if many == 1 else 's'}, {jobs_of(self.bench, request)} at a time"
            ) as stage,
            tempfile.TemporaryDirectory(prefix="plumbline-") as sockets,
            cell_server(timeout_multiplier=self.bench.catalog.timeout_multiplier) as server,
        ):
            stage.shows(cells.state)
            selection = self._selection(prepared, planned, Path(sockets))
            specs = CellSpecs(
                self.bench,
                request,
                prepared,
                sockets=Path(sockets),
                without=self.without,
                selection=selection,
                patient=self.patient,
            )
            runs = CellRuns(
                self.bench,
                request,
                prepared,
                specs,
                server=server,
                one_failure=self.one_failure,
                until=self.until,
                store=_EndedCells(request.run, planned).add,
                judged=functools.partial(self._judged, planned),
                sampled=self._sampled,
                inherited=self._inherited,
            )
            records = runs.run(request.plan.cells, cells)
            if selection is not None and (again := selection.unproven()):
                records = self._run_whole(again, records, selection, runs)
        return records, selection

    def _judged(self, planned: RunRecord, record: CellRecord) -> EndedCell:
        """What a cell that has ended shows. Several threads call this."""
        with self._judging:
            run = msgspec.structs.replace(planned, cells=[record])
            return of_ended_cell(self.request.run, run, record, self.request.known)

    def _inherited(self, found: Mapping[Cell, Sequence[Finding]]) -> list[Cell]:
        """Of cells with findings, those whose findings the base of the change shows, too."""
        if self.change is None or self.change.base_findings is None:
            return []
        plan = self.request.plan.only({cell.suite for cell in found}).on({cell.target for cell in found})
        findings = [*chain(*found.values())]
        sources = source_excerpt.source_lines(findings, self.tree.content)
        old = self.change.base_findings(plan, findings, sources)
        return [cell for cell, shown in found.items() if all(baseline.reason(old, one, sources) for one in shown)]

    def _selection(self, prepared: PreparedRun, planned: RunRecord, folder: Path) -> ReachSelection | None:
        """The tests that the change can reach; None if no change is checked. `folder`: for what cells share."""
        request, change = self.request, self.change
        if change is None:
            return None
        selection = ReachSelection(
            ChangedRun(self.bench, request, prepared, change.base_code, change.edited),
            KnownLists.read(request.run, planned, request.known),
            every_test=change.every_test,
            idle=change.idle,
            folder=folder,
        )
        if selection.left_out:
            self.bench.progress.say(f"not running {selection.left_out} tests that the change cannot reach")
        return selection

    def _run_whole(
        self, again: Sequence[Cell], records: Sequence[CellRecord], selection: ReachSelection, runs: CellRuns
    ) -> list[CellRecord]:
        """Run cells again, with all of their tests. Returns the records of all cells."""
        names = ", ".join(f"{cell.target}/{cell.suite}" for cell in again)
        self.bench.progress.say(f"{names}: the changed code was not entered as before, so all tests run")
        for cell in again:
            shutil.rmtree(self.request.run / cell.target / cell.suite)
        selection.run_whole(again)
        new = runs.run(again, CellCount(len(again)))
        by_cell = {(one.target, one.suite): one for one in [*records, *new]}
        return list(by_cell.values())
