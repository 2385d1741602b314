"""Finds the source files whose code a change alters without touching them: by a header, a flag or a makefile.

A header may be part of any file, and the suites that it selects by its name look at few. Here the objects of the base
and of the changed tree tell, for each target.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from harness.analysis.object_code import altered_objects
from harness.build.workshop import build_code
from harness.build.workshop.build_directory import BuildFailedError
from harness.core.model import COMPILED_IN
from harness.workflows.target_setup import set_up_targets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.core.model import SourceTree
    from harness.plan.request import Request
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench

_SOURCES = (".c", ".cc", ".cpp", ".S")


def may_alter_others(files: Iterable[str]) -> bool:
    """Whether one of these files is more than a source of one object."""
    return not all(file.endswith(_SOURCES) for file in files)


def altered_files(bench: Workbench, request: Request, base: SourceTree, tree: SourceTree) -> list[str]:
    """The source files of a tree whose objects are others than the base's on one of the request's targets.

    Empty where one of them does not compile: the check of the tree says why.
    """
    targets = [bench.catalog.targets[name] for name in request.plan.targets]
    setups = set_up_targets(bench, targets, flavour=request.emulator)

    def compare(setup: TargetSetup) -> list[str]:
        # The changed tree last: the next build goes on with what the last one leaves.
        builds = [setup.build(each, request.optimisation, request.allocator) for each in (base, tree)]
        old, new = (build_code.read(build.folder) for build in builds)
        return altered_objects(old, new) if old is not None and new is not None else []

    try:
        with ThreadPoolExecutor(request.jobs) as pool:
            altered = {name for names in pool.map(compare, setups.values()) for name in names}
    except BuildFailedError:
        return []
    return sorted({source for name in altered if (source := _source_of(name, tree.content))})


def _source_of(name: str, tree: Path) -> str:
    """The file of the tree that an object of a build was compiled from; empty for none."""
    path = name.removeprefix(f"{COMPILED_IN}/").removesuffix(".o")
    return next((f"{path}{suffix}" for suffix in _SOURCES if (tree / f"{path}{suffix}").is_file()), "")
