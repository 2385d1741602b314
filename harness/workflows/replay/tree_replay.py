"""Runs a reproducer on a source tree: builds the tree, runs its server or unit, and compares the evidence.

The modules of `reruns` observe what happens, and harness.workflows.replay.recurrence decides whether that is the
finding.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import symbols
from harness.build.executed_blocks import code_of
from harness.core.errors import UsageError
from harness.plan.name_selection import select
from harness.record.executed_blocks.process_blocks import ProcessBlocks
from harness.run import silence_check
from harness.run.machines import guest_of, other_machine
from harness.run.server_process import Guest
from harness.workflows.replay.named_observation import named
from harness.workflows.replay.recurrence import BUILD, Recurrence, recurrence, unless_blind
from harness.workflows.replay.reruns.server import recorded_server, run_server
from harness.workflows.replay.reruns.unit import run_unit
from harness.workflows.replay.reruns.upstream import run_upstream
from harness.workflows.target_setup import oracle_setup

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.build.unit_drivers import Units
    from harness.core.model import Allocator, Build, SourceTree
    from harness.judge.reproducer import Reproducer
    from harness.run.machines import OtherMachine
    from harness.run.servers.server_spec import ServerSpec
    from harness.workflows.replay.reruns.replayed_run import ReplayedRun
    from harness.workflows.target_setup import TargetSetup


class TreeReplay:
    """One reproducer on one source tree."""

    def __init__(
        self, setup: TargetSetup, tree: SourceTree, reproducer: Reproducer, plugin: Path | None = None
    ) -> None:
        """`plugin`: the plugin that records the blocks that the server executes."""
        self.setup = setup
        self.tree = tree
        self.reproducer = reproducer
        self.executed: set[int] = set()
        """With a plugin, the addresses that the server has executed."""
        self._plugin = plugin

    def run(self, *, silence_proved: bool) -> tuple[Recurrence, str]:
        """Whether the finding came again, and what happened. Raises BuildFailedError."""
        reproducer, setup = self.reproducer, self.setup
        runner = setup.runner(reproducer.policy, reproducer.environment, reproducer.memory_order, reproducer.seed)
        build = self._with_preload(setup, self._build(setup, reproducer.allocator))
        if reproducer.kind == BUILD:
            return Recurrence(outcome="gone"), "it compiles"
        units = self._units() if reproducer.unit else None
        if units is not None and (why := self._lacks(units)):
            return Recurrence(outcome="unknown", reason=f"the server has no unit {reproducer.unit}"), why
        # It contains the same programs as in a check, whose saved state may be in the cache.
        image = setup.server_image(build, [units] if units else [], runner.policy)
        with (
            tempfile.TemporaryDirectory(prefix="plumbline-replay-") as name,
            contextlib.ExitStack() as others,
        ):
            folder = Path(name)
            host = other_machine(image, setup.board_image(build, runner.policy), folder, sockets=folder)
            if host is not None:
                others.callback(host.close)
            ran = self._ran(build, units, runner, folder, host)
            table = symbols.Symbols(setup.toolchain.prefix, str(build.server_binary))
            observation, lines = named(reproducer, ran, table, setup.target)
            ended = recurrence(reproducer, observation)
            if silence_proved:
                ended = unless_blind(
                    ended,
                    reproducer,
                    lambda: silence_check.why_blind(setup.bench.cache, runner, setup.toolchain, folder, host),
                )
        return ended, "\n".join([observation.end, *lines])

    def _build(self, setup: TargetSetup, allocator: Allocator) -> Build:
        reproducer = self.reproducer
        return setup.build(self.tree, reproducer.optimisation, allocator, tls=reproducer.compiles_tls)

    def _units(self) -> Units:
        reproducer = self.reproducer
        return self.setup.units(reproducer.program, self.tree, reproducer.optimisation, reproducer.allocator)

    def _with_preload(self, setup: TargetSetup, build: Build) -> Build:
        """The build whose servers preload a suite's shared object, if the finding's server did."""
        if not self.reproducer.preload:
            return build
        suites = setup.bench.catalog.suites
        suite = suites[select("suite", [self.reproducer.preload], suites)[0]]
        if not suite.preload:
            raise UsageError(f"the suite {suite.name} has nothing to preload", where=self.reproducer.finding)
        return msgspec.structs.replace(build, preload=setup.module(suite.path / suite.preload, self.tree))

    def _lacks(self, units: Units) -> str:
        """Why the unit cannot be called in this tree; empty if it can."""
        unit = self.reproducer.unit
        why = units.absent.get(unit) or units.broken.get(unit) or ""
        return why or ("" if units.program is not None else "nothing was linked")

    def _ran(
        self, build: Build, units: Units | None, runner: Runner, folder: Path, host: OtherMachine | None
    ) -> ReplayedRun:
        reproducer = self.reproducer
        if reproducer.upstream:
            return run_upstream(self.setup, self.tree, reproducer, build, runner, folder)
        if units is not None:
            return run_unit(units, runner, reproducer, folder / "guest-1", host)

        watched: list[ProcessBlocks] = []
        code = code_of(build.server_binary, runner.target.emulator.qemu) if self._plugin else None
        recorded = recorded_server(self.setup, build, self.tree, reproducer)

        def guest(name: str, spec: ServerSpec) -> Guest:
            made = guest_of(spec, runner, folder / name, host=host, sockets=folder)
            if self._plugin is not None and code is not None:
                place, starts = folder / f"{name}.blocks", bool(spec.files)
                made.execution = ProcessBlocks(self._plugin, build.server_binary, place, code, counts_start=starts)
                watched.append(made.execution)
            return made

        def bare() -> Guest:
            return guest("guest-2", msgspec.structs.replace(recorded, files={}))

        def oracle() -> Guest:
            setup = oracle_setup(self.setup.bench)
            # The same clock, files and options: whatever else determines a reply is not the machine.
            native = self._with_preload(setup, self._build(setup, "libc"))
            spec = recorded_server(setup, native, self.tree, reproducer)
            return Guest(spec, setup.runner("signal"), folder / setup.target.name, sockets=folder)

        try:
            return run_server(guest("guest-1", recorded), reproducer, oracle, bare)
        finally:
            for each in watched:
                self.executed |= each.served_addresses()
                each.close()
