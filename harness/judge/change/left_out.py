"""Sentences about tests that did not run, because a change cannot reach them (`plumb premerge`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.run_record import LeftOut, RunRecord

SHOWN = 8
"""The largest number of functions that a remark names."""


def tests(run: RunRecord) -> int:
    """The number of tests that did not run."""
    return sum(cell.left_out.tests for cell in run.cells if cell.left_out is not None)


def remarks(run: RunRecord) -> list[str]:
    """One sentence for all targets that did not run the same tests for the same reason."""
    what: dict[tuple[str, str], dict[str, list[str]]] = {}
    """Reason -> counts -> targets."""
    by_target: dict[str, dict[str, LeftOut]] = {}
    for cell in run.cells:
        if cell.left_out is not None:
            by_target.setdefault(cell.target, {})[cell.suite] = cell.left_out
    for target, suites in by_target.items():
        counts: dict[tuple[str, str], list[str]] = {}
        for suite, one in suites.items():
            # Cells may be compared with different runs.
            failed = f" ({one.known} with known findings)" if one.known else ""
            count = f"{one.tests} of {one.of}{failed} in {suite}"
            counts.setdefault((one.before, named(one.functions)), []).append(count)
        for reason, tests_of in counts.items():
            what.setdefault(reason, {}).setdefault(", ".join(tests_of), []).append(target)
    found = []
    for (before, functions), groups in what.items():
        told = "; ".join(f"{counts_there} on {', '.join(names)}" for counts_there, names in groups.items())
        why = (
            f"tests not run, because they do not reach the changed code ({functions}) and ended as expected in {before}"
        )
        found.append(f"{why}: {told}")
    return found


def named(functions: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(functions) - SHOWN} more" if len(functions) > SHOWN else ""
    return ", ".join(functions[:SHOWN]) + more
