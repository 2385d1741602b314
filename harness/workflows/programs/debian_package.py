"""A source package of Debian, built for a target and tested with every program of the target emulated: plumb deb."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING

import msgspec

from harness.build.sources.debian_source import SourcePackages, source_named
from harness.core.errors import ExitCode, UsageError
from harness.core.processes import process
from harness.workflows.programs import build_system, debian_rules, execution
from harness.workflows.target_setup import emulated_target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.sources.debian_source import SourcePackage
    from harness.judge.findings import Judgement
    from harness.workflows.programs.execution import Execution
    from harness.workflows.workbench import Workbench

SCRIPT = "build-and-test.sh"
"""FOLDER/build-and-test.sh: how the package is built and tested. Its tree is beside it."""


class PreparedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package's tree, ready to be built."""

    package: SourcePackage
    folder: Path
    system: str
    """The name of its build system."""

    @property
    def tree(self) -> Path:
        """The package's tree, Debian's patches applied."""
        return self.folder / self.package.tree_name

    @property
    def words(self) -> list[str]:
        """The command that builds and tests it, in the tree."""
        return ["sh", f"../{SCRIPT}"]


def prepare(
    bench: Workbench,
    text: str,
    target: str,
    *,
    into: Path | None,
    here: Path,
    system: str = "",
    options: Sequence[str] = (),
    make: Sequence[str] = (),
) -> PreparedPackage:
    """Fetch a package, unpack it and find out how it is built.

    `into`: a new or empty folder; by default PACKAGE-VERSION-TARGET in `here`. `options`: of its configuration. `make`:
    further words for make.

    Raises UsageError for an unknown package or target, for a folder that is not empty, and for a tree without a known
    build system; InfrastructureError if the host lacks a tool or the archive lacks the package.
    """
    emulated_target(bench.catalog, target)
    packages = SourcePackages(bench.cache, bench.progress, offline=bench.offline)
    package = packages.resolve(source_named(text))
    folder = into or here / f"{package.file_name}-{target}"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "the folder for the package's tree is not empty",
            where=str(folder),
            because="the package is unpacked and built in a new one",
            remedy=f"rm -r {shlex.quote(str(folder))}, or name another: --into FOLDER",
        )
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    try:
        packages.unpack(package, tree := folder / package.tree_name)
    except BaseException:
        # Another attempt must not meet an empty folder.
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    found = build_system.detect(tree, system)
    variables = debian_rules.variables_of_rules(tree)
    steps = debian_rules.steps_of_rules(tree)
    script = build_system.script_of(found.system, options, found.folder, variables, make, steps)
    (folder / SCRIPT).write_text(script, "utf-8")
    bench.progress.say(f"{package.title} is built by {found.system.name} in {tree / found.folder}")
    return PreparedPackage(package=package, folder=folder, system=found.system.name)


def execute(bench: Workbench, prepared: PreparedPackage, asked: Execution) -> tuple[Judgement, ExitCode]:
    """Build and test a prepared package, and judge. Raises as `execution.execute` does."""
    of_tests = msgspec.structs.replace(asked, counts_from=prepared.folder / build_system.TESTING)
    judgement, code = execution.execute(bench, of_tests)
    package = prepared.package
    remarks = [f"the package is {package.title} of Debian, built by {prepared.system}"]
    if told := build_system.STAGES.get(_stage(prepared.folder), ""):
        remarks.append(told)
    if code != ExitCode.PASS and (lacking := lacking_tools(prepared.tree)):
        remarks.append(
            f"{LACKING} {', '.join(lacking)}; to install them: {build_system.SHOWN_TOOLS} {' '.join(lacking)}"
        )
    return msgspec.structs.replace(judgement, remarks=[*remarks, *judgement.remarks]), code


def lacking_tools(tree: Path) -> list[str]:
    """The packages with which Debian builds and tests a tree and that are not installed here, without libraries.

    Those with which Debian makes its own packages are left out. Empty if dpkg-checkbuilddeps cannot tell.
    """
    if shutil.which(_CHECKER) is None:
        return []
    told = process.run([_CHECKER, "debian/control"], deadline_seconds=CHECK_SECONDS, folder=tree).text
    found = _UNMET.search(told)
    names = re.findall(r"[a-z0-9][a-z0-9.+-]+", re.sub(r"\([^)]*\)|:\w+|\|\s*\S+", " ", found[1])) if found else []
    return [name for name in names if not _OF_DEBIAN.fullmatch(name)]


LACKING = "Debian builds it with programs that are not installed here:"
CHECK_SECONDS = 60
_CHECKER = "dpkg-checkbuilddeps"
_UNMET = re.compile(r"unmet build dependencies: (.*)", re.IGNORECASE)
_OF_DEBIAN = re.compile(r".*-dev|debhelper.*|(?:dh|dpkg)-.*|dh|quilt")
"""Libraries, which `--with` fetches, and the tools of debian/rules, which nothing here calls."""


def _stage(folder: Path) -> str:
    path = folder / build_system.STAGE
    return path.read_text("utf-8", "replace").strip() if path.is_file() else ""
