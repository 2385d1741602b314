"""The comparison of two servers' costs, and the exit code that it results in. Pure.

Two figures differ if their rounds do not overlap, and by more than the spread of either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.errors import ExitCode
from harness.workflows.measure.cost_document import CostDifference, ServerCost

if TYPE_CHECKING:
    from harness.workflows.measure.cost_document import AnyCost, CostVerdict, Figure, Measurement

LEAST_CHANGE = 0.005
"""The minimal share by which two servers differ: smaller differences come and go with the state of their heaps."""
NAMED_FUNCTIONS = 5
"""How many functions a comparison names."""
LEAST_FUNCTION_SHARE = 0.05
"""The minimal part of a difference for which a function is named."""
COMPARED = ("instructions", "used_memory", "written_bytes", "syncs", "allocations")
"""The figures that the limit applies to."""


def differences(cost: AnyCost, against: AnyCost, limit: float) -> list[CostDifference]:
    """The comparison of two servers' figures, one line for each that `COMPARED` names and that both or either have."""
    found = []
    for name in COMPARED:
        one, other = getattr(cost, name, None), getattr(against, name, None)
        if one is None or other is None or not (one.value or other.value):
            continue
        change = (one.value - other.value) / other.value if other.value else float("inf")
        noise = max(one.spread, other.spread)
        verdict = _verdict(one, other, change, noise, limit)
        moved = name == "instructions" and verdict != "same"
        found.append(
            CostDifference(
                target=cost.target,
                workload=cost.workload,
                figure=name,
                value=one.value,
                against=other.value,
                change=change,
                noise=noise,
                verdict=verdict,
                functions=_moved_functions(cost, against) if moved else {},
            )
        )
    return found


def _verdict(one: Figure, other: Figure, change: float, noise: float, limit: float) -> CostVerdict:
    apart = one.least > other.most or one.most < other.least
    if not apart or abs(change) <= max(noise, LEAST_CHANGE):
        return "same"
    if change <= 0:
        return "cheaper"
    return "beyond the limit" if change > limit else "dearer"


def _moved_functions(cost: AnyCost, against: AnyCost) -> dict[str, float]:
    if not (isinstance(cost, ServerCost) and isinstance(against, ServerCost)):
        return {}  # a machine's clocks know no functions
    names = cost.functions.keys() | against.functions.keys()
    moved = {name: cost.functions.get(name, 0.0) - against.functions.get(name, 0.0) for name in sorted(names)}
    least = LEAST_FUNCTION_SHARE * abs(cost.instructions.value - against.instructions.value)
    largest = sorted(moved, key=lambda name: -abs(moved[name]))[:NAMED_FUNCTIONS]
    return {name: moved[name] for name in largest if abs(moved[name]) >= least}


def exit_code(measurement: Measurement) -> ExitCode:
    """FINDINGS if a figure exceeds the limit; INCONCLUSIVE if one is missing, or if there is nothing to compare or to
    show; else PASS.
    """
    if any(one.verdict == "beyond the limit" for one in measurement.differences):
        return ExitCode.FINDINGS
    if any(not one.inapplicable for one in measurement.no_figures):
        return ExitCode.INCONCLUSIVE
    shown = measurement.differences if measurement.against else [*measurement.costs, *measurement.kernel_costs]
    return ExitCode.PASS if shown else ExitCode.INCONCLUSIVE
