"""The compilers that a server's makefile calls: wrappers that add the target's flags, and their environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.analysis.detectors import registry
from harness.build import toolchain
from harness.build.workshop import build_warnings
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.workshop.build_plan import BuildPlan

WORK_NAME = "/plumbline"
"""The work folder's name in debug information. Objects do not depend on the folder in which they are compiled, so
ccache provides a release's objects for a checkout of it.
"""


def write_compiler(plan: BuildPlan, work: Path, name: str, extra: Sequence[str] = (), *, suffix: str = "") -> Path:
    """Write a wrapper of the compiler `name` that adds the target's flags, followed by `extra`, and return its path."""
    path = work / f"{name}{suffix}"
    first = registry.write_prelude(plan.target.emulator.detector, work, plan.tree.content)
    named = f"-fdebug-prefix-map={work}={WORK_NAME}"
    headers = work / "headers"
    for header in plan.lacking_headers:
        # Behind all other folders: a C library that has the header is asked first.
        first = [*first, "-idirafter", str(headers)]
        (headers / header).parent.mkdir(parents=True, exist_ok=True)
        (headers / header).touch()
    flags = [
        *first,
        *plan.compile_flags,
        named,
        *build_warnings.FLAGS,
        *extra,
    ]
    libraries = [*plan.tools.libraries]
    if plan.tls is not None:
        flags += plan.tls.compiler_flags
        libraries += plan.tls.linker_flags
    toolchain.write_wrapper(path, plan.tools, name, flags, libraries)
    return path


def environment(work: Path, ccache: Path, listed: str) -> dict[str, str]:
    """The environment of compilers and makefiles in a work folder.

    `ccache`: its cache. `listed`: a digest of the names of the tree's files.
    """
    return {
        **process.PLAIN_ENVIRONMENT,
        "PATH": f"{work / 'tools'}:{process.PLAIN_ENVIRONMENT['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
        "CCACHE_DIR": str(ccache),
        "CCACHE_BASEDIR": str(work),
        # The wrapper's own text and time change with every run, so only the compiler behind it counts.
        "CCACHE_COMPILERCHECK": "content",
        # Servers contain their build time. With a constant time, two builds of a tree are identical.
        "SOURCE_DATE_EPOCH": "0",
        # ccache looks at what a compiler read elsewhere, and would not see a new file that hides one of those
        # (ccache(1), "The direct mode"). It counts this variable there, which compilers of C ignore, and nowhere
        # else: the preprocessed text decides then.
        "OBJC_INCLUDE_PATH": f"/nowhere/{listed}",
    }
