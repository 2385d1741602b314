"""The warnings of the compilation that made a server: they come with its objects, and require no separate pass.

ccache repeats a file's warnings with its object, so a build whose files were all compiled before also has them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import compiler_output
from harness.core import json_codec
from harness.record.compiler_warnings import CompilerReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.model import Build

FLAGS = ("-Wcast-align", "-Wno-error=cast-align")
"""Flags in addition to the makefile's own, whose -Wall enables the rest. Plain -Wcast-align is silent on machines that
accept any address, like the oracle's. A tree in which warnings are errors must still compile.
"""
MAKE_OPTIONS = ("--output-sync=target", "--print-directory")
"""Makes the places in make's output unambiguous, although files are compiled in parallel."""
NAME = "warnings.json"


def write(into: Path, output: str, tree: Path, compilers: Sequence[Path]) -> None:
    """Store, beside a server, the compilers' warnings about the files in the server's own folder. `output`: make's."""
    own = tree / "src"
    folders = compiler_output.compiling_folders(output, tuple(map(str, compilers)))
    if any(Path(folder).is_relative_to(own) for folder in folders):
        found = compiler_output.read(output, tree, below=own)
        report = CompilerReport(warnings=[each for each in found if each.severity == "warning"])
    else:
        report = CompilerReport(warnings=[], problem="the makefile does not print its compiler commands")
    (into / NAME).write_bytes(json_codec.pretty(report))


def read(build: Build) -> CompilerReport:
    """The warnings of a server's compilation."""
    return json_codec.decode((build.folder / NAME).read_bytes(), CompilerReport)
