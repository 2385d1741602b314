"""Builds a server for a target: out of tree and content-addressed.

It never writes to the user's tree. An object depends neither on its tree's name nor on its place, so that ccache
recognises unchanged files: after one edit in a copy of a release, a single file is compiled.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from harness.analysis.code import elf_object
from harness.analysis.compiler_output import complaints
from harness.analysis.detectors import registry
from harness.build import allocator, build_progress, toolchain
from harness.build.workshop import build_code, build_warnings
from harness.build.workshop.build_directory import (
    CLIENTS,
    BuildDirectory,
    compile_flags,
    link_words,
    settings_of,
)
from harness.core import json_codec
from harness.core.cache import Cache, disk_errors
from harness.core.digests import key_of
from harness.core.model import Build, level_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.build.sources.openssl import OpenSsl
    from harness.build.workshop.build_directory import Linked
    from harness.core.model import Allocator, SourceTree
    from harness.core.processes import process
    from harness.core.progress import Progress
    from harness.core.target_model import Target, Toolchain

RECIPE = "3"
"""Part of every build's identity: raise it when this module or `workshop` changes its way of building."""
MODULES = ("modules/lua/libvalkeylua.so",)
"""Below src: what makefiles put into the server, unless a variable asks for a module instead (`BUILD_LUA=module`)."""


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
            # A user's own tree is built again and again. Libraries are configured in the tree, and are not told apart.
            keep = tree.copy is not None and linked == "libc" and tls is None
            with self.workshop(
                tree,
                target,
                tools,
                optimisation,
                what=what,
                kind="server",
                extent=extent,
                linked=linked,
                tls=tls,
                keep=keep,
            ) as shop:
                made = shop.make_server()
                with disk_errors(into):
                    shutil.copy2(shop.binary, into)
                    for name in MODULES:
                        if (module := shop.binary.parent / name).is_file():
                            shutil.copy2(module, into)
                    if tls is not None:
                        tls.put_beside(into)
                        for client in shop.make_clients():
                            shutil.copy2(client, into)
                    build_warnings.write(into, made.text, shop.tree, shop.compilers)
                    before = build_code.newest(into.parent, f"{tree.name}-{target.name}-{optimisation}-")
                    linked_by = link_words(made.text, shop.binary.name)
                    build_code.write(into, shop.work, linked_by, before, without=shop.beside)
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
            modules=tuple(path for name in MODULES if (path := folder / name.rpartition("/")[2]).is_file()),
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
        keep: bool = False,
    ) -> Iterator[BuildDirectory]:
        """A temporary place to compile in.

        `what` names the product in messages, `kind` names such products of all trees and targets, and `extent` tells
        those apart that take more steps than others. `keep`: the next build in this place may go on with this one.
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
            self.cache.work(place, keep=keep) as work,
        ):
            with disk_errors(work):
                shop = BuildDirectory(
                    self.cache, tree, target, tools, optimisation, work, linked, steps, tls, keep=keep
                )
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
            # Objects are not kept, so that a map of them that is made in another way needs another build.
            elf_object.RECIPE,
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
