"""Measures requests with the kernel's share: on a machine whose clocks count instructions, as fixup_cost_run does."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hiredis

from harness.core.errors import InconclusiveError, InfrastructureError
from harness.core.sockets import connect
from harness.protocol.resp import INCOMPLETE, Client
from harness.protocol.workload_requests import WorkloadRequests
from harness.run.counted_load import SAVING, LacksCommandError, refuse_unknown_commands
from harness.run.counted_server import CALM
from harness.run.server_process import StartError
from harness.run.vm.guest import SERVER, VirtualMachine, VmGuest
from harness.workflows.measure.fixup_cost_run import LOAD, compile_load, instructions_so_far, run_inside, send_load
from harness.workflows.measure.server_cost import kernel_cost, no_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.model import SourceTree
    from harness.plan.workloads import BenchWorkload
    from harness.run.vm.machine import Machine
    from harness.workflows.measure.server_cost import KernelCost, NoFigure
    from harness.workflows.target_setup import TargetSetup

MOST_REQUESTS = 1000
"""Requests of a round: the machine is some twenty times slower than the user-mode emulator."""
PREPARED_AT_ONCE = 200
BENCHMARK = "/srv/benchmark"
"""The path of redis-benchmark in the guest."""


class UnsupportedError(Exception):
    """No program inside the machine can send a workload."""

    def __init__(self) -> None:
        super().__init__("on the kernel tier, a workload is one command with evenly drawn keys, and no child saves")


def check_supported(workload: BenchWorkload) -> None:
    """Raise UnsupportedError for a workload that no program can send, as far as the workload itself tells."""
    one = len(workload.commands) == 1 and not workload.new_connections and workload.during == "nothing"
    words = workload.commands[0]
    drawn = workload.drawn == "evenly" and not any(mark in word for mark in ("{number}", "{floats}") for word in words)
    if not (one and drawn):
        raise UnsupportedError


def benchmark_words(workload: BenchWorkload, port: int, requests: int) -> list[str]:
    """The command line by which the release's own redis-benchmark sends a workload.

    Its numbers have twelve digits, as those of `WorkloadRequests` have. It draws them evenly, from a seed of its own.
    """
    value = "x" * workload.payload_bytes
    words = [word.replace("{key}", "__rand_int__").replace("{value}", value) for word in workload.commands[0]]
    options = {"-p": port, "-c": workload.connections, "-P": workload.pipeline, "-n": requests, "-r": workload.keys}
    return [BENCHMARK, "-q", *(str(part) for option in options.items() for part in option), *words]


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
    programs = {
        SERVER: build.server_binary,
        LOAD: compile_load(setup.bench.cache, target, setup.toolchain),
        BENCHMARK: setup.upstream(tree, optimisation) / "src" / f"{tree.family}-benchmark",
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
    check_supported(workload)
    target = setup.target.name
    with setup.bench.progress.stage("measure", f"{target}: {server} {workload.name}"), guest:
        instructions = _rounds(guest, guest.host.machine(), workload, rounds)
    return kernel_cost(workload, instructions, server=server, target=target)


def _rounds(guest: VmGuest, machine: Machine, workload: BenchWorkload, rounds: int) -> list[float]:
    """Instructions of a request, with the kernel's, for each round.

    One connection repeats the same requests where their replies repeat; redis-benchmark sends all others.
    """
    requests = WorkloadRequests(workload)
    with Client(connect(guest.upstream, deadline_seconds=guest.deadline_seconds)) as client:
        refuse_unknown_commands(workload, client.command)
        for several in requests.prepared(at_once=PREPARED_AT_ONCE):
            client.pipeline(several)
    batch = Client.pack([requests.next() for _ in range(workload.pipeline)])
    replies = _replies(guest, batch, workload)
    times = max(1, min(workload.requests, MOST_REQUESTS) // workload.pipeline)
    repeats = workload.connections == 1 and _replies(guest, batch, workload) == replies

    def measured() -> float:
        if not repeats:
            return _benchmark(guest, machine, workload)
        return send_load(guest, machine, batch, replies, times) / (times * workload.pipeline)

    # The first round warms up.
    return [measured() for _ in range(rounds + 1)][1:]


def _benchmark(guest: VmGuest, machine: Machine, workload: BenchWorkload) -> float:
    """Instructions of a request that redis-benchmark sends: what twice as many requests take more.

    Both runs contain the same connecting and the same questions about the configuration, which are no requests.
    """
    at_once = workload.connections * workload.pipeline
    requests = max(1, min(workload.requests, MOST_REQUESTS) // at_once) * at_once
    readings = [instructions_so_far(guest, machine)]
    for number in (requests, 2 * requests):
        run_inside(machine, guest.runner.target, benchmark_words(workload, guest.port, number))
        readings.append(instructions_so_far(guest, machine))
    first, second = (after - before for before, after in itertools.pairwise(readings))
    return (second - first) / requests


def _replies(guest: VmGuest, batch: bytes, workload: BenchWorkload) -> bytes:
    """What the server replies to a batch. Raises InconclusiveError for an error reply."""
    reader, received, due = hiredis.Reader(notEnoughData=INCOMPLETE), b"", workload.pipeline
    with connect(guest.upstream, deadline_seconds=guest.deadline_seconds) as connection:
        connection.sendall(batch)
        while due:
            content = connection.recv(65536)
            if not content:
                raise InconclusiveError(f"{workload.name}: the server closed the connection")
            received += content
            reader.feed(content)
            while (reply := reader.gets()) is not INCOMPLETE:
                if isinstance(reply, hiredis.ReplyError):
                    raise InconclusiveError(f"{workload.name}: an error reply is no figure", because=str(reply))
                due -= 1
    return received
