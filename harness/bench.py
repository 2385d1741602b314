"""What enforcement and audit cost: throughput over the same QEMU without alignment checks, in one run.

Rounds are interleaved, so that a noisy machine disturbs both sides alike; the median of the rounds' ratios counts.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.guest import Guest
from harness.model import Noun
from harness.resp import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.console import Progress
    from harness.emulator import Runner
    from harness.model import Build

UNCHECKED = "unchecked"
POLICIES = ("signal", UNCHECKED, "audit")
WORKLOADS = ("SET", "GET")
PIPELINE = 8
REQUESTS = 16_000
PAYLOAD = b"x" * 64


class Ratio(Noun, frozen=True):
    """One target's, one workload's result."""

    target: str
    workload: str
    policy: str
    per_second: float
    unchecked_per_second: float
    ratio: float
    """Median over the rounds of per_second / unchecked_per_second: 1.0 is free."""


def measure(
    build: Build, runner_for: Callable[[str], Runner], version: tuple[int, ...], progress: Progress, *, rounds: int
) -> list[Ratio]:
    """SET and GET, pipelined by 8, on a guest of one build under each policy; `unchecked` is the one without checks."""
    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        guests = {
            policy: stack.enter_context(Guest(build, runner_for(policy), home / policy, sockets=home, version=version))
            for policy in POLICIES
        }
        rates: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds + 1):
            for workload in WORKLOADS:
                for policy, guest in guests.items():
                    rate = _throughput(guest, workload)
                    if number:  # the first round warms the translation cache
                        rates.setdefault((workload, policy), []).append(rate)
            progress.say(f"{build.target}: round {number} of {rounds}")
    return [
        _ratio(build.target, workload, policy, rates[workload, policy], rates[workload, UNCHECKED])
        for workload in WORKLOADS
        for policy in POLICIES
        if policy is not UNCHECKED
    ]


def _ratio(target: str, workload: str, policy: str, rates: list[float], unchecked: list[float]) -> Ratio:
    return Ratio(
        target=target,
        workload=workload,
        policy=policy,
        per_second=round(statistics.median(rates)),
        unchecked_per_second=round(statistics.median(unchecked)),
        ratio=round(statistics.median(a / b for a, b in zip(rates, unchecked, strict=True)), 3),
    )


def _throughput(guest: Guest, workload: str) -> float:
    """Requests a second; past the recording proxy, which would be what is measured."""
    keys = [f"key:{number % 1000:04}" for number in range(PIPELINE)]
    requests = [("SET", key, PAYLOAD) if workload == "SET" else ("GET", key) for key in keys]
    batch = Client.pack(requests)
    with Client.at_socket(guest.socket_path, deadline_seconds=guest.deadline_seconds) as client:
        started = time.perf_counter()
        for _ in range(REQUESTS // PIPELINE):
            client.send(batch)
            for _ in requests:
                client.receive()
        return REQUESTS / (time.perf_counter() - started)
