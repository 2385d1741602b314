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
from tests.unit.workflows.test_mutations import a_mutation

if TYPE_CHECKING:
    from pathlib import Path

    from harness.workflows.mutation_testing.recall.object_code import Comparison

pytestmark = pytest.mark.end_to_end

FOUND = "pretend-aligned-bitops-redisPopcount-1"
EQUIVALENT = "swap-halves-zmalloc-zmalloc_get_memory_size-2"


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
    seen: dict[str, Comparison] = {}
    for name, (file, anchor, replacement) in changes.items():
        planted = tmp_path / name / tree.name
        plant(a_mutation(Edit(file=file, anchor=anchor, replacement=replacement)), tree.path, planted)
        seen[name] = objects.compare(bench.open_server(str(planted)), file)
    assert seen == {
        "comment": "same",
        "narrow": "different",
        "broken": "invalid",
        "header": "different",
        "library": "different",
    }
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


def test_a_release_that_does_not_start_is_not_sampled(tmp_path: Path) -> None:
    """Its mutants would fail as it does, and so seem to survive (docs/found/lua-murmur32-alignment.md)."""
    examiner = Examiner(quiet_workbench(), "valkey-8.1.1", "quick", ["armv5"], tmp_path, install=True)
    with pytest.raises(InconclusiveError, match="itself fails every test of a suite") as refused:
        examiner.baseline.of("armv5", ["sds"])
    assert "armv5/sds: " in refused.value.because
    assert "alignment-murmur32-load" in refused.value.because
    assert not (tmp_path / "baseline").exists(), "a resumed run would use it as a baseline"


@pytest.mark.slow
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
