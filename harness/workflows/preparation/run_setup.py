"""Sets a run up before its first cell: every target of the plan with its builds, and the servers that cells compare.

A tree that does not compile for a target is a result and not an error: the target's cells then say why they did not
run.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from harness.build.sources.server_package import PackageUnavailableError
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.errors import InconclusiveError
from harness.core.target_model import ORACLE
from harness.run.cell_spec import PeerServer
from harness.workflows.preparation.prepared_run import BuiltTarget, PreparedRun, UnbuiltTarget
from harness.workflows.preparation.suite_programs import SuitePrograms
from harness.workflows.preparation.upstream_selection import select_upstream
from harness.workflows.server_abilities import with_abilities
from harness.workflows.target_setup import oracle_setup, set_up_targets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.core.model import Build, SourceTree
    from harness.plan.request import Request
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench


class RunSetup:
    """Makes a PreparedRun of a request: emulators, builds, machines, the oracle."""

    def __init__(self, bench: Workbench, request: Request, tree: SourceTree, *, sampled: Collection[str] = ()) -> None:
        """`sampled`: suites that run on a few targets, and on others only if those show anything."""
        self.bench = bench
        self.request = request
        self.tree = tree
        self._unavailable: list[PackageUnavailableError] = []
        self._suites = [bench.catalog.suites[name] for name in request.plan.suites]
        self._sampled = sampled

    def prepare(self) -> PreparedRun:
        """Set up the oracle, and then every target of the plan, as many at a time as the request allows.

        Raises InfrastructureError if the host cannot make a part, or no target's package can be fetched, and
        InconclusiveError if the request needs an oracle and the tree does not compile for it.
        """
        # It refuses requests before anything is built.
        upstream = select_upstream(self.request, self.tree, self._suites)
        # First: most errors of a change show here, before emulators and targets take their minutes.
        oracle = self._build_oracle(self._programs(upstream.files))
        if oracle is not None:
            self.tree = with_abilities(self.bench, self.tree, oracle)
            oracle = msgspec.structs.replace(oracle, abilities=self.tree.abilities)
        programs = self._programs(upstream.files)
        chosen = [self.bench.catalog.targets[name] for name in self.request.plan.targets]
        setups = set_up_targets(self.bench, chosen, flavour=self.request.emulator)
        with ThreadPoolExecutor(self.request.jobs) as pool:
            targets = dict(zip(setups, pool.map(partial(self._prepare, programs), setups.values()), strict=True))
        if len(self._unavailable) == len(targets):
            raise self._unavailable[0]
        peers = self._peers(programs, targets, oracle)
        run = PreparedRun(
            tree=self.tree,
            targets=targets,
            peers=peers,
            native_upstream=programs.upstream(oracle_setup(self.bench), "libc") if ORACLE in peers else None,
            native_programs=programs.release_programs(oracle_setup(self.bench), "libc") if ORACLE in peers else None,
            upstream_files=upstream.files,
            upstream_left_out=upstream.left_out,
        )
        return run if run.has_oracle else msgspec.structs.replace(run, targets=self.without_blame(targets))

    def _programs(self, upstream_files: Sequence[str]) -> SuitePrograms:
        return SuitePrograms(self.request, self.tree, self._suites, upstream_files, late=self._sampled)

    def _prepare(self, programs: SuitePrograms, setup: TargetSetup) -> BuiltTarget | UnbuiltTarget:
        request = self.request
        runner = setup.runner(request.policy, request.environment, request.memory_order, request.seed)
        try:
            # First, because compiling the server for units leaves it in the cache.
            units = programs.units(setup, self.request.allocator)
            build = setup.build(self.tree, self.request.optimisation, self.request.allocator)
        except BuildFailedError as error:
            self.bench.progress.say(str(error))
            problem = f"{error.what}: {error.because}"
            return UnbuiltTarget(setup=setup, runner=runner, problem=problem, complaints=error.complaints)
        except PackageUnavailableError as error:
            # One machine's package may be missing in the archive for days. The others still get a result.
            self.bench.progress.say(str(error))
            self._unavailable.append(error)
            return UnbuiltTarget(setup=setup, runner=runner, problem=str(error), blameless=True)
        with_tls, tls_problem = programs.with_tls(setup, self.request.allocator)
        modules, misfits = programs.modules(setup)
        board = setup.board_image(build, runner.policy)
        return BuiltTarget(
            setup=setup,
            runner=runner,
            build=build,
            with_tls=with_tls,
            tls_problem=tls_problem,
            machine=setup.server_image(build, units.values(), runner.policy),
            board=board,
            facts=setup.board_facts(board) if board is not None and not board.board.runs_already else None,
            units=units,
            modules=modules,
            misfits=misfits,
            preloads=programs.preloads(setup),
            upstream=programs.upstream(setup, self.request.allocator),
            programs=programs.release_programs(setup, self.request.allocator),
        )

    def _build_oracle(self, programs: SuitePrograms) -> Build | None:
        """The native server; None if it does not compile. Raises InconclusiveError if the request needs it."""
        setup = oracle_setup(self.bench)
        try:
            if ORACLE in self.request.plan.targets:
                # As for every target: compiling the server for units leaves it in the cache.
                programs.units(setup, self.request.allocator)
            return setup.build(self.tree, self.request.optimisation)
        except BuildFailedError as error:
            if self.request.needs_native:
                raise InconclusiveError(
                    f"{self.tree.name} does not compile natively",
                    where=error.where,
                    because=error.because,
                    remedy="fix it and run again: nothing was checked",
                    log=error.log,
                ) from error
            self.bench.progress.say(str(error))
            return None

    def _peers(
        self, programs: SuitePrograms, prepared: Mapping[str, BuiltTarget | UnbuiltTarget], oracle: Build | None
    ) -> dict[str, PeerServer]:
        """The servers that cells may start beside their own: the oracle, and every target on this host."""
        peers = {
            name: PeerServer(
                runner=each.runner,
                build=each.build,
                with_tls=each.with_tls,
                modules=each.modules,
                selftests=each.units.get("selftests"),
            )
            for name, each in prepared.items()
            if isinstance(each, BuiltTarget) and not each.target.emulator.is_elsewhere
        }
        if oracle is None:
            return peers
        setup = oracle_setup(self.bench)
        # A model is the oracle of the other programs. Its memory is libc's, as its servers' is.
        selftests = programs.units(setup, "libc", only="selftests").get("selftests")
        runner, (modules, _) = setup.runner("signal"), programs.modules(setup)
        with_tls, _ = programs.with_tls(setup, "libc")
        peer = PeerServer(runner=runner, build=oracle, with_tls=with_tls, modules=modules, selftests=selftests)
        return {ORACLE: peer, **peers}

    def without_blame(
        self, prepared: Mapping[str, BuiltTarget | UnbuiltTarget]
    ) -> dict[str, BuiltTarget | UnbuiltTarget]:
        """The same targets, with those marked as blameless whose errors all occur in the native build, too."""
        failed = [each for each in prepared.values() if isinstance(each, UnbuiltTarget)]
        if not failed:
            return dict(prepared)
        oracle = oracle_setup(self.bench)
        everywhere = self.bench.builder.complaints(oracle.plan(self.tree, self.request.optimisation))
        blameless = {
            each.target.name: msgspec.structs.replace(
                each, problem=f"it does not compile natively either: {each.problem}", blameless=True
            )
            for each in failed
            if each.complaints <= everywhere
        }
        return {**prepared, **blameless}
