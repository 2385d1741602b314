"""`python -m tools.upstream_files FILE…`: which files of a release's own tests find planted bugs, and what they cost.

Each bug of `plumb mutate` is planted alone, and the tier `quick` runs with these files on the first target that must
show the bug. A file finds it if it has a finding there that the clean release does not have. Tests that the tier leaves
out run here, and count for nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from harness.core.target_model import ORACLE
from harness.judge.known import known_list
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.record import event_log
from harness.record.cell_events import TestEvent
from harness.report.markdown_table import table
from harness.workflows.check import Check
from harness.workflows.mutation_testing import campaign, mutations
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.finding import Finding
    from harness.workflows.mutation_testing.mutations import Mutation

Found = set[tuple[str, str]]
"""Targets and files that have a finding there."""
SEED = 1
MOST = 5
DEADLINE_SECONDS = 180.0
"""For all files of one bug: a server that crashes again and again makes some files wait for hours."""


def run_files(server: str, targets: Sequence[str], files: Sequence[str], bug: Mutation | None, run: Path) -> Found:
    """Run files of a release's own tests, and return which of them found something."""
    bench = Workbench.default()
    (suite,) = (suite for suite in bench.catalog.suites.values() if suite.upstream)
    short = msgspec.structs.replace(suite, quick_files=tuple(files), deadline_seconds=DEADLINE_SECONDS)
    bench.catalog.suites[suite.name] = short
    request = Request(
        plan=make_plan(bench.catalog, targets=targets, server=server, suites=[suite.name]),
        server=server,
        tier="quick",
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        jobs=os.cpu_count() or 1,
        seed=SEED,
        install=False,
        known=known_list.DEFAULT,
        run=run,
        tests=list(files),
        allocator=bug.allocator if bug is not None else "libc",
        warnings="off",
        everywhere="off",
    )
    judgement, _ = Check(bench, request).run()
    return {place for finding in judgement.findings for place in _places(finding, suite.quick_leaves_out)}


def _places(finding: Finding, left_out: Sequence[str]) -> Found:
    """The targets and files whose tests saw a finding; none for one outside of tests, as when no server starts."""
    tests = {(witness.target, each.test) for witness in finding.witnesses for each in witness.occasions}
    return {(target, test.partition("::")[0]) for target, test in tests if test and not _is_among(test, left_out)}


def _is_among(test: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(test, glob) for glob in globs)


def seconds_of(run: Path, target: str, left_out: Sequence[str]) -> dict[str, float]:
    """File -> how long its tests took on a target, without those left out."""
    found: dict[str, float] = defaultdict(float)
    for log in (run / target).glob(f"*/{event_log.NAME}"):
        for event in event_log.read(log).events:
            if isinstance(event, TestEvent) and event.upstream and not _is_among(event.upstream, left_out):
                found[event.upstream.partition("::")[0]] += event.seconds
    return found


def chosen(bugs: Mapping[str, set[str]], seconds: Mapping[str, float]) -> list[str]:
    """The files that find most for their time, each by what those before it do not find, and then by all it finds."""
    picked: list[str] = []
    seen: set[str] = set()

    def worth(file: str) -> tuple[float, float, str]:
        each = max(seconds.get(file, 0.0), 0.1)
        return len(bugs[file] - seen) / each, len(bugs[file]) / each, file

    while len(picked) < MOST and (left := bugs.keys() - picked):
        picked.append(max(left, key=worth))
        seen |= bugs[picked[-1]]
    return picked


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--bug", "names", multiple=True, help="Only these planted bugs; repeat for more.")
def main(files: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Print the table, and the files that find most for their time."""
    bench = Workbench.default()
    # Some bugs show natively alone.
    emulated = ((bug, [name for name in bug.targets if name != ORACLE]) for bug in campaign.chosen(names))
    planted = [(bug, targets[0]) for bug, targets in emulated if targets]
    bugs: dict[str, set[str]] = defaultdict(set)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        targets = sorted({target for _, target in planted})
        (server,) = {bug.server for bug, _ in planted}
        clean = run_files(server, targets, files, None, place / "clean")
        (left_out,) = (suite.quick_leaves_out for suite in bench.catalog.suites.values() if suite.upstream)
        seconds = seconds_of(place / "clean", targets[0], left_out)
        for bug, target in planted:
            tree = place / bug.name / bug.server
            mutations.plant(bug, bench.fetcher.server(bench.catalog.servers[bug.server]).path, tree)
            found = run_files(str(tree), [target], files, bug, place / bug.name / "run")
            for _, file in found - clean:
                bugs[file].add(bug.name)
            click.echo(
                f"{bug.name} on {target}: {', '.join(sorted(file for _, file in found - clean)) or '-'}", err=True
            )
            shutil.rmtree(place / bug.name)
    every = set().union(*bugs.values()) if bugs else set()
    rows = [(file, f"{seconds.get(file, 0.0):.1f}", len(bugs[file]), ", ".join(sorted(bugs[file]))) for file in bugs]
    rows.sort(key=lambda row: (-row[2], row[0]))
    click.echo("\n".join(table(["file", f"seconds on {targets[0]}", "bugs", "which"], rows)))
    click.echo(f"\n{len(every)} of {len(planted)} found; most for their time: {', '.join(chosen(bugs, seconds))}")


if __name__ == "__main__":
    main()
