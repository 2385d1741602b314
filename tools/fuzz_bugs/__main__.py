"""`python -m tools.fuzz_bugs`: how many processor seconds the fuzzer needs until it shows a bug.

`choose` draws a list of bugs by rule. `race` builds each bug of a list and fuzzes it with several seeds, by this
checkout and, with `--against`, by others in turn, and stores what each race took in measurements/fuzz-bugs.json. It can
be interrupted, and continues. docs/BENCH.md has the results.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from harness.core import json_codec
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.core.target_model import ORACLE
from harness.run.cell_spec import CellSpec, PeerServer, write_cell
from harness.workflows.workbench import Workbench
from tools import project
from tools.fuzz_bugs import choice, document
from tools.fuzz_bugs.document import SCREENING, SEEDS, STORED, Found, Race

if TYPE_CHECKING:
    from tools.fuzz_bugs.document import Bug, BugRaces

ENDLESS_SECONDS = 1e6
"""The time limit of the cell: its processor time ends it."""
PATIENCE = 20
"""A race that takes so many times its processor seconds hangs."""


def race(servers: choice.Servers, builder: choice.Builder, bug: Bug, seed: int, *, root: Path, limit: float) -> Found:
    """Run one race with the sources of a checkout."""
    with tempfile.TemporaryDirectory(prefix="plumb-") as place:
        folder = Path(place)
        runner = builder.setups[bug.target].runner("signal")
        cell = CellSpec(
            suite=choice.SUITE,
            folder=folder,
            shared=folder,
            sockets=folder,
            runner=runner,
            version=builder.release.version,
            build=servers.guest,
            canary=None,
            triple=builder.setups[bug.target].toolchain.prefix,
            seed=seed,
            tier="thorough",
            coverage=runner.reports_edges,
            peers={ORACLE: PeerServer(runner=builder.setups[ORACLE].runner("signal"), build=servers.native)},
            # A crash report takes a second under emulation, and is not read.
            settings={"crash-log-enabled": "no"},
            limit_seconds=ENDLESS_SECONDS,
            corpus=folder / "corpus",
        )
        write_cell(folder / "cell.json", cell)
        ended = process.run(
            [sys.executable, "-m", "tools.fuzz_bugs.race", folder / "cell.json", str(limit)],
            folder=root,
            deadline_seconds=60 + PATIENCE * limit,
        )
        try:
            return json_codec.decode(ended.output.splitlines()[-1], Found)
        except (IndexError, msgspec.DecodeError) as error:
            raise InfrastructureError(
                "a race has no result", where=f"{bug.name}, seed {seed}", because=ended.text[-2000:]
            ) from error


def due(stored: BugRaces, bug: Bug, seed: int) -> bool:
    """Whether a race with this seed says something: screening has found the bug, and not always by a committed
    stream.
    """
    return seed == SCREENING or document.is_raced(stored, bug)


@click.group()
def main() -> None:
    """Measure how soon the fuzzer shows bugs."""


@main.command()
@click.argument("name")
@click.option("--seed", type=int, required=True, help="It draws the mutants.")
@click.option("--half", type=click.IntRange(0, 1), required=True, help="Which half of the planted bugs.")
@click.option("--mutants", default=14, show_default=True, help="How many mutants.")
def choose(name: str, seed: int, half: int, mutants: int) -> None:
    """Draw a list of bugs, and store it."""
    stored = document.read()
    others = {bug.name for one in stored.lists if one.name != name for bug in one.bugs}
    bugs = choice.chosen(Workbench.default(), name, seed, half=half, mutants=mutants, without=others)
    document.store(stored.with_list(bugs))
    click.echo(f"{name}: {len(bugs.bugs)} bugs")


@main.command(name="race")
@click.argument("name")
@click.option("--against", "others", type=click.Path(path_type=Path), multiple=True, help="Other checkouts.")
@click.option("--seed", "seeds", type=int, multiple=True, help="Only these seeds.")
@click.option("--only", multiple=True, help="Only these bugs.")
@click.option("--store", type=click.Path(path_type=Path), default=STORED, help="The file for the results.")
def run_races(name: str, others: tuple[Path, ...], seeds: tuple[int, ...], only: tuple[str, ...], store: Path) -> None:
    """Race the bugs of a list."""
    roots = {project.commit(root): root for root in (*others, ROOT)}
    builder = choice.Builder(Workbench.default())
    for bug in document.read(store).list_of(name).bugs:
        if bug.state or (only and bug.name not in only):
            continue
        servers: choice.Servers | None = None
        for seed in seeds or (SCREENING, *SEEDS):
            for commit, root in roots.items():
                stored = document.read(store)
                if stored.race(commit, bug.name, seed) is not None or not due(stored, bug, seed):
                    continue
                if servers is None:
                    made = builder.build(bug)
                    if isinstance(made, str):
                        document.store(stored.with_state(bug, made), store)
                        click.echo(f"{bug.name}: {made}")
                        break
                    servers = made
                found = race(servers, builder, bug, seed, root=root, limit=stored.limit_seconds)
                document.store(stored.with_race(Race(commit=commit, bug=bug.name, seed=seed, found=found)), store)
                click.echo(
                    f"{bug.name} {bug.target} seed {seed} {commit}: {found.seconds:.2f} s, {found.streams} streams,"
                    f" {found.commands} commands: {found.shown or '-'}"
                )
            else:
                continue
            break


@main.command()
@click.argument("name")
@click.option("--before", default="", help="A commit; the first that was measured by default.")
@click.option("--now", default="", help="Another one; the last by default.")
@click.option("--store", type=click.Path(path_type=Path), default=STORED, help="The file with the results.")
def show(name: str, before: str, now: str, store: Path) -> None:
    """Print what each bug of a list took, by two commits."""
    stored = document.read(store)
    order = document.commits(stored)
    before, now = before or order[0], now or order[-1]
    rows = [*document.bug_rows(stored, name, before, now), "", *document.summary_rows(stored, before, now)]
    click.echo("\n".join(rows))


if __name__ == "__main__":
    main()
