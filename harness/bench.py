"""What enforcement, audit and coverage cost: throughput and memory over the same QEMU without checks, in one run.

Rounds are interleaved, and each starts with another policy, so that a noisy machine disturbs all sides alike; the
median of the rounds' ratios counts, and their quartiles tell how much noise there was.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from harness import events
from harness.guest import Guest
from harness.model import Noun
from harness.resp import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.console import Progress
    from harness.emulator import Runner
    from harness.model import Build, SourceTree

UNCHECKED, ENFORCED, AUDITED = "unchecked", "signal", "audit"
COVERED = "coverage"
"""Not a policy: `signal`, and the guest tells which edges of its code it takes."""
POLICIES = (UNCHECKED, ENFORCED, AUDITED, COVERED)
GOALS = {ENFORCED: 0.95, AUDITED: 0.80, COVERED: 0.70}
"""Policy -> least ratio of its throughput to that of the unchecked emulator."""
MEMORY_GOAL_MIB = 32.0
"""The most that an audit may take beyond what the unchecked emulator takes."""

WORKLOADS = ("SET", "GET", "BITOP")
REQUESTS = {8: 16_000, 1: 4_000}
"""How many requests go out at a time -> requests of one measurement."""
PAYLOAD = b"x" * 64
OPERAND_BYTES = 1024

MISALIGNED_SERVER = "redis-3.2.6"
"""Its BITOP takes strings by words, and its SDS header puts every string at an odd address."""
MISALIGNED_OPERAND_BYTES = 200
MISALIGNED_REQUESTS = 1_600


class Ratio(Noun, frozen=True):
    """One target's throughput in one workload under one policy."""

    target: str
    workload: str
    pipeline: int
    """Requests sent at a time, before the first reply is read."""
    policy: str
    per_second: float
    unchecked_per_second: float
    ratio: float
    """Median over the rounds of per_second / unchecked_per_second: 1.0 is free."""
    lower_quartile: float
    upper_quartile: float
    """Of the same ratios: how much noise there was."""
    goal: float


class Memory(Noun, frozen=True):
    """What an emulator process takes after the throughput workloads: its proportional share (PSS) of resident pages."""

    target: str
    policy: str
    mebibytes: float
    over_unchecked_mebibytes: float
    goal_mebibytes: float


class ReportPrice(Noun, frozen=True):
    """What reported accesses cost, on a server that makes many: an audit against the unchecked emulator."""

    target: str
    server: str
    accesses_per_request: float
    """0 where the target forbids nothing of what this server does."""
    ratio: float
    """Median over the rounds of the audit's throughput over the unchecked one."""
    lower_quartile: float
    upper_quartile: float
    microseconds_per_access: float
    """Time of a request beyond the unchecked one's, divided by its reported accesses; 0 where there are none."""
    over_unchecked_mebibytes: float


class Costs(Noun, frozen=True):
    """What `plumb bench --json` prints."""

    server: str
    rounds: int
    processors: int
    load_before: float
    load_after: float
    """The machine's load average over one minute; what exceeds this benchmark's own load of about 1.5 is noise."""
    throughput: list[Ratio]
    memory: list[Memory]
    reports: list[ReportPrice]


def measure(
    build: Build, runner_for: Callable[[str], Runner], tree: SourceTree, progress: Progress, *, rounds: int
) -> tuple[list[Ratio], list[Memory]]:
    """SET, GET and BITOP, by 8 and by 1, on a guest of one build under each policy; then the guests' memory."""
    rates: dict[tuple[str, int, str], list[float]] = {}
    with _guests(build, runner_for, tree.version, POLICIES) as guests:
        for guest in guests.values():
            _fill(guest, OPERAND_BYTES)
        for number in range(rounds + 1):
            for workload in WORKLOADS:
                for pipeline, count in REQUESTS.items():
                    for policy in _rotated(POLICIES, number):
                        rate = _throughput(guests[policy], _batch(workload, pipeline), pipeline, count)
                        if number:  # the first round warms the translation cache
                            rates.setdefault((workload, pipeline, policy), []).append(rate)
            progress.say(f"{build.target}: round {number} of {rounds}")
        taken = {policy: _mebibytes(guest) for policy, guest in guests.items()}
    ratios = [
        ratio_of(build.target, workload, pipeline, policy, rates[workload, pipeline, policy], unchecked)
        for (workload, pipeline, other), unchecked in rates.items()
        if other == UNCHECKED
        for policy in GOALS
    ]
    memory = [
        Memory(
            target=build.target,
            policy=policy,
            mebibytes=round(taken[policy], 1),
            over_unchecked_mebibytes=round(taken[policy] - taken[UNCHECKED], 1),
            goal_mebibytes=MEMORY_GOAL_MIB,
        )
        for policy in GOALS
    ]
    return ratios, memory


def measure_reports(
    build: Build, runner_for: Callable[[str], Runner], tree: SourceTree, progress: Progress, *, rounds: int
) -> ReportPrice:
    """BITOP by 8 on a server whose BITOP misaligns, audited and unchecked."""
    rates: dict[str, list[float]] = {UNCHECKED: [], AUDITED: []}
    with _guests(build, runner_for, tree.version, tuple(rates)) as guests:
        for guest in guests.values():
            _fill(guest, MISALIGNED_OPERAND_BYTES)
        for number in range(rounds + 1):
            for policy in _rotated(tuple(rates), number):
                rate = _throughput(guests[policy], _batch("BITOP", 8), 8, MISALIGNED_REQUESTS)
                if number:
                    rates[policy].append(rate)
        over = _mebibytes(guests[AUDITED]) - _mebibytes(guests[UNCHECKED])
        # Counts are exact once the process has ended by itself.
        guests[AUDITED].__exit__()
        accesses = sum(events.read_counts(guests[AUDITED].fault_log).values())
    progress.say(f"{build.target}: {accesses} misaligned accesses of {build.server} reported")
    return price_of(
        build.target,
        build.server,
        rates[AUDITED],
        rates[UNCHECKED],
        accesses_per_request=accesses / (MISALIGNED_REQUESTS * (rounds + 1)),
        over_mebibytes=over,
    )


def ratio_of(
    target: str, workload: str, pipeline: int, policy: str, rates: Sequence[float], unchecked: Sequence[float]
) -> Ratio:
    """The ratio of two sides' rates, round by round. Both are requests a second, one for each round."""
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
    """What one reported access costs: the median over the rounds of the difference in time, by request, divided."""
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
    """Tables for a person: every figure beside its goal, and by how much it is met or missed."""
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


def load() -> float:
    """The machine's load average over one minute."""
    return round(os.getloadavg()[0], 2)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, middle, upper


def _rotated(policies: Sequence[str], by: int) -> list[str]:
    """The same policies, starting with another one: whoever comes first after a pause has a colder machine."""
    return [policies[(number + by) % len(policies)] for number in range(len(policies))]


@contextlib.contextmanager
def _guests(
    build: Build, runner_for: Callable[[str], Runner], version: tuple[int, ...], policies: Sequence[str]
) -> Iterator[dict[str, Guest]]:
    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)

        def guest_under(policy: str, home: Path) -> Guest:
            coverage = policy == COVERED
            runner = runner_for(ENFORCED if coverage else policy)
            return Guest(build, runner, home / policy, sockets=home, version=version, coverage=coverage)

        yield {policy: stack.enter_context(guest_under(policy, home)) for policy in policies}


def _fill(guest: Guest, operand_bytes: int) -> None:
    with Client.at_socket(guest.socket_path, deadline_seconds=guest.deadline_seconds) as client:
        for key in ("left", "right"):
            client.command("SET", key, bytes(range(1, 251)) * (operand_bytes // 250) + b"y" * (operand_bytes % 250))


def _batch(workload: str, size: int) -> bytes:
    keys = [f"key:{number}" for number in range(size)]
    if workload == "SET":
        return Client.pack([("SET", key, PAYLOAD) for key in keys])
    if workload == "GET":
        return Client.pack([("GET", key) for key in keys])
    return Client.pack([("BITOP", "XOR", "result", "left", "right")] * size)


def _throughput(guest: Guest, batch: bytes, size: int, count: int) -> float:
    """Requests a second; past the recording proxy, which would be what is measured."""
    with Client.at_socket(guest.socket_path, deadline_seconds=guest.deadline_seconds) as client:
        started = time.perf_counter()
        for _ in range(count // size):
            client.send(batch)
            for _ in range(size):
                client.receive()
        return count / (time.perf_counter() - started)


def _mebibytes(guest: Guest) -> float:
    return float(psutil.Process(guest.pid).memory_full_info().pss) / 2**20
