"""Determines from a program's file for which machine it is compiled, and whether a command can execute it."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ELF_MAGIC = b"\x7fELF"


def header_of(path: Path) -> tuple[int, int, int] | None:
    """Class, byte order and machine of an ELF file; None for any other file."""
    with path.open("rb") as stream:
        start = stream.read(20)
    if len(start) < 20 or not start.startswith(_ELF_MAGIC):
        return None
    return start[4], start[5], int.from_bytes(start[18:20], "big" if start[5] == 2 else "little")


def _machine_name(number: int) -> str:
    """The name of a machine by its number in ELF, `EM_AARCH64`; the number itself if it is unknown."""
    from elftools.elf.enums import ENUM_E_MACHINE  # noqa: PLC0415 - a large table, for a message

    return next((name for name, value in ENUM_E_MACHINE.items() if value == number), f"machine {number}")


def described_header(header: tuple[int, int, int]) -> str:
    """A header as text, `EM_MIPS, 32 bits, little-endian`: programs of one machine may differ in one of the three."""
    bits = {1: "32", 2: "64"}.get(header[0], "unknown")
    order = {1: "little-endian", 2: "big-endian"}.get(header[1], "of unknown byte order")
    return f"{_machine_name(header[2])}, {bits} bits, {order}"


def check_command(words: Sequence[str], environment: Mapping[str, str], folder: Path) -> Path:
    """The file that a command executes. Raises UsageError for one that is missing, or whose interpreter is.

    It needs no compiler and no emulator of the target, so a misspelt name is reported before they are made.
    """
    name = words[0]
    found = shutil.which(name if "/" not in name else str(folder / name), path=environment.get("PATH"))
    if found is None:
        is_there = "/" in name and (folder / name).exists()
        raise UsageError(
            f"{name} cannot be executed" if is_there else f"there is no program {name}",
            where="PROGRAM",
            because=f"its mode does not allow it: chmod +x {shlex.quote(name)}" if is_there else "",
            remedy="" if is_there else "name it by its path, or see what is on your PATH",
        )
    path = Path(found)
    try:
        first = path.open("rb").readline(256) if header_of(path) is None else b""
    except OSError as error:
        raise UsageError(f"{name} cannot be read", where="PROGRAM", because=error.strerror or str(error)) from error
    if first.startswith(b"#!"):
        interpreter = Path(os.fsdecode(first[2:].split()[0])) if first[2:].split() else Path("#!")
        if not (folder / interpreter).is_file():
            raise UsageError(
                f"the interpreter of {name} does not exist",
                where="PROGRAM",
                because=f"its first line names {interpreter}",
            )
    return path
