"""Libraries of a target that Debian has no packages for: its source packages, built and installed into a root folder.

They are built one after the other, in the order in which they are named, so that each one finds those before it. Their
tests do not run. The root folder has the compiler's own C library.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.build.emulators.guest_root import guest_root
from harness.build.sources.closed_root import close_links, empty_loader_cache
from harness.build.sources.debian_source import SourcePackages, source_named
from harness.build.sources.library_packages import SUITE
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError, UsageError
from harness.core.processes import process
from harness.workflows.programs import build_system, debian_rules
from harness.workflows.programs.cross_environment import COMPILERS, cross_environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.sources.debian_source import SourcePackage
    from harness.core.target_model import Target, Toolchain
    from harness.workflows.workbench import Workbench

BUILD_SECONDS = 3600
ROOT_FOLDER = "root"


def is_built(target: Target, tools: Toolchain) -> bool:
    """Whether a target's libraries must be built: Debian has none that its programs can be linked with.

    Its packages for 32-bit ARM have a `time_t` of 32 bits in bookworm, the suite of the compilers.
    """
    has_packages = bool(tools.debian_architecture) and tools.debian_since == SUITE
    return not has_packages or target.time_bits > target.width_bits


def built_root(bench: Workbench, target: Target, names: Sequence[str]) -> Path:
    """The root folder with libraries that were built for a target, from the cache if possible.

    `names`: of source packages, or of binary packages that they build; each may have a suite and a version.

    Raises UsageError for one that Debian lacks or that no known build system builds, and InfrastructureError if a
    source cannot be fetched or does not build for the target.
    """
    tools = bench.catalog.toolchain_of(target)
    sources = SourcePackages(bench.cache, bench.progress, offline=bench.offline)
    packages = [_source_of(sources, name) for name in dict.fromkeys(names)]
    compilers = [toolchain.identity(tools, name) for name in COMPILERS.values()]
    titles = [one.title for one in packages]
    # What a script says decides what is installed.
    scripts = [_script(one, tools.triple, {}) for one in build_system.SYSTEMS]
    key = key_of([target.name, *target.compiler_flags, *compilers, *titles, *scripts])

    def fill(into: Path) -> None:
        root = into / ROOT_FOLDER
        shutil.copytree(guest_root(bench.cache, tools), root, symlinks=True)
        empty_loader_cache(root)
        bench.progress.say(f"Debian has no libraries for {target.name}: {', '.join(titles)} are built for it first")
        for package in packages:
            _install(bench, target, tools, sources, package, into / "tree", root)

    return bench.cache.folder("built-libraries", f"{target.name}-{key}", fill) / ROOT_FOLDER


def _source_of(sources: SourcePackages, name: str) -> SourcePackage:
    try:
        return sources.resolve(sources.building(source_named(name)))
    except UsageError as error:
        raise UsageError(error.what, where="--with", because=error.because, remedy=error.remedy) from error


def _install(
    bench: Workbench,
    target: Target,
    tools: Toolchain,
    sources: SourcePackages,
    package: SourcePackage,
    tree: Path,
    root: Path,
) -> None:
    """Build a package in a new folder, which is then removed, and install it into the root folder."""
    sources.unpack(package, tree)
    found = build_system.detect(tree)
    script = tree.with_name("build-and-install.sh")
    script.write_text(_script(found.system, tools.triple, debian_rules.variables_of_rules(tree)), "utf-8")
    environment = {
        **process.PLAIN_ENVIRONMENT,
        **cross_environment(bench.cache, target, tools, root),
        "DESTDIR": str(root),
    }
    with bench.progress.stage("build", f"building {package.title} for {target.name}"):
        process.run_successfully(
            ["sh", script],
            problem=f"{package.title} does not build for {target.name}",
            where="--with",
            remedy="build it yourself, and name the folder that it is installed in: --sysroot FOLDER",
            deadline_seconds=tools.deadline_seconds(BUILD_SECONDS),
            folder=tree / found.folder,
            environment=environment,
        )
    # Those of libtool name the folder without the root, where the host may have another library.
    for file in (root / "usr").rglob("*.la"):
        file.unlink()
    close_links(root, root / "usr")
    shutil.rmtree(tree)
    if not any((root / "usr").rglob("*.h")):
        raise InfrastructureError(
            f"{package.title} installs no header file",
            where="--with",
            because=f"its build system, {found.system.name}, put none below /usr",
            remedy="build it yourself, and name the folder that it is installed in: --sysroot FOLDER",
        )


def _script(system: build_system.BuildSystem, triple: str, variables: dict[str, str]) -> str:
    return build_system.installing_script(system, f"lib/{triple}", variables)
