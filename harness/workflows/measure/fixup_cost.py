"""Computes the cost of a fixup and the share that a server pays, from measured figures. Pure.

harness.workflows.measure.fixup_cost_run measures them.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.errors import InfrastructureError
from harness.core.model import Record, level_text
from harness.core.target_model import AccessClass  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.record.cell_events import Counters
from harness.report.markdown_table import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.target_model import PlannedAccess

Repairer = Literal["kernel", "processor"]


class AccessCost(Record, frozen=True):
    """Instructions that move the bytes of one access once between an address and a variable."""

    target: str
    access: str
    access_class: AccessClass
    offset: int
    """The misaligned address, in bytes past a 16-byte boundary."""
    repairer: Repairer
    """What performs the misaligned access."""
    aligned: int
    """The access at the boundary, and the plain instruction that moves its other side."""
    copied: int
    """The same bytes at `offset` by memcpy, as the target's compiler and libc do it."""
    misaligned: int
    """The access at `offset`, with the instructions that the kernel executes."""
    made: int
    """Number of misaligned accesses that the figure is computed from."""
    fixups: int | None
    """Number of fixups that the kernel counted meanwhile; None if it does not count."""

    @property
    def fixup(self) -> int:
        """Instructions that the repair adds to an access."""
        return self.misaligned - self.aligned

    @property
    def times_aligned(self) -> int:
        """The cost as a number of aligned accesses, each of which is one instruction."""
        return self.fixup + 1


class ServerFixupCost(Record, frozen=True):
    """The cost of fixups for a server, in 1,000 commands of a workload."""

    target: str
    server: str
    optimisation: str
    workload: str
    build: str
    """Identity of the binary."""
    instructions: int
    """Instructions of the server's threads, including the kernel's work for them."""
    fixups: dict[str, int] | None
    """Accesses that the kernel repaired, by class; None if no kernel counted them."""
    counted_on: str
    """The target whose kernel counted. If this target's kernel does not count, another one with the same binary."""
    tax: int | None = None
    """Instructions that these fixups take: for each class, their number times the mean cost of a fixup."""

    @property
    def share(self) -> float:
        """The share of the server's instructions that are fixups; 0 if no kernel counted."""
        return (self.tax or 0) / self.instructions


class FixupCost(Record, frozen=True):
    """The document of `plumb fixup-cost --json`."""

    accesses: list[AccessCost]
    fatal: dict[str, list[str]]
    """Target -> accesses that raise SIGBUS when misaligned, in every mode of the kernel."""
    servers: list[ServerFixupCost]


def access_cost(
    target: str,
    access: PlannedAccess,
    offset: int,
    repairer: Repairer,
    *,
    nanoseconds: Sequence[int],
    count: int,
    rounds: int,
    fixups: Mapping[str, int] | None,
) -> AccessCost:
    """The output of accesses.c as instructions of one access.

    Raises InfrastructureError when the kernel counted another number of fixups than accesses were made.
    """
    nothing, *others = nanoseconds
    aligned, copied, misaligned = [round((other - nothing) / count) for other in others]
    made = count * (rounds + 1)
    due = {access.access_class: made} if repairer == "kernel" else {}
    if fixups is not None and fixups != due:
        raise InfrastructureError(
            f"{target}'s kernel fixed up {dict(fixups) or 'nothing'} of {made} accesses {access.name}",
            because=f"expected for {access.name} at {offset}: {due or 'nothing'}",
            remedy=f"plumb compare-tiers --target {target}",
        )
    return AccessCost(
        target=target,
        access=access.name,
        access_class=access.access_class,
        offset=offset,
        repairer=repairer,
        aligned=aligned,
        copied=copied,
        misaligned=misaligned,
        made=made,
        fixups=None if fixups is None else sum(fixups.values()),
    )


def repaired(before: Counters, after: Counters) -> dict[str, int]:
    """Class -> accesses that the kernel repaired in between, without zeros; `skipped` are those it did not repair."""
    names = [name for name in Counters.__struct_fields__ if name != "user"]
    moved = {name: getattr(after, name) - getattr(before, name) for name in names}
    return {name: number for name, number in moved.items() if number}


def taxed(row: ServerFixupCost, rows: Sequence[ServerFixupCost], costs: Sequence[AccessCost]) -> ServerFixupCost:
    """The row with its tax. If the target's kernel does not count fixups, the count comes from another target that runs
    the same binary.
    """
    if row.fixups is None:
        for lender in rows:
            if lender.fixups is not None and (lender.build, lender.workload) == (row.build, row.workload):
                row = msgspec.structs.replace(row, fixups=lender.fixups, counted_on=lender.target)
                break
    if row.fixups is None:
        return row
    prices = {name: price(row.target, name, costs) for name in row.fixups}
    return msgspec.structs.replace(row, tax=round(sum(prices[name] * number for name, number in row.fixups.items())))


def price(target: str, access_class: str, costs: Sequence[AccessCost]) -> float:
    """What a fixup of a class costs on a target: the mean over its accesses. 0 if its kernel repairs none."""
    found = [
        one.fixup for one in costs if (one.target, one.access_class, one.repairer) == (target, access_class, "kernel")
    ]
    return statistics.mean(found) if found else 0.0


def summary(tax: FixupCost) -> list[str]:
    """Markdown: a table of accesses, what is fatal, a table of servers."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in tax.accesses:
        figures = [one.offset, one.repairer, one.aligned, one.copied, one.misaligned, one.fixup, one.times_aligned]
        key = (one.target, *map(str, figures), f"{one.misaligned / one.copied:.1f}")
        alike.setdefault(key, []).append(one.access)
    columns = ["at", "done by", "aligned", "memcpy", "misaligned", "fixup", "× aligned", "× memcpy"]
    lines = [
        *table(["target", "access", *columns], [(key[0], " ".join(names), *key[1:]) for key, names in alike.items()]),
        "",
        *[f"{target}: SIGBUS, never fixed up: {' '.join(names)}" for target, names in tax.fatal.items() if names],
    ]
    if tax.servers:
        columns = ["fixups in 1,000 commands", "counted on", "instructions", "tax", "share"]
        lines += ["", *table(["target", "server", "workload", *columns], [_cells(row) for row in tax.servers])]
    return lines


def _cells(row: ServerFixupCost) -> tuple[str, ...]:
    head = (row.target, f"{row.server} {level_text(row.optimisation)}", row.workload)
    if row.fixups is None or row.tax is None:
        return (*head, "not counted", "nobody", f"{row.instructions:,}", "unknown", "unknown")
    fixups = ", ".join(f"{number:,} {name}" for name, number in row.fixups.items()) or "0"
    return (*head, fixups, row.counted_on, f"{row.instructions:,}", f"{row.tax:,}", f"{row.share:.1%}")
