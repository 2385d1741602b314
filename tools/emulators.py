"""Compiles the pinned emulators, and packs them into the wheel `plumbline-emulators` and its source archive.

    python -m tools.emulators [--host MACHINE] FOLDER [QEMU-NAME…]

Without names it packs every emulator that a target uses. The wheel is for this kind of machine, or for that of --host,
such as aarch64, whose cross compiler must be here. Its C library must not be older than what the programs ask for.
Plumbline takes its emulators where their identity is that of its own sources (harness.build.sources.emulator_wheel).
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from harness.build.emulators import compilation, qemu_source
from harness.build.emulators.compilation import CrossHost
from harness.build.emulators.emulator_cache import Emulators
from harness.build.emulators.qemu_source import QEMU_FOLDER, pinned_qemu, qemu_changes, qemu_key
from harness.build.sources.archives import Fetcher
from harness.build.sources.emulator_wheel import DISTRIBUTION, IDENTITY, PACKAGE, PROGRAMS, EmulatorWheel
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import sha256_of
from harness.core.errors import UsageError
from harness.core.processes import process
from harness.core.progress import Progress
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TEMPLATE = ROOT / "ci" / "emulators"
BUILD_SECONDS = 300.0
CROSS_COMPILED = {"aarch64": "gcc-aarch64-linux-gnu"}
"""Processor of a machine that Plumbline runs on -> the toolchain that compiles for it here."""
OLDEST_C_LIBRARY = (2, 17)
"""The oldest that a tag of Linux wheels names (PEP 600)."""


def write_wheel(programs: Mapping[str, Path], folder: Path, machine: str = "") -> Path:
    """Pack compiled emulators, by QEMU's name of the emulated processor, into a wheel in a folder. Returns its path.

    `machine`: the architecture of the hosts that will run them, as uname(2) names it; empty: this host's.
    """
    machine = machine or platform.machine()
    qemu = pinned_qemu()
    identity = EmulatorWheel(
        key=qemu_key(qemu),
        qemu=qemu.version,
        archive=qemu.sha256,
        configure=qemu.configure,
        changes=qemu_changes(),
        machine=machine,
        programs={name: sha256_of(program) for name, program in sorted(programs.items())},
    )
    with tempfile.TemporaryDirectory(prefix="plumbline-") as place:
        project = Path(place) / "project"
        shutil.copytree(TEMPLATE, project, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(QEMU_FOLDER / "COPYING", project)
        package = project / PACKAGE
        (package / PROGRAMS).mkdir(parents=True)
        text = f'"""The emulators of Plumbline."""\n\n__version__ = "{importlib.metadata.version("plumbline")}"\n'
        (package / "__init__.py").write_text(text, "utf-8")
        (package / IDENTITY).write_bytes(json_codec.pretty(identity))
        for name, program in programs.items():
            shutil.copy(program, package / PROGRAMS / f"qemu-{name}")
        major, minor = c_library(programs.values())
        (project / "tag.txt").write_text(f"py3-none-manylinux_{major}_{minor}_{machine}\n", "utf-8")
        process.run_successfully(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder.absolute()],
            problem="the wheel of the emulators cannot be made",
            deadline_seconds=BUILD_SECONDS,
            folder=project,
            environment=os.environ,
        )
    (wheel,) = folder.glob(f"{PACKAGE}-*_{machine}.whl")
    return wheel


def c_library(programs: Iterable[Path]) -> tuple[int, int]:
    """The GNU C library's oldest version that has everything that programs ask of it."""
    needed = OLDEST_C_LIBRARY
    for program in programs:
        with program.open("rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if not isinstance(section, GNUVerNeedSection):
                    continue
                for _, versions in section.iter_versions():
                    names = [one.name for one in versions if one.name.startswith("GLIBC_2")]
                    needed = max([needed, *((2, int(name.split(".")[1])) for name in names)])
    return needed


def write_source(fetcher: Fetcher, folder: Path) -> Path:
    """The complete source of the emulators: QEMU's archive as it was fetched, our changes, and how it is built."""
    qemu = pinned_qemu()
    archive = fetcher.archive(qemu.archive, qemu.sha256, qemu.places)
    path = folder / f"{DISTRIBUTION}-{importlib.metadata.version('plumbline')}-source.tar"
    with tarfile.open(path, "w") as source:
        source.add(archive, archive.name, filter=_without_owner)
        source.add(QEMU_FOLDER, "toolchains/qemu", filter=_without_owner)
        for file in map(Path, (qemu_source.__file__, compilation.__file__)):
            source.add(file, f"harness/build/emulators/{file.name}", filter=_without_owner)
    return path


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same member on every machine: each of those that build the emulators makes this archive."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def cross_host(catalog: Catalog, machine: str) -> CrossHost | None:
    """The kind of host that has this processor; None for that of this host.

    Raises UsageError for a processor that nothing is compiled for here.
    """
    if machine in {"", platform.machine()}:
        return None
    if machine not in CROSS_COMPILED:
        remedy = f"one of: {', '.join(CROSS_COMPILED)}; on such a machine itself, leave the option out"
        raise UsageError(f"no emulators are compiled here for {machine}", where="--host", remedy=remedy)
    tools = catalog.toolchains[CROSS_COMPILED[machine]]
    return CrossHost(machine=machine, triple=tools.triple, debian_architecture=tools.debian_architecture)


@click.command(help=__doc__)
@click.option("--host", default="", help="The processor of the machines that run the emulators.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", nargs=-1)
def main(folder: Path, names: Sequence[str], host: str) -> None:
    """Write the wheel and the source archive into a folder, and print their paths."""
    catalog, progress = Catalog(), Progress()
    specs = [one.emulator for one in catalog.targets.values() if one.emulator.is_qemu_user]
    if unknown := {*names} - {spec.qemu for spec in specs}:
        raise UsageError(f"no target uses {', '.join(sorted(unknown))}", where="tools.emulators")
    other = cross_host(catalog, host)
    folder.mkdir(parents=True, exist_ok=True)
    fetcher = Fetcher(Cache.default(), progress)
    chosen = [spec for spec in specs if not names or spec.qemu in names]
    programs = Emulators(Cache.default(), fetcher, progress, host=other).prepare(chosen)
    for path in (write_wheel(programs, folder, host), write_source(fetcher, folder)):
        click.echo(path)


if __name__ == "__main__":
    main()
