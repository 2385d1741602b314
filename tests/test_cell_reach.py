"""Which functions count for which test. tests/end_to_end/test_function_reach.py checks what the emulator notes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from harness.record.reach import cell_reach
from harness.record.reach.cell_reach import CellReach, ReachRecorder
from harness.record.reach.function_map import FunctionMap, blank_map

NAMES = ["main", "start", "get", "set", "expire", "save", "stop", "alias"]
HEADER_BYTES = 24
PROGRAM = Path("/cache/server")


def blank() -> bytes:
    """Every function at an address of its own, except that `alias` is another name of `set`."""
    named = {16 * number: [name] for number, name in enumerate(NAMES[:-1], start=1)}
    named[16 * (1 + NAMES.index("set"))].append("alias")
    return blank_map(0x1000, named)


def enter(path: Path, *names: str, beside: bool = False) -> None:
    """As the emulator's plugin does it: through the file."""
    with path.open("r+b") as file:
        (count,) = struct.unpack("<Q", file.read(16)[8:])
        for name in names:
            file.seek(HEADER_BYTES + 8 * count + count * beside + NAMES.index(name))
            file.write(b"\x01")


class NotedCell:
    """A recorder, and the map of the process that was started last."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        (folder / "blank").write_bytes(blank())
        self.recorder = ReachRecorder(Path("/cache/reach.so"), {str(PROGRAM): folder / "blank"}, folder)
        self.map = Path()

    def start(self, *entered: str, shared: bool = False) -> Path:
        plugin = self.recorder.plugin_for(PROGRAM, shared=shared)
        head, path = plugin.partition(",of=")[0].split(",map=")
        assert (head, plugin.endswith(f",of={PROGRAM}")) == ("/cache/reach.so", True)
        self.map = Path(path)
        enter(self.map, "main", *entered)
        if shared:
            self.recorder.ready()
        return self.map

    def test(self, name: str, *entered: str, passed: bool = True) -> None:
        self.recorder.begin_example()
        enter(self.map, *entered)
        self.recorder.end_test(name, passed=passed)

    def read(self) -> CellReach:
        self.recorder.write(self.folder)
        found = cell_reach.read(self.folder)
        assert found is not None
        return found


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NotedCell:
    """Without the time in which a server's postponed work may show."""
    monkeypatch.setattr(cell_reach, "LATE_SECONDS", -1.0)
    return NotedCell(tmp_path)


def test_a_map_tells_what_was_entered_since_it_was_read(tmp_path: Path) -> None:
    entered = FunctionMap(tmp_path / "map", blank())
    enter(entered.path, "main", "set")
    enter(entered.path, "save", beside=True)
    assert entered.take() == {"main", "set", "alias"}
    enter(entered.path, "get")
    assert [entered.take(), entered.beside()] == [{"get"}, {"save"}]
    assert [entered.take(), entered.beside()] == [set(), {"save"}]


def test_a_test_has_what_ran_during_it_and_all_have_the_start_and_the_end(cell: NotedCell) -> None:
    cell.start("start", shared=True)
    cell.test("one", "get")
    cell.test("two", "set")
    enter(cell.map, "stop")
    found = cell.read()
    assert found == CellReach(every=["main", "start", "stop"], tests={"one": ["get"], "two": ["alias", "set"]}, count=2)


def test_what_is_entered_between_tests_counts_for_the_next(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.test("one", "get")
    enter(cell.map, "expire")
    cell.test("two", "set")
    assert cell.read().tests["two"] == ["alias", "expire", "set"]


def test_threads_and_children_of_a_shared_server_count_for_all(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.test("one", "get")
    enter(cell.map, "save", beside=True)
    cell.test("two", "set")
    assert "save" in cell.read().every


def test_a_server_of_its_own_counts_whole_for_its_test_alone(cell: NotedCell) -> None:
    cell.start("start", shared=True)
    cell.test("one", "get")
    cell.recorder.begin_example()
    own = cell.start("start", "set")
    enter(own, "save", beside=True)
    cell.recorder.end_test("two", passed=True)
    assert cell.read().tests == {"one": ["get"], "two": ["alias", "save", "set"]}
    assert not own.exists()


def test_an_example_keeps_what_servers_of_the_one_before_entered(cell: NotedCell) -> None:
    cell.recorder.begin_example()
    cell.start("get")
    cell.recorder.begin_example()
    cell.start("set")
    cell.recorder.end_test("one", passed=True)
    cell.recorder.begin_example()
    cell.start("save")
    cell.recorder.end_test("two", passed=True)
    assert cell.read().tests == {"one": ["alias", "get", "set"], "two": ["save"]}


def test_what_a_fixture_for_many_tests_enters_counts_for_all(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.recorder.begin_example()
    enter(cell.map, "get")
    cell.recorder.begin_fixture()
    enter(cell.map, "set")
    cell.recorder.end_fixture()
    cell.recorder.end_test("one", passed=True)
    cell.test("two", "expire")
    found = cell.read()
    assert {"set", "alias"} <= set(found.every)
    assert found.tests == {"one": ["get"], "two": ["expire"]}


def test_work_that_is_postponed_counts_for_those_who_ended_shortly_before(tmp_path: Path) -> None:
    cell = NotedCell(tmp_path)
    cell.start(shared=True)
    cell.test("one", "get")
    cell.test("two", "expire")
    assert cell.read().every == ["expire", "main"], "both have it"


def test_a_test_that_does_not_pass_is_not_kept_but_counted(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.test("one", "get")
    cell.test("two", "set", passed=False)
    found = cell.read()
    assert (sorted(found.tests), found.count) == (["one"], 2)


def test_a_new_shared_server_takes_the_place_of_one_that_ended(cell: NotedCell) -> None:
    cell.start(shared=True)
    cell.recorder.begin_example()
    enter(cell.map, "stop")
    cell.recorder.retire()
    cell.start("start", shared=True)
    cell.recorder.end_test("one", passed=True)
    cell.test("two", "get")
    found = cell.read()
    assert found.tests == {"one": ["stop"], "two": ["get"]}
    assert found.every == ["main", "start"]


def test_a_program_that_nobody_knows_or_that_notes_nothing_is_a_problem(cell: NotedCell, tmp_path: Path) -> None:
    assert cell.recorder.plugin_for(Path("/cache/of-another-target")) == ""
    assert cell.read().problem == "the functions of of-another-target were not noted"
    silent = NotedCell(tmp_path / "silent")
    silent.recorder.plugin_for(PROGRAM, shared=True)
    silent.recorder.ready()
    assert silent.read().problem == "a server entered no function"
    unit = NotedCell(tmp_path / "unit")
    unit.recorder.plugin_for(PROGRAM)
    unit.recorder.end_test("one", passed=True)
    assert unit.read().problem == "a program entered no function"


def test_a_file_that_is_missing_or_damaged_says_nothing(tmp_path: Path) -> None:
    assert cell_reach.read(tmp_path) is None
    (tmp_path / cell_reach.NAME).write_text("{", "utf-8")
    assert cell_reach.read(tmp_path) is None
