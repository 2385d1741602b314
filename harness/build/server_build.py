"""Builds a server for a target: out of tree and content-addressed.

It never writes to the user's tree. An object depends neither on the name nor on the path of its tree, so ccache
recognises unchanged files: after one edit in a copy of a release, a single file is compiled.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from typing import TYPE_CHECKING

from harness.analysis.code import elf_object
from harness.analysis.compiler_output import complaints
from harness.analysis.detectors import registry
from harness.build import allocator, build_progress, toolchain
from harness.build.workshop import build_code, build_warnings
from harness.build.workshop.build_directory import CLIENTS, BuildDirectory
from harness.build.workshop.make_command import link_words
from harness.core import json_codec
from harness.core.cache import Cache, disk_errors
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError
from harness.core.model import Build, level_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.build.workshop.build_plan import BuildPlan
    from harness.core.processes import process
    from harness.core.progress import Progress

RECIPE = "3"
"""Part of every build's identity: raise it when this module or `workshop` changes how it builds."""
MODULES = ("modules/lua/libvalkeylua.so",)
"""Below src: parts that makefiles put into the server, unless a variable requests a module instead
(`BUILD_LUA=module`).
"""


class Builder:
    """Builds servers and keeps them in the cache."""

    def __init__(self, cache: Cache, progress: Progress) -> None:
        self.cache = cache
        self.progress = progress

    def build(self, plan: BuildPlan, *, then: Callable[[BuildDirectory, process.Result], None] | None = None) -> Build:
        """The server's binaries for a target, and the shared object that is preloaded into them.

        `then` may make more from the objects after the server was compiled; it receives the makefile's output. With TLS
        the server's client and benchmark are made beside it. Raises BuildFailedError, UsageError for an unsupported
        allocator, or InfrastructureError without a compiler.
        """
        tree, target, tools, chosen = plan.tree, plan.target, plan.tools, plan.allocator
        allocator.check_supported(chosen, target, tools)
        allocator.refuse_unused_options(tree, plan.settings, chosen)
        key = build_name(plan)
        folder = self.cache.folder("builds", key, lambda into: self._compile(plan, into, then))
        recorded = json_codec.decode((folder / "build.json").read_bytes(), dict[str, list[str]])
        _refuse_other(folder, recorded.get("entry", [key]))
        return Build(
            key=key,
            target=target.name,
            server=tree.name,
            optimisation=plan.optimisation,
            folder=folder,
            server_binary=folder / f"{tree.family}-server",
            command_line=recorded["command_line"],
            allocator=chosen,
            preload=allocator.preloaded(self.cache, target, tools, chosen),
            abilities=tree.abilities,
            tls=plan.tls is not None,
            modules=tuple(path for name in MODULES if (path := folder / name.rpartition("/")[2]).is_file()),
        )

    def _compile(
        self, plan: BuildPlan, into: Path, then: Callable[[BuildDirectory, process.Result], None] | None
    ) -> None:
        """Put the server's programs, and the records of their compilation, into a folder."""
        what = f"{plan.title}{' with TLS' if plan.tls else ''}"
        # `then` also has steps.
        extent = "and-more" if then else "alone"
        # A user's own tree is built repeatedly. Libraries are configured inside the tree, and are not distinguished.
        keep = plan.tree.copy is not None and plan.linked == "libc" and plan.tls is None
        with self.workshop(plan, what=what, kind="server", extent=extent, keep=keep) as shop:
            made = shop.make_server()
            with disk_errors(into):
                shutil.copy2(shop.binary, into)
                for name in MODULES:
                    if (module := shop.binary.parent / name).is_file():
                        shutil.copy2(module, into)
                if plan.tls is not None:
                    plan.tls.put_beside(into)
                    for client in shop.make_clients():
                        shutil.copy2(client, into)
                build_warnings.write(into, made.text, shop.tree, shop.compilers)
                before = build_code.newest(into.parent, f"{plan.stem}-")
                linked_by = link_words(made.text, shop.binary.name)
                build_code.write(into, shop.work, linked_by, before, without=shop.beside)
                command = shop.make_command([shop.binary.name])
                (into / "build.json").write_bytes(
                    json_codec.pretty({"command_line": command, "entry": [build_name(plan)]})
                )
            if then:
                then(shop, made)

    def complaints(self, plan: BuildPlan) -> frozenset[str]:
        """Every error of a tree that does not compile for a target; a build stops at the first."""
        what = f"{plan.title} again, for all its errors,"
        with self.workshop(plan, what=what, kind="errors") as shop:
            return complaints(shop.make([shop.binary.name], go_on=True).text)

    @contextlib.contextmanager
    def workshop(
        self, plan: BuildPlan, *, what: str, kind: str, extent: str = "alone", keep: bool = False
    ) -> Iterator[BuildDirectory]:
        """A temporary place to compile in.

        `what` names the product in messages, `kind` names such products of all trees and targets, and `extent`
        distinguishes products that take more steps than others. `keep`: the next build in this place may continue with
        this one.
        """
        tree, optimisation, linked = plan.tree, plan.optimisation, plan.linked
        toolchain.check_level(plan.tools, optimisation)
        release = ".".join(map(str, tree.version[:2]))
        own = [*plan.settings.words, *([plan.tls.identity] if plan.tls else [])]
        place = key_of([tree.name, plan.target.name, optimisation, *([linked] if linked != "libc" else []), *own])
        history = [kind, tree.family, release, plan.target.name, optimisation, linked, extent]
        with (
            build_progress.counted_stage(
                self.cache,
                self.progress,
                "build",
                f"building {what} {level_text(optimisation)}",
                history=[*history, *([key_of(own)] if own else [])],
                verb="compiling",
            ) as steps,
            self.cache.work(place, keep=keep) as work,
        ):
            with disk_errors(work):
                shop = BuildDirectory(self.cache, plan, work, steps, keep=keep)
                shop.prepare()
            yield shop


def _refuse_other(folder: Path, entry: list[str]) -> None:
    """Raise InfrastructureError if another build with its own seal, which names no entry, is in the place of this."""
    if entry != [folder.name]:
        raise InfrastructureError(
            "a build in the cache is another one",
            where=str(folder),
            because=f"it was made as {' '.join(entry)}",
            remedy=f"rm -r {shlex.quote(str(folder))}, and it is built again",
        )


def build_name(plan: BuildPlan) -> str:
    """The name of a build's folder in the cache. Raises InfrastructureError without a compiler."""
    return f"{plan.stem}-{build_key(plan)}"


def build_key(plan: BuildPlan) -> str:
    """Content address of a tree's build for a target. Raises InfrastructureError without a compiler."""
    target, tools, tls = plan.target, plan.tools, plan.tls
    prelude = registry.named(target.emulator.detector).prelude
    settings = plan.settings
    jemalloc = allocator.jemalloc_settings(target, tools, allocator.configure_options(settings))
    return key_of(
        [
            RECIPE,
            # Objects are not kept, so a new form of their map requires a new build.
            elf_object.RECIPE,
            plan.tree.digest,
            target.machine,
            toolchain.identity(tools),
            *plan.compile_flags,
            *plan.lacking_headers,
            *([prelude] if prelude else []),
            *([plan.linked, *jemalloc.values()] if plan.linked != "libc" else []),
            *settings.words,
            *(["openssl", tls.identity, *CLIENTS] if tls else []),
        ]
    )
