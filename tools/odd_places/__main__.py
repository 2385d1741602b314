"""`python -m tools.odd_places`: the tests outside end_to_end, and the product itself, in odd folders, as another user,
with odd settings and beside other load.

It clones HEAD of this checkout, so commit first. A run that needs root or a program that is not there is skipped, and
says so. Of a test that fails, it says which setting fails it alone. Logs are in build/odd_places. The exit status is 1
if something failed, and 6 if a run did not finish.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click
import msgspec

from harness.core.errors import ExitCode, NothingSelectedError, PlumblineError
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.run.private_network import TRIAL_SECONDS
from tools import question_options
from tools.odd_places import start
from tools.odd_places.place import Place, provide_wheels, started
from tools.odd_places.product import Product
from tools.odd_places.runs import RUNS, SIDE_BY_SIDE, TURKISH, Run
from tools.odd_places.trial import Outcome, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

STATE = ROOT / "build" / "odd_places"
WORKERS = 2
"""Processes that run tests, of all runs that go on side by side."""


def lacking(run: Run) -> str:
    """What the machine lacks for a run, or nothing."""
    settings = run.settings
    root = os.geteuid() == 0
    if not root and (settings.other_user or settings.odd_git):
        return "only root can be another user, or give a repository to one"
    programs = [("localedef", settings.locale == TURKISH), ("script", settings.narrow_terminal)]
    absent = [name for name, needed in programs if needed and shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def possible(run: Run) -> Run:
    """The run, with a network if this machine lets nobody do without, as many containers do not."""
    words = started(start.Orders(folder="/", network=False), ["true"])
    if not run.settings.no_network or process.run(words, deadline_seconds=TRIAL_SECONDS).code == 0:
        return run
    click.echo(f"{run.name}: this machine gives no network of its own; it runs with the usual one")
    return msgspec.structs.replace(run, settings=msgspec.structs.replace(run.settings, no_network=False))


def outcomes(run: Run, workers: int, part: str) -> list[Outcome]:
    """The outcomes of a run in a place of its own. A place that cannot be made is an outcome as well."""

    def outcome(complaint: str = "", product: list[str] | None = None) -> Outcome:
        return Outcome(run=run.name, passed=0, skipped=0, failed={}, complaint=complaint, seconds=0.0, product=product)

    logs = STATE / run.name
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    found: list[Outcome] = []
    place = Place(run, STATE / "wheels")
    try:
        place.provide(run.settings, logs / "setup.log")
        if part != "product":
            trial = Trial(run, place, logs, workers)
            found += [trial.outcome(number) for number in range(1, run.times + 1)]
        if part != "tests" and not run.busy:
            found.append(outcome(product=Product(place, run.settings, logs / "product.log").failed_steps()))
    except PlumblineError as error:
        found.append(outcome(complaint=str(error)))
    finally:
        place.remove()
    return found


def described(run: Run) -> str:
    """A run in one line."""
    settings = [f"{name}={value}" for name, value in run.settings.named().items()]
    load = [f"{run.busy} busy processes, {run.times} times"] if run.busy else []
    return f"{run.name}: " + ", ".join([f"folder={run.folder}", *settings, *load])


def shown(outcome: Outcome) -> str:
    """An outcome in lines: the numbers, then the tests that failed and why."""
    word = "passed" if outcome.good else "FAILED"
    if outcome.product is not None:
        return "\n".join([f"  {word}: the product", *(f"    {line}" for line in outcome.product)])
    numbers = f"{outcome.passed} passed, {len(outcome.failed)} failed, {outcome.skipped} skipped"
    lines = [f"  {word}: {numbers} in {outcome.seconds:.0f} s"]
    lines += [f"    {line}" for line in outcome.complaint.splitlines()]
    lines += [f"    {test}  [{', '.join(why) or 'all together'}]" for test, why in outcome.failed.items()]
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--only", metavar="RUN", multiple=True, help="Only the run of this name.")
@click.option("--part", type=click.Choice(["tests", "product", "all"]), default="all", help="What runs in a place.")
@click.option("--list", "listed", is_flag=True, help="Name the runs and their settings, and run nothing.")
def main(only: Sequence[str], part: str, *, listed: bool) -> None:
    """Do the runs."""
    process.stop_on_signals()
    question_options.exit_with(lambda: do(only, part, listed=listed))


def do(only: Sequence[str], part: str, *, listed: bool) -> ExitCode:
    """Do the runs of these names, or all. Returns the exit status. Raises NothingSelectedError, InfrastructureError."""
    if unknown := set(only) - {run.name for run in RUNS}:
        raise NothingSelectedError(
            f"no run is named {', '.join(sorted(unknown))}", remedy=f"one of: {', '.join(run.name for run in RUNS)}"
        )
    chosen = [run for run in RUNS if not only or run.name in only]
    if listed:
        click.echo("\n".join(described(run) for run in chosen))
        return ExitCode.PASS
    STATE.mkdir(parents=True, exist_ok=True)
    provide_wheels(STATE / "wheels", STATE / "wheels.log")
    found: list[Outcome] = []
    able = []
    for run in chosen:
        if why := lacking(run):
            click.echo(f"{described(run)}\n  SKIPPED: {why}")
        else:
            able.append(possible(run))
    together = [run for run in able if run.name in SIDE_BY_SIDE]
    for group in [*([run] for run in able if run not in together), *([together] if together else [])]:
        with ThreadPoolExecutor(max_workers=len(group)) as pool:
            jobs = [pool.submit(outcomes, run, WORKERS // len(group), part) for run in group]
        for run, job in zip(group, jobs, strict=True):
            found.extend(job.result())
            click.echo("\n".join([described(run), *map(shown, job.result())]))
    if any(one.complaint for one in found):
        return ExitCode.INCONCLUSIVE
    return ExitCode.PASS if all(one.good for one in found) else ExitCode.FINDINGS


if __name__ == "__main__":
    main()
