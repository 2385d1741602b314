"""Provides the compiler of a family of toolchains (toolchains/families) as the commands `gcc` and `g++`."""

from __future__ import annotations

import platform
import shlex
from typing import TYPE_CHECKING

from harness.core.digests import key_of
from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.target_model import CompilerPackage, ToolchainFamily

LIBRARIES = "compiler-libraries"
"""The kind of cache entries in which compilers store their compiled C libraries."""


def provide_family(cache: Cache, fetcher: Fetcher, family: ToolchainFamily, package: CompilerPackage) -> str:
    """The folder of a family's `gcc` and `g++`, whose compiler is fetched if the cache lacks it.

    Raises InfrastructureError if the family has no compiler for the host, or no registry has it.
    """
    compiler = package.hosts.get(platform.machine())
    if compiler is None:
        raise InfrastructureError(
            f"{family.title} does not run on {platform.machine()}",
            where=str(family.folder),
            remedy=f"use a machine with one of these processors: {', '.join(package.hosts)}",
        )
    program = fetcher.tree(package.name, compiler.sha256, compiler.places) / package.program
    call = _call(cache, family, program)

    def script(words: Sequence[str]) -> str:
        return f'{call} {shlex.join(word.replace("{folder}", str(program.parent)) for word in words)} "$@"\n'

    scripts = {name: script(words) for name, words in family.commands.items()}

    def write(into: Path) -> None:
        for name, text in scripts.items():
            (into / name).write_text(text, "utf-8")
            (into / name).chmod(0o755)

    return str(cache.folder("compilers", key_of([compiler.sha256, *scripts.values()]), write))


def _call(cache: Cache, family: ToolchainFamily, program: Path) -> str:
    """A shell script that ends in the program's name, in the environment that the compiler needs."""
    name = shlex.quote(str(program))
    if not family.library_cache:
        return f"#!/bin/sh\nexec {name}"
    kept = shlex.quote(str(cache.path(LIBRARIES, family.name)))
    return f"""#!/bin/sh
mkdir -p {kept} && call=$(mktemp -d {kept}/call.XXXXXX) || exit
trap 'rm -r "$call"' EXIT
{family.library_cache}={kept} {family.object_cache}=$call {name}"""
