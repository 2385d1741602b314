"""`python -m tests.chaos --faults 200 --changes 20000 --seed 1` runs chaos tests by hand, without a time limit.

It prints a line for each fault, and a table at the end. The exit status is 1 if a wrong result was accepted.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

from tests.chaos.rounds import Chaos, rounds

SHOWN_CHANGES = 500
"""After how many changes of evidence to print a line."""


@click.command()
@click.option("--faults", default=200, show_default=True, help="How many faults to inject into checks.")
@click.option("--changes", default=20_000, show_default=True, help="How many times to change a run's evidence.")
@click.option("--seed", default=1, show_default=True, help="Seed that determines the faults, their places and times.")
def main(faults: int, changes: int, seed: int) -> None:
    """Inject faults into checks of a clean server, and change the files that checks recorded."""
    with tempfile.TemporaryDirectory(prefix="plumbline-chaos-", ignore_cleanup_errors=True) as folder:
        chaos = Chaos(Path(folder), seed=seed)
        codes: Counter[tuple[str, int]] = Counter()
        lies = 0
        for number, each in enumerate(rounds(chaos, faults), 1):
            codes[each.fault, each.code] += 1
            lies += bool(each.lies)
            outcome = "; ".join(each.lies) or "withstood"
            click.echo(f"{number:4} {each.fault}: exit {each.code} {each.verdict}: {outcome}")
        made: Counter[str] = Counter()
        passed: list[str] = []
        for change, wrong in chaos.changes(changes):
            made[change.rpartition(": ")[2]] += 1
            if made.total() % SHOWN_CHANGES == 0:
                click.echo(f"{made.total()} changes, {len(passed)} believed")
            if wrong:
                passed.append(f"{change}: {wrong}")
                click.echo(passed[-1])
        damaged = chaos.damaged_entries()
        for (fault, code), times in sorted(codes.items()):
            click.echo(f"| {fault} | {code} | {times} |")
        for change, times in sorted(made.items()):
            click.echo(f"| {change} | {times} |")
        click.echo(f"seed {seed}: {faults} faults, {lies} believed; {made.total()} changes, {len(passed)} believed")
        click.echo(f"damaged entries of the cache: {damaged}")
    sys.exit(1 if lies or passed or damaged else 0)


if __name__ == "__main__":
    main()
