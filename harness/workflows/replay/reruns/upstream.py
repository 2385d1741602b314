"""Runs one of the release's own tests once more: its whole file, in a separate cell, and collects its servers'
evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.analysis.crash_reports.assertion_log import asserted
from harness.analysis.detectors.registry import reports
from harness.core.target_model import ORACLE
from harness.core.wanted_tests import SEPARATOR
from harness.record import cell_events, event_log, fault_log, run_folder, run_record
from harness.run.cell_spec import CellSpec, PeerServer
from harness.workflows.cell_process import run_cell
from harness.workflows.replay.recurrence import Observation
from harness.workflows.replay.reruns.replayed_run import ReplayedRun, crashed_children, cut_in
from harness.workflows.target_setup import oracle_setup, set_up_target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.model import Build, SourceTree
    from harness.judge.reproducer import Reproducer
    from harness.workflows.target_setup import TargetSetup


def run_upstream(
    setup: TargetSetup, tree: SourceTree, reproducer: Reproducer, build: Build, runner: Runner, folder: Path
) -> ReplayedRun:
    """Run the test's file, up to three times as a check does, and observe the test and every server of the file."""
    spec = _cell(setup, tree, reproducer, build, runner, folder)
    record = run_cell(spec, setup.bench.progress)
    return left_in(spec.folder, reproducer.upstream, record, detector=runner.target.emulator.detector)


def left_in(cell: Path, name: str, record: run_record.CellRecord, *, detector: str) -> ReplayedRun:
    """The evidence in a cell's folder about the test of that name, and about every server of its file."""
    logs = [path.read_bytes() for path in sorted(cell.rglob("guest-*/log"))]
    recorded = {path: fault_log.read(path) for path in sorted(cell.rglob(fault_log.NAME))}
    events = event_log.read(cell / event_log.NAME).events
    damage = [
        *(damage for each in recorded.values() for damage in each.damage),
        *_gone(cell, events),
        *dict.fromkeys(trouble for log in logs if (trouble := cut_in(log, detector=detector))),
    ]
    children = frozenset(
        signal
        for event in events
        if isinstance(event, cell_events.GuestEvent) and event.pid
        if (log := recorded.get(_home(cell, event) / fault_log.NAME)) is not None
        for signal in crashed_children(log, {event.pid})
    )
    return ReplayedRun(
        observation=msgspec.structs.replace(observed(name, record, events), cut="; ".join(damage), children=children),
        faults=[fault for each in recorded.values() for fault in each.faults],
        reports=[report for log in logs for report in reports(log, detector)],
        assertion=next((place for log in logs if (place := asserted(log)) is not None), None),
    )


def _gone(cell: Path, events: Sequence[cell_events.Event]) -> list[str]:
    """Which files of servers are missing that they certainly left: a detector's reports may have been in them."""
    return [
        f"{event.name}: its {name} is gone"
        for event in events
        if isinstance(event, cell_events.GuestEvent)
        for name in event.left
        if not (_home(cell, event) / name).is_file()
    ]


def _home(cell: Path, event: cell_events.GuestEvent) -> Path:
    """The folder of a server."""
    return cell / (f"{run_folder.PEERS}/{event.target}" if event.target else ".") / event.name


def observed(name: str, record: run_record.CellRecord, events: Sequence[cell_events.Event]) -> Observation:
    """The end of the test, and the first crash of a server of its file."""
    tests = (event for event in events if isinstance(event, cell_events.TestEvent))
    test = next((event for event in tests if event.upstream == name), None)
    guests = (event for event in events if isinstance(event, cell_events.GuestEvent))
    crashed = next((event for event in guests if event.end != "stopped"), None)
    undelivered = record.problem or _why_untested(test)
    return Observation(
        end=_told(name, test, undelivered),
        detail=crashed.detail if crashed is not None else "",
        undelivered=undelivered,
        came=test is not None and test.outcome == "failed" and not (test.doubt or test.blocked),
    )


def _why_untested(test: cell_events.TestEvent | None) -> str:
    """Why a test did not show whether the finding recurs; empty if it did."""
    if test is None:
        return "the release has no such test"
    # Among others, a test is skipped that differences.toml lists.
    skipped = f"the test was skipped: {test.message.removeprefix('Skipped: ')}" if test.outcome == "skipped" else ""
    blocked = "a server of an earlier test crashed" if test.blocked else ""
    return test.doubt or skipped or blocked


def _told(name: str, test: cell_events.TestEvent | None, problem: str) -> str:
    if problem or test is None:
        return f"{name}: {problem}"
    return f"{name}: {test.outcome}" + (f"\n{test.message}" if test.message else "")


def _cell(
    setup: TargetSetup, tree: SourceTree, reproducer: Reproducer, build: Build, runner: Runner, folder: Path
) -> CellSpec:
    bench, optimisation = setup.bench, reproducer.optimisation
    suite = next(suite for suite in bench.catalog.suites.values() if suite.upstream)
    oracle = oracle_setup(bench)
    peers = {ORACLE: PeerServer(runner=oracle.runner("signal"), build=oracle.build(tree, optimisation))}
    mixed = {}
    for name in reproducer.mixed:
        other = set_up_target(bench, bench.catalog.targets[name])
        peers[name] = PeerServer(
            runner=other.runner(reproducer.policy, reproducer.environment, reproducer.memory_order, reproducer.seed),
            build=other.build(tree, optimisation, reproducer.allocator),
        )
        mixed[name] = other.upstream(tree, optimisation, reproducer.allocator)
    return CellSpec(
        suite=suite.name,
        folder=folder / "cell",
        shared=folder / "shared",
        sockets=folder,
        runner=runner,
        version=tree.version,
        development=bool(tree.development),
        build=build,
        canary=None,
        seed=0,
        tier="thorough",
        peers=peers,
        upstream=setup.upstream_spec(
            tree,
            setup.upstream(tree, optimisation, reproducer.allocator),
            oracle.upstream(tree, optimisation),
            mixed=mixed,
            target_clients=reproducer.target_clients,
            files=(reproducer.upstream.partition(SEPARATOR)[0],),
            left_out=(),
        ),
        deadline_seconds=suite.deadline_seconds,
        tests=[reproducer.upstream],
    )
