"""Makes the specification of each cell of a prepared run: everything that the cell's process must know."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.detectors import registry
from harness.build.emulators.runner import in_usual_order, with_evidence, with_same_addresses
from harness.build.executed_blocks import code_of
from harness.build.sources import openssl
from harness.core import json_codec
from harness.core.target_model import ORACLE
from harness.record import run_folder
from harness.record.run_record import CellRecord
from harness.run.cell_spec import CellSpec, ExecutionSpec, PeerServer
from harness.run.selftests import with_native_faults
from harness.run.tcl.client import compile_client
from harness.run.upstream.test_files import has_tests
from harness.workflows.preparation.prepared_run import BuiltTarget, UnbuiltTarget
from harness.workflows.target_setup import blocks_plugin, oracle_setup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.build.unit_drivers import Units
    from harness.core.model import Cell, StorePair, Suite
    from harness.plan.request import Request
    from harness.record.run_record import LeftOut, ProblemKind
    from harness.run.cell_spec import UpstreamSpec
    from harness.workflows.preparation.prepared_run import PreparedRun, PreparedTarget
    from harness.workflows.preparation.reach.reach_selection import ReachSelection
    from harness.workflows.workbench import Workbench

PATIENCE_SECONDS = 30.0
"""As of CellSpec, in the further runs while stores wait. A server that waits for a job which it has lost, or two
threads that pause for each other again and again, would take the usual time of a slow target, and leave none to others.
"""


class CellSpecs:
    """The specifications of a run's cells."""

    def __init__(
        self,
        bench: Workbench,
        request: Request,
        prepared: PreparedRun,
        *,
        sockets: Path,
        without: Sequence[str],
        selection: ReachSelection | None = None,
        patient: bool = False,
    ) -> None:
        """`sockets`: a folder with a short path. `without`: names of tests that do not run. `selection`: the tests that
        a change can reach; None for all. `patient`: as in CellSpec.
        """
        self._bench = bench
        self._request = request
        self._prepared = prepared
        self._sockets = sockets
        self._without = list(without)
        self._selection = selection
        self._patient = patient

    def missing(self, cell: Cell) -> CellRecord | None:
        """The record of a cell that cannot run: the release is too old for its suite, or a build is missing."""
        prepared, tree = self._prepared, self._prepared.tree
        target, suite = prepared.targets[cell.target], self._bench.catalog.suites[cell.suite]
        kind: ProblemKind = "absent"
        if absent := suite.absent_from(tree):
            why = absent
        elif isinstance(target, UnbuiltTarget):
            if not suite.needs_server:
                return None
            why, kind = target.problem, "crash" if target.blameless else "build"
        elif suite.tls and target.tls_problem:
            why, kind = target.tls_problem, "build"
        elif misfit := target.misfits.get(suite.name):
            why, kind = misfit, "crash"
        elif unsuited := self._why_unsuited(suite, target):
            why = unsuited
        elif suite.needs_server and not prepared.has_oracle:
            why = f"{tree.name} does not compile natively, and without the oracle nothing is compared"
            kind = "crash"
        else:
            return None
        return CellRecord(target=cell.target, suite=cell.suite, seconds=0, problem=why, problem_kind=kind)

    def _why_unsuited(self, suite: Suite, target: BuiltTarget) -> str:
        """Why a target's servers cannot meet a suite's requirements; empty if they can. Such a reason is no fault."""
        no_tls = _why_no_tls(target) if suite.tls else ""
        has_own = has_tests(self._prepared.tree.content)
        nothing = "nothing of it is selected" if has_own else "the tree has no tests of its own"
        reasons = (
            (
                suite.module and suite.name not in target.modules,
                "servers on another machine, and programs that contain their C library, load no module",
            ),
            (
                suite.plain_programs and target.programs is None,
                "the programs beside the server run under user-mode emulators alone",
            ),
            (
                suite.program and target.target.emulator.is_board,
                "its programs run under emulators and on this machine, and not on a board yet",
            ),
            (no_tls, no_tls),
            (suite.upstream and not self._prepared.upstream_files, nothing),
            (
                suite.upstream and target.board is not None and target.board.board.runs_already,
                "its tests set options of the server, and the one that runs on the board has its own",
            ),
            (
                suite.preload and suite.name not in target.preloads,
                "its servers preload a shared object, which those of this target cannot",
            ),
            (
                suite.reordered
                and not target.runner.memory_order
                and not registry.named(target.target.emulator.detector).sees_order,
                "it looks for faults of memory order, for which a run needs `--memory-order weak`",
            ),
            (
                suite.on_host and target.target.emulator.is_elsewhere,
                "its servers have to be processes of the host, and those of this target run on another machine",
            ),
        )
        return next((why for unsuited, why in reasons if unsuited), "")

    def of(self, cell: Cell) -> CellSpec:
        """Everything that a cell's process must know."""
        target, suite = self._prepared.targets[cell.target], self._bench.catalog.suites[cell.suite]
        spec = self._without_programs(cell, suite, target)
        if isinstance(target, BuiltTarget):
            spec = self._with_builds(spec, suite, target)
        if suite.needs_server:
            return msgspec.structs.replace(spec, tcl_client=self._tcl_client, tests=self._request.tests)
        # The canary suite always runs completely: without it, no result of the target counts.
        return msgspec.structs.replace(
            spec,
            canary=target.setup.canary(),
            detector_canary=target.setup.detector_canary(),
            environment_canary=target.setup.environment_canary(target.runner),
            litmus=target.setup.litmus(target.runner),
        )

    def has_host_runs(self, cell: Cell) -> bool:
        """Whether the native build can run a cell's failed tests alone.

        The release's own tests ask it themselves (harness.run.upstream), and so does an open-ended suite, whose
        reference it is.
        """
        suite = self._bench.catalog.suites[cell.suite]
        native = self._prepared.peers.get(ORACLE)
        built = native is not None and not (suite.tls and native.with_tls is None)
        asked = self._request.everywhere != "off" and not (suite.upstream or suite.guided)
        return suite.needs_server and built and asked

    def on_host(self, cell: Cell, tests: Sequence[str]) -> CellSpec:
        """The specification of some of a cell's tests on the native build. Raises BuildFailedError if a program that
        they need does not compile natively.
        """
        spec, suite = self.of(cell), self._bench.catalog.suites[cell.suite]
        setup, peer = oracle_setup(self._bench), spec.peers[ORACLE]
        tree, optimisation = self._prepared.tree, self._request.optimisation
        return msgspec.structs.replace(
            _repeating(spec, tests),
            runner=peer.runner,
            build=peer.build,
            triple=setup.toolchain.prefix,
            peers={ORACLE: peer},
            units=setup.units(suite.program, tree, optimisation) if suite.program else None,
            module=peer.modules.get(suite.name),
            preload=setup.module(suite.path / suite.preload, tree) if suite.preload else None,
            machine=None,
            board=None,
        )

    def in_order(self, cell: Cell, tests: Sequence[str]) -> CellSpec:
        """The specification of some of a cell's tests on the same machines, in the host's memory order."""
        spec = _repeating(self.of(cell), tests)
        return msgspec.structs.replace(spec, runner=self._ordered(spec.runner), peers=self._ordered_peers(spec))

    def delayed(self, cell: Cell, tests: Sequence[str], *, seed: int | None, pair: StorePair | None) -> CellSpec:
        """The specification of some of a cell's tests while stores wait, with the same addresses in each run.

        `seed`, `pair`: as of DelayedRun. The pair is of the cell's target.
        """
        spec = _repeating(self.of(cell), tests)
        runner = with_same_addresses(spec.runner) if seed is None else with_evidence(spec.runner, seed, pair)
        peers = self._ordered_peers(spec) if pair else spec.peers
        return msgspec.structs.replace(spec, runner=runner, peers=peers, patience_seconds=PATIENCE_SECONDS)

    def _ordered_peers(self, spec: CellSpec) -> dict[str, PeerServer]:
        return {
            name: msgspec.structs.replace(peer, runner=self._ordered(peer.runner)) for name, peer in spec.peers.items()
        }

    def _ordered(self, runner: Runner) -> Runner:
        """How to run the same programs in the host's memory order."""
        if not runner.memory_order:
            return runner
        return in_usual_order(runner, self._bench.catalog.targets[runner.target.name])

    def _without_programs(self, cell: Cell, suite: Suite, target: PreparedTarget) -> CellSpec:
        """The specification of a cell without the programs that it runs."""
        request, prepared, tree = self._request, self._prepared, self._prepared.tree
        selection = self._selection
        return CellSpec(
            suite=cell.suite,
            folder=request.run / cell.target / cell.suite,
            shared=request.run / run_folder.SHARED,
            sockets=self._sockets,
            runner=target.runner,
            version=tree.version,
            development=bool(tree.development),
            build=None,
            canary=None,
            triple=target.setup.toolchain.prefix,
            seed=request.seed,
            tier=request.tier,
            patient=self._patient and suite.tier == "full",
            io=request.io,
            coverage=suite.guided and request.tier == "thorough" and target.runner.reports_edges,
            peers=_with_tls(prepared.peers) if suite.tls else prepared.peers,
            settings=suite.settings,
            tests_of=suite.tests_of,
            only=suite.only,
            deadline_seconds=suite.deadline_seconds,
            without=[*self._without, *(selection.of(cell).without if selection else [])],
            execution=selection.cells.execution(cell) if selection else None,
            limit_seconds=request.limit_seconds,
            limit_count=request.limit_count,
            # Tests that another suite also runs learn in that suite's own cell, on servers with their defaults.
            corpus=corpora_of(self._bench, request) / f"{tree.name}-{cell.target}"
            if request.learns and not suite.tests_of
            else None,
            profiled=request.profiled,
        )

    def _with_builds(self, spec: CellSpec, suite: Suite, target: BuiltTarget) -> CellSpec:
        """The same specification with what was built for the target."""
        covered = self._request.covered and suite.needs_server and self._selection is None
        return msgspec.structs.replace(
            spec,
            build=target.with_tls if suite.tls else target.build,
            machine=target.machine,
            board=target.board,
            units=self._units_of(suite, target),
            module=target.modules.get(suite.name),
            preload=target.preloads.get(suite.name),
            programs=_programs_of(suite, target, self._prepared),
            upstream=self._upstream_spec(target) if suite.upstream else None,
            execution=self._covered(target) if covered else spec.execution,
        )

    def _units_of(self, suite: Suite, target: BuiltTarget) -> Units | None:
        """The program that a suite runs instead of a server; None for a suite of servers."""
        if not suite.program:
            return None
        request, tree = self._request, self._prepared.tree
        units = target.units.get(suite.program) or target.setup.units(
            suite.program, tree, request.optimisation, request.allocator
        )
        native = self._prepared.peers[ORACLE].selftests if self._prepared.has_oracle else None
        # The reason tells a self-test that does not compile natively either from a fault of the target.
        if native is None or suite.program != "selftests" or target.target.name == ORACLE:
            return units
        return with_native_faults(units, native)

    def _covered(self, target: BuiltTarget) -> ExecutionSpec:
        """The settings with which a cell records the addresses that each of its tests executes."""
        program = target.build.server_binary
        file = self._sockets / f"code-{target.target.name}"
        file.write_bytes(json_codec.encode(code_of(program, target.target.emulator.qemu)))
        return ExecutionSpec(plugin=blocks_plugin(self._bench), programs={str(program): file}, kept="addresses")

    @functools.cached_property
    def _tcl_client(self) -> Path:
        here = self._bench.catalog.toolchain_of(self._bench.catalog.targets[ORACLE])
        return compile_client(self._bench.cache, here)

    def left_out(self, cell: Cell) -> LeftOut | None:
        """The tests of a cell that a change cannot reach; None if all run."""
        return self._selection.of(cell).left_out if self._selection else None

    def _upstream_spec(self, target: BuiltTarget) -> UpstreamSpec | None:
        """The settings with which a cell runs the release's own tests on a target."""
        prepared = self._prepared
        if prepared.native_upstream is None or target.upstream is None:
            return None
        others = {
            name: each.upstream
            for name, each in prepared.built.items()
            if each.upstream is not None and each is not target and name in prepared.peers
        }
        return target.setup.upstream_spec(
            prepared.tree,
            target.upstream,
            prepared.native_upstream,
            mixed=others if self._request.mixed else {},
            target_clients=self._request.target_clients,
            files=prepared.upstream_files,
            left_out=prepared.upstream_left_out,
        )


def _repeating(spec: CellSpec, tests: Sequence[str]) -> CellSpec:
    """A cell's specification for some of its tests once more: nothing is measured or learned."""
    return msgspec.structs.replace(
        spec, coverage=False, execution=None, corpus=None, profiled=False, tests=[], exactly=list(tests)
    )


def corpora_of(bench: Workbench, request: Request) -> Path:
    """The folder for what open-ended suites have learned, with a folder SERVER-TARGET for each pair."""
    return request.corpora or bench.cache.path("corpus", "")


def _why_no_tls(target: BuiltTarget) -> str:
    """Why a target's servers cannot have TLS; empty if they can."""
    if target.target.emulator.is_elsewhere:
        return "the servers on another machine have no OpenSSL"
    return openssl.why_none(target.setup.toolchain)


def _with_tls(peers: Mapping[str, PeerServer]) -> dict[str, PeerServer]:
    """The peers whose servers can have TLS, with these servers."""
    return {
        name: msgspec.structs.replace(peer, build=peer.with_tls)
        for name, peer in peers.items()
        if peer.with_tls is not None
    }


def _programs_of(suite: Suite, target: BuiltTarget, prepared: PreparedRun) -> dict[str, Path]:
    """Target -> the release's programs, for a suite that runs them; none without those of the host."""
    if not suite.programs:
        return {}
    if suite.tls:
        builds = {ORACLE: prepared.peers[ORACLE].with_tls, target.target.name: target.with_tls}
        return {name: build.folder for name, build in builds.items() if build is not None}
    if target.programs is None or prepared.native_programs is None:
        return {}
    return {target.target.name: target.programs, ORACLE: prepared.native_programs}
