"""Attributes executed blocks to tests. tests/end_to_end/emulator/test_executed_blocks.py tests the records."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core import json_codec
from harness.record.executed_blocks import cell_reach, keepers
from harness.record.executed_blocks.block_map import Block, BlockMap, Function, ProgramCode
from harness.record.executed_blocks.cell_reach import CellReach
from harness.record.executed_blocks.executed_tests import read_executed
from harness.record.executed_blocks.recorder import ExecutionRecorder, Kept

if TYPE_CHECKING:
    from harness.record.cell_events import Outcome

NAMES = ["main", "start", "get", "set", "expire", "save", "stop"]
HEADER_BYTES = 1 << 16
PROGRAM = Path("/cache/server")
CODE = ProgramCode(
    base=0x1000,
    begin=0x2000,
    end=0x9000,
    step=4,
    functions=[
        Function(start=start_of, size=16, names=[name, "alias"] if name == "set" else [name])
        for start_of, name in zip(range(0x2000, 0x3000, 16), NAMES, strict=False)
    ],
)


def start_of(name: str) -> int:
    return 0x2000 + 16 * NAMES.index(name)


def block_of(name: str) -> Block:
    return CODE.block(start_of(name), 8)


def execute(path: Path, *names: str, by_others: bool = False, inside: int = 0) -> None:
    """Execute a block of 8 bytes at an offset in each function, as the emulator's plugin records it in the file."""
    with path.open("r+b") as file:
        _, places, begin, *_, used = struct.unpack("<7Q", file.read(56))
        for name in names:
            number = NAMES.index(name) * 2 + bool(inside)
            file.seek(HEADER_BYTES + 8 * (places + number))
            file.write(struct.pack("<Q", start_of(name) + inside - begin << 13 | 8))
            file.seek(HEADER_BYTES + 8 * (places * (3 if by_others else 2) + number))
            file.write(struct.pack("<Q", 1))
            used = max(used, number + 1)
        file.seek(48)
        file.write(struct.pack("<Q", used))


class NotedCell:
    """A recorder, and the map of the latest process."""

    def __init__(self, folder: Path, kept: Kept = "functions") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        (folder / "code").write_bytes(json_codec.encode(CODE))
        programs = {str(PROGRAM): folder / "code"}
        self.recorder = ExecutionRecorder(Path("/cache/blocks.so"), programs, folder, folder, kept=kept)
        self.map = Path()

    def start(self, *executed: str, shared: bool = False, counts_start: bool = False) -> Path:
        process = self.recorder.process(PROGRAM, shared=shared, counts_start=counts_start)
        assert process is not None
        head, path = process.plugin.partition(",of=")[0].split(",map=")
        assert (head, process.plugin.endswith(f",of={PROGRAM}")) == ("/cache/blocks.so", True)
        self.map = Path(path)
        execute(self.map, "main", *executed)
        process.ready()
        if shared:
            self.recorder.ready()
        self.stop = process.stopping
        return self.map

    def test(self, name: str, *executed: str, outcome: Outcome = "passed") -> None:
        self.begin()
        execute(self.map, *executed)
        self.recorder.end_test(name, outcome)

    def begin(self) -> None:
        self.recorder.begin_test()
        self.recorder.begin_example()

    def read(self) -> CellReach:
        self.recorder.finish()
        found = cell_reach.read(self.folder)
        assert found is not None
        return found

    def addresses(self) -> dict[str, set[int]]:
        """Test -> the addresses of the blocks that it executed."""
        self.recorder.finish()
        return {one.test: {each for each in one.addresses if each % 8 == 0} for one in read_executed(self.folder)}


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NotedCell:
    """A recorder that allows no time for a server's postponed work."""
    monkeypatch.setattr(keepers, "LATE_SECONDS", -1.0)
    return NotedCell(tmp_path)


def test_a_map_shows_the_blocks_executed_since_it_was_read(tmp_path: Path) -> None:
    blocks = BlockMap(tmp_path / "map", CODE)
    execute(blocks.path, "main", "set")
    execute(blocks.path, "save", by_others=True)
    assert blocks.take("first") == {block_of("main"), block_of("set")}
    execute(blocks.path, "get")
    assert [blocks.take("first"), blocks.take("others")] == [{block_of("get")}, {block_of("save")}]
    assert [blocks.take("first"), blocks.take("others")] == [set(), set()]
    assert not blocks.is_full


def test_a_map_that_more_blocks_were_translated_than_fit_keeps_threads_apart(tmp_path: Path) -> None:
    blocks = BlockMap(tmp_path / "map", CODE)
    execute(blocks.path, "main")
    execute(blocks.path, "save", by_others=True)
    with blocks.path.open("r+b") as file:
        file.seek(40)
        file.write(struct.pack("<2Q", 1, CODE.places + 2 * len(NAMES)))
    assert [blocks.take("first"), blocks.take("others")] == [{block_of("main")}, {block_of("save")}]
    assert blocks.is_full


def test_a_larger_program_has_room_for_more_blocks_up_to_a_limit() -> None:
    def places(code_bytes: int) -> int:
        return ProgramCode(base=0, begin=0x1000, end=0x1000 + code_bytes, step=4, functions=[]).places

    assert places(1) == places(1 << 12) < places(1 << 19) < places(1 << 20) < places(1 << 22) == places(1 << 30)


def test_a_block_belongs_to_each_function_that_it_overlaps() -> None:
    overlapping = ProgramCode(
        base=0,
        begin=0,
        end=0x100,
        step=2,
        functions=[
            Function(start=0x10, size=0x40, names=["outer"]),
            Function(start=0x20, size=0x10, names=["inner", "other"]),
            Function(start=0x60, size=0, names=["assembly"]),
            Function(start=0x80, size=4, names=["small"]),
        ],
    )

    def names(start: int, size: int) -> set[str]:
        return overlapping.names_in([overlapping.block(start, size)])

    assert names(0x0C, 4) == set()
    assert names(0x0C, 6) == {"outer"}
    assert names(0x2C, 4) == {"outer", "inner", "other"}
    assert names(0x4C, 4) == {"outer"}
    assert names(0x50, 4) == set()
    assert names(0x7C, 2) == {"assembly"}
    assert names(0x7C, 8) == {"assembly", "small"}
    blocks = [overlapping.block(0x10, 6), overlapping.block(0x40, 2)]
    assert overlapping.addresses(blocks) == {0x10, 0x12, 0x14, 0x40}
    assert overlapping.names_in(blocks) == {"outer"}


def test_a_function_that_is_entered_in_its_middle_counts(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.begin()
    execute(cell.map, "get", inside=8)
    cell.recorder.end_test("one", "passed")
    cell.test("two", "set")
    assert cell.read().tests["one"] == ["get"]


def test_more_blocks_than_fit_the_map_are_a_problem(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.test("one", "get")
    with cell.map.open("r+b") as file:
        file.seek(40)
        file.write(b"\x01")
    assert cell.read().problem == f"a program has more than {CODE.places} blocks"


def test_addresses_are_those_of_the_tests_own_commands(tmp_path: Path) -> None:
    cell = NotedCell(tmp_path, "addresses")
    cell.start("start", shared=True)
    cell.test("one", "get")
    execute(cell.map, "expire")
    cell.begin()
    execute(cell.map, "set")
    execute(cell.map, "save", by_others=True)
    cell.recorder.end_commands()
    cell.stop()
    execute(cell.map, "stop")
    cell.recorder.retire()
    cell.recorder.end_test("two", "failed")
    assert cell.addresses() == {"one": {start_of("get")}, "two": {start_of("set"), start_of("save")}}
    assert [one.failed for one in read_executed(tmp_path)] == [False, True]


def test_the_start_of_a_tests_own_server_counts_if_it_reads_the_tests_files(tmp_path: Path) -> None:
    cell = NotedCell(tmp_path, "addresses")
    for name, has_files in (("one", False), ("two", True)):
        cell.begin()
        own = cell.start("start", counts_start=has_files)
        execute(own, "get")
        cell.stop()
        execute(own, "stop")
        cell.recorder.end_test(name, "skipped")
    every = {start_of("get"), start_of("main"), start_of("start")}
    assert cell.addresses() == {"one": {start_of("get")}, "two": every}
    assert not any(one.failed for one in read_executed(tmp_path))


def test_functions_count_for_the_test_in_which_they_run_and_start_and_end_for_all(cell: NotedCell) -> None:
    cell.start("start", shared=True)
    cell.test("one", "get")
    cell.test("two", "set")
    execute(cell.map, "stop")
    found = cell.read()
    tests = {"one": ["get"], "two": ["alias", "set"]}
    assert found == CellReach(every=["main", "start", "stop"], tests=tests, failed={}, skipped={}, count=2)


def test_functions_entered_between_tests_count_for_the_next(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.test("one", "get")
    execute(cell.map, "expire")
    cell.test("two", "set")
    assert cell.read().tests["two"] == ["alias", "expire", "set"]


def test_threads_and_children_of_a_shared_server_count_for_all(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.test("one", "get")
    execute(cell.map, "save", by_others=True)
    cell.test("two", "set")
    assert "save" in cell.read().every


def test_a_tests_own_server_counts_only_for_that_test(cell: NotedCell) -> None:
    cell.start("start", shared=True)
    cell.test("one", "get")
    cell.begin()
    own = cell.start("start", "set")
    execute(own, "save", by_others=True)
    cell.recorder.end_test("two", "passed")
    assert cell.read().tests == {"one": ["get"], "two": ["alias", "save", "set"]}
    assert not own.exists()


def test_an_example_includes_functions_entered_by_the_previous_ones_servers(cell: NotedCell) -> None:
    cell.begin()
    ended = cell.start("get")
    cell.recorder.begin_example()
    assert not ended.exists(), "a test may have thousands of examples"
    cell.start("set")
    cell.recorder.end_test("one", "passed")
    cell.begin()
    cell.start("save")
    cell.recorder.end_test("two", "passed")
    assert cell.read().tests == {"one": ["alias", "get", "set"], "two": ["save"]}


def test_functions_entered_by_a_shared_fixture_count_for_all_tests(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.begin()
    execute(cell.map, "get")
    cell.recorder.begin_fixture()
    execute(cell.map, "set")
    cell.recorder.end_fixture()
    cell.recorder.end_test("one", "passed")
    cell.test("two", "expire")
    found = cell.read()
    assert {"set", "alias"} <= set(found.every)
    assert found.tests == {"one": ["get"], "two": ["expire"]}


def test_postponed_work_counts_for_tests_that_ended_shortly_before(tmp_path: Path) -> None:
    cell = NotedCell(tmp_path)
    cell.start(shared=True)
    cell.test("one", "get")
    cell.test("two", "expire")
    assert cell.read().every == ["expire", "main"], "the function must count for both tests"


def test_tests_are_distinguished_by_their_outcome(cell: NotedCell) -> None:
    cell.start("start", shared=True)
    cell.test("one", "get")
    cell.test("two", "set", outcome="failed")
    cell.test("three", outcome="skipped")
    cell.test("four", "expire", outcome="skipped")
    found = cell.read()
    assert (found.tests, found.failed) == ({"one": []}, {"two": ["alias", "set"]})
    assert (found.skipped, found.count) == ({"three": [], "four": ["expire"]}, 4)
    assert "get" in found.every, "the function must count for all tests that passed"


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_a_test_includes_functions_entered_soon_after_it_whatever_its_outcome(tmp_path: Path, outcome: Outcome) -> None:
    cell = NotedCell(tmp_path)
    cell.start(shared=True)
    cell.test("one", "get", outcome=outcome)
    cell.test("two", "expire")
    cell.test("three", "set")
    found = cell.read()
    assert "expire" in {*found.every, *(found.tests | found.failed)["one"]}


def test_a_new_shared_server_replaces_one_that_ended(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.begin()
    execute(cell.map, "stop")
    cell.recorder.retire()
    cell.start("start", shared=True)
    cell.recorder.end_test("one", "passed")
    cell.test("two", "get")
    found = cell.read()
    assert found.tests == {"one": ["stop"], "two": ["get"]}
    assert found.every == ["main", "start"]


def test_an_unknown_program_or_one_without_records_is_a_problem(cell: NotedCell, tmp_path: Path) -> None:
    assert cell.recorder.process(Path("/cache/of-another-target")) is None
    assert not cell.recorder.knows(Path("/cache/of-another-target"))
    assert cell.recorder.knows(PROGRAM)
    assert cell.recorder.plugin_for(Path("/cache/of-another-target")) == ""
    assert cell.read().problem == "the functions of of-another-target were not noted"
    silent = NotedCell(tmp_path / "silent")
    silent.recorder.process(PROGRAM, shared=True)
    silent.recorder.ready()
    assert silent.read().problem == "a program executed nothing"
    unit = NotedCell(tmp_path / "unit")
    unit.recorder.plugin_for(PROGRAM)
    unit.recorder.end_test("one", "passed")
    assert unit.read().problem == "a program executed nothing"


def test_a_missing_or_damaged_file_has_no_data(tmp_path: Path) -> None:
    assert cell_reach.read(tmp_path) is None
    (tmp_path / cell_reach.NAME).write_text("{", "utf-8")
    assert cell_reach.read(tmp_path) is None
