"""Which suites a changed file asks for: what suites cover, what no build sees, and everything for the rest."""

from __future__ import annotations

import re

import pytest

from harness.choice import Choice, choose, read_unseen
from harness.load import Catalog
from harness.units import table

SUITES = Catalog().suites
QUICK = [name for name, suite in SUITES.items() if suite.tier == "quick" and suite.needs_server]


def chosen(*files: str) -> Choice:
    return choose(files, SUITES, read_unseen())


@pytest.mark.parametrize(
    ("file", "suites"),
    [
        ("src/bitops.c", ["bitops", "fuzz", "units"]),
        ("src/rdb.c", ["fuzz", "persistence"]),
        ("src/sha1.c", ["protocol", "units"]),
        ("src/t_string.c", ["fuzz", "persistence", "protocol", "sds"]),
    ],
)
def test_a_covered_file_asks_for_the_suites_that_cover_it(file: str, suites: list[str]) -> None:
    assert chosen(file).suites == suites


@pytest.mark.parametrize(
    "file",
    [
        *("src/server.h", "src/redis.h", "src/sds.h", "src/siphash.h", "src/sds.c", "src/dict.c", "src/hashtable.c"),
        *("src/zmalloc.c", "src/server.c", "src/networking.c", "src/object.c", "src/never_heard_of.c"),
        *("src/Makefile", "Makefile", "deps/Makefile", "deps/fpconv/fpconv_dtoa.c", "src/commands/set.json"),
        *("src/commands.def", "utils/generate-command-code.py", "modules/vector-sets/hnsw.c", "src/cluster_legacy.c"),
    ],
)
def test_a_header_a_file_that_all_use_and_an_unknown_one_ask_for_the_whole_quick_tier(file: str) -> None:
    (change,) = chosen(file).changes
    assert change.suites == QUICK
    assert "all of the quick tier" in change.why


@pytest.mark.parametrize(
    "file",
    [
        *("README.md", "00-RELEASENOTES", "COPYING", "tests/unit/bitops.tcl", "tests/modules/basics.c", "runtest"),
        *(".github/workflows/ci.yml", ".clang-format", "redis.conf", "src/redis-cli.c", "src/valkey-benchmark.c"),
        *("src/unit/test_sds.c", "CMakeLists.txt", "src/CMakeLists.txt", "utils/lru/README", "deps/jemalloc/src/sz.c"),
    ],
)
def test_what_no_build_sees_asks_for_nothing(file: str) -> None:
    choice = chosen(file)
    assert choice.suites == []
    assert choice.changes[0].why


def test_jemalloc_counts_where_it_is_built() -> None:
    assert choose(["deps/jemalloc/src/sz.c"], SUITES, read_unseen(), "jemalloc").suites == QUICK


def test_several_files_ask_for_the_suites_of_each_in_the_catalogs_order() -> None:
    choice = chosen("src/rdb.c", "README.md", "src/bitops.c")
    assert [change.file for change in choice.changes] == ["src/rdb.c", "README.md", "src/bitops.c"]
    assert choice.suites == ["bitops", "fuzz", "persistence", "units"]


def test_a_longer_suite_that_covers_a_file_is_named_and_not_run() -> None:
    (change,) = chosen("src/replication.c").changes
    assert change.suites == QUICK
    assert "; longer ones do too: --suite replication" in change.why


def test_what_the_units_call_is_never_left_to_others() -> None:
    for unit in table():
        file = re.sub(r"^src/\.\./", "", f"src/{unit.file}")
        assert "units" in chosen(file).suites, file


def test_no_header_is_covered_but_those_of_one_algorithm() -> None:
    """A suite that said `src/*` would take all others away from what is in a header."""
    for header in ("server", "redis", "sds", "dict", "zmalloc", "util", "config", "endianconv", "listpack", "rax"):
        assert chosen(f"src/{header}.h").suites == QUICK, header
