"""Builds a server for a target: out of tree, content-addressed, with the compiler's first error when it fails.

It never writes to the user's tree. The work folder's path depends on what is built and not on its content, so that
ccache recognises unchanged files.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from harness import codec, detector, process, toolchain
from harness.errors import ExitCode, InfrastructureError, PlumblineError
from harness.model import Build
from harness.source import copy_tree
from harness.store import Store, disk_errors, key_of

if TYPE_CHECKING:
    from pathlib import Path

    from harness.console import Progress
    from harness.model import SourceTree, Target, Toolchain

BUILD_SECONDS = 1800
RECIPE = "1"
"""Part of every build's identity: raise it when this module builds differently."""


_MACHINE_FAULTS = [
    ("No space left on device", "the disk is full", "plumb clean"),
    ("Killed signal terminated program", "a compiler was killed, as a rule for want of memory", "fewer --jobs"),
]
"""What compilers print when the machine is to blame, and not the tree."""


class BuildFailedError(PlumblineError):
    """The server's tree does not compile for the target. The check judges it; on its own it is a finding."""

    exit_code = ExitCode.FINDINGS


class Builder:
    """Builds, kept in the store."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self.store = store
        self.progress = progress

    def build(self, tree: SourceTree, target: Target, tools: Toolchain, optimisation: str) -> Build:
        """The server's binaries for a target. Raises BuildFailedError, or InfrastructureError without a compiler."""
        compiler = toolchain.tool(tools, "gcc")
        flags = toolchain.compiler_flags(target, optimisation, _dialect(tree))
        prelude = detector.PRELUDES[target.emulator.detector]
        parts = [
            RECIPE,
            tree.digest,
            target.machine,
            toolchain.version(compiler),
            *flags,
            *([prelude] if prelude else []),
        ]
        key = f"{tree.name}-{target.name}-{optimisation}-{key_of(parts)}"
        place = key_of([str(tree.path), target.name, optimisation])

        def compile_into(into: Path) -> None:
            with (
                self.store.lock(f"work-{place}"),
                self.progress.stage("build", f"building {tree.name} for {target.name} -{optimisation}"),
            ):
                self._compile(tree, target, tools, flags, self.store.path("work", place), into, optimisation)

        folder = self.store.folder("builds", key, compile_into)
        recorded = codec.decode((folder / "build.json").read_bytes(), dict[str, list[str]])
        return Build(
            key=key,
            target=target.name,
            server=tree.name,
            optimisation=optimisation,
            folder=folder,
            server_binary=folder / f"{tree.family}-server",
            command_line=recorded["command_line"],
        )

    def _compile(
        self,
        tree: SourceTree,
        target: Target,
        tools: Toolchain,
        flags: list[str],
        work: Path,
        into: Path,
        optimisation: str,
    ) -> None:
        shutil.rmtree(work, ignore_errors=True)
        log = self.store.root / "logs" / f"build-{work.name}.log"
        try:
            with disk_errors(work):
                copy_tree(tree.path, work / "tree")
                log.parent.mkdir(parents=True, exist_ok=True)
                log.unlink(missing_ok=True)
                first = detector.write_prelude(target.emulator.detector, work)
                for name in ("gcc", "g++"):
                    toolchain.write_wrapper(work / name, toolchain.tool(tools, name), [*first, *flags], ["-latomic"])
            command = _make_command(tree, target, tools, work, optimisation)
            result = process.run(
                command,
                deadline_seconds=BUILD_SECONDS,
                log=log,
                folder=work / "tree",
                environment=self._environment(work),
            )
            binary = work / "tree" / "src" / f"{tree.family}-server"
            for sign, what, remedy in _MACHINE_FAULTS:
                if result.code != 0 and sign in result.text:
                    raise InfrastructureError(what, where=str(work), log=str(log), remedy=remedy)
            if result.code != 0 or not binary.is_file():
                raise BuildFailedError(
                    f"{tree.name} does not compile for {target.name}",
                    where=str(tree.path),
                    because=_first_error(result.text),
                    log=str(log),
                )
            with disk_errors(into):
                shutil.copy2(binary, into)
                (into / "build.json").write_bytes(codec.pretty({"command_line": command}))
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _environment(self, work: Path) -> dict[str, str]:
        return {
            **process.PLAIN_ENVIRONMENT,
            "HOME": os.environ.get("HOME", "/"),
            "CCACHE_DIR": str(self.store.root / "ccache"),
            "CCACHE_BASEDIR": str(work),
            # The wrapper's own text and time change with every run; the compiler behind it is what counts.
            "CCACHE_COMPILERCHECK": "content",
        }


def _dialect(tree: SourceTree) -> list[str]:
    """Flags that a tree's age asks for: before 6.0 globals are defined in headers, which GCC 10 stopped merging."""
    return ["-fcommon"] if tree.family == "redis" and tree.version < (6,) else []


def _make_command(tree: SourceTree, target: Target, tools: Toolchain, work: Path, optimisation: str) -> list[str]:
    return [
        "make",
        f"-j{os.cpu_count() or 1}",
        "-C",
        "src",
        f"{tree.family}-server",
        f"CC={work / 'gcc'}",
        f"CXX={work / 'g++'}",
        f"AR={toolchain.tool(tools, 'ar')}",
        f"RANLIB={toolchain.tool(tools, 'ranlib')}",
        "MALLOC=libc",
        "uname_S=Linux",
        f"uname_M={target.machine}",
        f"OPTIMIZATION=-{optimisation}",
        # Nothing probes the build machine: what a target has is decided here.
        "USE_SYSTEMD=no",
        "BUILD_TLS=no",
        # Quiet recipes hide the command that failed.
        "V=1",
    ]


def _first_error(output: str) -> str:
    """The compiler's or linker's first error with its source line, or the last lines when none is recognised."""
    lines = re.sub(r"\x1b\[[0-9;]*[mK]", "", output).splitlines()
    for number, line in enumerate(lines):
        if re.search(r"(:\d+:(\d+:)? (fatal )?error: |undefined reference to|: \*\*\* )", line):
            return "\n".join(lines[number : number + 3])
    return "\n".join(lines[-5:])
