"""The cost of enforcement, audit, coverage and delayed stores: the figures, and their evaluation. Pure;
harness.workflows.measure.overhead_run measures them.

The result is the median of the rounds' ratios, and their quartiles show the noise.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Sequence


UNCHECKED, ENFORCED, AUDITED = "unchecked", "signal", "audit"


COVERED = "coverage"
"""Not a policy: `signal` with coverage, that is, the emulator records the edges that the guest takes."""


DELAYED = "weak"
"""Not a policy either: `signal` with `--memory-order weak`, on targets that have it."""


GOALS = {ENFORCED: 0.95, AUDITED: 0.80, COVERED: 0.70, DELAYED: 0.25}
"""Policy -> least ratio of its throughput to that of the unchecked emulator."""


MEMORY_GOAL_MIB = 32.0
"""The most memory that a policy may take beyond the unchecked emulator's."""


class Ratio(Record, frozen=True):
    """One target's throughput in one workload under one policy."""

    target: str
    workload: str
    pipeline: int
    """Requests sent at a time, before the first reply is read."""
    policy: str
    per_second: float
    unchecked_per_second: float
    ratio: float
    """Median over the rounds of per_second / unchecked_per_second, requests for a second of the emulator's processor
    time: 1.0 is free."""
    lower_quartile: float
    upper_quartile: float
    """Quartiles of the same ratios, which show the noise."""
    goal: float


class Memory(Record, frozen=True):
    """The memory of an emulator process after the throughput workloads: its proportional set size (PSS)."""

    target: str
    policy: str
    mebibytes: float
    over_unchecked_mebibytes: float
    goal_mebibytes: float


class ReportPrice(Record, frozen=True):
    """The cost of reported accesses on a server that makes many: an audit against the unchecked emulator."""

    target: str
    server: str
    accesses_per_request: float
    """0 if the target forbids none of the server's accesses."""
    ratio: float
    """Median over the rounds of the audit's throughput over the unchecked one."""
    lower_quartile: float
    upper_quartile: float
    microseconds_per_access: float
    """Time of a request beyond the unchecked one's, divided by its reported accesses; 0 if there are none."""
    over_unchecked_mebibytes: float


class Costs(Record, frozen=True):
    """The document of `plumb bench --json`."""

    server: str
    rounds: int
    processors: int
    load_before: float
    load_after: float
    """The host's load average over one minute; any load beyond the benchmark's own, about 1.5, is noise."""
    throughput: list[Ratio]
    memory: list[Memory]
    reports: list[ReportPrice]


def ratio_of(
    target: str, workload: str, pipeline: int, policy: str, rates: Sequence[float], unchecked: Sequence[float]
) -> Ratio:
    """The ratio of two rates, round by round. Both are requests per second of processor, one for each round."""
    lower, middle, upper = _quartiles([a / b for a, b in zip(rates, unchecked, strict=True)])
    return Ratio(
        target=target,
        workload=workload,
        pipeline=pipeline,
        policy=policy,
        per_second=round(statistics.median(rates)),
        unchecked_per_second=round(statistics.median(unchecked)),
        ratio=round(middle, 3),
        lower_quartile=round(lower, 3),
        upper_quartile=round(upper, 3),
        goal=GOALS[policy],
    )


def price_of(
    target: str,
    server: str,
    rates: Sequence[float],
    unchecked: Sequence[float],
    *,
    accesses_per_request: float,
    over_mebibytes: float,
) -> ReportPrice:
    """The cost of one reported access: the median over the rounds of a request's extra time, by its accesses."""
    lower, middle, upper = _quartiles([a / b for a, b in zip(rates, unchecked, strict=True)])
    more_seconds = statistics.median(1 / a - 1 / b for a, b in zip(rates, unchecked, strict=True))
    return ReportPrice(
        target=target,
        server=server,
        accesses_per_request=round(accesses_per_request, 1),
        ratio=round(middle, 3),
        lower_quartile=round(lower, 3),
        upper_quartile=round(upper, 3),
        microseconds_per_access=round(more_seconds * 1e6 / accesses_per_request, 3) if accesses_per_request else 0.0,
        over_unchecked_mebibytes=round(over_mebibytes, 1),
    )


def text_of(costs: Costs) -> str:
    """Tables for a person, with every figure beside its goal and the margin by which it is met or missed."""
    conditions = f"{costs.rounds} rounds, {costs.processors} processors"
    head = f"{'target':<12} {'workload':<8} {'by':>2}  {'policy':<6} {'per second':>10} {'unchecked':>10}  ratio  "
    lines = [
        f"{costs.server}, {conditions}, load {costs.load_before:.1f} before and {costs.load_after:.1f} after",
        "",
        f"{head}quartiles    goal",
    ]
    lines += [
        f"{one.target:<12} {one.workload:<8} {one.pipeline:>2}  {one.policy:<6} {one.per_second:>10.0f} "
        f"{one.unchecked_per_second:>10.0f}  {one.ratio:.3f}  {one.lower_quartile:.3f}–{one.upper_quartile:.3f}  "
        f"{one.goal:.2f} {_judged(one.ratio - one.goal, noise=one.upper_quartile - one.ratio)}"
        for one in costs.throughput
    ]
    lines += ["", f"{'target':<12} {'policy':<6} {'MiB':>8} {'over unchecked':>15}  goal"]
    lines += [
        f"{one.target:<12} {one.policy:<6} {one.mebibytes:>8.1f} {one.over_unchecked_mebibytes:>15.1f}  "
        f"{one.goal_mebibytes:.0f} {_judged(one.goal_mebibytes - one.over_unchecked_mebibytes, digits=1)}"
        for one in costs.memory
    ]
    lines += ["", "reported accesses: BITOP on misaligned strings, audit over unchecked"]
    lines += [
        f"{one.target:<12} {one.server}  {one.accesses_per_request:>7.1f} accesses a request  {one.ratio:.3f}  "
        f"{one.lower_quartile:.3f}–{one.upper_quartile:.3f}  {one.microseconds_per_access:.3f} µs each  "
        f"{one.over_unchecked_mebibytes:+.1f} MiB"
        for one in costs.reports
    ]
    return "\n".join(lines)


def _judged(margin: float, *, noise: float = 0.0, digits: int = 3) -> str:
    met = "met" if margin >= 0 else "missed"
    return f"{met} by {abs(margin):.{digits}f}" + (", within the noise" if -noise <= margin < 0 else "")


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, middle, upper
