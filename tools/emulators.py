"""Compiles the pinned emulators, and packs them into the wheel `plumbline-emulators` and its source archive.

    python -m tools.emulators FOLDER [QEMU-NAME…]

Without names it packs every emulator that a target uses. The wheel is for this kind of machine, with a C library that
is not older than what the programs ask for. Plumbline takes its emulators where their identity is that of its own
sources (harness.build.sources.emulator_wheel).
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

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from harness.build import qemu_user
from harness.build.qemu_user import QEMU_FOLDER, Emulators, Qemu, qemu_changes, qemu_key
from harness.build.sources.archives import Fetcher
from harness.build.sources.emulator_wheel import DISTRIBUTION, IDENTITY, PACKAGE, PROGRAMS, EmulatorWheel
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import sha256_of
from harness.core.errors import UsageError
from harness.core.processes import process
from harness.core.progress import Progress
from harness.core.strict_toml import ROOT, read_toml
from harness.plan.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TEMPLATE = ROOT / "ci" / "emulators"
BUILD_SECONDS = 300.0
OLDEST_C_LIBRARY = (2, 17)
"""The oldest that a tag of Linux wheels names (PEP 600)."""


def write_wheel(programs: Mapping[str, Path], folder: Path) -> Path:
    """Pack compiled emulators, by QEMU's name of the emulated processor, into a wheel in a folder. Returns its path."""
    qemu = read_toml(QEMU_FOLDER / "qemu.toml", Qemu)
    identity = EmulatorWheel(
        key=qemu_key(qemu),
        qemu=qemu.version,
        archive=qemu.sha256,
        configure=qemu.configure,
        changes=qemu_changes(),
        machine=platform.machine(),
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
        (project / "tag.txt").write_text(f"py3-none-manylinux_{major}_{minor}_{platform.machine()}\n", "utf-8")
        process.run_successfully(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder.absolute()],
            problem="the wheel of the emulators cannot be made",
            deadline_seconds=BUILD_SECONDS,
            folder=project,
            environment=os.environ,
        )
    (wheel,) = folder.glob(f"{PACKAGE}-*_{platform.machine()}.whl")
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
    qemu = read_toml(QEMU_FOLDER / "qemu.toml", Qemu)
    archive = fetcher.archive(f"qemu-{qemu.version}", qemu.sha256, qemu.places)
    path = folder / f"{DISTRIBUTION}-{importlib.metadata.version('plumbline')}-source.tar"
    with tarfile.open(path, "w") as source:
        source.add(archive, archive.name, filter=_without_owner)
        source.add(QEMU_FOLDER, "toolchains/qemu", filter=_without_owner)
        source.add(Path(qemu_user.__file__), "harness/build/qemu_user.py", filter=_without_owner)
    return path


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same member on every machine: each of those that build the emulators makes this archive."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def main(words: Sequence[str]) -> int:
    """Write the wheel and the source archive into a folder, and print their paths."""
    if not words:
        raise UsageError("no folder is named", where="tools.emulators", remedy="python -m tools.emulators FOLDER")
    folder, names = Path(words[0]), set(words[1:])
    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress()
    fetcher = Fetcher(Cache.default(), progress)
    specs = [one.emulator for one in Catalog().targets.values() if one.emulator.is_qemu_user]
    chosen = [spec for spec in specs if not names or spec.qemu in names]
    if unknown := names - {spec.qemu for spec in specs}:
        raise UsageError(f"no target uses {', '.join(sorted(unknown))}", where="tools.emulators")
    programs = Emulators(Cache.default(), fetcher, progress).prepare(chosen)
    for path in (write_wheel(programs, folder), write_source(fetcher, folder)):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
