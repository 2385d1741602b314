"""The value that every workflow starts from: what can be selected, where results are kept, and how sources arrive.

It holds no state of a job: a workflow that needs a builder or emulators makes them here, and they share the cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build.emulators.emulator_cache import Emulators
from harness.build.helper_program import archived, compiled
from harness.build.server_build import Builder
from harness.build.sources.archives import Fetcher
from harness.build.sources.family_compiler import provide_family
from harness.build.sources.server_package import ServerPackages
from harness.build.sources.server_tree import open_server
from harness.core.cache import Cache
from harness.core.errors import InfrastructureError
from harness.core.processes import environment
from harness.core.progress import Progress
from harness.core.target_model import DEFAULT_FAMILY
from harness.isa import rules
from harness.plan.board import read_board
from harness.plan.catalog import Catalog
from harness.run.boards.board_image import BoardImage

if TYPE_CHECKING:
    from harness.core.model import BuildSettings, Flavour, SourceTree
    from harness.core.target_model import Target, Toolchain, ToolchainFamily


class Workbench(msgspec.Struct, frozen=True, kw_only=True):
    """The catalog, the cache, the progress report, and whether anything may be downloaded."""

    catalog: Catalog
    cache: Cache
    progress: Progress
    offline: bool = False
    board: BoardImage | None = None
    """The machine that runs the programs of one target in place of an emulator; None without `--board`."""

    @classmethod
    def default(cls, *, offline: bool = False, timeout_multiplier: float = 1.0) -> Workbench:
        """The project's catalog, the user's cache, and progress on standard error."""
        catalog = Catalog(timeout_multiplier=timeout_multiplier)
        return cls(catalog=catalog, cache=Cache.default(), progress=Progress(), offline=offline)

    @property
    def fetcher(self) -> Fetcher:
        """Gets source archives from the cache or, unless offline, from their registries."""
        return Fetcher(self.cache, self.progress, offline=self.offline)

    @property
    def builder(self) -> Builder:
        """Compiles servers into the cache."""
        return Builder(self.cache, self.progress)

    @property
    def packages(self) -> ServerPackages:
        """Servers as a distribution ships them."""
        return ServerPackages(self.cache, self.progress, offline=self.offline)

    def emulators(self, flavour: Flavour = "pinned") -> Emulators:
        """Builds the emulators of a flavour into the cache, or finds them there."""
        patience = self.catalog.timeout_multiplier
        return Emulators(self.cache, self.fetcher, self.progress, flavour=flavour, timeout_multiplier=patience)

    def with_timeouts(self, multiplier: float) -> Workbench:
        """The same workbench, which waits at least this many times longer than usual: `Catalog.with_timeouts`."""
        return msgspec.structs.replace(self, catalog=self.catalog.with_timeouts(multiplier))

    def on_board(self, path: Path) -> Workbench:
        """The same workbench for one target, which is the machine of a board's file. Raises UsageError for a file that
        is not valid.
        """
        board = read_board(path)
        catalog = self.catalog.on_board(board, path)
        target = catalog.targets[board.target]
        image = BoardImage(
            board=board,
            file=str(path),
            environment=environment.for_reaching(),
            counting_file=rules.counting_file(target),
            switch_file=rules.switch_file(target),
        )
        return msgspec.structs.replace(self, catalog=catalog, board=image)

    def with_toolchain(self, name: str) -> Workbench:
        """The same workbench with a family's toolchains instead of the targets' own. Fetches the family's compiler.

        Raises UsageError for an unknown name, and InfrastructureError if the compiler is not available.
        """
        if name == DEFAULT_FAMILY:
            return self
        family = self.catalog.family_named(name)
        compilers = self._compilers(family)
        first = self.catalog.through(family, compilers)
        libraries = {
            name: self._libraries(family, first.targets[name], first.toolchain_of(first.targets[name]))
            for name, how in family.targets.items()
            if family.sources or how.sources
        }
        return msgspec.structs.replace(self, catalog=self.catalog.through(family, compilers, libraries))

    def toolchain_of(self, target: Target) -> Toolchain:
        """How to compile for a target.

        Fetches the compiler if it belongs to a family. Raises UsageError for an unknown family, and InfrastructureError
        if the compiler is not available.
        """
        tools = self.catalog.toolchain_of(target)
        if not tools.family or tools.compilers:
            return tools
        family = self.catalog.family_named(tools.family)
        tools = msgspec.structs.replace(tools, compilers=self._compilers(family))
        libraries = self._libraries(family, target, tools) if target.name in family.targets else ()
        return msgspec.structs.replace(tools, libraries=(*libraries, *tools.libraries))

    def _compilers(self, family: ToolchainFamily) -> str:
        """The folder of a family's commands."""
        return provide_family(self.cache, self.fetcher, family, self.catalog.compilers[family.compiler])

    def _libraries(self, family: ToolchainFamily, target: Target, tools: Toolchain) -> tuple[str, ...]:
        """Replacements for functions that a family's compiler and C library lack on a target, compiled by that
        compiler.

        The family's sources are linked into every program and replace the C library's functions of the same names. Of a
        target's sources, a program links only the functions that it lacks.
        """

        def compiled_object(source: str) -> Path:
            return compiled(
                self.cache,
                tools,
                title=f"{source} for {target.name}",
                kind="family-objects",
                owner=f"{family.name}-{target.name}",
                file=f"{Path(source).stem}.o",
                flags=[*target.compiler_flags, "-O2", "-c"],
                sources=[family.folder / source],
            )

        # Objects instead of an archive, which would need the target's own tools.
        everywhere = map(compiled_object, family.sources)
        libraries = (
            archived(self.cache, tools, compiled_object(source)) for source in family.targets[target.name].sources
        )
        return tuple(map(str, (*everywhere, *libraries)))

    def open_server(self, name: str, settings: BuildSettings | None = None, *, packages: bool = False) -> SourceTree:
        """The source tree of a release or of a path, built with `settings`. Raises UsageError for neither.

        `packages`: a distribution's package is possible, too.
        """
        tree = open_server(self.catalog, self.fetcher, name, packages=packages)
        return msgspec.structs.replace(tree, settings=settings) if settings else tree

    def refuse_damage(self, *, read_again: bool = False) -> None:
        """Raise InfrastructureError if a program that ran is not the one that was built: its run proves nothing."""
        if damaged := self.cache.damage(read_again=read_again):
            raise InfrastructureError(
                "the cache was damaged while the run used it",
                where=str(self.cache.root),
                because="\n".join(damaged),
                remedy="run again: damaged entries are rebuilt",
            )

    def with_new_stages(self, label: str) -> Workbench:
        """The same workbench for a run within a run: its messages begin with `label`, and its stages are its own."""
        return msgspec.structs.replace(self, progress=self.progress.fresh(label))
