"""Collects the target compiler's warnings about a server's own source files, and stores them by content.

It is a separate pass: a warning option in the builds would change the identity of every server's build and miss in
ccache. The pass produces no files and costs a fraction of a build.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import compiler_output
from harness.build.build_progress import Steps
from harness.build.server_build import build_name
from harness.core import json_codec
from harness.core.digests import key_of
from harness.core.processes import process
from harness.record.compiler_warnings import CompilerReport

if TYPE_CHECKING:
    from harness.analysis.compiler_output import Compilation
    from harness.build.server_build import BuildDirectory, Builder
    from harness.core.model import SourceTree
    from harness.core.target_model import Target, Toolchain
    from harness.record.compiler_warnings import Diagnostic

ASKED = ["-fsyntax-only", "-Wcast-align", "-Wformat", "-Wno-error"]
"""Flags after the makefile's own. Plain -Wcast-align is silent on machines that accept any address, like the
oracle's."""
NAME = "warnings.json"
FILE_SECONDS = 600.0


def look(builder: Builder, tree: SourceTree, target: Target, tools: Toolchain, optimisation: str) -> CompilerReport:
    """The compiler's warnings about the files that the makefile compiles in the server's own folder.

    Raises InfrastructureError without a compiler.
    """
    key = f"{build_name(tree, target, tools, optimisation)}-{key_of(ASKED)}"

    def look_into(into: Path) -> None:
        what = f"warnings of {tree.name} for {target.name}"
        with builder.workshop(tree, target, tools, optimisation, what=what, kind="warnings") as shop:
            (into / NAME).write_bytes(json_codec.pretty(_report(shop)))

    folder = builder.cache.folder("warnings", key, look_into)
    return json_codec.decode((folder / NAME).read_bytes(), CompilerReport)


def _report(shop: BuildDirectory) -> CompilerReport:
    compilers = {str(shop.work / name): shop.wrapper(name, ASKED, suffix="-lint") for name in ("gcc", "g++")}
    # A dry run shows how the makefile would compile.
    made = shop.run([*shop.make_command([shop.binary.name]), "--dry-run", "--print-directory"])
    calls = [
        call
        for call in compiler_output.compilations(made.text, tuple(compilers))
        if Path(call.folder).is_relative_to(shop.tree / "src")
    ]
    if not calls:
        return CompilerReport(warnings=[], problem="the makefile does not tell how it compiles")

    ended: list[Compilation] = []
    shop.steps.counts(lambda: Steps(len(ended), len(calls)))

    def diagnostics(call: Compilation) -> tuple[list[Diagnostic], bool]:
        result = process.run(
            [compilers[call.words[0]], *call.words[1:]],
            deadline_seconds=FILE_SECONDS,
            folder=Path(call.folder),
            environment=shop.environment(),
        )
        ended.append(call)
        return compiler_output.read(
            f"make: Entering directory '{call.folder}'\n{result.text}", shop.tree
        ), result.code == 0

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        outputs = list(pool.map(diagnostics, calls))
    warnings = dict.fromkeys(each for found, _ in outputs for each in found if each.severity == "warning")
    failed = sum(not compiled for _, compiled in outputs)
    problem = f"{failed} of {len(calls)} files do not compile by themselves" if failed else ""
    return CompilerReport(warnings=list(warnings), problem=problem)
