"""The server module of ours: compiled for a target against the header of the server's own tree, kept in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import process, toolchain
from harness.errors import InfrastructureError
from harness.load import ROOT
from harness.store import key_of, sha256_of

if TYPE_CHECKING:
    from pathlib import Path

    from harness.model import SourceTree, Target, Toolchain
    from harness.store import Store

SOURCE = ROOT / "suites" / "modules" / "plumbline.c"
SINCE = (6,)
"""The release whose API it needs: auxiliary data, and long doubles."""
COMPILE_SECONDS = 120


def build_module(store: Store, tree: SourceTree, target: Target, tools: Toolchain) -> Path | None:
    """The shared object; None for a server that is too old for it.

    Raises InfrastructureError when it does not compile: it is ours, and the header is the server's.
    """
    header = tree.path / "src" / "redismodule.h"
    if tree.version < SINCE or not header.is_file():
        return None
    compiler = toolchain.tool(tools, "gcc")
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    flags = [*toolchain.compiler_flags(target, "O2"), *strict]

    def compile_into(into: Path) -> None:
        command = [compiler, str(SOURCE), *flags, f"-I{header.parent}", "-o", str(into / "plumbline.so")]
        result = process.run(command, deadline_seconds=COMPILE_SECONDS)
        if result.code != 0:
            raise InfrastructureError(
                f"the module of the suite `modules` does not compile for {target.name}",
                where=str(SOURCE),
                because=result.text.strip()[-500:],
            )

    key = key_of([sha256_of(SOURCE), sha256_of(header), toolchain.version(compiler), *flags])
    return store.folder("modules", f"{tree.name}-{target.name}-{key}", compile_into) / "plumbline.so"
