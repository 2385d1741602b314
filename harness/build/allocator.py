"""The allocator of a server: libc's malloc, the tree's own jemalloc, or the guard allocator (toolchains/allocator).

The adversary is preloaded, so that the very binary is tested that runs on libc otherwise. This module compiles it, says
what a build with jemalloc is told, and recognises an access beyond a block by its address.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.build.helper_program import compiled
from harness.core.errors import UsageError
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.model import Allocator, SourceTree
    from harness.core.target_model import Target, Toolchain

SOURCE = ROOT / "toolchains" / "allocator" / "guard.c"
FLAGS: dict[Allocator, list[str]] = {"guard": [], "guard-natural": ["-DNATURAL"]}
"""The guard allocators, and the flags that make each from one source."""


def check_supported(allocator: Allocator, target: Target) -> None:
    """Raise UsageError for an allocator that a target cannot have."""
    why = ""
    if allocator != "libc" and target.emulator.detector:
        why = f"{target.emulator.detector} watches over the memory of its own allocator"
    elif allocator in FLAGS and target.emulator.has_kernel:
        why = "nothing is preloaded inside a machine; the target it takes its programs from is emulated by itself, too"
    if why:
        raise UsageError(
            f"no allocator '{allocator}' on {target.name}",
            where="--allocator",
            because=why,
            remedy="leave the target out, or the option",
        )


def preloaded(store: Cache, target: Target, tools: Toolchain, allocator: Allocator) -> Path | None:
    """The guard allocator compiled for a target; None for allocators that are linked.

    Raises InfrastructureError when it does not compile.
    """
    if allocator not in FLAGS:
        return None
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-fno-builtin-malloc"]
    # The target's own flags, at a level of its own: a server's level says nothing about its allocator.
    flags = [*toolchain.compiler_flags(target, "O2"), *strict, "-shared", "-fPIC", "-pthread", *FLAGS[allocator]]
    return compiled(
        store,
        tools,
        title=f"the allocator for {target.name}",
        kind="allocators",
        owner=target.name,
        file=f"{allocator}.so",
        flags=flags,
        sources=[SOURCE],
    )


def jemalloc_settings(target: Target, tools: Toolchain) -> dict[str, str]:
    """What a tree's jemalloc is configured with for a target: part of such a build's identity."""
    page_bits = str(target.page_size_bytes.bit_length() - 1)
    return {
        "cross_compiling": "yes",
        "host_alias": tools.triple or f"{platform.machine()}-linux-gnu",
        "AR": toolchain.tool(tools, "ar"),
        "RANLIB": toolchain.tool(tools, "ranlib"),
        # The script would run a program to learn the page size, and it cannot. Older releases use the second name.
        "je_cv_lg_page": page_bits,
        "je_cv_static_page_shift": page_bits,
    }


def configure_jemalloc(tree: SourceTree, target: Target, tools: Toolchain, work: Path) -> dict[str, str]:
    """Have the configure script of the tree's jemalloc know the target, whatever the tree's release passes to it.

    Returns what the build needs in its environment. Autoconf scripts read the file that CONFIG_SITE names (autoconf
    manual, Site Defaults). Raises UsageError for a tree without a configured jemalloc.
    """
    if not (tree.content / "deps" / "jemalloc" / "configure").is_file():
        raise UsageError(
            "the tree's jemalloc cannot be built",
            where=str(tree.content / "deps" / "jemalloc"),
            because="it has no configure script",
            remedy="--allocator libc, or guard",
        )
    site = work / "config.site"
    settings = jemalloc_settings(target, tools)
    site.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
    return {"CONFIG_SITE": str(site)}
