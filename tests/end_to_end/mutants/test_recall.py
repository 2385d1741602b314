"""Mutants made by rule from a real release: object files prove equivalence, and samples end, resume and report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core import json_codec
from harness.core.errors import ExitCode, InconclusiveError
from harness.workflows.mutation_testing.mutations import Edit, plant
from harness.workflows.mutation_testing.recall.document import read_document
from harness.workflows.mutation_testing.recall.examination import Examiner
from harness.workflows.mutation_testing.recall.object_code import ReleaseObjects
from tests.end_to_end.support.machines import quiet_workbench
from tests.end_to_end.support.plumb_runs import run
from tests.support import fakes
from tests.unit.workflows.test_mutations import a_mutation

if TYPE_CHECKING:
    from pathlib import Path

    from harness.workflows.mutation_testing.recall.object_code import Comparison

pytestmark = pytest.mark.end_to_end

FOUND = "pretend-aligned-bitops-redisPopcount-1"
EQUIVALENT = "swap-halves-zmalloc-zmalloc_get_memory_size-2"


MAKEFILE = """
redis-server: main.o counter.o deps
\t$(CC) -o redis-server main.o counter.o ../deps/lib/liblib.a
deps:
\t$(MAKE) -C ../deps/lib
%.o: %.c
\t$(CC) -c $<
"""
LIBRARY = """
liblib.a: used.o spare.o
\t$(AR) rcs liblib.a used.o spare.o
%.o: %.c
\t$(CC) -c $<
"""
SMALL = {
    "src/Makefile": MAKEFILE,
    "src/main.c": """#include "counter.h"
int shared[4];
int used(int n);
int table_entry(void) { return shared[1]; }
int (*const table[])(void) = {table_entry};
int unlinked(void) { return shared[2]; }
int main(int count, char **words) { (void)words; return used(count) + next(count) + table[count > 1](); }
""",
    "src/counter.h": "#define STEP 1\nint next(int n);\nstatic inline int width(void) { return 3; }\n",
    "src/counter.c": """#include "counter.h"
struct record { int n; };
int record(void) { return 1; }
int next(int n) { int sum = n; while (sum < 300) sum += STEP; return sum; }
""",
    "src/benchmark.c": "int main(void) { return 0; }\n",
    "deps/lib/Makefile": LIBRARY,
    "deps/lib/used.c": "extern int shared[4];\nint used(int n) { return shared[n & 3]; }\n"
    "int idle(void) { return 1; }\n",
    "deps/lib/spare.c": "extern int shared[4];\nint spare(int n) { return shared[n & 3]; }\n",
}
"""A server of two units and of an archive's two objects. One of these is not linked, because nothing refers to it."""


def compare_each(objects: ReleaseObjects, changes: dict[str, tuple[str, str, str]], folder: Path) -> None:
    """Assert what objects show of five changes to their tree: name -> file, anchor, replacement."""
    bench, tree = quiet_workbench(), objects.tree
    seen: dict[str, Comparison] = {}
    for name, (file, anchor, replacement) in changes.items():
        planted = folder / name / tree.name
        plant(a_mutation(Edit(file=file, anchor=anchor, replacement=replacement)), tree.path, planted)
        seen[name] = objects.compare(bench.open_server(str(planted)), file)
    assert seen == {
        "comment": "same",
        "narrow": "different",
        "broken": "invalid",
        "header": "different",
        "library": "different",
    }


@pytest.mark.parametrize("target", ["armv5", "sparc64"])
def test_a_small_servers_objects_show_which_changes_have_no_effect(target: str, tmp_path: Path) -> None:
    """On SPARC every object defines the function that finds its data, and so does the server."""
    place = fakes.server_tree(tmp_path / "release" / "redis-7.0.15")
    for name, text in SMALL.items():
        fakes.write(place / name, text)
    bench = quiet_workbench()
    tree = bench.open_server(str(place))
    first = ReleaseObjects.record(bench, tree, bench.catalog.targets[target], tmp_path / "units.json")
    changes: dict[str, tuple[str, str, str]] = {
        "comment": ("src/counter.c", "int next(", "/* the same */ int next("),
        "narrow": ("src/counter.c", "int sum = n;", "unsigned char sum = n;"),
        "broken": ("src/counter.c", "int sum = n;", "int sum = ;"),
        "header": ("src/counter.h", "#define STEP 1", "#define STEP 4"),
        "library": ("deps/lib/used.c", "shared[n & 3]", "shared[n & 1]"),
    }
    compare_each(first, changes, tmp_path)
    again = ReleaseObjects.record(bench, tree, first.target, tmp_path / "units.json")
    assert again.units == first.units
    for read in (first, again):
        assert [len(read.containing(f"deps/lib/{name}.c")) for name in ("used", "spare")] == [1, 0]
        assert read.containing("src/benchmark.c") == []
        assert len(read.containing("src/counter.h")) == 2
        asked = {
            "src/main.c": ("main", "unlinked", "table_entry", ""),
            "src/counter.c": ("next", "record"),
            "src/counter.h": ("width",),
            "deps/lib/used.c": ("used", "idle"),
        }
        places = [(file, function) for file, functions in asked.items() for function in functions]
        # A table refers to one function, and a structure shares another one's name.
        assert [place for place in places if read.is_unreferenced(*place)] == [
            ("src/main.c", "unlinked"),
            ("deps/lib/used.c", "idle"),
        ]


@pytest.mark.slow(instead="test_a_small_servers_objects_show_which_changes_have_no_effect")
def test_objects_show_which_changes_have_no_effect(tmp_path: Path) -> None:
    bench = quiet_workbench()
    tree = bench.open_server("redis-7.0.15")
    objects = ReleaseObjects.record(bench, tree, bench.catalog.targets["armv5"], tmp_path / "units.json")
    changes: dict[str, tuple[str, str, str]] = {
        "comment": ("src/crc16.c", "uint16_t crc16(", "/* the same */ uint16_t crc16("),
        "narrow": ("src/crc16.c", "uint16_t crc = 0;", "uint8_t crc = 0;"),
        "broken": ("src/crc16.c", "uint16_t crc = 0;", "uint16_t crc = ;"),
        "header": ("src/sparkline.h", "#define SPARKLINE_FILL 1", "#define SPARKLINE_FILL 4"),
        "library": ("deps/lua/src/lzio.c", "z->n = 0;", "z->n = 1;"),
    }
    compare_each(objects, changes, tmp_path)
    # On SPARC every object defines the function that finds its data, and so does the server.
    sparc = ReleaseObjects.record(bench, tree, bench.catalog.targets["sparc64"], tmp_path / "sparc.json")
    for each in (objects, sparc):
        assert each.containing("src/redis-benchmark.c") == []
        assert each.containing("deps/lua/src/print.c") == [], (
            "the archive contains it, but the server does not refer to it"
        )
        assert each.containing("deps/lua/src/lzio.c") != []
    again = ReleaseObjects.record(bench, tree, objects.target, tmp_path / "units.json")
    assert again.units == objects.units
    for read in (objects, again):
        unreferenced = {
            place: read.is_unreferenced(*place)
            for place in [
                ("src/crcspeed.c", "crcspeed16little"),
                ("src/crcspeed.c", "crcspeed64little"),
                ("deps/hiredis/sds.c", "hi_sdsgrowzero"),
                ("src/sds.c", "sdsgrowzero"),
                ("src/module.c", "RM_CreateTimer"),
                ("src/sds.h", "sdslen"),
                ("src/crcspeed.c", ""),
            ]
        }
        # Modules request RM_CreateTimer by name, from a table of the server.
        assert [place for place, none in unreferenced.items() if none] == [
            ("src/crcspeed.c", "crcspeed16little"),
            ("deps/hiredis/sds.c", "hi_sdsgrowzero"),
        ]


@pytest.mark.slow(instead="tests/unit/workflows/test_recall.py, for a suite whose tests all fail")
def test_a_release_that_does_not_start_is_not_sampled(tmp_path: Path) -> None:
    """Its mutants would fail as it does, and so seem to survive (docs/found/lua-murmur32-alignment.md)."""
    examiner = Examiner(quiet_workbench(), "valkey-8.1.1", "quick", ["armv5"], tmp_path, install=True)
    with pytest.raises(InconclusiveError, match="itself fails every test of a suite") as refused:
        examiner.baseline.of("armv5", ["sds"])
    assert "armv5/sds: " in refused.value.because
    assert "alignment-murmur32-load" in refused.value.because
    assert not (tmp_path / "baseline").exists(), "a resumed run would use it as a baseline"


@pytest.mark.slow(instead="tests/unit/workflows/test_recall.py and tests/unit/workflows/test_mutant_generator.py")
def test_a_sample_finds_what_shows_drops_what_is_equivalent_and_resumes(tmp_path: Path) -> None:
    words = ["mutate", "--generate", FOUND, EQUIVALENT, "--sample", "2", "--run", tmp_path / "sample"]
    first = run(*words)
    assert first.returncode == ExitCode.PASS, first.stdout + first.stderr
    document = read_document(tmp_path / "sample" / "recall.json")
    (found,) = document.of("found")
    (equivalent,) = document.of("equivalent")
    assert (found.mutant.name, equivalent.mutant.name) == (FOUND, EQUIVALENT)
    assert "alignment-redisPopcount-load" in {each.finding for each in found.found_by}
    ran, covering = set(found.suites), {"bitops", "fuzz", "units"}
    assert ran
    assert ran < covering, "the first failure must end the run before the longest suite for the file begins"
    assert {target for each in found.found_by for target in each.targets} == {"armv5"}, "the other target must not run"
    assert "found: 1 of 1" in first.stdout
    # Simulate a run that was killed after its first mutant.
    outcome = tmp_path / "sample" / "outcomes" / f"{EQUIVALENT}.json"
    outcome.unlink()
    kept = (tmp_path / "sample" / "outcomes" / f"{FOUND}.json").stat().st_mtime_ns
    again = run(*words, "--json")
    assert again.returncode == ExitCode.PASS, again.stderr
    assert (tmp_path / "sample" / "outcomes" / f"{FOUND}.json").stat().st_mtime_ns == kept
    assert json_codec.decode(again.stdout.encode(), type(document)).of("found") == [found]
    other = run(*words, "--seed", "2")
    assert other.returncode == ExitCode.USAGE
    assert "the folder holds the outcomes of another sample" in other.stderr
