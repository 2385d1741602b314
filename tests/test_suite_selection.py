"""The suites that a changed file requires: those that cover it, none for a file that no build reads, otherwise all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.build.unit_drivers import table
from harness.plan.catalog import Catalog
from harness.workflows.mutation_testing.mutations import mutations
from harness.workflows.suite_selection import SuiteSelection, choose, read_ignored_paths

FILES = Path(__file__).parent / "data" / "choice"
SUITES = Catalog().suites
QUICK = [name for name, suite in SUITES.items() if suite.tier == "quick" and suite.needs_server]


def chosen(*files: str) -> SuiteSelection:
    return choose(files, SUITES, read_ignored_paths())


@pytest.mark.parametrize(
    ("file", "suites"),
    [
        ("src/bitops.c", ["bitops", "fuzz", "units", "visible", "width"]),
        ("src/rdb.c", ["fuzz", "persistence", "injection", "modules", "replication"]),
        ("src/intset.c", ["fuzz", "persistence", "protocol", "units", "selftests"]),
        ("src/redis-check-rdb.c", ["persistence", "units", "programs"]),
        ("modules/vector-sets/hnsw.c", ["vectors"]),
    ],
)
def test_a_covered_file_asks_for_the_suites_that_cover_it_whatever_their_tier(file: str, suites: list[str]) -> None:
    assert chosen(file).suites == suites
    assert sorted(chosen(file).changes[0].covering) == sorted(suites)


@pytest.mark.parametrize(
    ("file", "longer"),
    [
        ("src/cluster.c", ["cluster", "moduleapi"]),
        ("src/cluster_legacy.c", ["cluster", "moduleapi"]),
        ("src/replication.c", ["injection", "life", "replication"]),
        ("src/acl.c", ["injection", "life"]),
        ("src/sentinel.c", ["replication"]),
        ("src/module.c", ["moduleapi", "modules"]),
        ("src/expire.c", ["clock", "width"]),
        ("src/dict.c", ["selftests"]),
        ("src/io_threads.c", ["threads"]),
        ("src/lazyfree.c", ["heap"]),
        ("src/redis-cli.c", ["programs"]),
        ("deps/linenoise/linenoise.c", ["programs"]),
        ("src/unit/test_sds.c", ["selftests"]),
        ("src/tls.c", ["tls"]),
    ],
)
def test_what_longer_suites_alone_cover_asks_for_them_and_for_the_whole_quick_tier(
    file: str, longer: list[str]
) -> None:
    choice = chosen(file)
    assert choice.suites == [*QUICK, *longer]
    assert choice.changes[0].covering == longer
    assert "cover it, but other code may use it" in choice.changes[0].why


@pytest.mark.parametrize(
    ("file", "partly"),
    [("src/server.c", ["clock", "eviction"]), ("src/db.c", ["clock"]), ("src/debug.c", ["heap"])],
)
def test_a_file_of_which_longer_suites_test_a_part_asks_for_them_beside_the_quick_tier(
    file: str, partly: list[str]
) -> None:
    choice = chosen(file)
    assert choice.suites == [*QUICK, *partly]
    assert choice.changes[0].covering == []
    assert "the whole quick tier; a part of it is tested only by " in choice.changes[0].why


def test_a_part_is_tested_beside_the_suites_that_cover_the_file() -> None:
    choice = chosen("src/networking.c")
    assert choice.changes[0].suites == [*QUICK, "threads", "eviction"]
    assert choice.changes[0].covering == ["threads"]


@pytest.mark.parametrize(
    "file",
    [
        *("src/fuzzer_client.c", "src/redis-trib.rb", "src/logreqres.c"),
        *(
            "src/ae_kqueue.c",
            "src/setcpuaffinity.c",
            "src/defrag.c",
            "modules/redisbloom/Makefile",
            "src/modules/hellotype.c",
        ),
        *("deps/jemalloc/src/sz.c", "src/rdma.c", "src/trace/trace.c"),
    ],
)
def test_what_is_part_of_a_program_and_no_suite_looks_at_is_unchecked(file: str) -> None:
    (change,) = chosen(file).changes
    assert (change.suites, change.unchecked) == ([], True)
    assert change.why


@pytest.mark.parametrize(
    "file",
    [
        *("src/server.h", "src/redis.h", "src/sds.h", "src/siphash.h"),
        *("src/object.c", "src/never_heard_of.c"),
        *("src/Makefile", "Makefile", "deps/Makefile", "deps/fpconv/fpconv_dtoa.c", "src/commands/set.json"),
        *("src/commands.def", "utils/generate-command-code.py"),
    ],
)
def test_a_header_a_file_that_all_use_and_an_unknown_one_ask_for_the_whole_quick_tier(file: str) -> None:
    (change,) = chosen(file).changes
    assert change.suites == QUICK
    assert "the whole quick tier" in change.why


@pytest.mark.parametrize(
    "file",
    [
        *("README.md", "00-RELEASENOTES", "COPYING", "tests/unit/bitops.tcl", "tests/modules/basics.c", "runtest"),
        *(".github/workflows/ci.yml", ".clang-format", "redis.conf"),
        *("CMakeLists.txt", "src/CMakeLists.txt", "utils/lru/README"),
    ],
)
def test_what_no_build_sees_asks_for_nothing(file: str) -> None:
    (change,) = chosen(file).changes
    assert (change.suites, change.unchecked) == ([], False)
    assert change.why


def test_jemalloc_counts_where_it_is_built() -> None:
    (change,) = choose(["deps/jemalloc/src/sz.c"], SUITES, read_ignored_paths(), "jemalloc").changes
    assert (change.suites, change.unchecked) == (QUICK, False)


def test_defragmentation_counts_where_the_server_has_it() -> None:
    (change,) = choose(["src/defrag.c"], SUITES, read_ignored_paths(), "jemalloc").changes
    assert (change.suites, change.unchecked) == ([*QUICK, "heap"], False)


def test_several_files_ask_for_the_suites_of_each_quick_ones_first() -> None:
    choice = chosen("src/rdb.c", "README.md", "src/bitops.c")
    assert [change.file for change in choice.changes] == ["src/rdb.c", "README.md", "src/bitops.c"]
    quick = ["bitops", "fuzz", "persistence", "units"]
    assert choice.suites == [*quick, "injection", "modules", "replication", "visible", "width"]


def test_what_the_units_call_is_never_left_to_others() -> None:
    for unit in table():
        file = re.sub(r"^src/\.\./", "", f"src/{unit.file}")
        assert "units" in chosen(file).suites, file


def test_no_header_is_covered_but_those_of_one_algorithm() -> None:
    """A suite with the glob `src/*` would exclude all other suites from a change to a header."""
    for header in ("server", "redis", "sds", "dict", "zmalloc", "util", "config", "endianconv", "listpack", "rax"):
        assert chosen(f"src/{header}.h").suites == QUICK, header


def looked_at_by(file: str) -> str:
    """As tests/data/choice has it."""
    (change,) = chosen(file).changes
    if not change.suites:
        return "UNCHECKED" if change.unchecked else "NOTHING"
    more = [name for name in change.suites if name not in QUICK]
    return " ".join(["quick", *more] if set(QUICK) <= set(change.suites) else change.suites)


@pytest.mark.parametrize(
    ("file", "covering"), [("deps/hiredis/hiredis.c", "replication"), ("src/crc16_slottable.h", "cluster")]
)
def test_what_the_client_and_the_benchmark_use_beside_a_server_asks_for_them(file: str, covering: str) -> None:
    """A defect: a fault in code of deps/hiredis that only the client uses passed, because no suite ran that starts a
    client.
    """
    (change,) = chosen(file).changes
    assert change.suites == [*QUICK, covering, "programs"]
    assert (change.covering, change.partial) == ([covering], ["programs"])


@pytest.mark.parametrize("table", sorted(FILES.iterdir()), ids=lambda path: path.stem)
def test_every_source_file_of_a_release_is_looked_at_as_a_reader_agreed_or_said_to_be_unchecked(table: Path) -> None:
    """An asterisk stands for all files of the folder. Changes of `source_globs` or ignored_paths.toml appear here."""
    rows = [line.split("  ") for line in table.read_text("utf-8").splitlines()]
    wrong = {file: found for file, agreed in rows if (found := looked_at_by(file.replace("*", "any.c"))) != agreed}
    assert wrong == {}
    assert len(rows) > 150


PREMERGED = {
    "crc64-alignment": "units",
    "dump-byte-order": "persistence",
    "function-call-alignment": "protocol",
    "intset-byte-order": "selftests",
    "listpack-draw-width": "protocol",
    "rax-padding": "units",
}
"""Bug -> another suite that finds it than those that its file names. `plumb premerge` of the bug has shown so."""


def test_a_change_that_plants_a_bug_asks_for_a_suite_that_finds_it() -> None:
    """Otherwise a check before a merge passes it, though it leaves out no test that matters."""
    missed = {}
    for name, bug in mutations().items():
        choice = choose([edit.file for edit in bug.edits], SUITES, read_ignored_paths(), bug.allocator)
        if not {*bug.suites, PREMERGED.get(name)} & {*choice.suites}:
            missed[name] = bug.suites
    assert missed == {}
