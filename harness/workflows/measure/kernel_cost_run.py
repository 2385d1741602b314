"""Measures requests with the kernel's share: on a machine whose clocks count instructions, as fixup_cost_run does.

Every round starts its own server, as on the user tier. The machine continues as long as it has room for their files.
"""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import hiredis

from harness.core.errors import InconclusiveError, InfrastructureError
from harness.core.sockets import connect
from harness.protocol.resp import Client, info_fields
from harness.protocol.workload_requests import WorkloadRequests
from harness.run.counting.counted_server import CALM
from harness.run.counting.workload_needs import (
    CHILD_FIELDS,
    CHILD_POLL_SECONDS,
    CHILD_SECONDS,
    FORKS,
    SAVING,
    LacksCommandError,
    refuse_unknown_commands,
)
from harness.run.server_process import StartError
from harness.run.servers.server_spec import ServerSpec
from harness.run.vm.guest import SERVER, VirtualMachine, VmGuest
from harness.run.vm.machine import STOPPED_STATES
from harness.workflows.measure.fixup_cost_run import LOAD, compile_load
from harness.workflows.measure.kernel_load import BENCHMARK, CLI, InsideLoad, UnsupportedError, sender_of
from harness.workflows.measure.server_cost import KernelRound, kernel_cost, no_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.model import Allocator, SourceTree
    from harness.plan.workloads import BenchWorkload
    from harness.run.vm.machine import Machine
    from harness.workflows.measure.cost_document import KernelCost, NoFigure
    from harness.workflows.target_setup import TargetSetup

PREPARED_AT_ONCE = 200
NANOSECONDS = 1e9
"""Nanoseconds per second: each is an instruction of a counted machine."""
_AMOUNT = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)


def kernel_costs(
    setup: TargetSetup,
    tree: SourceTree,
    name: str,
    workloads: Sequence[BenchWorkload],
    *,
    rounds: int,
    optimisation: str,
    allocator: Allocator,
    missing: list[NoFigure],
) -> dict[str, KernelCost]:
    """Workload -> cost of a tree, which reports call `name`. Workloads without a figure are added to `missing`.

    Raises BuildFailedError if the tree does not compile, InfrastructureError if the machine does not boot.
    """
    target = setup.target
    build = setup.build(tree, optimisation, allocator)
    upstream = setup.upstream(tree, optimisation) / "src"
    programs = {
        SERVER: build.server_binary,
        LOAD: compile_load(setup.bench.cache, target, setup.toolchain),
        BENCHMARK: upstream / f"{tree.family}-benchmark",
        CLI: upstream / f"{tree.family}-cli",
    }
    policy = setup.bench.catalog.policies[target.kernel]
    image = setup.vm_image(programs, mode=policy.mode, counted=True)
    found: dict[str, KernelCost] = {}
    with (
        tempfile.TemporaryDirectory(prefix="plumb-k-") as folder,
        contextlib.closing(VirtualMachine(image, Path(folder), sockets=Path(folder))) as host,
    ):

        def guest(workload: BenchWorkload, number: int) -> VmGuest:
            options = [*CALM, *SAVING[workload.saving], *workload.options]
            return VmGuest(
                ServerSpec(build=build, version=tree.version, options=options),
                setup.runner(target.kernel),
                host.folder / f"{workload.name}-{number}",
                host=host,
            )

        for workload in workloads:
            try:
                sender_of(workload)
                with setup.bench.progress.stage("measure", f"{target.name}: {name} {workload.name}"):
                    measured = [_round(guest(workload, number), workload) for number in range(rounds)]
                found[workload.name] = kernel_cost(workload, measured, server=name, target=target.name)
            except (UnsupportedError, LacksCommandError) as error:
                missing.append(no_figure(workload, error, server=name, target=target.name, inapplicable=True))
            except (StartError, OSError, InconclusiveError, InfrastructureError, hiredis.ReplyError) as error:
                missing.append(no_figure(workload, error, server=name, target=target.name))
            if (workload.saving, workload.during) != ("none", "nothing"):
                # Their saved files occupy the machine's memory.
                host.close()
    return found


def _round(guest: VmGuest, workload: BenchWorkload) -> KernelRound:
    """One round on a server that has not started yet.

    Raises LacksCommandError if the workload says nothing about the server; StartError, OSError, hiredis.ReplyError,
    InfrastructureError and InconclusiveError if there is no figure.
    """
    requests = WorkloadRequests(workload)
    with guest:
        machine = guest.host.machine()
        with _client(guest) as client:
            refuse_unknown_commands(workload, client.command)
            for several in requests.prepared(at_once=PREPARED_AT_ONCE):
                for reply in client.pipeline(several):
                    if isinstance(reply, hiredis.ReplyError):
                        raise reply
        before = _info(guest)
        child = None
        if workload.during != "nothing":
            with _client(guest) as client:
                client.command(FORKS[workload.during])
            child = held_child(guest, machine, workload)
        cost = InsideLoad(guest, machine, workload, requests).cost()
        if child is not None:
            machine.send_signal(child, signal.SIGCONT)
            _await_end_of_child(guest, workload)
        after = _info(guest)
        memory = dict(_AMOUNT.findall(machine.read(f"/proc/{guest.pid}/smaps_rollup").decode()))
    copied = after.get(CHILD_FIELDS[workload.during].copied) if child is not None else None
    return KernelRound(
        instructions=cost.instructions,
        latencies=cost.latencies,
        sent_by=cost.sent_by,
        child_instructions=None if copied is None else _children_instructions(after) - _children_instructions(before),
        copied_bytes=None if copied is None else int(copied),
        used_memory=int(after["used_memory"]),
        resident_bytes=int(memory["Rss"]) * 1024,
        proportional_bytes=int(memory["Pss"]) * 1024,
        # Files of a root file system in memory count as dirty. Pages that no longer belong to a file were written to.
        own_bytes=int(memory["Anonymous"]) * 1024,
    )


def _client(guest: VmGuest) -> Client:
    return Client(connect(guest.upstream, deadline_seconds=guest.deadline_seconds))


def _info(guest: VmGuest) -> dict[str, str]:
    with _client(guest) as client:
        return info_fields(client.command("INFO"))


def _children_instructions(info: dict[str, str]) -> float:
    """Instructions of all children that have ended, with the kernel's."""
    return NANOSECONDS * sum(float(info[f"used_cpu_{kind}_children"]) for kind in ("sys", "user"))


def held_child(guest: VmGuest, machine: Machine, workload: BenchWorkload) -> int:
    """Stop the child that the server has just forked, and return its number. Raises InconclusiveError if it ended."""
    while True:
        processes = [line.split() for line in machine.processes()]
        alive = [(int(pid), state) for pid, parent, state, *_ in processes if parent == str(guest.pid) and state != "Z"]
        if not alive:
            raise InconclusiveError(
                f"{workload.name}: the child ended before the first request",
                because="stopping it takes a moment",
                remedy="use more keys, which keep it busy longer",
            )
        pid, state = alive[0]
        if state in STOPPED_STATES:
            return pid
        machine.send_signal(pid, signal.SIGSTOP)


def _await_end_of_child(guest: VmGuest, workload: BenchWorkload) -> None:
    """Wait until the server knows that its child has ended. Raises InconclusiveError if it failed or does not end."""
    fields = CHILD_FIELDS[workload.during]
    deadline = time.monotonic() + guest.runner.target.whole_deadline_seconds(CHILD_SECONDS)
    while (state := _info(guest))[fields.running] != "0":
        if time.monotonic() > deadline:
            raise InconclusiveError(f"{workload.name}: the child did not end")
        time.sleep(CHILD_POLL_SECONDS)
    if state[fields.status] != "ok":
        raise InconclusiveError(f"{workload.name}: the child failed", because=f"{fields.status}:{state[fields.status]}")
