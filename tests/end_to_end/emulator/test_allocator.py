"""On every target, the adversarial allocator guarantees what it promises and nothing more."""

from __future__ import annotations

import re
import signal
from functools import cache
from typing import TYPE_CHECKING

import pytest

from harness.analysis import allocator_log
from harness.build import allocator, toolchain
from harness.core.cache import Cache
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.record import fault_log
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.model import Allocator
    from harness.core.processes.process import Result

pytestmark = pytest.mark.end_to_end

SOURCE = ROOT / "tests" / "support" / "data" / "allocator" / "blocks.c"
PROMISED = {"native": 16, "aarch64": 16, "sparc64": 16, "armv5": 8, "armv6": 8, "armv7": 8, "sparc32plus": 8}
RUN_SECONDS = 120

every_target = pytest.mark.parametrize(
    "target", [name if name in {"native", "armv5"} else machines.beyond(name) for name in PROMISED]
)


@cache
def program(target: str) -> Path:
    """The program that queries the allocator, compiled for a target."""
    catalog = Catalog()
    found = catalog.targets[target]
    compiler = toolchain.tool(catalog.toolchain_of(found), "gcc")
    flags = [*toolchain.compiler_flags(found, "O1"), "-Wall", "-Wextra", "-Werror", "-pthread", "-Wno-use-after-free"]

    def compile_into(into: Path) -> None:
        result = process.run([compiler, str(SOURCE), *flags, "-o", str(into / "blocks")], deadline_seconds=120)
        assert result.code == 0, result.text

    key = machines.key_of_file(SOURCE, toolchain.version(compiler), *flags)
    return Cache.default().folder("test-programs", f"blocks-{target}-{key}", compile_into) / "blocks"


def ask(target: str, *words: str, chosen: Allocator = "guard", log: Path | None = None) -> Result:
    """Query an allocator on a target."""
    catalog = Catalog()
    found = catalog.targets[target]
    preload = allocator.preloaded(Cache.default(), found, catalog.toolchain_of(found), chosen)
    command = machines.runner(target).command(program(target), words, log, preload=preload)
    return process.run(command, deadline_seconds=RUN_SECONDS)


def answer(result: Result) -> str:
    """The program's output, without the allocator's own line."""
    return re.sub(r"plumbline-guard: .*\n", "", result.text)


@every_target
def test_blocks_have_the_promised_alignment_and_no_more(target: str) -> None:
    assert answer(ask(target, "promised")) == str(PROMISED[target])
    for size in ("1", "16", "64", "4096", "100000"):
        assert answer(ask(target, "least", size)) == str(PROMISED[target]), f"of {size} bytes"


@pytest.mark.parametrize(
    ("size", "least"), [(1, 1), (2, 2), (3, 2), (5, 4), (8, 8), (15, 8), (16, 16), (100, 16), (9000, 16)]
)
def test_the_natural_allocator_aligns_as_an_object_of_the_size_may_require(size: int, least: int) -> None:
    for target in ("native", "sparc32plus"):
        expected = min(least, PROMISED[target])
        assert answer(ask(target, "least", str(size), chosen="guard-natural")) == str(expected), target


@every_target
@pytest.mark.parametrize("question", ["inside", "contents", "aligned", "together"])
def test_it_behaves_as_an_allocator(target: str, question: str) -> None:
    for chosen in allocator.FLAGS:
        result = ask(target, question, chosen=chosen)
        assert result.code == 0, f"{chosen}: status {result.code}: {result.text}"


@every_target
@pytest.mark.parametrize("size", [32, 1024, 4096, 65536])
def test_one_byte_beyond_a_block_faults(target: str, size: int, tmp_path: Path) -> None:
    """With libc's allocator the same program succeeds."""
    assert ask(target, "beyond", str(size), chosen="libc").code == 0
    log = tmp_path / "faults.jsonl"
    result = ask(target, "beyond", str(size), log=log)
    assert abs(result.code) in {signal.SIGSEGV, 128 + signal.SIGSEGV}, result.text
    if target != "native":
        (fault,) = fault_log.read_faults(log)
        assert any(fault.address in one for one in allocator_log.block_ranges(result.output)), (
            f"{fault.address:#x}: {result.text}"
        )


@every_target
def test_a_freed_block_is_unmapped_or_overwritten(target: str) -> None:
    assert ask(target, "freed", "100000", chosen="libc").code == 0
    assert abs(ask(target, "freed", "100000").code) in {signal.SIGSEGV, 128 + signal.SIGSEGV}
    twice = ask(target, "twice", "100")
    assert "is no block, or not any more" in twice.text
    assert twice.code not in {0, 2}


@pytest.mark.parametrize("target", ["native", "armv5", machines.beyond("sparc64")])
def test_more_blocks_than_guard_pages_keep_their_content(target: str) -> None:
    """Some blocks then have no guard page, and the program succeeds although it reads beyond a block."""
    result = ask(target, "many")
    assert result.code == 0, result.text
