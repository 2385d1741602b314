"""The server module of ours: compiled for a target against the header of the server's own tree, kept in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.build.helper_program import compiled
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.model import SourceTree, Target, Toolchain

SOURCE = ROOT / "suites" / "modules" / "plumbline.c"


def build_module(store: Cache, tree: SourceTree, target: Target, tools: Toolchain) -> Path:
    """The shared object.

    Raises InfrastructureError when it does not compile: it is ours, and the header is the server's.
    """
    header = tree.content / "src" / "redismodule.h"
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    return compiled(
        store,
        tools,
        title=f"the module of the suite `modules` for {target.name}",
        kind="modules",
        owner=f"{tree.name}-{target.name}",
        file="plumbline.so",
        flags=[*toolchain.compiler_flags(target, "O2"), *strict],
        sources=[SOURCE],
        headers=[header],
    )
