"""The allocator of a server: libc's malloc, the tree's own jemalloc, the makefile's choice of these, or the guard
allocator (toolchains/allocator).

The guard allocator is preloaded, so the tested binary is the one that otherwise runs on libc. This module compiles it,
configures builds with jemalloc, and recognises an access beyond a block by its address.
"""

from __future__ import annotations

import platform
import re
import shlex
from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.build.helper_program import compiled
from harness.core.errors import UsageError
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.model import Allocator, BuildSettings, SourceTree
    from harness.core.target_model import Target, Toolchain

SOURCE = ROOT / "toolchains" / "allocator" / "guard.c"
FLAGS: dict[Allocator, list[str]] = {"guard": [], "guard-natural": ["-DNATURAL"]}
"""The guard allocators, and the flags that make each from one source."""
CONFIGURE_OPTIONS = "JEMALLOC_CONFIGURE_OPTS"
"""The variable of deps/Makefile, since redis-7.0, by which a package gives options to jemalloc's configure script."""


def check_supported(allocator: Allocator, target: Target, tools: Toolchain) -> None:
    """Raise UsageError for an allocator that a target does not support."""
    why = ""
    if allocator != "libc" and target.emulator.detector:
        why = f"{target.emulator.detector} checks only the memory of its own allocator"
    elif allocator in FLAGS and target.emulator.is_elsewhere:
        why = "nothing can be preloaded on another machine; the user tier emulates the same programs"
    elif allocator in FLAGS and tools.is_static:
        why = "its programs contain their C library, so nothing can be preloaded"
    if why:
        raise UsageError(
            f"allocator '{allocator}' is not available on {target.name}",
            where="--allocator",
            because=why,
            remedy="leave out the target or the option",
        )


def preloaded(cache: Cache, target: Target, tools: Toolchain, allocator: Allocator) -> Path | None:
    """The guard allocator compiled for a target; None for allocators that are linked.

    Raises InfrastructureError when it does not compile.
    """
    if allocator not in FLAGS:
        return None
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-fno-builtin-malloc"]
    # The target's own flags, at a fixed optimisation level: the server's level must not affect its allocator.
    flags = [*toolchain.compiler_flags(target, "O2"), *strict, "-shared", "-fPIC", "-pthread", *FLAGS[allocator]]
    return compiled(
        cache,
        tools,
        title=f"the allocator for {target.name}",
        kind="allocators",
        owner=target.name,
        file=f"{allocator}.so",
        flags=flags,
        sources=[SOURCE],
    )


def configure_options(settings: BuildSettings) -> list[str]:
    """The options that a package gives to jemalloc's configure script: of two values of a variable, make takes the
    second. Raises UsageError for a value that is not quoted as in a shell.
    """
    given = [value for name, _, value in (word.partition("=") for word in settings.make) if name == CONFIGURE_OPTIONS]
    try:
        return shlex.split(given[-1]) if given else []
    except ValueError as error:
        raise UsageError(
            f"{CONFIGURE_OPTIONS} is not quoted as in a shell: {given[-1]}",
            where="--make",
            because=str(error).lower(),
            remedy=f"close every quotation mark: --make '{CONFIGURE_OPTIONS}=--with-lg-page=16'",
        ) from error


def has_page_size(options: Sequence[str]) -> bool:
    """Whether options of jemalloc's configure script set the page size."""
    return any(option.startswith("--with-lg-page=") for option in options)


def refuse_unused_options(tree: SourceTree, settings: BuildSettings, chosen: Allocator) -> None:
    """Raise UsageError for options of jemalloc's configure script that would not reach it."""
    if not configure_options(settings):
        return
    if chosen not in {"jemalloc", "makefile"}:
        raise UsageError(
            f"{CONFIGURE_OPTIONS} would have no effect",
            where="--make",
            because=f"the server would be linked with libc's allocator, because of --allocator {chosen}",
            remedy="add --allocator jemalloc, or leave the variable out",
        )
    makefile = tree.content / "deps" / "Makefile"
    if not makefile.is_file() or CONFIGURE_OPTIONS not in makefile.read_text("utf-8", "replace"):
        raise UsageError(
            f"{CONFIGURE_OPTIONS} would have no effect on {tree.name}",
            where=str(makefile),
            because="it does not give the variable to jemalloc's configure script, as releases do since redis-7.0",
            remedy="leave the variable out",
        )


def refuse_options_of_another_allocator(database: str) -> None:
    """Raise UsageError if a makefile that has options of jemalloc's script links another allocator.

    `database`: what `make --print-data-base` printed. Releases since redis-7.0 have the choice in MALLOC.
    """
    chosen = re.findall(r"^MALLOC :?= *(\S+)$", database, re.MULTILINE)
    if chosen and chosen[-1] != "jemalloc":
        raise UsageError(
            f"{CONFIGURE_OPTIONS} would have no effect",
            where="--make",
            because=f"--allocator makefile leaves the choice to the tree's makefile, which chooses {chosen[-1]}",
            remedy="add --allocator jemalloc, or leave the variable out",
        )


def jemalloc_settings(target: Target, tools: Toolchain, options: Sequence[str] = ()) -> dict[str, str]:
    """The configuration of a tree's jemalloc for a target, which is part of the build's identity.

    `options`: those of a package. The page size is then the package's, if it gives one: the script would otherwise use
    Plumbline's.
    """
    page_bits = str(target.page_size_bytes.bit_length() - 1)
    # The script would find the page size by running a program, which fails. Older releases use the second name.
    page = {"je_cv_lg_page": page_bits, "je_cv_static_page_shift": page_bits}
    return {
        "cross_compiling": "yes",
        "host_alias": tools.triple or f"{platform.machine()}-linux-gnu",
        "AR": toolchain.tool(tools, "ar"),
        "RANLIB": toolchain.tool(tools, "ranlib"),
        **({} if has_page_size(options) else page),
    }


def has_jemalloc(tree: SourceTree) -> bool:
    """Whether a tree contains a jemalloc that can be configured."""
    return (tree.content / "deps" / "jemalloc" / "configure").is_file()


def configure_jemalloc(
    tree: SourceTree, target: Target, tools: Toolchain, work: Path, options: Sequence[str] = ()
) -> dict[str, str]:
    """Configure the tree's jemalloc for the target, whatever options the tree's release passes to the configure script.

    `options`: those that a package adds. Returns the environment variables that the build needs. Autoconf scripts read
    the file that CONFIG_SITE names (autoconf manual, Site Defaults). Raises UsageError for a tree without a configured
    jemalloc.
    """
    if not has_jemalloc(tree):
        raise UsageError(
            "the tree's jemalloc cannot be built",
            where=str(tree.content / "deps" / "jemalloc"),
            because="it has no configure script",
            remedy="--allocator libc, or guard",
        )
    site = work / "config.site"
    settings = jemalloc_settings(target, tools, options)
    site.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
    return {"CONFIG_SITE": str(site)}
