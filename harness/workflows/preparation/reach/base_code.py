"""The machine code of a change's base, for comparison with that of the changed tree, target by target.

The comparison shows which functions a change alters, and in which files. These include files that it does not touch,
when it changes a header, a flag or a makefile.
"""

from __future__ import annotations

import abc
import fnmatch
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.analysis.code.code_map import CodeMap, altered_objects
from harness.build.sources.server_package import PackageUnavailableError
from harness.build.workshop import build_code
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.model import COMPILED_IN
from harness.workflows.git.checkout import Checkout
from harness.workflows.preparation.reach import unmoved_lines
from harness.workflows.target_setup import oracle_setup, set_up_targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.model import Allocator, Build, SourceTree
    from harness.judge.baseline import BaseRevision
    from harness.plan.request import Request
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench

_SOURCES = (".c", ".cc", ".cpp", ".S")


class TreeCode(NamedTuple):
    """The code of a tree's builds."""

    targets: dict[str, CodeMap | None]
    """Target -> code of its server; None if its objects cannot be read, as with -flto. Targets for which the tree does
    not compile are missing.
    """
    native: CodeMap | None
    """The code of the native build; None if it is unreadable, or if the tree does not compile."""


class BaseCode(abc.ABC):
    """The base of a change. Its servers are built when their code is requested, and are then in the cache."""

    @property
    @abc.abstractmethod
    def content(self) -> str:
        """The identity of its tree."""

    @cached_property
    @abc.abstractmethod
    def code(self) -> TreeCode:
        """The code of the base. Raises InfrastructureError if the host cannot build it."""

    def unmoved(self, tree: SourceTree) -> TreeCode | None:
        """The code of the changed tree as it is if no line has moved (unmoved_lines). None if no line has moved, if the
        tree is no longer what was opened, and if that is not asked of such a base.
        """
        del tree
        return None


class RevisionCode(BaseCode):
    """A revision of a checkout as the base."""

    def __init__(self, bench: Workbench, request: Request, base: BaseRevision) -> None:
        self._bench = bench
        self._request = request
        self._base = base

    @property
    def content(self) -> str:
        """The same for every commit with this content."""
        return Checkout(Path(self._request.server)).content(self._base)

    @cached_property
    def code(self) -> TreeCode:
        """Written from the repository, and built."""
        checkout = Checkout(Path(self._request.server))
        with self._bench.cache.work(f"base-code-{checkout.content(self._base)}") as work:
            # The copy has the checkout's name, by which messages and the cache know its builds.
            written = checkout.write(self._base, work / checkout.path.name)
            return code_of(self._bench, self._request, self._bench.open_server(str(written), self._request.settings))

    def unmoved(self, tree: SourceTree) -> TreeCode | None:
        """Written beside the tree, and built."""
        checkout = Checkout(Path(self._request.server))
        files = unmoved_lines.moving_files(checkout, self._base)
        if not files:
            return None
        bench = self._bench.with_new_stages("unmoved lines: ")
        with bench.cache.work(f"unmoved-{tree.digest}") as work:
            written = work / checkout.path.name
            if unmoved_lines.write(tree.content, files, written) != tree.digest:
                # What the tests run on has other lines.
                return None
            return code_of(bench, self._request, bench.open_server(str(written), self._request.settings))


class ReleaseCode(BaseCode):
    """A release as the base of its mutants."""

    def __init__(self, bench: Workbench, request: Request, release: SourceTree) -> None:
        self._bench = bench
        self._request = request
        self._release = release

    @property
    def content(self) -> str:
        """Its digest."""
        return self._release.digest

    @cached_property
    def code(self) -> TreeCode:
        """Built from its source."""
        return code_of(self._bench, self._request, self._release)


def code_of(bench: Workbench, request: Request, tree: SourceTree) -> TreeCode:
    """The code of a tree's builds for the request's targets, and of its native build."""
    targets = [bench.catalog.targets[name] for name in request.plan.targets]
    setups = set_up_targets(bench, targets, flavour=request.emulator)

    def build(setup: TargetSetup, allocator: Allocator) -> Build | None:
        try:
            return setup.build(tree, request.optimisation, allocator)
        except (BuildFailedError, PackageUnavailableError):
            return None

    with ThreadPoolExecutor(request.jobs) as pool:
        native = pool.submit(build, oracle_setup(bench), "libc")
        allocators = [request.allocator for _ in setups]
        builds = dict(zip(setups, pool.map(build, setups.values(), allocators), strict=True))
    read = {name: build_code.read(each.folder) for name, each in builds.items() if each is not None}
    host = native.result()
    return TreeCode(targets=read, native=build_code.read(host.folder) if host is not None else None)


def may_alter_others(files: Iterable[str]) -> bool:
    """Whether one of these files is more than a source of one object."""
    return not all(file.endswith(_SOURCES) for file in files)


def altered_files(
    base: Mapping[str, CodeMap | None], changed: Mapping[str, CodeMap | None], content: Path
) -> list[str]:
    """The source files of a changed tree whose objects differ from the base's on one of the targets.

    Both are `TreeCode.targets`. If the objects of a target cannot be compared, all sources below src/. `content`: the
    tree's folder.
    """
    altered: set[str] = set()
    for target, new in changed.items():
        old = base.get(target)
        if old is None or new is None:
            sources = (content / "src").rglob("*")
            return sorted(path.relative_to(content).as_posix() for path in sources if path.suffix in _SOURCES)
        altered.update(altered_objects(old, new))
    return sorted({source for name in altered if (source := _source_of(name, content))})


def functions_of_files(code: CodeMap | None, content: Path, globs: Sequence[str]) -> set[str]:
    """The functions of the objects that were compiled from a tree's files of these names. `content`: the tree's
    folder.
    """
    if code is None or not globs:
        return set()
    files = {name: _source_of(name, content) for name in code.objects}
    covered = [name for name, file in files.items() if any(fnmatch.fnmatchcase(file, glob) for glob in globs)]
    return {function for name in covered for function in code.objects[name].functions}


def _source_of(name: str, content: Path) -> str:
    """The file of the tree that an object of a build was compiled from; empty for none."""
    path = name.removeprefix(f"{COMPILED_IN}/").removesuffix(".o")
    return next((f"{path}{suffix}" for suffix in _SOURCES if (content / f"{path}{suffix}").is_file()), "")
