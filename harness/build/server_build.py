"""Builds a server for a target: out of tree, content-addressed, and with the compiler's first error when it fails.

It never writes to the user's tree. An object depends neither on its tree's name nor on its place, so that ccache
recognises unchanged files: after one edit in a copy of a release, a single file is compiled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Literal

from harness.analysis.compiler_output import complaints, first_error
from harness.analysis.detectors import registry
from harness.build import allocator, build_progress, build_warnings, toolchain
from harness.build.build_progress import CompilerCalls
from harness.build.sources.tree_files import copy_tree
from harness.core import json_codec
from harness.core.cache import Cache, disk_errors
from harness.core.digests import key_of
from harness.core.errors import ExitCode, InfrastructureError, PlumblineError
from harness.core.model import COMPILED_IN, Build, BuildSettings, level_text
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from harness.build.build_progress import BuildProgress
    from harness.build.sources.openssl import OpenSsl
    from harness.core.model import Allocator, SourceTree
    from harness.core.progress import Progress
    from harness.core.target_model import Target, Toolchain

    Linked = Literal["libc", "jemalloc", "makefile"]

BUILD_SECONDS = 1800
RECIPE = "3"
"""Part of every build's identity: raise it when this module changes its way of building."""
CLIENTS = ("cli", "benchmark")
"""What follows the family in the names of the programs that are made beside a server with TLS, to speak it."""
WORK_NAME = "/plumbline"
"""The work folder's name in debug information. Objects are the same wherever they are compiled, so that ccache has the
objects of a release for a checkout of it."""

_MACHINE_FAULTS = [
    ("No space left on device", "the disk is full", "plumb clean"),
    ("Killed signal terminated program", "a compiler was killed, as a rule for want of memory", "fewer --jobs"),
]
"""Compiler messages caused by the machine, not the tree."""


class BuildFailedError(PlumblineError):
    """The server's tree does not compile for the target: a finding of the check."""

    exit_code = ExitCode.FINDINGS

    def __init__(self, what: str, *, where: str = "", because: str = "", log: str = "", output: str = "") -> None:
        """`output`: make's complete output."""
        super().__init__(what, where=where, because=because, log=log)
        self.complaints = complaints(output)
        """The errors, in a form that allows two machines' builds to be compared."""


class BuildDirectory:
    """A copy of a server's tree in a work folder, where its makefile runs for a target."""

    def __init__(
        self,
        builder: Builder,
        tree: SourceTree,
        target: Target,
        tools: Toolchain,
        optimisation: str,
        work: Path,
        linked: Linked,
        steps: BuildProgress,
        tls: OpenSsl | None = None,
    ) -> None:
        self.server = tree
        self.target = target
        self.tools = tools
        self.optimisation = optimisation
        self.work = work
        self.linked = linked
        """The allocator linked into the binary; makefile: the one that the tree's makefile chooses."""
        self.tls = tls
        """The library for TLS; None for a server without TLS."""
        self.tree = work / COMPILED_IN
        """The copied tree."""
        self.binary = self.tree / "src" / f"{tree.family}-server"
        """The output of `make_server`."""
        self.compilers = [work / name for name in ("gcc", "g++")]
        """The wrappers that the makefile calls."""
        self.log = builder.cache.root / "logs" / f"build-{work.name}.log"
        self.steps = steps
        """Takes what counts the steps, where make's output does not tell them."""
        self._ccache = builder.cache.root / "ccache"
        self._configured: dict[str, str] = {}

    def prepare(self) -> None:
        """Copy the tree and write the compilers' wrappers. Raises InfrastructureError if the tree has been edited."""
        copied = copy_tree(self.server.content, self.tree)
        if self.server.files and copied != self.server.files:
            raise InfrastructureError(
                f"the source of {self.server.name} is not what it was when it was opened",
                where=str(self.server.content),
                because="it was edited meanwhile, so a build would not match its name in the cache",
                remedy="run again",
            )
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)
        self.steps.counts(CompilerCalls(self.log, self.work))
        for compiler in self.compilers:
            self.wrapper(compiler.name)
        toolchain.write_plain_tools(self.work / "tools", self.tools, self.work, self.optimisation)
        if self.linked == "jemalloc" or (self.linked == "makefile" and allocator.has_jemalloc(self.server)):
            options = allocator.configure_options(settings_of(self.server, self.target))
            self._configured = allocator.configure_jemalloc(self.server, self.target, self.tools, self.work, options)

    def wrapper(self, name: str, extra: Sequence[str] = (), *, suffix: str = "") -> Path:
        """A wrapper of the compiler `name` that adds the target's flags, followed by `extra`."""
        path = self.work / f"{name}{suffix}"
        first = registry.write_prelude(self.target.emulator.detector, self.work)
        named = f"-fdebug-prefix-map={self.work}={WORK_NAME}"
        flags = [
            *first,
            *compile_flags(self.server, self.target, self.optimisation),
            named,
            *build_warnings.FLAGS,
            *extra,
        ]
        libraries = [*self.tools.libraries]
        if self.tls is not None:
            flags += self.tls.compiler_flags
            libraries += self.tls.linker_flags
        toolchain.write_wrapper(path, self.tools, name, flags, libraries)
        return path

    def make(self, goals: Sequence[str], *, compiler: Path | None = None, go_on: bool = False) -> process.Result:
        """Make goals of the server's makefile. Raises InfrastructureError for faults of the machine."""
        command = self.make_command(goals, compiler=compiler)
        return self.run([*command, "--keep-going"] if go_on else command)

    def make_command(self, goals: Sequence[str], *, compiler: Path | None = None) -> list[str]:
        """Make's command line for these goals."""
        return _make_command(self, goals, compiler or self.work / "gcc")

    def run(self, command: Sequence[str | Path], *, folder: Path | None = None) -> process.Result:
        """Run a tool in the tree or another folder, in the environment in which `make` runs compilers."""
        # Without it, makefiles have the compiler read every file once more, for later changes of headers. They remove
        # it when they begin anew.
        (self.tree / "src" / "Makefile.dep").touch()
        result = process.run(
            command,
            deadline_seconds=BUILD_SECONDS,
            log=self.log,
            folder=folder or self.tree,
            environment=self.environment(),
        )
        for sign, what, remedy in _MACHINE_FAULTS:
            if result.code != 0 and sign in result.text:
                raise InfrastructureError(what, where=str(self.work), log=str(self.log), remedy=remedy)
        return result

    def make_server(self) -> process.Result:
        """Make the server's binary: the makefile's output. Raises BuildFailedError with the compiler's first error."""
        result = self.run([*self.make_command([self.binary.name]), *build_warnings.MAKE_OPTIONS])
        if result.code != 0 or not self.binary.is_file():
            raise BuildFailedError(
                f"{self.server.name} does not compile for {self.target.name}",
                where=str(self.server.path),
                because=first_error(result.text),
                log=str(self.log),
                output=result.text,
            )
        return result

    def make_clients(self) -> list[Path]:
        """Make the release's client and benchmark. Raises BuildFailedError with the compiler's first error."""
        made = [self.binary.with_name(f"{self.server.family}-{name}") for name in CLIENTS]
        result = self.make([path.name for path in made])
        if missing := [path.name for path in made if not path.is_file()]:
            raise BuildFailedError(
                f"{self.server.name} does not compile for {self.target.name}: {', '.join(missing)}",
                where=str(self.server.path),
                because=first_error(result.text),
                log=str(self.log),
                output=result.text,
            )
        return made

    def environment(self) -> dict[str, str]:
        """The environment of compilers and makefiles."""
        return {
            **process.PLAIN_ENVIRONMENT,
            "PATH": f"{self.work / 'tools'}:{process.PLAIN_ENVIRONMENT['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "CCACHE_DIR": str(self._ccache),
            "CCACHE_BASEDIR": str(self.work),
            # The wrapper's own text and time change with every run, so only the compiler behind it counts.
            "CCACHE_COMPILERCHECK": "content",
            **self._configured,
        }


class Builder:
    """Builds servers and keeps them in the cache."""

    def __init__(self, cache: Cache, progress: Progress) -> None:
        self.cache = cache
        self.progress = progress

    def build(
        self,
        tree: SourceTree,
        target: Target,
        tools: Toolchain,
        optimisation: str,
        chosen: Allocator = "libc",
        *,
        then: Callable[[BuildDirectory, process.Result], None] | None = None,
        tls: OpenSsl | None = None,
    ) -> Build:
        """The server's binaries for a target, and the shared object that is preloaded into them.

        `then` may make more from the objects after the server was compiled; it receives the makefile's output. `tls` is
        the library that a server with TLS is linked with, beside which its client and benchmark are made. Raises
        BuildFailedError, UsageError for an unsupported allocator, or InfrastructureError without a compiler.
        """
        allocator.check_supported(chosen, target, tools)
        allocator.refuse_unused_options(tree, settings_of(tree, target), chosen)
        linked = linked_allocator(chosen)
        key = build_name(tree, target, tools, optimisation, linked, tls)
        what = f"{tree.name} for {target.name}{' with TLS' if tls else ''}"

        def compile_into(into: Path) -> None:
            # What `then` makes has steps, too.
            extent = "and-more" if then else "alone"
            with self.workshop(
                tree, target, tools, optimisation, what=what, kind="server", extent=extent, linked=linked, tls=tls
            ) as shop:
                made = shop.make_server()
                with disk_errors(into):
                    shutil.copy2(shop.binary, into)
                    if tls is not None:
                        tls.put_beside(into)
                        for client in shop.make_clients():
                            shutil.copy2(client, into)
                    build_warnings.write(into, made.text, shop.tree, shop.compilers)
                    command = shop.make_command([shop.binary.name])
                    (into / "build.json").write_bytes(json_codec.pretty({"command_line": command}))
                if then:
                    then(shop, made)

        folder = self.cache.folder("builds", key, compile_into)
        recorded = json_codec.decode((folder / "build.json").read_bytes(), dict[str, list[str]])
        return Build(
            key=key,
            target=target.name,
            server=tree.name,
            optimisation=optimisation,
            folder=folder,
            server_binary=folder / f"{tree.family}-server",
            command_line=recorded["command_line"],
            allocator=chosen,
            preload=allocator.preloaded(self.cache, target, tools, chosen),
            abilities=tree.abilities,
            tls=tls is not None,
        )

    def complaints(self, tree: SourceTree, target: Target, tools: Toolchain, optimisation: str) -> frozenset[str]:
        """Every error of a tree that does not compile for a target; a build stops at the first."""
        what = f"{tree.name} for {target.name} again, for all its errors,"
        with self.workshop(tree, target, tools, optimisation, what=what, kind="errors") as shop:
            return complaints(shop.make([shop.binary.name], go_on=True).text)

    @contextlib.contextmanager
    def workshop(
        self,
        tree: SourceTree,
        target: Target,
        tools: Toolchain,
        optimisation: str,
        *,
        what: str,
        kind: str,
        extent: str = "alone",
        linked: Linked = "libc",
        tls: OpenSsl | None = None,
    ) -> Iterator[BuildDirectory]:
        """A temporary place to compile in.

        `what` names the product in messages, `kind` names such products of all trees and targets, and `extent` tells
        those apart that take more steps than others.
        """
        toolchain.check_level(tools, optimisation)
        release = ".".join(map(str, tree.version[:2]))
        own = [*settings_of(tree, target).words, *([tls.identity] if tls else [])]
        place = key_of([tree.name, target.name, optimisation, *([linked] if linked != "libc" else []), *own])
        with (
            build_progress.counted_stage(
                self.cache,
                self.progress,
                "build",
                f"building {what} {level_text(optimisation)}",
                history=[
                    kind,
                    tree.family,
                    release,
                    target.name,
                    optimisation,
                    linked,
                    extent,
                    *([key_of(own)] if own else []),
                ],
                verb="compiling",
            ) as steps,
            self.cache.work(place) as work,
        ):
            with disk_errors(work):
                shop = BuildDirectory(self, tree, target, tools, optimisation, work, linked, steps, tls)
                shop.prepare()
            yield shop


def linked_allocator(chosen: Allocator) -> Linked:
    """The allocator that a server is linked with. A preloaded one does not change the binary."""
    match chosen:
        case "jemalloc" | "makefile":
            return chosen
        case _:
            return "libc"


def build_name(
    tree: SourceTree,
    target: Target,
    tools: Toolchain,
    optimisation: str,
    linked: Linked = "libc",
    tls: OpenSsl | None = None,
) -> str:
    """The name of a build's folder in the cache. Raises InfrastructureError without a compiler."""
    return f"{tree.name}-{target.name}-{optimisation}-{build_key(tree, target, tools, optimisation, linked, tls)}"


def build_key(
    tree: SourceTree,
    target: Target,
    tools: Toolchain,
    optimisation: str,
    linked: Linked = "libc",
    tls: OpenSsl | None = None,
) -> str:
    """Content address of a tree's build for a target. Raises InfrastructureError without a compiler."""
    prelude = registry.named(target.emulator.detector).prelude
    settings = settings_of(tree, target)
    jemalloc = allocator.jemalloc_settings(target, tools, allocator.configure_options(settings))
    return key_of(
        [
            RECIPE,
            tree.digest,
            target.machine,
            toolchain.identity(tools),
            *compile_flags(tree, target, optimisation),
            *([prelude] if prelude else []),
            *([linked, *jemalloc.values()] if linked != "libc" else []),
            *settings.words,
            *(["openssl", tls.identity, *CLIENTS] if tls else []),
        ]
    )


def compile_flags(tree: SourceTree, target: Target, optimisation: str) -> list[str]:
    """The flags for every file of a tree when compiled for a target."""
    flags = toolchain.compiler_flags(target, optimisation, _dialect(tree))
    own = settings_of(tree, target).cflags
    # Whatever a distribution compiles with, addresses have lines and stacks are whole.
    return [*flags, *own, *toolchain.EVIDENCE_FLAGS] if own else flags


def settings_of(tree: SourceTree, target: Target) -> BuildSettings:
    """What the tree's build for a target adds: nothing for this machine, whose flags are others."""
    return BuildSettings() if target.emulator.runs_here else tree.settings


def _dialect(tree: SourceTree) -> list[str]:
    """Flags that a tree requires because of its age.

    Before 6.0 headers define globals, which GCC 10 stopped merging. Where a tree's own fmacros.h does not request
    _GNU_SOURCE yet, it requests _BSD_SOURCE, which glibc ignores since 2.20 (feature_test_macros(7)).
    """
    common = ["-fcommon"] if tree.family == "redis" and tree.version < (6,) else []
    macros = tree.content / "src" / "fmacros.h"
    silent = macros.is_file() and "_GNU_SOURCE" not in macros.read_text("utf-8", "replace")
    # The macro has no value: a dependency may define it the same way, and an identical redefinition gives no warning.
    return common + (["-D_GNU_SOURCE="] if silent else [])


def _make_command(shop: BuildDirectory, goals: Sequence[str], compiler: Path) -> list[str]:
    return [
        "make",
        f"-j{os.cpu_count() or 1}",
        "-C",
        "src",
        *goals,
        f"CC={compiler}",
        f"CXX={shop.work / 'g++'}",
        *([] if shop.linked == "makefile" else [f"MALLOC={shop.linked}"]),
        "uname_S=Linux",
        f"uname_M={shop.target.machine}",
        f"OPTIMIZATION={level_text(shop.optimisation)}",
        # The build machine is not probed: these settings decide the target's features.
        "USE_SYSTEMD=no",
        f"BUILD_TLS={'yes' if shop.tls else 'no'}",
        # It would name the libraries that this machine has installed.
        *(["PKG_CONFIG=false"] if shop.tls else []),
        # Quiet recipes hide the command that failed.
        "V=1",
        # Last: of two values of a variable, make takes the second.
        *settings_of(shop.server, shop.target).make,
    ]
