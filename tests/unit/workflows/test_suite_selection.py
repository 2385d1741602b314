"""The suites that a changed file requires: those that cover it, none if no build reads the file, otherwise all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.build.unit_drivers import table
from harness.plan.catalog import Catalog
from harness.workflows.mutation_testing.mutations import mutations
from harness.workflows.suite_selection import SuiteSelection, choose, read_ignored_paths, sampled
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

FILES = fakes.DATA / "choice"
SUITES = Catalog().suites
QUICK = [name for name, suite in SUITES.items() if suite.tier == "quick" and suite.needs_server]


def chosen(*files: str) -> SuiteSelection:
    return choose(files, SUITES, read_ignored_paths())


@pytest.mark.parametrize(
    ("file", "suites"),
    [
        ("src/bitops.c", ["bitops", "fuzz", "units", "visible", "width"]),
        ("src/rdb.c", ["fuzz", "persistence", "injection", "modules", "replication"]),
        ("src/redis-check-rdb.c", ["persistence", "units", "programs"]),
        ("modules/vector-sets/hnsw.c", ["vectors"]),
    ],
)
def test_a_covered_file_requires_the_suites_that_cover_it_whatever_their_tier(file: str, suites: list[str]) -> None:
    assert chosen(file).suites == suites
    assert sorted(chosen(file).changes[0].covering) == sorted(suites)


@pytest.mark.parametrize(
    ("file", "longer"),
    [
        ("src/cluster.c", ["cluster", "moduleapi", "width"]),
        ("src/cluster_legacy.c", ["cluster", "moduleapi"]),
        ("src/replication.c", ["injection", "life", "replication"]),
        ("src/acl.c", ["injection", "life"]),
        ("src/sentinel.c", ["replication"]),
        ("src/module.c", ["moduleapi", "modules"]),
        ("src/expire.c", ["clock", "width"]),
        ("src/io_threads.c", ["threads"]),
        ("src/lazyfree.c", ["heap"]),
        ("src/redis-cli.c", ["programs"]),
        ("deps/linenoise/linenoise.c", ["programs"]),
        ("src/unit/test_sds.c", ["selftests"]),
        ("src/tls.c", ["tls"]),
    ],
)
def test_a_file_covered_only_by_longer_suites_requires_them_and_the_whole_quick_tier(
    file: str, longer: list[str]
) -> None:
    choice = chosen(file)
    assert choice.suites == [*QUICK, *longer]
    assert choice.changes[0].covering == longer
    assert "cover it, but other code may use it" in choice.changes[0].why


@pytest.mark.parametrize(
    ("file", "partly"),
    [
        ("src/server.c", ["clock", "eviction", "width"]),
        ("src/networking.c", ["eviction", "threads"]),
        ("src/db.c", ["clock"]),
        ("src/debug.c", ["heap"]),
        ("src/dict.c", ["selftests"]),
    ],
)
def test_a_file_partly_tested_by_longer_suites_requires_them_and_the_quick_tier(file: str, partly: list[str]) -> None:
    choice = chosen(file)
    assert choice.suites == [*QUICK, *partly]
    assert choice.changes[0].covering == []
    assert "the whole quick tier; a part of it is tested only by " in choice.changes[0].why


def test_a_covered_file_also_requires_the_suites_that_test_a_part_of_it() -> None:
    (change,) = chosen("src/intset.c").changes
    assert change.suites == ["fuzz", "hashing", "persistence", "protocol", "units", "selftests"]
    assert (change.covering, change.partial) == (["fuzz", "hashing", "persistence", "protocol", "units"], ["selftests"])


def test_suites_that_test_a_part_of_each_file_run_on_one_target_of_a_kind() -> None:
    assert sampled(chosen("src/networking.c").changes) == {"eviction", "threads"}
    both = [*chosen("src/networking.c").changes, *chosen("src/io_threads.c").changes]
    assert sampled(both) == {"eviction"}, "threads covers the other file"


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
def test_a_file_of_a_program_that_no_suite_tests_is_unchecked(file: str) -> None:
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
def test_headers_common_files_and_unknown_files_require_the_whole_quick_tier(file: str) -> None:
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
def test_a_file_that_no_build_reads_requires_nothing(file: str) -> None:
    (change,) = chosen(file).changes
    assert (change.suites, change.unchecked) == ([], False)
    assert change.why


def test_jemalloc_requires_suites_only_where_it_is_built() -> None:
    (change,) = choose(["deps/jemalloc/src/sz.c"], SUITES, read_ignored_paths(), "jemalloc").changes
    assert (change.suites, change.unchecked) == (QUICK, False)


def test_defragmentation_requires_suites_only_where_the_server_has_it() -> None:
    (change,) = choose(["src/defrag.c"], SUITES, read_ignored_paths(), "jemalloc").changes
    assert (change.suites, change.unchecked) == ([*QUICK, "heap"], False)


def test_several_files_require_the_suites_of_each_and_quick_ones_come_first() -> None:
    choice = chosen("src/rdb.c", "README.md", "src/bitops.c")
    assert [change.file for change in choice.changes] == ["src/rdb.c", "README.md", "src/bitops.c"]
    quick = ["bitops", "fuzz", "persistence", "units"]
    assert choice.suites == [*quick, "injection", "modules", "replication", "visible", "width"]


def test_files_that_units_call_always_require_the_units() -> None:
    for unit in table():
        file = re.sub(r"^src/\.\./", "", f"src/{unit.file}")
        assert "units" in chosen(file).suites, file


def test_only_headers_of_a_single_algorithm_are_covered() -> None:
    """If a suite had the glob `src/*`, a changed header would require no other suite."""
    for header in ("server", "redis", "sds", "dict", "zmalloc", "util", "config", "endianconv", "listpack", "rax"):
        assert chosen(f"src/{header}.h").suites == QUICK, header


def looked_at_by(file: str) -> str:
    """As tests/support/data/choice has it."""
    (change,) = chosen(file).changes
    if not change.suites:
        return "UNCHECKED" if change.unchecked else "NOTHING"
    more = [name for name in change.suites if name not in QUICK]
    return " ".join(["quick", *more] if set(QUICK) <= set(change.suites) else change.suites)


@pytest.mark.parametrize(
    ("file", "covering"), [("deps/hiredis/hiredis.c", "replication"), ("src/crc16_slottable.h", "cluster")]
)
def test_code_that_client_and_benchmark_use_requires_the_suites_that_start_them(file: str, covering: str) -> None:
    """A defect: a fault in code of deps/hiredis that only the client uses passed, because no suite ran that starts a
    client.
    """
    (change,) = chosen(file).changes
    assert change.suites == [*QUICK, covering, "programs"]
    assert (change.covering, change.partial) == ([covering], ["programs"])


@pytest.mark.parametrize("table", sorted(FILES.iterdir()), ids=lambda path: path.stem)
def test_the_reviewed_table_has_the_suites_of_every_source_file(table: Path) -> None:
    """An asterisk stands for all files of a folder. Changes of `source_globs` or ignored_paths.toml show here."""
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
"""By bug, a suite that finds it although the bug's file does not name it. `plumb premerge` of the bug has shown it."""


def test_a_change_that_plants_a_bug_requires_a_suite_that_finds_it() -> None:
    """Otherwise a check before a merge would pass the bug. A bug of memory order shows only with `--memory-order`."""
    missed = {}
    for name, bug in mutations().items():
        if bug.memory_order != "usual":
            continue
        choice = choose([edit.file for edit in bug.edits], SUITES, read_ignored_paths(), bug.allocator)
        if not {*bug.suites, PREMERGED.get(name)} & {*choice.suites}:
            missed[name] = bug.suites
    assert missed == {}
