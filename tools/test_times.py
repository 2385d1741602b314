"""`python -m tools.test_times [FOLDER]`: what the tests of the last run waited for, in total, by file and by test.

`ci/test` writes the records into build/test-times; tests/support/waits.py says exactly what each class means.
`--expect` writes tests/durations.json, by which the next run begins with the longest tests.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.core.errors import UsageError
from harness.core.strict_toml import ROOT
from tests.support import order, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.waits import TimedTest

FOLDER = ROOT / "build" / "test-times"
COLUMNS: dict[str, Callable[[TimedTest], float]] = {
    "real": lambda one: one.real,
    "processor": lambda one: one.own + one.children,
    "own": lambda one: one.own,
    "children": lambda one: one.children,
    "running": lambda one: one.running,
    "sleep": lambda one: one.sleep,
    "process": lambda one: one.process,
    "build": lambda one: one.build,
    "queue": lambda one: one.queue,
    "other": lambda one: one.other,
}
"""Heading -> seconds of a record."""
LONGEST_PLACES = 25


def rows(records: Sequence[TimedTest], key: Callable[[TimedTest], str], by: str) -> list[tuple[str, list[float]]]:
    """Name -> the seconds of each column, the most of column `by` first."""
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(COLUMNS))
    for one in records:
        sums[key(one)] = [seconds + of(one) for seconds, of in zip(sums[key(one)], COLUMNS.values(), strict=True)]
    column = list(COLUMNS).index(by)
    return sorted(sums.items(), key=lambda row: -row[1][column])


def places(records: Sequence[TimedTest]) -> list[tuple[str, str, float, int]]:
    """Where tests wait: place, class, seconds, number of tests; the longest first."""
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    tests: defaultdict[tuple[str, str], int] = defaultdict(int)
    for one in records:
        for place in one.places:
            seconds[place.where, place.wait] += place.seconds
            tests[place.where, place.wait] += 1
    longest = sorted(seconds, key=lambda place: -seconds[place])
    return [(*place, seconds[place], tests[place]) for place in longest]


def report(records: Sequence[TimedTest], *, by: str, tests: int, files: int) -> str:
    """The tables, for a terminal."""
    counted = [one for one in records if one.test != waits.COLLECTION]
    began = min(one.started for one in records)
    ended = max(one.started + one.real for one in records)

    def of(key: Callable[[TimedTest], str], among: Sequence[TimedTest], limit: int | None = None) -> list[list[str]]:
        return [[*(f"{seconds:.1f}" for seconds in row), name] for name, row in rows(among, key, by)[:limit]]

    built: defaultdict[str, set[str]] = defaultdict(set)
    for one in records:
        for name in one.built:
            built[name].add(one.test)
    waited = [[f"{took:.1f}", f"{number}", wait, where] for where, wait, took, number in places(records)]
    parts = [
        [f"{len(counted)} tests in {ended - began:.0f} s. All columns are seconds."],
        aligned([*COLUMNS, ""], of(lambda one: "tests" if one.test != waits.COLLECTION else one.test, records)),
        aligned([*COLUMNS, "file"], of(lambda one: one.test.partition("::")[0], counted, files)),
        aligned([*COLUMNS, "test"], of(lambda one: one.test, counted, tests)),
        aligned(["seconds", "tests", "class", "waits at"], waited[:LONGEST_PLACES]),
        aligned(["built", "by"], [[name, ", ".join(sorted(who))] for name, who in sorted(built.items())]),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def aligned(headings: Sequence[str], table: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, of which all columns but the last are aligned to the right. None for an empty one."""
    lines = [headings, *table] if table else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return [
        "  ".join([*(cell.rjust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines
    ]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=FOLDER)
@click.option("--by", type=click.Choice([*COLUMNS]), default="real", help="The column that orders the tables.")
@click.option("--tests", type=click.IntRange(min=0), default=60, help="Rows of the table of tests.")
@click.option("--files", type=click.IntRange(min=0), default=60, help="Rows of the table of files.")
@click.option("--expect", is_flag=True, help="Write the durations that order the next run, in place of the tables.")
def main(folder: Path, by: str, tests: int, files: int, *, expect: bool) -> None:
    """Print the tables."""
    records = waits.read(folder)
    if not records:
        raise UsageError("no records of tests", where=str(folder), remedy="ci/test writes them: run it first")
    if expect:
        order.write_expected(records)
        return
    click.echo(report(records, by=by, tests=tests, files=files))


if __name__ == "__main__":
    main()
