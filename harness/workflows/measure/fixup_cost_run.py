"""The fixup tax: measures what a kernel's repair of a misaligned access costs, and what a server pays of it.

The machine's clocks count instructions (QEMU's -icount, a nanosecond each), so that a figure is the same every time, on
a busy host too. How long these take on hardware, whose exceptions stall a processor, nothing here can say.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build.helper_program import compiled
from harness.build.qemu_user import Emulators
from harness.build.server_build import Builder
from harness.build.sources.server_tree import open_server
from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.strict_toml import ROOT
from harness.isa import rules
from harness.protocol.resp import Client
from harness.run import canary
from harness.run.server_process import StartError
from harness.run.vm.guest import PORTS, SERVER, VirtualMachine, VmGuest
from harness.workflows.measure.fixup_cost import AccessCost, FixupCost, ServerFixupCost, access_cost, repaired, taxed
from harness.workflows.target_setup import machine_target, prepare_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.model import PlannedAccess, Policy, SourceTree, Target, Toolchain
    from harness.core.progress import Progress
    from harness.plan.catalog import Catalog
    from harness.run.vm.machine import Machine
    from harness.workflows.measure.fixup_cost import Repairer

FOLDER = ROOT / "toolchains" / "kernels" / "tax"
SERVERS = ("redis-3.2.6", "redis-7.0.15")
"""One with many misaligned sites, and one that is expected to have none."""
ACCESSES, LOAD = "/srv/accesses", "/srv/load"
"""Where the two programs lie in the guest."""
COUNT, ROUNDS = 10_000, 5
"""Accesses of a round: the coarsest clock, a microsecond, is then a tenth of an instruction. The best round counts."""
RUN_SECONDS = 10.0
"""Of one program in the guest, times the target's slowdown."""
BATCH, COMMANDS = 8, 1000
PAYLOAD, OPERAND_BYTES = b"x" * 64, 200


class Workload(Record, frozen=True):
    """Requests that are sent at once, and the replies that they must get."""

    name: str
    requests: bytes
    replies: bytes


def workloads() -> list[Workload]:
    """Bytes go through strings, whose header is 3 bytes long from Redis 3.2 on."""
    keys = [f"key:{number}" for number in range(BATCH)]
    bitop = ("BITOP", "XOR", "result", "left", "right")
    got = b"$%d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
    return [
        Workload(name="SET", requests=Client.pack([("SET", key, PAYLOAD) for key in keys]), replies=b"+OK\r\n" * BATCH),
        Workload(name="GET", requests=Client.pack([("GET", key) for key in keys]), replies=got * BATCH),
        Workload(name="BITOP", requests=Client.pack([bitop] * BATCH), replies=b":%d\r\n" % OPERAND_BYTES * BATCH),
    ]


class FixupCostMeasurement:
    """One measurement: machines are booted, with nothing else in them."""

    def __init__(
        self, catalog: Catalog, store: Cache, fetcher: Fetcher, progress: Progress, *, optimisation: str
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.fetcher = fetcher
        self.progress = progress
        self.optimisation = optimisation

    def measure(self, targets: Sequence[str], servers: Sequence[str]) -> FixupCost:
        """Each target's accesses; then servers, where the kernel repairs something.

        Raises UsageError for a target without a kernel, InfrastructureError where a machine does not do as it is told.
        """
        chosen = [machine_target(self.catalog, name) for name in targets]
        paying = [target for target in chosen if self._policy(target).fixup]
        trees = [open_server(self.catalog, self.fetcher, name) for name in servers] if paying else []
        costs: list[AccessCost] = []
        fatal: dict[str, list[str]] = {}
        for target in chosen:
            places = [(one, misalignment(target, self._policy(target), one)) for one in canary.table(target).accesses]
            if any(place for _, place in places):
                costs += self._accesses(target, [(one, *place) for one, place in places if place])
            fatal[target.name] = [one.name for one, place in places if not place]
        rows = [row for target in paying for tree in trees for row in self._server(target, tree)]
        return FixupCost(accesses=costs, fatal=fatal, servers=[taxed(row, rows, costs) for row in rows])

    def _policy(self, target: Target) -> Policy:
        """What a kernel does with its fixup on."""
        return self.catalog.policies[target.kernel]

    @contextlib.contextmanager
    def _machine_with(self, target: Target, programs: Mapping[str, Path]) -> Iterator[VirtualMachine]:
        prepared = prepare_machine(
            self.catalog,
            self.store,
            self.fetcher,
            self.progress,
            target,
            programs,
            mode=self._policy(target).mode,
            counted=True,
        )
        with tempfile.TemporaryDirectory(prefix="plumb-tax-") as folder:
            host = VirtualMachine(prepared, Path(folder), sockets=Path(folder))
            try:
                yield host
            finally:
                host.close()

    def _accesses(self, target: Target, places: Sequence[tuple[PlannedAccess, int, Repairer]]) -> list[AccessCost]:
        tools = self.catalog.toolchain_of(target)
        program = canary.compile_canary(self.store, target, tools, FOLDER / "accesses.c")
        with (
            self._machine_with(target, {ACCESSES: program}) as host,
            self.progress.stage("tax", f"{target.name}: accesses"),
        ):
            return [_access(host.machine(), target, *place) for place in places]

    def _server(self, target: Target, tree: SourceTree) -> list[ServerFixupCost]:
        tools = self.catalog.toolchain_of(target)
        built_for = self.catalog.targets[rules.userland(target)]
        build = Builder(self.store, self.progress).build(tree, built_for, tools, self.optimisation)
        emulators = Emulators(self.store, self.fetcher, self.progress)
        runner = emulators.runner(target, tools, self._policy(target), {})
        programs = {SERVER: build.server_binary, LOAD: compile_load(self.store, target, tools)}
        with (
            self._machine_with(target, programs) as host,
            self.progress.stage("tax", f"{target.name}: {tree.name}"),
        ):
            try:
                with VmGuest(build, runner, host.folder / "guest", host=host, version=tree.version) as guest:
                    return _server(guest, host.machine())
            except StartError as error:
                raise InfrastructureError(
                    f"{tree.name} does not run on {target.name}, where nothing is measured then",
                    because=str(error),
                    remedy=f"plumb check --tier kernel --target {target.name} --server {tree.name} --policy fixup",
                ) from error


def compile_load(store: Cache, target: Target, tools: Toolchain) -> Path:
    """The program that sends requests from inside the guest. Raises InfrastructureError when it does not compile."""
    return compiled(
        store,
        tools,
        title=f"the load program for {target.name}",
        kind="loads",
        owner=target.name,
        file="load",
        flags=[*target.compiler_flags, "-O1", "-Wall", "-Wextra", "-Werror", "-std=gnu11"],
        sources=[FOLDER / "load.c"],
    )


def misalignment(target: Target, policy: Policy, access: PlannedAccess) -> tuple[int, Repairer] | None:
    """Where an access is first misaligned, and who does it all the same; None for nobody: it raises SIGBUS."""
    shapes = [rules.shape(access, offset) for offset in canary.OFFSETS]
    forbidden = [rules.forbidden(target, policy, one, hint_bytes=access.hint_bytes) for one in shapes]
    if not any(forbidden):
        return 1, "processor"
    return (forbidden.index(True), "kernel") if access.access_class in policy.fixup else None


def _access(machine: Machine, target: Target, access: PlannedAccess, offset: int, repairer: Repairer) -> AccessCost:
    counts = rules.has_switch(target)
    before = machine.counters() if counts else None
    words = [ACCESSES, access.name, str(offset), str(COUNT), str(ROUNDS)]
    output = _run(machine, target, words)
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
    _send(guest, machine, Client.pack(operands), b"+OK\r\n" * len(operands), 1)
    rows = []
    for workload in workloads():
        # The first batch makes keys and warms caches.
        _send(guest, machine, workload.requests, workload.replies, 1)
        before = machine.counters() if counts else None
        taken = _send(guest, machine, workload.requests, workload.replies, COMMANDS // BATCH)
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


def _send(guest: VmGuest, machine: Machine, requests: bytes, replies: bytes, times: int) -> int:
    """What the server executed for these requests."""
    machine.write("/run/requests", requests)
    machine.write("/run/replies", replies)
    # The first server of a machine has the first port.
    words = [LOAD, str(PORTS[0]), str(guest.pid), "/run/requests", "/run/replies", str(times)]
    return int(_run(machine, guest.runner.target, words))


def _run(machine: Machine, target: Target, words: Sequence[str]) -> str:
    ran = machine.run(words, deadline_seconds=RUN_SECONDS * target.slowdown, traced=False)
    if ran.end is None or (ran.end.how, ran.end.number) != ("exit", 0):
        raise InfrastructureError(
            f"{' '.join(words)} {'did not end' if ran.end is None else f'ended with {ran.end.how} {ran.end.number}'}",
            where=f"in the machine of {target.name}",
            because=ran.output.decode("utf-8", "replace").strip(),
        )
    return ran.output.decode()
