"""What the emulator refuses under `strict` is what -fsanitize=alignment, which knows C alone, refuses in one program.

The compiler decides by a pointer's type, and the emulator by the instruction. Where an instruction moves less than the
type, only the compiler sees that the type is misaligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.core.target_model import ORACLE
from harness.plan.catalog import Catalog
from tests.end_to_end import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

SOURCE = ROOT / "tests" / "data" / "faults" / "typed.c"
SANITIZER = ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
CATALOG = Catalog()
BY_WORDS = {name: {"load-dword", "store-dword"} for name in ("mips", "powerpc")}
"""What 32-bit machines without instructions for 8 bytes move by words."""


def refused(name: str, folder: Path, flags: list[str]) -> set[tuple[str, int]]:
    """The accesses and offsets that are refused on a target under `strict`."""
    target = CATALOG.targets[name]
    program = folder / f"typed-{name}"
    compiler = toolchain.tool(CATALOG.toolchain_of(target), "gcc")
    warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    command = [compiler, str(SOURCE), *target.compiler_flags, "-O0", *warnings, *flags, "-o", str(program)]
    process.run_successfully(command, problem="it does not compile", deadline_seconds=120)
    result = process.run(machines.runner(name, "strict").command(program, []), deadline_seconds=120)
    assert result.code == 0, result.text
    lines = [line.split() for line in result.text.splitlines()]
    assert len(lines) == 10 * 16
    return {(access, int(offset)) for access, offset, outcome in lines if outcome == "refused"}


@pytest.mark.parametrize("name", [*machines.REQUIRED, *map(machines.beyond, ("mips", "powerpc", "riscv64", "s390x"))])
def test_strict_refuses_what_the_sanitizer_refuses(name: str, tmp_path: Path) -> None:
    types = refused(ORACLE, tmp_path, SANITIZER)
    assert len(types) == 2 * (8 + 12 + 14 + 12 + 14)
    by_words = {(access, offset) for access, offset in types if access in BY_WORDS.get(name, ()) and offset % 4 == 0}
    assert refused(name, tmp_path, []) == types - by_words
