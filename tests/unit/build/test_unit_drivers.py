"""Units: which ones are compiled, omitted or broken, the output of their runs, and its judgement.

The compiler is a fake.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build import unit_drivers
from harness.build.server_build import Builder
from harness.build.sources.source_tree import open_tree
from harness.core.cache import Cache
from harness.core.model import SourceTree
from harness.judge.findings import judge
from harness.judge.verdict import cell_verdicts
from harness.record import stored_run
from harness.run import unit_runner
from suites.units import expectations
from tests.support import cells, fakes
from tests.support.fakes import fault
from tests.support.stored import StoredRun, reproducer

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.record import cell_events


# The table and the drivers


def test_every_unit_has_a_driver_with_its_function_and_a_judge() -> None:
    table = unit_drivers.table()
    assert sorted(unit.name for unit in table) == sorted(expectations.units())
    for unit in table:
        text = (unit_drivers.folder() / "drivers" / unit.driver).read_text("utf-8")
        assert f"void unit_{unit.name}(void)" in text, f"{unit.driver} has no unit_{unit.name}"
    drivers = {path.name for path in (unit_drivers.folder() / "drivers").glob("unit_*.c")}
    assert drivers == {unit.driver for unit in table}


def test_no_driver_has_the_name_of_a_servers_file() -> None:
    """Otherwise its object could replace the server's."""
    for path in (unit_drivers.folder() / "drivers").glob("*.c"):
        assert re.match(r"unit_|main\.c", path.name)


def tree(path: Path, family: str, *version: int) -> SourceTree:
    return SourceTree(
        name=family, family="valkey" if family == "valkey" else "redis", version=version, path=path, digest=""
    )


@pytest.mark.parametrize(
    ("name", "family", "version", "why"),
    [
        ("siphash", "redis", (3, 2, 6), "redis has it only from 4.0 on, and this is 3.2.6"),
        ("siphash", "redis", (4, 0, 0), ""),
        ("murmurhash2", "redis", (3, 2, 6), ""),
        ("murmurhash2", "redis", (5, 0, 6), "redis has it only before 4.0, and this is 5.0.6"),
        ("murmurhash2", "valkey", (9, 1, 2), "valkey has no murmurhash2"),
        ("crc16", "redis", (2, 8, 17), "redis has it only from 3.0 on, and this is 2.8.17"),
        ("zipmap", "valkey", (9, 1, 2), "valkey has it only before 8.1, and this is 9.1.2"),
        ("listpack", "valkey", (255, 255, 255), ""),
    ],
)
def test_a_release_without_a_unit_has_a_reason_with_the_versions(
    tmp_path: Path, name: str, family: str, version: tuple[int, ...], why: str
) -> None:
    unit = next(one for one in unit_drivers.table() if one.name == name)
    assert why == unit_drivers.absence(unit, tree(tmp_path, family, *version))


def test_a_development_tree_has_no_unit_whose_file_is_gone(tmp_path: Path) -> None:
    unit = next(one for one in unit_drivers.table() if one.name == "siphash")
    between = msgspec.structs.replace(tree(tmp_path, "redis", 5, 0, 0), development="a development tree")
    assert unit_drivers.absence(unit, between) == "redis has no src/siphash.c"
    fakes.write(tmp_path / "src" / "siphash.c", "")
    assert unit_drivers.absence(unit, between) == ""


# Output


def ran(output: bytes, code: int = 0, *, expired: bool = False) -> unit_runner.UnitRun:
    return unit_runner.UnitRun(code=code, expired=expired, output=output)


def test_other_output_between_the_lines_is_skipped() -> None:
    run = ran(b"> length 0: 1\n==7== Invalid read\n1:M 01 Jan # bug > report\n> end crc16\n")
    assert unit_runner.lines(run) == ["length 0: 1", "end crc16"]
    assert unit_runner.complete(run, "crc16")


@pytest.mark.parametrize(
    "run",
    [
        ran(b"> length 0: 1\n"),
        ran(b"> length 0: 1\n> end crc16"),
        ran(b"> length 0: 1\n> end crc64\n"),
        ran(b"> length 0: 1\n> end crc16\n", -7),
        ran(b"> length 0: 1\n> end crc16\n", expired=True),
    ],
    ids=["no end", "half an end", "another's end", "died after it", "hung"],
)
def test_a_unit_without_its_last_line_is_not_complete(run: unit_runner.UnitRun) -> None:
    assert not unit_runner.complete(run, "crc16")


# What is compiled

MAKEFILE = """
redis-server:
\techo object >server.o
\techo object >crc16.o
\t$(CXX) -g -o redis-server server.o crc16.o ../deps/lua/liblua.a -lm
\tchmod +x redis-server

../../suites/units/drivers/%.o: ../../suites/units/drivers/%.c
\t@case "$< {broken}" in *unit_crc16.c\\ yes) echo '$<:3:5: error: boom'; exit 1;; esac
\tcp $< {objects}$(notdir $@)
"""
LINKER = """#!/bin/sh
echo link >>{links}
for word; do
    case $last in -o) program=$word;; esac
    case $word in {missing}) echo "driver.c:9: undefined reference to \\`{function}'"; failed=yes;; esac
    last=$word
done
[ -z "$failed" ] || exit 1
echo "$@" >"$program"
"""
NAMES = """#!/bin/sh
case $2 in *unit_zipmap.o|*unit_crc16.o) echo U zipmapGet;; *) echo U library;; esac
"""


def server(tmp_path: Path, *, broken: str = "no", objects: str = "../../suites/units/drivers/") -> SourceTree:
    """A tree that has the sources of some units, and a makefile that copies files instead of compiling."""
    path = fakes.server_tree(tmp_path / "redis-7.0.15")
    fakes.write(path / "src" / "Makefile", MAKEFILE.format(broken=broken, objects=objects))
    for unit in unit_drivers.table():
        if not unit.file.startswith(("..", "rax")):
            fakes.write(path / "src" / unit.file, "int there;\n")
    return open_tree(path)


def fake_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, missing: str = "none", function: str = "zipmapGet"
) -> None:
    """`missing`: the object that the linker refuses, because of a function."""
    fakes.fake_compiler(tmp_path / "bin", monkeypatch)
    linker = LINKER.format(missing=missing, function=function, links=shlex.quote(str(tmp_path / "links")))
    for name in ("objcopy", "g++"):
        fakes.write(tmp_path / "bin" / f"fake-{name}", linker if name == "g++" else "#!/bin/sh\n", mode=0o755)
    fakes.write(tmp_path / "bin" / "fake-gcc-nm", NAMES, mode=0o755)


def built(tmp_path: Path, tree: SourceTree, monkeypatch: pytest.MonkeyPatch) -> unit_drivers.Units:
    fake_tools(tmp_path, monkeypatch)
    builder = Builder(Cache(tmp_path / "cache"), fakes.quiet())
    return unit_drivers.build_units(builder, fakes.build_plan(tree, fakes.target("armv5")))


@pytest.mark.parametrize(
    ("function", "kind", "why", "links"),
    [
        # All, the two that call it, and the rest.
        ("zipmapGet", "absent", "redis-7.0.15 has no zipmapGet", range(4, 5)),
        ("library_call", "broken", "driver.c:9: undefined reference to `library_call'", range(20, 100)),
    ],
    ids=["the driver calls it", "only the server's objects call it"],
)
def test_a_missing_function_costs_only_the_units_of_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, kind: str, why: str, links: range
) -> None:
    tree = server(tmp_path)
    fake_tools(tmp_path, monkeypatch, missing="*unit_zipmap.o", function=function)
    builder = Builder(Cache(tmp_path / "cache"), fakes.quiet())
    made = unit_drivers.build_units(builder, fakes.build_plan(tree, fakes.target("armv5")))
    assert getattr(made, kind)["zipmap"] == why
    assert set(made.absent) - {"zipmap"} == {"murmurhash2", "casehash"}
    assert set(made.broken) - {"zipmap"} == {"rax", "lua", "cmsgpack", "hisds", "reader"}
    assert {"unit_crc16.o", "unit_siphash.o"} <= linked(made)
    assert "unit_zipmap.o" not in linked(made)
    # The server itself, too.
    assert len((tmp_path / "links").read_text("utf-8").split()) - 1 in links


def linked(made: unit_drivers.Units) -> set[str]:
    assert made.program is not None
    return set(re.findall(r"unit_\w+\.o", made.program.read_text("utf-8")))


def test_exactly_the_units_of_a_release_are_compiled_and_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(tmp_path, server(tmp_path), monkeypatch)
    assert set(made.absent) == {"murmurhash2", "casehash"}
    assert set(made.broken) == {"rax", "lua", "cmsgpack", "hisds", "reader"}
    assert {"unit_crc16.o", "unit_siphash.o"} <= linked(made)
    assert not {"unit_dict.o", "unit_rax.o"} & linked(made)


def test_drivers_are_linked_as_the_server_was_with_its_objects_in_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(tmp_path, server(tmp_path), monkeypatch)
    assert made.program is not None
    words = made.program.read_text("utf-8").split()
    assert "server.o" not in words
    libraries = words[words.index(next(word for word in words if word.endswith("server.a"))) + 1 :]
    assert libraries[:4] == ["-g", "../deps/lua/liblua.a", "-lm", "-Wl,--end-group"]


def test_a_makefile_that_does_not_show_how_it_links_leaves_every_unit_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = server(tmp_path)
    makefile = tree.path / "src" / "Makefile"
    fakes.write(makefile, makefile.read_text("utf-8").replace("\t$(CXX)", "\t@$(CXX)"))
    made = built(tmp_path, open_tree(tree.path), monkeypatch)
    assert made.program is None
    assert made.broken["crc16"] == "the makefile printed no command that links redis-server"
    assert set(made.broken) | set(made.absent) == {unit.name for unit in unit_drivers.table()}


def test_a_missing_source_that_the_table_lists_is_broken_and_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(tmp_path, server(tmp_path), monkeypatch)
    assert made.broken["rax"] == "src/rax.c is not there; suites/units/units.toml says that this release has it"


def test_a_driver_that_does_not_compile_is_broken_and_the_others_are_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(tmp_path, server(tmp_path, broken="yes"), monkeypatch)
    assert made.broken["crc16"].endswith("unit_crc16.c:3:5: error: boom")
    assert "crc64" not in made.broken
    assert "unit_crc16.o" not in linked(made)


@pytest.mark.parametrize("first", ["units", "server"])
def test_the_compilation_that_units_need_is_the_servers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    tree = server(tmp_path)
    makefile = tree.path / "src" / "Makefile"
    count = f"\techo made >>{shlex.quote(str(tmp_path / 'made'))}\n\techo object >server.o\n"
    fakes.write(makefile, makefile.read_text("utf-8").replace("\techo object >server.o\n", count))
    tree = open_tree(tree.path)
    fake_tools(tmp_path, monkeypatch)
    builder = Builder(Cache(tmp_path / "cache"), fakes.quiet())
    if first == "server":
        builder.build(fakes.build_plan(tree, fakes.target("armv5")))
    assert linked(built(tmp_path, tree, monkeypatch))
    builder.build(fakes.build_plan(tree, fakes.target("armv5")))
    # The objects of a server that already exists are removed.
    assert (tmp_path / "made").read_text("utf-8").count("made") == {"units": 1, "server": 2}[first]


def test_objects_are_found_in_src_too_where_old_makefiles_leave_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(tmp_path, server(tmp_path, objects=""), monkeypatch)
    assert "unit_crc16.o" in linked(made)


# A cell that is run

PROGRAM = """#!/bin/sh
zeros='0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0'
case $1 in
crc16) echo 'noise' && echo "> length 0: $zeros" && echo '> end crc16' ;;
crc64) echo "> length 0 from 0: $zeros" && echo "> length 1 from 0: $zeros" && echo '> end crc64' ;;
sha1) echo '> length 0: x' && kill -SEGV $$ ;;
*) echo "> end $1" ;;
esac
"""
"""A fake for drivers and server: CRC64 of one byte is wrong, SHA-1 dies, and the other units write nothing."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, cell_events.TestEvent]]:
    """The output of pytest for a cell with that program, and the record of each unit."""
    folder = tmp_path_factory.mktemp("cell")
    program = fakes.write(folder / "units", PROGRAM, mode=0o755)
    spec = cells.spec_of("units", folder, fakes.unemulated(fakes.target("native")))
    absent, broken = {"murmurhash2": "not in 7.0"}, {"rax": "boom"}
    mine = unit_drivers.Units(program=program, absent=absent, broken=broken)
    return cells.recorded(msgspec.structs.replace(spec, units=mine))


def test_a_unit_whose_lines_are_right_passes_and_its_log_is_evidence(
    recorded: tuple[str, dict[str, cell_events.TestEvent]],
) -> None:
    test = recorded[1]["crc16"]
    assert (test.outcome, test.unit, test.guest, test.wrong_line) == ("passed", "crc16", "guest-unit-crc16", "")
    assert test.log_to > 0


def test_a_wrong_line_fails_the_unit_and_is_recorded_as_it_was_written(
    recorded: tuple[str, dict[str, cell_events.TestEvent]],
) -> None:
    test = recorded[1]["crc64"]
    assert (test.outcome, test.wrong_line) == ("failed", "length 1 from 0:" + " 0" * 16)
    assert test.message.startswith("crc64, length 1 from 0: at offset 0 it is 0; the model says ")
    assert "Traceback" not in recorded[0]


def test_a_unit_that_dies_fails_with_its_end_and_its_progress(
    recorded: tuple[str, dict[str, cell_events.TestEvent]],
) -> None:
    test = recorded[1]["sha1"]
    assert test.outcome == "failed"
    assert test.message == "Failed: sha1 did not get to its end: killed by SIGSEGV, after ['length 0: x']"


def test_a_unit_that_writes_nothing_fails(recorded: tuple[str, dict[str, cell_events.TestEvent]]) -> None:
    assert (recorded[1]["lzf"].outcome, "lzf wrote nothing" in recorded[1]["lzf"].message) == ("failed", True)


def test_absent_and_broken_units_are_skipped_with_their_reason(
    recorded: tuple[str, dict[str, cell_events.TestEvent]],
) -> None:
    for unit, why in (("murmurhash2", "not in 7.0"), ("rax", "it does not compile: boom")):
        assert (recorded[1][unit].outcome, recorded[1][unit].message) == ("skipped", f"Skipped: {why}")


# What is judged


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    """A run of units on one target whose canaries behaved."""
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    stored = StoredRun(tmp_path / "run", suites=("canary", "bitops", "units"))
    stored.canary("armv5")
    stored.test("armv5", "bitops", "test_bitop")
    return stored


def judged(stored: StoredRun) -> tuple[list[Finding], str, str]:
    findings, outcomes, _ = judge(stored_run.read(stored.finish()))
    cell = next(cell for cell in cell_verdicts(outcomes, findings) if cell.suite == "units")
    return findings, cell.verdict, cell.reason


def test_a_fault_in_a_unit_is_a_finding_that_names_it_and_is_replayed_by_it(run: StoredRun) -> None:
    run.fault("armv5", "units", "guest-unit-crc16", fault(pc=run.place("armv5", "crc16", "src/crc16.c", 82)))
    run.test("armv5", "units", "test_unit", outcome="failed", guest="guest-unit-crc16", faults=(0, 1), unit="crc16")
    (finding,), verdict, _ = judged(run)
    assert (finding.id, finding.file, finding.line) == ("alignment-crc16-load", "src/crc16.c", 82)
    assert (finding.command, verdict) == ("(unit crc16)", "FAIL")
    assert (reproducer(finding).unit, reproducer(finding).wrong_line) == ("crc16", "")


def test_a_units_fault_and_the_servers_at_the_same_place_are_one_finding(run: StoredRun) -> None:
    pc = run.place("armv5", "redisBitpos")
    run.fault("armv5", "units", "guest-unit-bitpos", fault(pc=pc))
    run.test("armv5", "units", "test_unit", outcome="failed", guest="guest-unit-bitpos", faults=(0, 1), unit="bitpos")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc))
    run.test("armv5", "bitops", "test_bitpos", outcome="failed", guest="guest-1", faults=(0, 1), transcript=b"BITPOS")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGBUS", test="test_bitpos")
    (finding,), _, _ = judged(run)
    assert {witness.suite for witness in finding.witnesses} == {"bitops", "units"}
    # Requests are preferred to a unit as a reproducer.
    assert reproducer(finding).unit == ""


def test_a_wrong_line_is_a_finding_in_addition_to_the_death_of_its_unit(run: StoredRun) -> None:
    run.fault("armv5", "units", "guest-unit-crc16", fault(pc=run.place("armv5", "crc16")))
    run.test(
        "armv5",
        "units",
        "test_unit",
        outcome="failed",
        message="line 3 is wrong",
        guest="guest-unit-crc16",
        faults=(0, 1),
        unit="crc16",
        wrong_line="3 0x1234",
    )
    findings, _, _ = judged(run)
    assert sorted(finding.kind for finding in findings) == ["alignment", "wrong-result"]


def test_a_wrong_line_is_a_finding_whose_reproducer_has_the_line(run: StoredRun) -> None:
    run.test(
        "armv5",
        "units",
        "test_unit",
        outcome="failed",
        message="crc16, length 3: at offset 5 it is 17",
        guest="guest-unit-crc16",
        unit="crc16",
        wrong_line="length 3: 17",
    )
    (finding,), verdict, _ = judged(run)
    assert (finding.kind, verdict) == ("wrong-result", "FAIL")
    assert "at offset 5 it is 17" in finding.title
    assert reproducer(finding).wrong_line == "length 3: 17"


def test_units_that_do_not_compile_make_the_cell_unknown_whatever_the_others_result(run: StoredRun) -> None:
    run.test("armv5", "units", "test_unit[crc16]", guest="guest-unit-crc16", unit="crc16")
    run.test("armv5", "units", "test_unit[rax]", outcome="skipped", message="its driver does not compile")
    run.problem("armv5", "units", "1 units do not compile and were not run: rax: boom", "units")
    findings, verdict, reason = judged(run)
    assert (findings, verdict) == ([], "UNKNOWN")
    assert "rax: boom" in reason


def test_a_finding_does_not_hide_that_other_units_do_not_compile(run: StoredRun) -> None:
    run.test("armv5", "units", "test_unit[crc16]", outcome="failed", guest="guest-unit-crc16", unit="crc16")
    run.problem("armv5", "units", "1 units do not compile and were not run: rax: boom", "units")
    _, verdict, reason = judged(run)
    assert (verdict, reason) == (
        "FAIL",
        "1 findings in 1 failed tests; 1 units do not compile and were not run: rax: boom",
    )


def test_units_that_a_release_lacks_do_not_affect_the_cell(run: StoredRun) -> None:
    run.test("armv5", "units", "test_unit[crc16]", guest="guest-unit-crc16", unit="crc16")
    run.test("armv5", "units", "test_unit[rax]", outcome="skipped", message="redis has it from 5.0 on")
    assert judged(run)[1] == "PASS"


def test_a_file_with_another_name_in_valkey_is_searched_by_that_name(tmp_path: Path) -> None:
    (unit,) = [one for one in unit_drivers.table() if one.valkey_file]
    tree = server(tmp_path)
    assert unit.file_in(tree) == unit.file
    valkey = msgspec.structs.replace(tree, family="valkey", version=(8, 1, 1), development=True)
    assert unit_drivers.absence(unit, valkey) == f"{tree.name} has no src/valkey-check-rdb.c"
