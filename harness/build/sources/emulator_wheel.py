"""Finds the emulators of an installed `plumbline-emulators`, which saves compiling them.

tools.emulators makes that wheel. Its emulators are used only if their key equals that of these sources: the same
archive of QEMU, the same changes, the same options. They must be for the host, have the digest in the wheel, and start
on the host. The canaries of a run verify them like compiled ones.
"""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.digests import sha256_of
from harness.core.errors import PlumblineError
from harness.core.model import Name, Record
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "plumbline_emulators"
DISTRIBUTION = "plumbline-emulators"
IDENTITY = "identity.json"
PROGRAMS = "bin"
"""The folder of the package that holds `qemu-NAME`."""
START_SECONDS = 60.0


class EmulatorWheel(Record, frozen=True):
    """identity.json of the wheel: what its emulators were built from, and for which machine."""

    key: str
    """harness.build.emulators.qemu_source.qemu_key of the sources that built them."""
    qemu: str
    """QEMU's release."""
    archive: str
    """SHA-256 of QEMU's source archive."""
    configure: list[str]
    changes: dict[str, str]
    """Plumbline's file below toolchains/qemu -> its SHA-256."""
    machine: str
    """The processor that runs them, in the words of `uname --machine`."""
    programs: dict[Name, str]
    """QEMU's name of the emulated processor -> SHA-256 of its emulator."""


class WheelSearch(msgspec.Struct, frozen=True):
    """The required emulators that an installed wheel contains."""

    programs: dict[str, Path]
    """QEMU's name of the emulated processor -> the usable emulator."""
    problem: str = ""
    """Why the others cannot be used. Empty if all can, or no wheel is installed."""


def search(key: str, names: Sequence[str]) -> WheelSearch:
    """Look in the installed wheel for the emulators of a key. Starts each of them once."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return WheelSearch({})
    return _search(Path(spec.origin).parent, key, names)


def _search(folder: Path, key: str, names: Sequence[str]) -> WheelSearch:
    try:
        wheel = json_codec.decode((folder / IDENTITY).read_bytes(), EmulatorWheel)
    except (OSError, msgspec.DecodeError) as error:
        return WheelSearch({}, f"{folder / IDENTITY} cannot be read ({error})")
    if wheel.key != key:
        return WheelSearch(
            {}, f"they were built from other sources or with other options (their key is {wheel.key}, not {key})"
        )
    if wheel.machine != platform.machine():
        return WheelSearch({}, f"they run on {wheel.machine}, and this is {platform.machine()}")
    found: dict[str, Path] = {}
    problems = []
    for name in names:
        program = folder / PROGRAMS / f"qemu-{name}"
        if problem := _problem(wheel, name, program):
            problems.append(problem)
        else:
            found[name] = program
    return WheelSearch(found, "; ".join(problems))


def _problem(wheel: EmulatorWheel, name: str, program: Path) -> str:
    if name not in wheel.programs:
        return f"none is for {name}"
    try:
        if sha256_of(program) != wheel.programs[name]:
            return f"{program} is damaged: its digest is not the one in {IDENTITY}"
        result = process.run([program, "--version"], deadline_seconds=START_SECONDS)
    except (OSError, PlumblineError) as error:
        return f"{program} does not start here ({error})"
    # The loader says which library it lacks.
    return "" if result.code == 0 else f"{program} does not start here ({result.text.strip()})"
