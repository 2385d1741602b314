"""Everything that the suites of a plan run or load besides the usual server, built for a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build.server_module import ModuleMisfitError
from harness.build.sources import openssl
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.target_model import ORACLE
from harness.record.run_record import WITH_TLS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from harness.build.unit_drivers import Units
    from harness.core.model import Allocator, Build, Program, SourceTree, Suite
    from harness.plan.request import Request
    from harness.workflows.target_setup import TargetSetup


class SuitePrograms:
    """Builds, for one target after the other, what the suites of a plan need of a tree."""

    def __init__(
        self,
        request: Request,
        tree: SourceTree,
        suites: Sequence[Suite],
        upstream_files: Sequence[str],
        *,
        late: Collection[str] = (),
    ) -> None:
        """`upstream_files`: the release's own test files that may run. `late`: suites whose programs are built for a
        target when their cell begins there, because it may turn out to be needless.
        """
        self._request = request
        self._tree = tree
        self._suites = suites
        self._upstream_files = upstream_files
        self._late = late

    def modules(self, setup: TargetSetup) -> tuple[dict[str, Path], dict[str, str]]:
        """The module that the servers of each suite load, if it has one and the server can load it; and of each suite
        whose module does not fit the server's header, why.

        Nothing if another machine runs them: it has no modules.
        """
        modules: dict[str, Path] = {}
        misfits: dict[str, str] = {}
        for suite in [] if setup.target.emulator.is_elsewhere else self._loading(setup, lambda suite: suite.module):
            try:
                modules[suite.name] = setup.module(suite.path / suite.module, self._tree)
            except ModuleMisfitError as error:
                setup.bench.progress.say(str(error))
                misfits[suite.name] = f"{error.what}: {error.because}"
        return modules, misfits

    def preloads(self, setup: TargetSetup) -> dict[str, Path]:
        """The shared object that servers may preload, likewise; nothing if another machine or a detector runs them."""
        emulator = setup.target.emulator
        if emulator.is_elsewhere or emulator.detector:
            return {}
        return {
            suite.name: setup.module(suite.path / suite.preload, self._tree)
            for suite in self._loading(setup, lambda suite: suite.preload)
        }

    def _loading(self, setup: TargetSetup, source_of: Callable[[Suite], str]) -> list[Suite]:
        """The suites that have such a source of what servers load; none if the servers contain their C library."""
        if setup.toolchain.is_static:
            return []
        return [suite for suite in self._suites if source_of(suite) and not suite.absent_from(self._tree)]

    def upstream(self, setup: TargetSetup, allocator: Allocator) -> Path | None:
        """The programs that the release's own tests run on a target, if the plan has a suite of them."""
        if not self._upstream_files:
            return None
        # Files of a suite's short list start servers and nothing else: no client, no module.
        short = {file for suite in self._suites for file in suite.quick_files}
        programs = setup.upstream_server if short.issuperset(self._upstream_files) else setup.upstream
        return programs(self._tree, self._request.optimisation, allocator)

    def release_programs(self, setup: TargetSetup, allocator: Allocator) -> Path | None:
        """The folder of the release's programs, if the plan has a suite that runs them."""
        suited = [suite for suite in self._suites if suite.plain_programs and not suite.absent_from(self._tree)]
        if not suited or setup.target.emulator.is_elsewhere:
            return None
        return setup.upstream(self._tree, self._request.optimisation, allocator) / "src"

    def with_tls(self, setup: TargetSetup, allocator: Allocator) -> tuple[Build | None, str]:
        """The server with TLS, if a suite of the plan needs it and the target supports it; or why there is none."""
        suited = [suite for suite in self._suites if suite.tls and not suite.absent_from(self._tree)]
        if not suited or setup.target.emulator.is_elsewhere or openssl.why_none(setup.toolchain):
            return None, ""
        try:
            return setup.build(self._tree, self._request.optimisation, allocator, tls=True), ""
        except BuildFailedError as error:
            setup.bench.progress.say(str(error))
            return None, f"{WITH_TLS}{error.what}: {error.because}"

    def units(self, setup: TargetSetup, allocator: Allocator, *, only: Program | None = None) -> dict[Program, Units]:
        """The programs that the plan's suites run instead of a server, without those that are built later. `only`: no
        more than one kind of them.
        """
        # The oracle's are compared with every target's, and an emulated machine is made with all its programs.
        waits = setup.target.name != ORACLE and not setup.target.emulator.is_elsewhere
        kinds = dict.fromkeys(
            suite.program
            for suite in self._suites
            if suite.program
            and only in {None, suite.program}
            and not suite.absent_from(self._tree)
            and not (waits and suite.name in self._late)
        )
        return {kind: setup.units(kind, self._tree, self._request.optimisation, allocator) for kind in kinds}
