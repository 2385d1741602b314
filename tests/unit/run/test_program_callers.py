"""The record of what ran the programs that failed, as the tracer writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.record import program_launch
from harness.run.programs.program_callers import Caller, read_callers

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN = b"3\x001\x00/tree\x003\x00sh\x00-c\x00./t\n\xff\x001\x000\x00\x000\x00"


def test_the_callers_have_their_words_and_ends(tmp_path: Path) -> None:
    (tmp_path / program_launch.CALLERS).write_bytes(WRITTEN)
    (tmp_path / program_launch.CALLER_ENDS).write_text(
        "3 exited 0 5 4 143\n9 exited 0 6 0 0\nno end\n1 killed 15 7 0 0\n", "utf-8"
    )
    assert read_callers(tmp_path) == {
        3: Caller(
            caller=1,
            folder="/tree",
            words=["sh", "-c", "./t\n\udcff"],
            how="exited",
            number=0,
            ended_ms=5,
            last=4,
            last_status=143,
        ),
        1: Caller(caller=0, folder="", words=[], how="killed", number=15, ended_ms=7),
    }


@pytest.mark.parametrize(
    "content",
    [
        WRITTEN[:-2],
        WRITTEN.replace(b"\x001\x000\x00", b"\x00x\x000\x00"),
        WRITTEN.replace(b"\x000\x00\x00", b"\x001\x00\x00"),
    ],
)
def test_what_is_damaged_is_left_out(tmp_path: Path, content: bytes) -> None:
    """A number that is cut or is none, and a process that made itself."""
    (tmp_path / program_launch.CALLERS).write_bytes(content)
    assert list(read_callers(tmp_path)) == [3]


def test_a_cell_without_the_record_has_none(tmp_path: Path) -> None:
    assert read_callers(tmp_path) == {}
