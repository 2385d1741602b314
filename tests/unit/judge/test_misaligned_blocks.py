"""An allocator that misaligns every block is one finding, and every other misaligned access keeps its own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Literal

import hiredis.hiredis
import pytest

from harness.core.errors import ExitCode
from harness.core.finding import Access
from harness.judge.misaligned_blocks import IDENTITY, misalignment_of
from harness.judge.sightings.heap_accesses import heap_address, memory_size
from harness.record import fault_log
from harness.report.misaligned_sites import sites
from tests.support.fakes import fault
from tests.support.stored import StoredRun, concluded, entry

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding

pytestmark = pytest.mark.usefixtures("fake_symbols")

POSITION_INDEPENDENT = hiredis.hiredis.__file__
"""An ELF file whose memory begins at 0 and ends after the servers' mapping. That of Debian's own Python begins at
0x400000, which is then added to each place.
"""
BLOCKS = tuple(0x40000004 + 8 * number * (number % 3 + 1) for number in range(40))
"""At 4 mod 8: some at 4 and some at 12 mod 16."""
HEAP = 0x40000104
OTHER_HEAP = 0x40000101
STACK = 0x7004
"""Near the stack pointer of the fault records."""
STATIC = 0x100004
"""After the binary's mapping, in the data that its file does not contain."""


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (BLOCKS, (4, 8)),
        (tuple(range(0, 1600, 16)), (0, 1)),
        (tuple(range(8, 1600, 16)), (8, 16)),
        (tuple(range(2, 400, 4)), (2, 4)),
        (tuple(range(100)), (0, 1)),
        (BLOCKS[:15], (0, 1)),
        (BLOCKS[:1] * 40, (0, 1)),
        ((), (0, 1)),
    ],
)
def test_blocks_have_a_misalignment_in_common_or_none(addresses: tuple[int, ...], expected: tuple[int, int]) -> None:
    assert misalignment_of(addresses) == expected


class Accesses:
    """A run on ARMv5 whose functions access eight bytes at some addresses."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        run.canary("armv5")
        run.blocks["armv5", "bitops"] = BLOCKS
        self._guests = 0

    def at(
        self,
        function: str,
        *addresses: int,
        size: int = 8,
        target: str = "armv5",
        event: Literal["fault", "access"] = "fault",
    ) -> None:
        pc = self.run.place(target, function)
        shutil.copy(POSITION_INDEPENDENT, self.run.binary(target))
        for address in addresses:
            self._guests += 1
            record = fault(pc=pc, address=address, access_class="dword", access_bytes=size, event=event)
            self.run.fault(target, "bitops", f"guest-{self._guests}", record)

    def findings(self, tmp_path: Path, *known: str) -> dict[str, Finding]:
        judgement, code = concluded(tmp_path, self.run, *known)
        assert code == (ExitCode.FINDINGS if any(not one.known for one in judgement.findings) else code)
        return {one.id: one for one in judgement.findings}


@pytest.fixture
def accesses(run: StoredRun) -> Accesses:
    return Accesses(run)


def test_functions_that_access_misaligned_blocks_are_places_of_one_finding(accesses: Accesses, tmp_path: Path) -> None:
    for function in ("zslInsert", "aeApiPoll", "dictAdd"):
        accesses.at(function, HEAP, HEAP + 8)
    (finding,) = accesses.findings(tmp_path).values()
    assert finding.id == IDENTITY
    assert finding.title == "misaligned blocks: the server's allocator puts each at 4 mod 8"
    assert {one.backtrace[0].function for one in finding.witnesses} == {"zslInsert", "aeApiPoll", "dictAdd"}
    assert {one.count for one in finding.witnesses} == {2}
    occasions = {occasion.id for one in finding.witnesses for occasion in one.occasions}
    assert occasions == {f"alignment-{name}-load" for name in ("zslInsert", "aeApiPoll", "dictAdd")}


def test_an_audit_lists_each_function_of_the_finding(accesses: Accesses, tmp_path: Path) -> None:
    for function in ("zslInsert", "dictAdd"):
        accesses.at(function, HEAP, event="access")
    (finding,) = accesses.findings(tmp_path).values()
    assert {site.function for site in sites([finding])} == {"zslInsert", "dictAdd"}


@pytest.mark.parametrize(
    ("addresses", "size"),
    [
        ((OTHER_HEAP,), 8),
        ((HEAP, OTHER_HEAP), 8),
        ((STACK,), 8),
        ((STATIC,), 8),
        ((0x84,), 8),
        ((HEAP + 2,), 4),
    ],
    ids=["otherwise", "at times otherwise", "on the stack", "static data", "in a file", "of another size"],
)
def test_a_function_with_another_fault_keeps_its_own_finding(
    accesses: Accesses, tmp_path: Path, addresses: tuple[int, ...], size: int
) -> None:
    assert memory_size(POSITION_INDEPENDENT) > 0x104
    accesses.at("zslInsert", HEAP)
    accesses.at("bitopCommand", *addresses, size=size)
    found = accesses.findings(tmp_path)
    assert set(found) == {IDENTITY, "alignment-bitopCommand-load"}
    assert {one.backtrace[0].function for one in found[IDENTITY].witnesses} == {"zslInsert"}


def test_a_block_is_outside_of_all_that_is_mapped_from_files_and_of_the_programs_data() -> None:
    begin, size = 0x40000000, memory_size(POSITION_INDEPENDENT)
    places = [(begin, POSITION_INDEPENDENT), (begin + 0x1000, POSITION_INDEPENDENT), (0x50000000, "/lib/libc.so.6")]
    maps = [fault_log.MapRecord(start=start, end=start + 0x1000, offset=0, path=path) for start, path in places]
    access = Access(direction="load", size_bytes=8, modulo=4)

    def may_be_block(address: int) -> bool:
        made = fault(address=address, access_class="dword", access_bytes=8, maps=maps)
        return heap_address(made, access, POSITION_INDEPENDENT)[0] >= 0

    assert not any(may_be_block(start + 4) for start, _ in places)
    # Data that its file does not contain lie behind the last part of it that is mapped, and the heap behind them.
    last = begin + size // 8 * 8 - 4
    assert (may_be_block(last), may_be_block(last + 16)) == (False, True)


def test_a_function_that_is_misaligned_where_blocks_are_aligned_keeps_its_own_finding(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    accesses = Accesses(run)
    run.canary("sparc64")
    run.blocks["sparc64", "bitops"] = tuple(range(0, 1600, 16))
    accesses.at("zslInsert", HEAP)
    accesses.at("bitopCommand", HEAP)
    accesses.at("bitopCommand", HEAP, target="sparc64")
    found = accesses.findings(tmp_path)
    assert set(found) == {IDENTITY, "alignment-bitopCommand-load"}
    assert {one.backtrace[0].function for one in found[IDENTITY].witnesses} == {"zslInsert"}


def test_without_the_servers_word_functions_are_findings_of_their_own(accesses: Accesses, tmp_path: Path) -> None:
    accesses.run.blocks.clear()
    accesses.at("zslInsert", HEAP)
    accesses.at("dictAdd", HEAP)
    assert set(accesses.findings(tmp_path)) == {"alignment-zslInsert-load", "alignment-dictAdd-load"}


def test_a_known_place_excuses_no_other_place(accesses: Accesses, tmp_path: Path) -> None:
    accesses.at("zslInsert", HEAP)
    known = entry("alignment-zslInsert-load")
    assert accesses.findings(tmp_path, known)[IDENTITY].known
    accesses.at("dictAdd", HEAP)
    assert not accesses.findings(tmp_path, known)[IDENTITY].known
