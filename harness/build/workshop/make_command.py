"""Make's command line for a server, and the linker's that its output shows. Pure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.core.model import level_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.workshop.build_plan import BuildPlan


def make_command(plan: BuildPlan, work: Path, goals: Sequence[str], compiler: Path | None = None) -> list[str]:
    """Make's command line for goals of the server's makefile. `work` holds the compilers' wrappers.

    `compiler`: another wrapper than that of gcc.
    """
    return [
        "make",
        f"-j{os.cpu_count() or 1}",
        "-C",
        "src",
        *goals,
        f"CC={compiler or work / 'gcc'}",
        f"CXX={work / 'g++'}",
        *([] if plan.linked == "makefile" else [f"MALLOC={plan.linked}"]),
        "uname_S=Linux",
        f"uname_M={plan.target.machine}",
        f"OPTIMIZATION={level_text(plan.optimisation)}",
        # The build machine is not probed: these settings decide the target's features.
        "USE_SYSTEMD=no",
        f"BUILD_TLS={'yes' if plan.tls else 'no'}",
        # pkg-config would name the libraries that are installed on the host.
        *(["PKG_CONFIG=false"] if plan.tls else []),
        # Quiet recipes hide the command that failed.
        "V=1",
        # Last: of two values of a variable, make takes the second.
        *plan.settings.make,
    ]


def link_words(made: str, name: str) -> list[str]:
    """The command that linked a program, without `-o NAME`; empty if none did."""
    for line in reversed(made.splitlines()):
        words = line.split()
        if "-o" in words and words[words.index("-o") + 1 :][:1] == [name]:
            at = words.index("-o")
            return words[:at] + words[at + 2 :]
    return []
