"""Measures what a kernel's repair (fixup) of a misaligned access costs, and what share of it a server pays.

The machine's clocks count instructions (QEMU's -icount, one nanosecond each), so a figure is the same on every run,
even on a busy host. The figures are not times: QEMU does not model how an exception stalls a processor.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build.helper_program import compiled
from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.strict_toml import ROOT
from harness.isa import access_table, rules
from harness.protocol.resp import Client
from harness.run import canary
from harness.run.server_process import StartError
from harness.run.servers.server_spec import ServerSpec
from harness.run.vm.guest import SERVER, VirtualMachine, VmGuest
from harness.workflows.measure.fixup_cost import AccessCost, FixupCost, ServerFixupCost, access_cost, repaired, taxed
from harness.workflows.target_setup import kernel_target, set_up_targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.core.cache import Cache
    from harness.core.model import SourceTree
    from harness.core.target_model import PlannedAccess, Policy, Target, Toolchain
    from harness.run.vm.machine import Machine
    from harness.workflows.measure.fixup_cost import Repairer
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench

FOLDER = ROOT / "toolchains" / "kernels" / "tax"
SERVERS = ("redis-3.2.6", "redis-7.0.15")
"""A release with many misaligned sites, and one that should have none."""
ACCESSES, LOAD = "/srv/accesses", "/srv/load"
"""Paths of the two programs in the guest."""
COUNT, ROUNDS = 10_000, 5
"""Accesses of one round, and rounds, of which the best counts. The coarsest clock, which ticks every microsecond, then
resolves a tenth of an instruction for each access."""
COPIED_BYTES = (2, 4, 8, 16)
"""Sizes of accesses that portable C makes by a copy."""
RUN_SECONDS = 10.0
"""Deadline of one program in the guest, before the target's slowdown."""
BATCH, COMMANDS = 8, 1000
PAYLOAD, OPERAND_BYTES = b"x" * 64, 200


class Workload(Record, frozen=True):
    """Requests that are sent in one write, and the replies that the server must give."""

    name: str
    requests: bytes
    replies: bytes


def workloads() -> list[Workload]:
    """Each moves bytes through strings, whose header is 3 bytes long from Redis 3.2 on."""
    keys = [f"key:{number}" for number in range(BATCH)]
    bitop = ("BITOP", "XOR", "result", "left", "right")
    got = b"$%d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
    return [
        Workload(name="SET", requests=Client.pack([("SET", key, PAYLOAD) for key in keys]), replies=b"+OK\r\n" * BATCH),
        Workload(name="GET", requests=Client.pack([("GET", key) for key in keys]), replies=got * BATCH),
        Workload(name="BITOP", requests=Client.pack([bitop] * BATCH), replies=b":%d\r\n" % OPERAND_BYTES * BATCH),
    ]


class FixupCostMeasurement:
    """One measurement, for which it boots machines that run nothing else."""

    def __init__(self, bench: Workbench, *, optimisation: str) -> None:
        self.bench = bench
        self.optimisation = optimisation

    def measure(self, targets: Sequence[str], servers: Sequence[str]) -> FixupCost:
        """Measure each target's accesses; then the servers, on the targets whose kernel repairs an access.

        Raises UsageError for a target without its own kernel, and InfrastructureError if a machine fails.
        """
        chosen = [kernel_target(self.bench.catalog, name) for name in targets]
        setups = set_up_targets(self.bench, chosen).values()
        paying = [setup for setup in setups if self._policy(setup.target).fixup]
        trees = [self.bench.open_server(name) for name in servers] if paying else []
        costs: list[AccessCost] = []
        fatal: dict[str, list[str]] = {}
        for setup in setups:
            target = setup.target
            accesses = [one for one in access_table.plain_accesses(target) if one.size_bytes in COPIED_BYTES]
            places = [(access, misalignment(target, self._policy(target), access)) for access in accesses]
            if any(place for _, place in places):
                costs += self._accesses(setup, [(access, *place) for access, place in places if place])
            fatal[target.name] = [access.name for access, place in places if not place]
        rows = [row for setup in paying for tree in trees for row in self._server(setup, tree)]
        return FixupCost(accesses=costs, fatal=fatal, servers=[taxed(row, rows, costs) for row in rows])

    def _policy(self, target: Target) -> Policy:
        """The target's policy with the kernel's fixup on."""
        return self.bench.catalog.policies[target.kernel]

    @contextlib.contextmanager
    def _machine_with(self, setup: TargetSetup, programs: Mapping[str, Path]) -> Iterator[VirtualMachine]:
        image = setup.vm_image(programs, mode=self._policy(setup.target).mode, counted=True)
        with tempfile.TemporaryDirectory(prefix="plumb-tax-") as folder:
            host = VirtualMachine(image, Path(folder), sockets=Path(folder))
            try:
                yield host
            finally:
                host.close()

    def _accesses(self, setup: TargetSetup, places: Sequence[tuple[PlannedAccess, int, Repairer]]) -> list[AccessCost]:
        target = setup.target
        program = canary.compile_canary(self.bench.cache, target, setup.toolchain, FOLDER / "accesses.c")
        with (
            self._machine_with(setup, {ACCESSES: program}) as host,
            self.bench.progress.stage("tax", f"{target.name}: accesses"),
        ):
            return [_access(host.machine(), target, *place) for place in places]

    def _server(self, setup: TargetSetup, tree: SourceTree) -> list[ServerFixupCost]:
        target = setup.target
        build = setup.build(tree, self.optimisation)
        spec, runner = ServerSpec(build=build, version=tree.version), setup.runner(target.kernel)
        programs = {SERVER: build.server_binary, LOAD: compile_load(self.bench.cache, target, setup.toolchain)}
        with (
            self._machine_with(setup, programs) as host,
            self.bench.progress.stage("tax", f"{target.name}: {tree.name}"),
        ):
            try:
                with VmGuest(spec, runner, host.folder / "guest", host=host) as guest:
                    return _server(guest, host.machine())
            except StartError as error:
                raise InfrastructureError(
                    f"{tree.name} does not run on {target.name}, so it cannot be measured there",
                    because=str(error),
                    remedy=f"plumb check --tier kernel --target {target.name} --server {shlex.quote(tree.name)} "
                    "--policy fixup",
                ) from error


def compile_load(cache: Cache, target: Target, tools: Toolchain) -> Path:
    """The program that sends requests inside the guest. Raises InfrastructureError when it does not compile."""
    return compiled(
        cache,
        tools,
        title=f"the load program for {target.name}",
        kind="loads",
        owner=target.name,
        file="load",
        flags=[*target.compiler_flags, "-O1", "-Wall", "-Wextra", "-Werror", "-std=gnu11"],
        sources=[FOLDER / "load.c"],
    )


def misalignment(target: Target, policy: Policy, access: PlannedAccess) -> tuple[int, Repairer] | None:
    """The first misaligned offset of an access, and what performs it nevertheless; None if it raises SIGBUS."""
    forbidden = [rules.forbidden(target, policy, rules.shape(access, offset)) for offset in canary.offsets(access)]
    if not any(forbidden):
        return 1, "processor"
    return (forbidden.index(True), "kernel") if access.access_class in policy.fixup else None


def _access(machine: Machine, target: Target, access: PlannedAccess, offset: int, repairer: Repairer) -> AccessCost:
    counts = rules.has_switch(target)
    before = machine.counters() if counts else None
    words = [ACCESSES, access.name, str(offset), str(COUNT), str(ROUNDS)]
    output = run_inside(machine, target, words)
    after = machine.counters() if counts else None
    return access_cost(
        target.name,
        access,
        offset,
        repairer,
        nanoseconds=[int(word) for word in output.split()],
        count=COUNT,
        rounds=ROUNDS,
        fixups=repaired(before, after) if before and after else None,
    )


def _server(guest: VmGuest, machine: Machine) -> list[ServerFixupCost]:
    target = guest.runner.target
    counts = rules.has_switch(target)
    operands = [("SET", key, key[:1] * OPERAND_BYTES) for key in ("left", "right")]
    send_load(guest, machine, Client.pack(operands), b"+OK\r\n" * len(operands), 1)
    rows = []
    for workload in workloads():
        # The first batch makes keys and warms caches.
        send_load(guest, machine, workload.requests, workload.replies, 1)
        before = machine.counters() if counts else None
        taken = send_load(guest, machine, workload.requests, workload.replies, COMMANDS // BATCH)
        after = machine.counters() if counts else None
        rows.append(
            ServerFixupCost(
                target=target.name,
                server=guest.build.server,
                optimisation=guest.build.optimisation,
                workload=workload.name,
                build=guest.build.key,
                instructions=taken,
                fixups=repaired(before, after) if before and after else None,
                counted_on=target.name if counts else "",
            )
        )
    return rows


def send_load(guest: VmGuest, machine: Machine, requests: bytes, replies: bytes, times: int) -> int:
    """How many instructions the server executed for these requests."""
    machine.write("/run/requests", requests)
    machine.write("/run/replies", replies)
    words = [LOAD, str(guest.port), str(guest.pid), "/run/requests", "/run/replies", str(times)]
    return int(run_inside(machine, guest.runner.target, words))


def instructions_so_far(guest: VmGuest, machine: Machine) -> int:
    """How many instructions the server has executed since its start, with the kernel's for it."""
    return int(run_inside(machine, guest.runner.target, [LOAD, str(guest.pid)]))


def run_inside(machine: Machine, target: Target, words: Sequence[str]) -> str:
    """The output of a program in the machine. Raises InfrastructureError unless it ends with 0."""
    result = machine.run(words, deadline_seconds=target.whole_deadline_seconds(RUN_SECONDS), traced=False)
    if result.end is None or (result.end.how, result.end.number) != ("exit", 0):
        how = "did not end" if result.end is None else f"ended with {result.end.how} {result.end.number}"
        raise InfrastructureError(
            f"{' '.join(words)} {how}",
            where=f"in the machine of {target.name}",
            because=result.output.decode("utf-8", "replace").strip(),
        )
    return result.output.decode()
