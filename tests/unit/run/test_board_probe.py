"""A board's probe tells what the machine is, and how that differs from the target."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import InfrastructureError
from harness.plan.board import Board
from harness.plan.catalog import Catalog
from harness.run.boards.board_image import BoardImage
from harness.run.boards.board_probe import contradictions, probe_with_its_compiler, read_facts
from harness.run.boards.reached_machine import ReachedMachine

if TYPE_CHECKING:
    from pathlib import Path

TOLD = """endianness big
width_bits 64
time_bits 64
char signed
page_size_bytes 8192
kernel SunOS 5.11 illumos
machine sun4v
odd-load signal 10
"""


def test_what_a_probe_tells_is_compared_with_the_target() -> None:
    facts, targets = read_facts(TOLD), Catalog().targets
    assert (facts.machine, facts.odd_load, facts.libc, facts.processor) == ("sun4v", "signal 10", "", "")
    assert contradictions(facts, targets["sparc64"]) == []
    assert contradictions(facts, targets["armv6"]) == [
        "its endianness is big, and that of armv6 is little",
        "its width_bits is 64, and that of armv6 is 32",
        "its page_size_bytes is 8192, and that of armv6 is 4096",
    ]


@pytest.mark.parametrize("text", ["", "exec format error\n", TOLD.replace("64", "many"), TOLD.replace("char", "chart")])
def test_a_probe_that_does_not_tell_all_is_an_error(text: str) -> None:
    with pytest.raises(InfrastructureError, match="did not say what the machine is"):
        read_facts(text)


def test_the_machines_own_compiler_compiles_the_probe(tmp_path: Path) -> None:
    board = Board(start=["env"], target="armv5", words="exact", folder=str(tmp_path))
    host = ReachedMachine(BoardImage(board=board, file="my.toml", environment=dict(os.environ)))
    try:
        facts = probe_with_its_compiler(host)
    finally:
        host.close()
    kernel = os.uname()
    assert (facts.machine, facts.page_size_bytes) == (kernel.machine, os.sysconf("SC_PAGESIZE"))
    assert facts.kernel == f"{kernel.sysname} {kernel.release} {kernel.version}"
    assert list(tmp_path.iterdir()) == []
