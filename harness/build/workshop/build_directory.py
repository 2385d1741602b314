"""A copy of a server's tree in a work folder, where its makefile runs for a target.

The user's tree is only read.
"""

from __future__ import annotations

import shutil
from functools import cached_property
from typing import TYPE_CHECKING

from harness.analysis.compiler_output import first_error
from harness.build import allocator, toolchain
from harness.build.build_progress import CompilerCalls
from harness.build.sources.tree_files import copy_file, digest_of_sources, read_sources
from harness.build.workshop import build_tools, build_warnings, kept_tree
from harness.build.workshop.build_failure import BuildFailedError
from harness.build.workshop.make_command import make_command
from harness.core.cache_entries import plain_path
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError
from harness.core.model import COMPILED_IN
from harness.core.processes import process
from harness.core.processes.timeouts import if_slow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.build_progress import BuildProgress
    from harness.build.sources.tree_files import SourceFile
    from harness.build.workshop.build_plan import BuildPlan
    from harness.build.workshop.kept_tree import KeptTree
    from harness.core.cache import Cache

BUILD_SECONDS = 1800
CLIENTS = ("cli", "benchmark")
"""The suffixes, after the family, of the programs that are made beside a server with TLS and also use it."""
BESIDE = "suites"
"""Their folder has the path that it has in Plumbline."""

_MACHINE_FAULTS = [
    ("No space left on device", "the disk is full", "plumb clean"),
    ("Killed signal terminated program", "a compiler was killed, usually because memory ran out", "fewer --jobs"),
]
"""Compiler messages caused by the machine, not the tree."""


class BuildDirectory:
    """A copy of a server's tree in a work folder, where its makefile runs for a target."""

    def __init__(self, cache: Cache, plan: BuildPlan, work: Path, steps: BuildProgress, *, keep: bool = False) -> None:
        """`keep`: the work folder may have the tree of an earlier build, and is kept after this one."""
        self.plan = plan
        self.server = plan.tree
        self.target = plan.target
        self.tools = plan.tools
        self.work = work
        self.tree = work / COMPILED_IN
        """The copied tree."""
        self.beside = work / BESIDE
        """Where Plumbline's own sources are compiled with the tree's headers."""
        self.binary = self.tree / "src" / f"{plan.tree.family}-server"
        """The output of `make_server`."""
        self.compilers = [work / name for name in ("gcc", "g++")]
        """The wrappers that the makefile calls."""
        self.log = cache.root / "logs" / f"build-{work.name}.log"
        self.steps = steps
        """Takes what counts the steps, where make's output does not tell them."""
        self._ccache = cache.root / "ccache"
        self.keeps = keep
        self._kept: KeptTree | None = None
        """The known state of the tree, if it is an earlier build's with other sources."""
        self._sources: dict[str, str] = {}
        self._listed = ""
        """A digest of the names of the tree's files."""
        self._configured: dict[str, str] = {}
        self._deadline_seconds = plan.tools.deadline_seconds(BUILD_SECONDS)

    def prepare(self) -> None:
        """Copy the tree and write the compilers' wrappers. Raises InfrastructureError if the tree has been edited."""
        sources = list(read_sources(self.server.content))
        copied = digest_of_sources(sources)
        if self.server.files and copied != self.server.files:
            raise InfrastructureError(
                f"the source of {self.server.name} has changed since it was opened",
                where=str(self.server.content),
                because="a build would not match its name in the cache",
                remedy="run again",
            )
        self._listed = key_of(source.entry.place.as_posix() for source in sources)
        kept = kept_tree.take(self.work) if self.keeps else None
        self._empty()
        for compiler in self.compilers:
            self.wrapper(compiler.name)
        toolchain.write_plain_tools(self.work / "tools", self.tools, self.work, self.plan.optimisation)
        self._fill(sources, kept)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)
        self.steps.counts(CompilerCalls(self.log, self.work))
        if self.plan.linked == "jemalloc" or (self.plan.linked == "makefile" and allocator.has_jemalloc(self.server)):
            options = allocator.configure_options(self.plan.settings)
            self._configured = allocator.configure_jemalloc(self.server, self.target, self.tools, self.work, options)
            if options and self.plan.linked == "makefile":
                command = self.make_command([self.binary.name])
                asked = self.run([*command, "--dry-run", "--print-data-base"])
                allocator.refuse_options_of_another_allocator(asked.text)

    def _empty(self) -> None:
        """Remove the leftovers of an earlier build, except its tree and the objects beside it."""
        for path in self.work.iterdir():
            if path.is_dir() and path not in {self.tree, self.beside}:
                shutil.rmtree(path)
            elif path.is_file():
                path.unlink()

    def _fill(self, sources: Sequence[SourceFile], kept: KeptTree | None) -> None:
        """Give the tree these sources, and no product that they would not have."""
        self._sources = kept_tree.digests(sources) if self.keeps else {}
        # Determined before anything is compiled: a package that is installed meanwhile counts for the next build.
        recipe = self.recipe
        if kept is not None and kept.recipe == recipe:
            binary = self.binary.relative_to(self.tree).as_posix()
            if kept_tree.bring_up_to_date(kept, self.tree, sources, [binary]):
                self._kept = kept
                return
        for folder in (self.tree, self.beside):
            shutil.rmtree(folder, ignore_errors=True)
        for source in sources:
            copy_file(source, self.tree)

    @cached_property
    def recipe(self) -> str:
        """A digest of everything apart from the sources that determines what make does."""
        scripts = [*self.compilers, *sorted((self.work / "tools").iterdir())]
        return key_of(
            [
                *map(str, self.make_command([self.binary.name])),
                *(f"{name}={value}" for name, value in sorted(self.environment().items())),
                *(f"{path}: {path.read_text('utf-8')}" for path in scripts),
                toolchain.identity(self.tools),
                kept_tree.machine_state(),
            ]
        )

    def wrapper(self, name: str, extra: Sequence[str] = (), *, suffix: str = "") -> Path:
        """A wrapper of the compiler `name` that adds the target's flags, followed by `extra`."""
        return build_tools.write_compiler(self.plan, self.work, name, extra, suffix=suffix)

    def make(self, goals: Sequence[str], *, compiler: Path | None = None, go_on: bool = False) -> process.Result:
        """Make goals of the server's makefile. Raises InfrastructureError for faults of the machine."""
        command = self.make_command(goals, compiler=compiler)
        return self.run([*command, "--keep-going"] if go_on else command)

    def make_command(self, goals: Sequence[str], *, compiler: Path | None = None) -> list[str]:
        """Make's command line for these goals."""
        return make_command(self.plan, self.work, goals, compiler)

    def run(self, command: Sequence[str | Path], *, folder: Path | None = None) -> process.Result:
        """Run a tool in the tree or another folder, in the environment in which `make` runs compilers."""
        # Without it, makefiles have the compiler read every file once more, for later changes of headers. They remove
        # it when they restart.
        (self.tree / "src" / "Makefile.dep").touch()
        result = process.run(
            command,
            deadline_seconds=self._deadline_seconds,
            log=self.log,
            folder=folder or self.tree,
            environment=self.environment(),
        )
        if result.expired:
            raise InfrastructureError(
                f"the build of {self.plan.title} did not end within {self._deadline_seconds:g} s",
                where=str(self.work),
                log=str(self.log),
                remedy=if_slow(self.tools.timeout_multiplier),
            )
        for sign, what, remedy in _MACHINE_FAULTS:
            if result.code != 0 and sign in result.text:
                raise InfrastructureError(what, where=str(self.work), log=str(self.log), remedy=remedy)
        return result

    def make_server(self) -> process.Result:
        """Make the server's binary: the makefile's output. Raises BuildFailedError with the compiler's first error."""
        result = self.run([*self.make_command([self.binary.name]), *build_warnings.MAKE_OPTIONS])
        if result.code != 0 or not self.binary.is_file():
            raise self.failure(result, because=first_error(result.text))
        return self._whole(result) if self.keeps else result

    def _whole(self, result: process.Result) -> process.Result:
        """The output that make would have for a complete build. The next build continues with it if possible."""
        made = kept_tree.MadeTree(self.tree, result.text, self.compilers, self._kept)
        if made.output is None:
            # It is unknown to which files the warnings of the last make belong.
            self._kept = None
            self._fill(list(read_sources(self.server.content)), None)
            return self.make_server()

        def preprocess(folder: Path, words: list[str]) -> str:
            environment = self.environment()
            return process.run(
                words, deadline_seconds=self._deadline_seconds, folder=folder, environment=environment
            ).text

        known = made.known(self._sources, self.recipe, preprocess)
        if known is not None:
            kept_tree.put(self.work, known)
        whole = "".join(block.text for block in made.output).encode()
        return process.Result(result.command, result.code, whole, expired=False, seconds=result.seconds)

    def make_clients(self) -> list[Path]:
        """Make the release's client and benchmark. Raises BuildFailedError with the compiler's first error."""
        made = [self.binary.with_name(f"{self.server.family}-{name}") for name in CLIENTS]
        result = self.make([path.name for path in made])
        if missing := [path.name for path in made if not path.is_file()]:
            raise self.failure(result, because=first_error(result.text), missing=missing)
        return made

    def failure(self, made: process.Result, *, because: str = "", missing: Sequence[str] = ()) -> BuildFailedError:
        """The error of a failed build. `missing`: the programs that were not made, if there were several.

        Raises InfrastructureError if no tree can be built in this folder.
        """
        plain_path.refuse_odd(self.work)
        programs = f": {', '.join(missing)}" if missing else ""
        return BuildFailedError(
            f"{self.server.name} does not compile for {self.target.name}{programs}",
            where=str(self.server.path),
            because=because,
            log=str(self.log),
            output=made.text,
        )

    def environment(self) -> dict[str, str]:
        """The environment of compilers and makefiles."""
        return build_tools.environment(self.work, self._ccache, self._listed) | self._configured
