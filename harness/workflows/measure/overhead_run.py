"""Measures what enforcement, audit, coverage and delayed stores cost: throughput and memory over unchecked QEMU.

One run measures everything: its rounds are interleaved, and each starts with another policy. Within a round the
policies take turns of some ten milliseconds, so that noise disturbs every policy alike.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from harness.build.emulators.runner import with_order
from harness.core.processes.scheduling import ran_seconds
from harness.isa.memory_order import why_not
from harness.protocol.resp import Client
from harness.record import fault_log
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.measure.overhead import (
    AUDITED,
    COVERED,
    DELAYED,
    ENFORCED,
    MEMORY_GOAL_MIB,
    UNCHECKED,
    Costs,
    Memory,
    price_of,
    ratio_of,
)
from harness.workflows.target_setup import set_up_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.build.emulators.runner import Runner
    from harness.core.model import Build, SourceTree
    from harness.core.progress import Progress
    from harness.workflows.measure.overhead import Ratio, ReportPrice
    from harness.workflows.workbench import Workbench

POLICIES = (UNCHECKED, ENFORCED, AUDITED, COVERED, DELAYED)
SEED = 1
"""Of the order in which delayed stores go to memory."""

WORKLOADS = ("SET", "GET", "BITOP")
REQUESTS = {8: 16_000, 1: 4_000}
"""Pipeline depth -> requests of one measurement."""
TURNS = 20
"""How often the guests take turns in one measurement, which divides its requests among the turns."""
PAYLOAD = b"x" * 64
OPERAND_BYTES = 1024

OPTIMISATION = "O2"
MISALIGNED_SERVER = "redis-3.2.6"
"""Its BITOP reads strings by words, and its SDS header puts every string at an odd address."""
MISALIGNED_OPERAND_BYTES = 200
MISALIGNED_REQUESTS = 1_600


def measure_costs(bench: Workbench, names: Sequence[str], server: str, *, rounds: int) -> Costs:
    """The costs for a server on every user-mode target among `names`.

    Raises UsageError for an unknown server, BuildFailedError if one does not compile.
    """
    tree, misaligned_tree = (bench.open_server(name) for name in (server, MISALIGNED_SERVER))
    chosen = [bench.catalog.targets[name] for name in names if bench.catalog.targets[name].emulator.is_qemu_user]
    setups = set_up_targets(bench, chosen).values()
    # Compilers would cause most of the noise, so every build is made before the first measurement.
    builds = [(setup, setup.build(tree, OPTIMISATION), setup.build(misaligned_tree, OPTIMISATION)) for setup in setups]
    load_before = load()
    throughput: list[Ratio] = []
    memory: list[Memory] = []
    reports: list[ReportPrice] = []
    for setup, build, misaligned_build in builds:
        policies = [one for one in POLICIES if one != DELAYED or not why_not(setup.target)]
        ratios, mebibytes = measure(build, setup.runner, tree, policies, bench.progress, rounds=rounds)
        throughput += ratios
        memory += mebibytes
        reports.append(measure_reports(misaligned_build, setup.runner, misaligned_tree, bench.progress, rounds=rounds))
    return Costs(
        server=tree.name,
        rounds=rounds,
        processors=os.cpu_count() or 1,
        load_before=load_before,
        load_after=load(),
        throughput=throughput,
        memory=memory,
        reports=reports,
    )


def measure(
    build: Build,
    runner_for: Callable[[str], Runner],
    tree: SourceTree,
    policies: Sequence[str],
    progress: Progress,
    *,
    rounds: int,
) -> tuple[list[Ratio], list[Memory]]:
    """SET, GET and BITOP, in pipelines of 8 and of 1, on a new guest for each policy and round; then their memory."""
    rates: dict[tuple[str, int, str], list[float]] = {}
    mebibytes: dict[str, list[float]] = {}
    for number in range(rounds):
        # Processes differ from each other throughout their lives, because of where their memory happens to be.
        with _guests(build, runner_for, tree.version, policies) as started:
            guests = _rotated(started, number)
            for guest in guests.values():
                _fill(guest, OPERAND_BYTES)
            for workload in WORKLOADS:
                for pipeline, count in REQUESTS.items():
                    batch = _batch(workload, pipeline)
                    _throughput(guests, batch, pipeline, count // 10)  # has the code translated
                    for policy, rate in _throughput(guests, batch, pipeline, count).items():
                        rates.setdefault((workload, pipeline, policy), []).append(rate)
            for policy, guest in guests.items():
                mebibytes.setdefault(policy, []).append(_mebibytes(guest))
        progress.say(f"{build.target}: round {number + 1} of {rounds}")
    taken = {policy: statistics.median(values) for policy, values in mebibytes.items()}
    ratios = [
        ratio_of(build.target, workload, pipeline, policy, rates[workload, pipeline, policy], unchecked)
        for (workload, pipeline, other), unchecked in rates.items()
        if other == UNCHECKED
        for policy in policies
        if policy != UNCHECKED
    ]
    memory = [
        Memory(
            target=build.target,
            policy=policy,
            mebibytes=round(taken[policy], 1),
            over_unchecked_mebibytes=round(taken[policy] - taken[UNCHECKED], 1),
            goal_mebibytes=MEMORY_GOAL_MIB,
        )
        for policy in policies
        if policy != UNCHECKED
    ]
    return ratios, memory


def measure_reports(
    build: Build, runner_for: Callable[[str], Runner], tree: SourceTree, progress: Progress, *, rounds: int
) -> ReportPrice:
    """BITOP in pipelines of 8 on a server whose BITOP misaligns, audited and unchecked."""
    rates: dict[str, list[float]] = {UNCHECKED: [], AUDITED: []}
    with _guests(build, runner_for, tree.version, tuple(rates)) as guests:
        for guest in guests.values():
            _fill(guest, MISALIGNED_OPERAND_BYTES)
        for number in range(rounds + 1):
            batch = _batch("BITOP", 8)
            for policy, rate in _throughput(_rotated(guests, number), batch, 8, MISALIGNED_REQUESTS).items():
                if number:
                    rates[policy].append(rate)
        over = _mebibytes(guests[AUDITED]) - _mebibytes(guests[UNCHECKED])
        # The emulator writes exact counts when its process ends by itself.
        guests[AUDITED].__exit__()
        accesses = sum(fault_log.read(guests[AUDITED].evidence.fault_log).counts.values())
    progress.say(f"{build.target}: {accesses} misaligned accesses of {build.server} reported")
    return price_of(
        build.target,
        build.server,
        rates[AUDITED],
        rates[UNCHECKED],
        accesses_per_request=accesses / (MISALIGNED_REQUESTS * (rounds + 1)),
        over_mebibytes=over,
    )


def load() -> float:
    """The machine's load average over one minute."""
    return round(os.getloadavg()[0], 2)


def _rotated(guests: Mapping[str, Guest], by: int) -> dict[str, Guest]:
    """The same guests, starting with another: the first one after a pause runs on colder caches."""
    order = [*guests.items()]
    return dict(order[(number + by) % len(order)] for number in range(len(order)))


@contextlib.contextmanager
def _guests(
    build: Build, runner_for: Callable[[str], Runner], version: tuple[int, ...], policies: Sequence[str]
) -> Iterator[dict[str, Guest]]:
    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)

        def guest_under(policy: str, home: Path) -> Guest:
            coverage = policy == COVERED
            runner = runner_for(ENFORCED if policy in {COVERED, DELAYED} else policy)
            runner = with_order(runner, "weak" if policy == DELAYED else "usual", SEED)
            spec = ServerSpec(build=build, version=version, coverage=coverage)
            return Guest(spec, runner, home / policy, sockets=home)

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


def _throughput(guests: Mapping[str, Guest], batch: bytes, size: int, count: int) -> dict[str, float]:
    """Policy -> requests per second of the emulator's processor time, for this many requests to each guest, in turn.

    Elapsed time would include the client's work and, for single requests, the time in which the kernel wakes client and
    guest alternately.
    """
    ran = dict.fromkeys(guests, 0.0)
    with contextlib.ExitStack() as stack:
        clients = {
            policy: stack.enter_context(Client.at_socket(guest.socket_path, deadline_seconds=guest.deadline_seconds))
            for policy, guest in guests.items()
        }
        for _ in range(TURNS):
            for policy, guest in guests.items():
                before = ran_seconds(guest.pid)
                for _ in range(count // TURNS // size):
                    clients[policy].send(batch)
                    for _ in range(size):
                        clients[policy].receive()
                ran[policy] += ran_seconds(guest.pid) - before
    return {policy: count / seconds for policy, seconds in ran.items()}


def _mebibytes(guest: Guest) -> float:
    return float(psutil.Process(guest.pid).memory_full_info().pss) / 2**20
