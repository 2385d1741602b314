"""Which machine a program is for, by the header of its file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from harness.run.programs.program_file import header_of

if TYPE_CHECKING:
    from pathlib import Path

WIDE, NARROW, LITTLE, BIG = 2, 1, 1, 2
ARM, AARCH64, SPARC, S390 = 40, 183, 2, 22
"""Values of elf(5)."""


@pytest.mark.parametrize(
    ("width", "order", "machine"),
    [(NARROW, LITTLE, ARM), (WIDE, LITTLE, AARCH64), (NARROW, BIG, SPARC), (WIDE, BIG, S390)],
)
def test_a_program_names_its_machine_in_its_own_byte_order(
    tmp_path: Path, width: int, order: int, machine: int
) -> None:
    head = (
        b"\x7fELF" + bytes([width, order, 1]) + bytes(9) + struct.pack("<HH" if order == LITTLE else ">HH", 2, machine)
    )
    (tmp_path / "program").write_bytes(head)
    assert header_of(tmp_path / "program") == (width, order, machine)


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\necho a longer script\n", b"\x7fELF\x01\x01\x01"])
def test_another_file_names_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert header_of(tmp_path / "file") is None
