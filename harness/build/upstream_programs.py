"""Builds the programs that upstream's own tests run on a target: every program of the release, and the modules of its
tests.

The makefile's goal `all` names the programs, because the names differ from release to release. A release whose test
modules do not compile keeps its programs: only the tests of modules are then without them.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from harness.build.server_build import build_name
from harness.core.cache import disk_errors

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.server_build import Builder
    from harness.build.workshop.build_directory import BuildDirectory
    from harness.build.workshop.build_plan import BuildPlan
    from harness.core.cache import Cache
    from harness.core.model import Build

RECIPE = "1"
"""Part of every product's identity: raise it when this module changes how it builds."""
MODULES = "tests/modules"


def build_upstream(builder: Builder, plan: BuildPlan) -> Path:
    """Every program of a tree for a target, from the cache if possible: src/, and tests/modules with the modules.

    Raises BuildFailedError if they do not compile, and InfrastructureError without a compiler.
    """
    key = f"{build_name(plan)}-{RECIPE}"

    def compile_into(into: Path) -> None:
        what = f"the programs of {plan.title}, for its own tests,"
        with builder.workshop(plan, what=what, kind="programs") as shop:
            shop.make_server()
            _make_programs(shop)
            if not _make_modules(shop):
                builder.progress.say(f"{plan.title}: some modules of its own tests do not compile")
            with disk_errors(into):
                _publish(shop, into)

    return builder.cache.folder("upstream-programs", key, compile_into)


def server_program(cache: Cache, build: Build) -> Path:
    """The server of a build and nothing else, as `build_upstream` leaves programs: for files that start no other."""

    def copy_into(into: Path) -> None:
        with disk_errors(into):
            (into / "src").mkdir()
            shutil.copy2(build.server_binary, into / "src")

    return cache.folder("upstream-programs", f"{build.key}-server-{RECIPE}", copy_into)


def _make_programs(shop: BuildDirectory) -> None:
    result = shop.make(["all"])
    needed = [f"{shop.server.family}-{name}" for name in ("server", "cli", "benchmark")]
    missing = [name for name in needed if not (shop.tree / "src" / name).is_file()]
    if missing:
        raise shop.failure(result, missing=missing)


def _make_modules(shop: BuildDirectory) -> bool:
    """Compile the modules of the tests. Returns whether all compile; also true for an old release without modules."""
    if not (shop.tree / MODULES / "Makefile").is_file():
        return True
    compiler = shop.work / "gcc"
    command = ["make", f"-j{os.cpu_count() or 1}", "--keep-going", "-C", MODULES, f"CC={compiler}", f"LD={compiler}"]
    return shop.run([*command, "uname_S=Linux", f"uname_M={shop.target.machine}"]).code == 0


def _publish(shop: BuildDirectory, into: Path) -> None:
    (into / "src").mkdir()
    for path in sorted((shop.tree / "src").iterdir()):
        if path.is_file() and _is_program(path):
            shutil.copy2(path, into / "src")
    modules = sorted((shop.tree / MODULES).glob("*.so"))
    if modules:
        (into / MODULES).mkdir(parents=True)
        for path in modules:
            shutil.copy2(path, into / MODULES)


def _is_program(path: Path) -> bool:
    """Whether a file is an executable ELF file, and not one of the release's scripts or libraries."""
    with path.open("rb") as stream:
        return os.access(path, os.X_OK) and stream.read(4) == b"\x7fELF" and path.suffix == ""
