"""Compilers as they are on this machine: what is missing, which version it is, the wrapper that calls it."""

from __future__ import annotations

import shlex
import shutil
from functools import cache
from typing import TYPE_CHECKING

from harness import process
from harness.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.model import Target, Toolchain


def tool(toolchain: Toolchain, name: str) -> str:
    """A tool's command name: `arm-linux-gnueabi-gcc`, or `gcc` for the host."""
    return f"{toolchain.triple}-{name}" if toolchain.triple else name


@cache
def missing_packages(packages: tuple[str, ...]) -> list[str]:
    """Debian packages of these that are not installed. Raises InfrastructureError where there is no dpkg."""
    result = process.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\\n", *packages], deadline_seconds=60
    )
    installed = {line.split()[0] for line in result.text.splitlines() if line.endswith(" installed")}
    return [package for package in packages if package not in installed]


def install_command(packages: Iterable[str]) -> str:
    """The exact line that installs them."""
    return "apt-get install --yes --no-install-recommends " + " ".join(packages)


@cache
def version(compiler: str) -> str:
    """First line of `COMPILER --version`: part of a build's identity.

    Raises InfrastructureError when the compiler is not there.
    """
    if shutil.which(compiler) is None:
        raise InfrastructureError(
            f"no compiler {compiler}", remedy="plumb doctor --install, or see what it prints: plumb doctor"
        )
    return process.run([compiler, "--version"], deadline_seconds=60).text.splitlines()[0]


def compiler_flags(target: Target, optimisation: str, extra: Iterable[str] = ()) -> list[str]:
    """Flags that come after the makefile's own, so that they win; debug information always.

    It is DWARF 4: addr2line of binutils 2.40 (Debian 12) reads a DWARF 5 unit's first code as the unit's own file,
    though it be a header's. What valkey-9.1.2 inlines from sds.h into debug.c was at `debug.c:132`.
    """
    return [*target.compiler_flags, f"-{optimisation}", "-gdwarf-4", "-fno-omit-frame-pointer", *extra]


def write_wrapper(path: Path, compiler: str, flags: Iterable[str], libraries: Iterable[str]) -> None:
    """Write a compiler command that adds the target's flags, and libraries at the end of the line where order matters.

    With ccache on the machine the compiler is called through it: a changed file then costs one compilation.
    """
    words = [*(["ccache"] if shutil.which("ccache") else []), compiler]
    # The servers' makefiles add libatomic by machine name only, and it must follow the objects.
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@" {shlex.join(flags)} {shlex.join(libraries)}\n')
    path.chmod(0o755)
