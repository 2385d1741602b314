"""Reproduces a finding: the same build, a fresh guest and the recorded requests, or the same unit or program."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build.workshop.build_failure import BuildFailedError
from harness.core.errors import UsageError
from harness.core.model import BuildSettings, level_flags
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.isa import rules
from harness.judge.reproducer import Reproducer
from harness.plan.name_selection import select
from harness.protocol.command_stream import read_stream
from harness.run import silence_check
from harness.run.environments import inherited_limits
from harness.workflows.replay import package_change
from harness.workflows.replay.named_observation import named
from harness.workflows.replay.recorded_requests import chunks_of
from harness.workflows.replay.recurrence import STREAM, WRONG_RESULT, of_failed_build, recurrence, unless_blind
from harness.workflows.replay.replay_result import Replay
from harness.workflows.replay.reruns.program import run_program, runner_of
from harness.workflows.replay.tree_replay import TreeReplay
from harness.workflows.target_setup import emulated_target, oracle_setup, set_up_target

if TYPE_CHECKING:
    from harness.core.model import Build, Flavour
    from harness.workflows.workbench import Workbench


ALIKE = {"process", "suite"}
"""Detectors that see the same on the host as on a target: how a server ended, and what it replied."""


def from_stream(path: Path, *, target: str, server: str) -> Reproducer:
    """A stream of commands (a .stream file) as a reproducer for a target. Raises UsageError."""
    return Reproducer(
        finding=path.name,
        kind=WRONG_RESULT,
        function="",
        server=server,
        target=target,
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        chunks=chunks_of(read_stream(path)),
        detector=STREAM,
    )


def replay(bench: Workbench, reproducer: Reproducer, *, server: str, board: Path | None = None) -> Replay:
    """Build (or take from the cache), run, and compare with the finding. `server` replaces the recorded one.

    `board`: the file of the machine that is the target. Raises PlumblineError for a problem that is not the server's
    fault.
    """
    if reproducer.launch is not None:
        if board is not None:
            raise _not_on_board(reproducer, "it runs a program of yours, and no server")
        return _replay_program(bench, reproducer)
    inherited_limits.refuse_low()
    return Replayer(bench, reproducer, server=server, board=board).replay(reproducer)


def _not_on_board(reproducer: Reproducer, because: str) -> UsageError:
    return UsageError(
        "the finding cannot be replayed on a board",
        where=reproducer.finding,
        because=because,
        remedy="leave --board out",
    )


def replay_on_both(bench: Workbench, reproducer: Reproducer, *, server: str, board: Path | None = None) -> Replay:
    """As `replay`. A finding that is reproduced, and that the host can show, is then asked of the native build."""
    result = replay(bench, reproducer, server=server, board=board)
    native = on_host(reproducer)
    if result.outcome != "reproduced" or native is None:
        return result
    host = Replayer(bench, native, server=server).replay(native, silence_proved=False)
    return msgspec.structs.replace(result, host=host.outcome)


def on_host(reproducer: Reproducer) -> Reproducer | None:
    """The reproducer for the native build. None for what the host does not record in the same way: a fault, a
    detector's report, a build, a program that the user compiled, and the release's own tests, which ask it themselves.
    """
    if reproducer.target == ORACLE or reproducer.detector not in ALIKE or reproducer.launch or reproducer.upstream:
        return None
    return msgspec.structs.replace(
        reproducer,
        target=ORACLE,
        policy="signal",
        emulator="pinned",
        allocator="libc",
        toolchain=DEFAULT_FAMILY,
        environment="usual",
        memory_order="usual",
        settings=BuildSettings(),
        mixed=[],
    )


def _replay_program(bench: Workbench, reproducer: Reproducer) -> Replay:
    """Run the user's program, or a whole command, again."""
    setup = set_up_target(bench, emulated_target(bench.catalog, reproducer.target))
    with tempfile.TemporaryDirectory(prefix="plumbline-replay-") as name:
        for number in range(reproducer.replays):
            folder = Path(name) / str(number)
            folder.mkdir()
            ran, table = run_program(setup, reproducer, folder, number)
            observation, lines = named(reproducer, ran, table, setup.target)
            ended = recurrence(reproducer, observation)
            if ended.outcome != "gone":
                break
        ended = unless_blind(
            ended,
            reproducer,
            lambda: silence_check.why_blind(bench.cache, runner_of(setup, reproducer), setup.toolchain, folder, None),
        )
    head = f"{reproducer.command} on {setup.target.name}, policy {reproducer.policy}"
    head += f", run {number + 1} of at most {reproducer.replays}" if reproducer.replays > 1 else ""
    text = "\n".join([f"{head}: {observation.end}", *lines])
    return Replay(outcome=ended.outcome, reason=ended.reason, machine=ended.machine, text=text)


def _refuse_other_board(bench: Workbench, reproducer: Reproducer) -> None:
    """Raise UsageError if a board is not the machine of a finding, or cannot show the finding."""
    assert bench.board is not None
    board = bench.board.board
    if board.target != reproducer.target:
        raise _not_on_board(reproducer, f"it is of {reproducer.target}, and the board is {board.target}")
    if board.runs_already:
        raise _not_on_board(reproducer, "its server runs already, and a replay starts a new one")
    if reproducer.unit or reproducer.upstream or reproducer.tls or reproducer.preload:
        raise _not_on_board(reproducer, "its suite does not run on boards")
    if rules.is_audit(reproducer.policy):
        raise _not_on_board(reproducer, "a board reports no access that succeeds")


class Replayer:
    """Replays variants of a reproducer that differ only in their requests. Their tree and target are opened once."""

    def __init__(self, bench: Workbench, reproducer: Reproducer, *, server: str, board: Path | None = None) -> None:
        """`board`: as of `replay`. Raises UsageError if it is not the finding's target, or cannot show the finding."""
        bench = bench.with_timeouts(reproducer.timeout_multiplier).with_toolchain(reproducer.toolchain)
        if board is not None:
            bench = bench.on_board(board)
            _refuse_other_board(bench, reproducer)
        catalog = bench.catalog
        target = catalog.targets[select("target", [reproducer.target], catalog.targets)[0]]
        self._tree = bench.open_server(server or reproducer.server, reproducer.settings, packages=True)
        flavour: Flavour = "distro" if reproducer.emulator == "distro" else "pinned"
        self.setup = set_up_target(bench, target, flavour=flavour)

    def replay(self, reproducer: Reproducer, *, silence_proved: bool = True) -> Replay:
        """Run a variant. With `silence_proved`, a canary proves that a finding which does not recur is gone."""
        return self._replay(TreeReplay(self.setup, self._tree, reproducer), silence_proved=silence_proved)

    def build(self, reproducer: Reproducer) -> Build:
        """The build that a reproducer runs on the target."""
        return self.setup.build(self._tree, reproducer.optimisation, reproducer.allocator, tls=reproducer.compiles_tls)

    def replay_covered(self, reproducer: Reproducer, plugin: Path) -> tuple[Replay, frozenset[int]]:
        """Run a variant, and return which addresses of its program the server executed.

        `plugin`: the plugin that records executed blocks. No canary proves that a finding which does not recur is gone.
        """
        replayed = TreeReplay(self.setup, self._tree, reproducer, plugin)
        result = self._replay(replayed, silence_proved=False)
        return result, frozenset(replayed.executed)

    def _changed_packages(self, reproducer: Reproducer) -> str:
        """As of `changed_packages`, for the target, and for the native build if its replies made the difference."""
        own = self.setup.target.name

        def build_of(name: str) -> Build:
            setup = self.setup if name == own else oracle_setup(self.setup.bench)
            return setup.build(self._tree, reproducer.optimisation)

        compared = dict.fromkeys([own, *([ORACLE] if ORACLE in reproducer.packages else [])])
        return package_change.changed_packages(reproducer, self._tree, compared, build_of)

    def _replay(self, replayed: TreeReplay, *, silence_proved: bool) -> Replay:
        reproducer = replayed.reproducer
        levels = " ".join([*level_flags(reproducer.optimisation), *reproducer.settings.words])
        head = f"{self._tree.name} on {self.setup.target.name}, {levels}, policy {reproducer.policy}"
        changed = self._changed_packages(reproducer)
        try:
            ended, text = replayed.run(silence_proved=silence_proved)
        except BuildFailedError as error:
            ended, text = of_failed_build(reproducer, error.because), str(error)
        ended = package_change.unless_changed(ended, changed)
        text += f"\n{changed}" if changed else ""
        return Replay(
            outcome=ended.outcome,
            reason=ended.reason,
            machine=ended.machine,
            text=f"{head}: {text}",
            differing=ended.differing,
        )
