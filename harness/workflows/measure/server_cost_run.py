"""Measures what a server costs in workloads: instructions, allocations, memory and writes, on emulated machines.

Every round starts its own server, so that a figure's spread includes what differs between two starts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.code_profile import profile
from harness.build.allocator import check_supported
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.errors import InconclusiveError, UsageError
from harness.run.counting.counted_load import run_round
from harness.run.counting.counted_server import CountedGuest
from harness.run.counting.workload_needs import SAVING, LacksCommandError
from harness.run.server_process import StartError
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.measure import kernel_cost_run
from harness.workflows.measure.cost_comparison import differences
from harness.workflows.measure.cost_document import (
    AnyCost,
    CostDifference,
    KernelCost,
    Measurement,
    NoFigure,
    ServerCost,
)
from harness.workflows.measure.server_cost import no_figure, server_cost
from harness.workflows.target_setup import counter_for, set_up_targets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.analysis.code_profile import CodeProfile
    from harness.core.model import Allocator, Build, SourceTree
    from harness.core.target_model import Target
    from harness.plan.catalog import Catalog
    from harness.plan.workloads import BenchWorkload
    from harness.run.counting.counted_server import Counter
    from harness.run.counting.round_counts import RoundCounts
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench

SECONDS = 30.0
"""The approximate time of a workload on a target, for a server that is already built."""
LEAST_ROUNDS = 2
"""A single round has no spread."""


class CostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    targets: Sequence[str]
    workloads: Sequence[BenchWorkload]
    servers: Sequence[str]
    """Releases, or paths of trees."""
    against: str
    """The server with which the only other one is compared; empty: no comparison."""
    rounds: int
    limit: float
    optimisation: str
    allocator: Allocator


def countable_target(catalog: Catalog, name: str) -> Target:
    """A target by name, with the emulator that counts its instructions. Raises UsageError for one that has none."""
    target = catalog.targets[name]
    try:
        counting = target.emulator.counting
    except LookupError:
        raise UsageError(
            f"nothing counts the instructions of {name}",
            where="--target",
            because="the counter is a part of the emulators, and none runs its detector",
            remedy="--target native, --target required, or --target kernel",
        ) from None
    if target.emulator.runs_here and counting.qemu != target.machine:
        raise UsageError(
            f"nothing counts the instructions of {name} on this host",
            where="--target",
            because=f"its programs are counted in an emulated {counting.qemu}, and the host is {target.machine}",
            remedy="--target required, or --target kernel",
        )
    return msgspec.structs.replace(target, emulator=counting)


def measure(bench: Workbench, request: CostRequest) -> Measurement:
    """All figures of a request, and the reasons for those that are missing.

    Raises UsageError for an unknown server, and for an allocator that a target does not support; InfrastructureError if
    the counter cannot be had.
    """
    names: dict[str, SourceTree] = {}
    for server in request.servers:
        tree = bench.open_server(server)
        # Two trees may have the same name: their paths distinguish them.
        names[tree.name if tree.name not in names else server] = tree
    servers = list(names)
    if request.against:
        other = bench.open_server(request.against)
        names[other.name if other.name not in names else f"{other.name} (against)"] = other
    chosen = [countable_target(bench.catalog, name) for name in request.targets]
    for target in chosen:
        check_supported(request.allocator, target, bench.catalog.toolchain_of(target))
    costs: list[ServerCost] = []
    missing: list[NoFigure] = []
    compared: list[CostDifference] = []
    on_kernels: list[KernelCost] = []
    for setup in set_up_targets(bench, chosen).values():
        if setup.target.emulator.has_kernel:
            with_kernel = [_kernel_costs(setup, name, tree, request, missing) for name, tree in names.items()]
            on_kernels += [cost for by_workload in with_kernel for cost in by_workload.values()]
            if request.against:
                compared += _compared(with_kernel, request.limit)
            continue
        measurement = _TargetMeasurement(setup, counter_for(bench, setup), request)
        found = [measurement.costs(name, tree, missing) for name, tree in names.items()]
        costs += [cost for by_workload in found for cost in by_workload.values()]
        if request.against:
            compared += _compared(found, request.limit)
    return Measurement(
        servers=servers,
        against=list(names)[-1] if request.against else "",
        optimisation=request.optimisation,
        allocator=request.allocator,
        toolchain=bench.catalog.family,
        limit=request.limit,
        costs=costs,
        kernel_costs=on_kernels,
        no_figures=missing,
        differences=compared,
    )


def _compared(found: Sequence[Mapping[str, AnyCost]], limit: float) -> list[CostDifference]:
    """The comparison of two servers' costs by workload."""
    ours, theirs = found
    return [line for name in ours if name in theirs for line in differences(ours[name], theirs[name], limit)]


def _kernel_costs(
    setup: TargetSetup, name: str, tree: SourceTree, request: CostRequest, missing: list[NoFigure]
) -> dict[str, KernelCost]:
    """Workload -> cost of a tree, which reports call `name`, on a kernel. Workloads without a figure are added to
    `missing`.
    """
    try:
        return kernel_cost_run.kernel_costs(
            setup,
            tree,
            name,
            request.workloads,
            rounds=request.rounds,
            optimisation=request.optimisation,
            allocator=request.allocator,
            missing=missing,
        )
    except BuildFailedError as error:
        target = setup.target.name
        missing += [no_figure(workload, error, server=name, target=target) for workload in request.workloads]
        return {}


class _TargetMeasurement:
    def __init__(self, setup: TargetSetup, counter: Counter, request: CostRequest) -> None:
        self.setup = setup
        self.counter = counter
        self.request = request

    def costs(self, name: str, tree: SourceTree, missing: list[NoFigure]) -> dict[str, ServerCost]:
        """Workload -> cost of a tree, which reports call `name`. Workloads without a figure are added to `missing`."""
        target = self.setup.target.name
        found: dict[str, ServerCost] = {}
        try:
            build = self.setup.build(tree, self.request.optimisation, self.request.allocator)
        except BuildFailedError as error:
            missing += [no_figure(workload, error, server=name, target=target) for workload in self.request.workloads]
            return {}
        for workload in self.request.workloads:
            try:
                with self.setup.bench.progress.stage("measure", f"{target}: {name} {workload.name}"):
                    rounds = [self._round(build, tree, workload) for _ in range(self.request.rounds)]
                    found[workload.name] = server_cost(workload, rounds, server=name, target=target, build=build.key)
            except LacksCommandError as error:
                missing.append(no_figure(workload, error, server=name, target=target, inapplicable=True))
            except (StartError, InconclusiveError) as error:
                missing.append(no_figure(workload, error, server=name, target=target))
        return found

    def _round(self, build: Build, tree: SourceTree, workload: BenchWorkload) -> tuple[RoundCounts, CodeProfile]:
        runner = self.setup.runner(self.setup.target.kernel)
        options = [*SAVING[workload.saving], *workload.options]
        with tempfile.TemporaryDirectory(prefix="plumb-m-") as folder:
            home = Path(folder)
            with CountedGuest(
                ServerSpec(build=build, version=tree.version, options=options),
                runner,
                home / "guest",
                counter=self.counter,
                sockets=home,
            ) as guest:
                done = run_round(guest, workload)
            return done.counts, profile(done.blocks, done.maps, build.server_binary)
