"""Measures requests with the kernel's share: on a machine whose clocks count instructions, as fixup_cost_run does."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import InconclusiveError, InfrastructureError
from harness.core.sockets import connect
from harness.protocol.resp import Client
from harness.protocol.workload_requests import WorkloadRequests
from harness.run.counted_load import SAVING, LacksCommandError, refuse_unknown_commands
from harness.run.counted_server import CALM
from harness.run.server_process import StartError
from harness.run.vm.guest import SERVER, VirtualMachine, VmGuest
from harness.workflows.measure.fixup_cost_run import LOAD, compile_load
from harness.workflows.measure.kernel_load import BENCHMARK, CLI, InsideLoad, UnsupportedError, sender_of
from harness.workflows.measure.server_cost import kernel_cost, no_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.model import SourceTree
    from harness.plan.workloads import BenchWorkload
    from harness.run.vm.machine import Machine
    from harness.workflows.measure.server_cost import KernelCost, NoFigure
    from harness.workflows.target_setup import TargetSetup

PREPARED_AT_ONCE = 200


def kernel_costs(
    setup: TargetSetup,
    tree: SourceTree,
    name: str,
    workloads: Sequence[BenchWorkload],
    *,
    rounds: int,
    optimisation: str,
    missing: list[NoFigure],
) -> list[KernelCost]:
    """The costs of a tree, which is shown by `name`. What has none is added to `missing`.

    Raises BuildFailedError where the tree does not compile, InfrastructureError where the machine does not boot.
    """
    target = setup.target
    build = setup.build(tree, optimisation)
    upstream = setup.upstream(tree, optimisation) / "src"
    programs = {
        SERVER: build.server_binary,
        LOAD: compile_load(setup.bench.cache, target, setup.toolchain),
        BENCHMARK: upstream / f"{tree.family}-benchmark",
        CLI: upstream / f"{tree.family}-cli",
    }
    policy = setup.bench.catalog.policies[target.kernel]
    image = setup.vm_image(programs, mode=policy.mode, counted=True)
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="plumb-k-") as folder,
        contextlib.closing(VirtualMachine(image, Path(folder), sockets=Path(folder))) as host,
    ):
        for number, workload in enumerate(workloads):
            guest = VmGuest(
                build,
                setup.runner(target.kernel),
                host.folder / f"guest-{number}",
                host=host,
                version=tree.version,
                options=[*CALM, *SAVING[workload.saving], *workload.options],
            )
            try:
                found.append(_cost(setup, guest, workload, server=name, rounds=rounds))
            except (UnsupportedError, LacksCommandError) as error:
                missing.append(no_figure(workload, error, server=name, target=target.name, inapplicable=True))
            except (StartError, OSError, InconclusiveError, InfrastructureError) as error:
                missing.append(no_figure(workload, error, server=name, target=target.name))
    return found


def _cost(setup: TargetSetup, guest: VmGuest, workload: BenchWorkload, *, server: str, rounds: int) -> KernelCost:
    """The cost of one workload on a server that has not started yet.

    Raises UnsupportedError and LacksCommandError where the workload says nothing about the server; StartError, OSError,
    InfrastructureError and InconclusiveError where there is no figure.
    """
    sender_of(workload)
    target = setup.target.name
    with setup.bench.progress.stage("measure", f"{target}: {server} {workload.name}"), guest:
        instructions = _rounds(guest, guest.host.machine(), workload, rounds)
    return kernel_cost(workload, instructions, server=server, target=target)


def _rounds(guest: VmGuest, machine: Machine, workload: BenchWorkload, rounds: int) -> list[float]:
    """Instructions of a request, with the kernel's, for each round."""
    requests = WorkloadRequests(workload)
    with Client(connect(guest.upstream, deadline_seconds=guest.deadline_seconds)) as client:
        refuse_unknown_commands(workload, client.command)
        for several in requests.prepared(at_once=PREPARED_AT_ONCE):
            client.pipeline(several)
    load = InsideLoad(guest, machine, workload, requests)
    return [load.instructions() for _ in range(rounds)]
