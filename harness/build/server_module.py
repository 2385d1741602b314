"""Compiles a suite's server module for a target against the header of the server's own tree, and caches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.build.helper_program import compiled

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.model import SourceTree
    from harness.core.target_model import Target, Toolchain


def build_module(cache: Cache, source: Path, tree: SourceTree, target: Target, tools: Toolchain) -> Path:
    """The shared object of the module `source`.

    Raises InfrastructureError when it does not compile: the module is Plumbline's, and only its header is the server's.
    """
    header = tree.content / "src" / "redismodule.h"
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    return compiled(
        cache,
        tools,
        title=f"the module {source.stem} for {target.name}",
        kind="server-modules",
        owner=f"{tree.name}-{target.name}",
        file=f"{source.stem}.so",
        flags=[*toolchain.compiler_flags(target, "O2"), *strict],
        sources=[source],
        headers=[header],
    )
