"""Lists the packages that a selection of targets needs and the host lacks, and the command that installs them."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import googletest, toolchain
from harness.build.emulators.emulator_cache import compiles
from harness.build.emulators.qemu_source import pinned_qemu
from harness.build.kernel import needed_packages as kernel_packages
from harness.build.sources.debian_archive import packages_for_sources
from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.processes import environment, process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.progress import Progress
    from harness.plan.catalog import Catalog

SUITE_PACKAGES = ["ccache", "make", "shellcheck", "tcl", "tcl8.6-dev"]
INSTALL_SECONDS = 1800
LOCK_SECONDS = 600
"""How long apt waits for another command that installs packages."""
DRIVEN_BROWSERS = ("chromium", "google-chrome")
"""Browsers that the project's own tests can drive, with keys, through BROWSER_DRIVER; any one of them is enough.
ChromeDriver does not end chromium-headless-shell, which is smaller."""
BROWSER_DRIVER = "chromedriver"
BROWSERS = ("chromium-headless-shell", *DRIVEN_BROWSERS)
"""Browsers that can open a page without input, the fastest first."""
BROWSER_PACKAGE = "chromium-driver"
"""Debian's ChromeDriver, which depends on the Chromium of its own version."""

SSH_SERVER = "/usr/sbin/sshd"
SSH_SERVER_PACKAGE = "openssh-server"
"""The machine of the tests of boards, which start it on a port of loopback. Debian's package also starts its service.
"""

GO_PACKAGE = "golang-go"
"""Compiles actionlint, the linter of the workflows, which no Debian release contains."""


DEBUGGER_PACKAGE = "gdb-multiarch"


class Diagnosis(Record, frozen=True):
    """The packages that are missing."""

    packages: list[str]
    command: str
    """The command that installs them; empty when nothing is missing."""
    useful: tuple[str, ...] = ()
    """Missing packages that no check needs. Without them some servers' self-tests are skipped, with the reason."""


def diagnose(
    catalog: Catalog,
    targets: Sequence[str],
    *,
    emulator: str,
    for_tests: bool = False,
    debugger: bool = False,
    counts: bool = False,
) -> Diagnosis:
    """Compare what these targets need with the installed packages: compilers, QEMU's build dependencies, and the tools
    that the suites run with. Without dpkg, no package counts as missing, and a missing tool fails when it is used.

    `for_tests` adds the requirements of the project's own tests. `debugger` adds a gdb that supports the targets.
    `counts` adds the emulators' packages even for native targets, whose instructions are also counted in an emulator.
    """
    if shutil.which("dpkg-query") is None:
        return Diagnosis(packages=[], command="")
    packages = {*SUITE_PACKAGES, *packages_for_sources()}
    if for_tests:
        packages.update(_test_packages())
    for name in [*targets, "native"]:
        packages.update(catalog.toolchain_of(catalog.targets[name]).packages)
    if (debugger or for_tests) and (set(targets) != {"native"} or shutil.which("gdb") is None):
        packages.add(DEBUGGER_PACKAGE)
    packages.update(_emulator_packages(catalog, targets, emulator, counts=counts))
    for name in targets:
        if machine := catalog.targets[name].emulator.machine:
            spec = catalog.kernels[machine]
            packages.update([*kernel_packages(spec), *catalog.toolchains[spec.toolchain].packages])
    missing = toolchain.missing_packages((*sorted(packages), googletest.PACKAGE))
    useful = tuple(package for package in missing if package not in packages)
    missing = [package for package in missing if package in packages]
    return Diagnosis(packages=missing, command=_command(missing), useful=useful)


def _test_packages() -> list[str]:
    """The packages that only the project's own tests need."""
    driven = any(shutil.which(name) for name in DRIVEN_BROWSERS) and shutil.which(BROWSER_DRIVER)
    browser = [] if driven else [BROWSER_PACKAGE]
    go = [] if any(shutil.which(name) for name in ("actionlint", "go")) else [GO_PACKAGE]
    ssh = [] if shutil.which("sshd") or Path(SSH_SERVER).is_file() else [SSH_SERVER_PACKAGE]
    return [*browser, *go, googletest.PACKAGE, *ssh]


def _emulator_packages(catalog: Catalog, targets: Sequence[str], emulator: str, *, counts: bool) -> list[str]:
    """The packages for the emulators of targets: a distribution's, or those that compile the pinned ones."""
    specs = [catalog.targets[name].emulator for name in targets]
    emulated = sorted({spec.qemu for spec in specs if spec.is_qemu_user})
    if not counts and not emulated:
        return []
    if emulator != "pinned":
        return ["qemu-user-static"]
    if not counts and not compiles(emulated):
        return []
    return pinned_qemu().packages


def with_useful(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis, with useful packages counted as missing."""
    packages = sorted([*diagnosis.packages, *diagnosis.useful])
    return Diagnosis(packages=packages, command=_command(packages))


def _command(packages: Sequence[str]) -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}{toolchain.install_command(packages)}" if packages else ""


def install_missing(diagnosis: Diagnosis, progress: Progress, *, install: bool) -> None:
    """Install missing packages if permitted; otherwise raises InfrastructureError with the exact command."""
    if not diagnosis.packages:
        return
    if not install:
        raise InfrastructureError(
            f"{len(diagnosis.packages)} packages are missing: {' '.join(diagnosis.packages)}", remedy=diagnosis.command
        )
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    variables = environment.for_registry(DEBIAN_FRONTEND="noninteractive")
    waits = ["-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}"]
    install_line = [*shlex.split(toolchain.install_command(diagnosis.packages)), *waits]
    with progress.stage("set-up", f"installing {len(diagnosis.packages)} packages"):
        process.run([*prefix, "apt-get", "update"], deadline_seconds=INSTALL_SECONDS, environment=variables)
        for attempt in (1, 2):
            result = process.run([*prefix, *install_line], deadline_seconds=INSTALL_SECONDS, environment=variables)
            if result.code == 0:
                break
            if attempt == 2:
                last = "\n".join(result.text.strip().splitlines()[-4:])
                raise InfrastructureError("the packages cannot be installed", because=last, remedy=diagnosis.command)
    toolchain.missing_packages.cache_clear()
