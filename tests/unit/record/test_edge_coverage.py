"""The reading side of coverage. tests/end_to_end/emulator/test_edge_coverage.py checks the edges themselves."""

from __future__ import annotations

from pathlib import Path

from harness.build.emulators.runner import Runner
from harness.plan.catalog import Catalog
from harness.record.edge_coverage import SIZE_BYTES, EdgeCoverage
from tests.support import fakes


def take(edges: EdgeCoverage, *numbers: int) -> None:
    """Set edges through the file, as the emulator does."""
    with edges.path.open("r+b") as file:
        for number in numbers:
            file.seek(number)
            file.write(b"\x01")


def test_edges_are_read_while_the_guest_writes_them(tmp_path: Path) -> None:
    edges = EdgeCoverage(tmp_path / "edges")
    assert edges.taken() == frozenset()
    take(edges, 0, 7, SIZE_BYTES - 1)
    assert edges.taken() == {0, 7, SIZE_BYTES - 1}
    take(edges, 7, 8)
    assert edges.taken() == {0, 7, 8, SIZE_BYTES - 1}


def test_an_edge_is_new_once(tmp_path: Path) -> None:
    edges = EdgeCoverage(tmp_path / "edges")
    assert edges.new() == frozenset()
    take(edges, 7, 8)
    assert edges.new() == {7, 8}
    assert edges.new() == frozenset()
    take(edges, 8, 9)
    assert edges.new() == {9}
    assert edges.taken() == {7, 8, 9}


def test_the_map_has_a_size_that_the_emulator_accepts() -> None:
    # overlay/linux-user/coverage.c accepts only powers of two from 4 KiB to 64 MiB.
    assert SIZE_BYTES.bit_count() == 1
    assert 4 << 10 <= SIZE_BYTES <= 64 << 20


def test_a_closed_map_leaves_no_file(tmp_path: Path) -> None:
    edges = EdgeCoverage(tmp_path / "edges")
    edges.close()
    assert list(tmp_path.iterdir()) == []


def runner(*, ours: bool) -> Runner:
    return Runner(
        target=fakes.target(),
        policy=Catalog().policies["signal"],
        program=Path("/e/qemu-arm"),
        options=["-cpu", "arm926"],
        records_faults=ours,
    )


def test_only_the_pinned_emulator_gets_the_coverage_file() -> None:
    command_line = ["/e/qemu-arm", "-cpu", "arm926", "-coverage", "/r/edges", "/b", "x"]
    assert runner(ours=True).command(Path("/b"), ["x"], coverage=Path("/r/edges")) == command_line
    assert "-coverage" not in runner(ours=False).command(Path("/b"), ["x"], coverage=Path("/r/edges"))
    assert "-coverage" not in runner(ours=True).command(Path("/b"), ["x"])
