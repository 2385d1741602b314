"""`python -m tests.chaos --live 300 --others 40 --changes 20000` runs chaos tests by hand, without a time limit.

It prints a line for each fault, and a table at the end. The exit status is 1 if a wrong result was accepted. With
`--ledger FILE`, a campaign that ended early goes on where it was.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tests.chaos.rounds import Chaos, live_rounds, other_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.rounds import Outcome

SHOWN_CHANGES = 500
"""After how many changes of evidence to print a line."""


class Ledger:
    """What a campaign has done, a line each, in a file that outlives the command."""

    def __init__(self, path: Path | None, seed: int) -> None:
        """Raises click.UsageError for the ledger of a campaign with another seed."""
        self._path = path
        lines = path.read_text("utf-8").splitlines() if path is not None and path.is_file() else []
        self.entries: list[dict[str, object]] = [json.loads(line) for line in lines]
        if any(entry["seed"] != seed for entry in self.entries):
            raise click.UsageError(f"{path} is of a campaign with another seed: name it, or another ledger")
        self._seed = seed

    def add(self, **entry: object) -> None:
        """Note what was done."""
        self.entries.append({"seed": self._seed, **entry})
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(self.entries[-1]) + "\n")

    def of(self, what: str) -> list[dict[str, object]]:
        """What was done of one kind."""
        return [entry for entry in self.entries if entry["what"] == what]

    def left(self, what: str, most: int) -> list[int]:
        """The numbers of the rounds that are still to be done."""
        done = {entry["number"] for entry in self.of(what)}
        return [number for number in range(most) if number not in done]


def _run(what: str, outcomes: Iterator[tuple[int, Outcome]], ledger: Ledger) -> None:
    for number, each in outcomes:
        ledger.add(what=what, number=number, fault=each.fault, code=each.code, lies=each.lies)
        outcome = "; ".join(each.lies) or "withstood"
        click.echo(f"{what} {number:4} {each.fault}: exit {each.code} {each.verdict}: {outcome}")


def _change(chaos: Chaos, most: int, ledger: Ledger) -> None:
    made = sum(int(str(entry["made"])) for entry in ledger.of("changes"))
    kinds: Counter[str] = Counter()
    wrong: list[str] = []

    def note() -> None:
        if kinds:
            ledger.add(what="changes", made=kinds.total(), kinds=dict(kinds), lies=wrong)
            click.echo(f"{kinds.total()} more changes, {len(wrong)} believed")
        kinds.clear()
        wrong.clear()

    for change, verdict in chaos.changes(most, made=made) if made < most else ():
        kinds[change.rpartition(": ")[2]] += 1
        if verdict:
            wrong.append(f"{change}: {verdict}")
            click.echo(wrong[-1])
        if kinds.total() == SHOWN_CHANGES:
            note()
    note()


@click.command()
@click.option("--live", default=300, show_default=True, help="How many faults to inject into running checks.")
@click.option("--others", default=40, show_default=True, help="How many checks to begin with a fault.")
@click.option("--changes", default=20_000, show_default=True, help="How many times to change a run's evidence.")
@click.option("--jobs", default=1, show_default=True, help="How many running checks to damage at a time.")
@click.option("--seed", default=1, show_default=True, help="Seed that determines the faults, their places and times.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Go on with the campaign of this file, or begin it.")
def main(*, live: int, others: int, changes: int, jobs: int, seed: int, ledger: Path | None) -> None:
    """Inject faults into checks of a clean server, and change the files that checks recorded."""
    done = Ledger(ledger, seed)
    with tempfile.TemporaryDirectory(prefix="plumbline-chaos-", ignore_cleanup_errors=True) as folder:
        chaos = Chaos(Path(folder), seed=seed)
        _run("live", live_rounds(chaos, done.left("live", live), jobs=jobs), done)
        _run("other", other_rounds(chaos, done.left("other", others)), done)
        _change(chaos, changes, done)
        if damaged := chaos.damaged_entries():
            done.add(what="cache", lies=damaged)
            click.echo(f"damaged entries of the cache: {damaged}")
    faults = Counter((str(one["fault"]), one["code"]) for one in (*done.of("live"), *done.of("other")))
    for (fault, code), times in sorted(faults.items(), key=str):
        click.echo(f"| {fault} | {code} | {times} |")
    made: Counter[str] = Counter()
    for one in done.of("changes"):
        made.update(dict(one["kinds"]))  # type: ignore[call-overload]
    for change, times in sorted(made.items()):
        click.echo(f"| {change} | {times} |")
    lies = [lie for one in done.entries for lie in list(one["lies"])]  # type: ignore[call-overload]
    click.echo(
        f"seed {seed}: {len(done.of('live'))} faults in running checks, {len(done.of('other'))} before checks, "
        f"{made.total()} changes; {len(lies)} wrong results"
    )
    sys.exit(1 if lies else 0)


if __name__ == "__main__":
    main()
