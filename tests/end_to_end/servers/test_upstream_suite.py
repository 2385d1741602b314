"""Upstream's tests under real emulators: tests that pass have run, planted bugs are found, and replays confirm them."""

from __future__ import annotations

import fnmatch
import functools
import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.errors import ExitCode
from harness.judge.upstream_tests.tally import tallies
from harness.plan.catalog import DEFAULT_SERVER, Catalog
from harness.record import cell_events, event_log, run_folder
from harness.run.upstream.test_files import upstream_files
from harness.workflows.mutation_testing import mutations
from suites.upstream import table
from tests.end_to_end.support.machines import quiet_workbench
from tests.end_to_end.support.plumb_runs import PLUMB, document, processes_of, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

EMULATED = 1.5
"""Minimum factor by which an emulator of SPARC takes more processor time than a native run for unit/sort. The measured
factor is 1.8 to 2.0, because the Tcl client, which always runs natively, takes most of the time."""
NO_WORD_BOUNDARY = mutations.Edit(
    file="src/bitops.c", anchor="while((unsigned long)p & 3 && count)", replacement="while (0)"
)
"""BITCOUNT loads words at any address."""
LONG_INCREMENT = mutations.Edit(
    file="src/t_hash.c",
    anchor="    value += incr;\n    new = sdsfromlonglong(value);",
    replacement="    value += (long)incr;\n    new = sdsfromlonglong(value);",
)
"""HINCRBY cuts its increment to a long, which has 32 bits on some machines."""
WIDE_SHIFT = mutations.Edit(
    file="src/redis-check-aof.c",
    anchor="int redis_check_aof_main(int argc, char **argv) {",
    replacement="int redis_check_aof_main(int argc, char **argv) {\n"
    "    volatile int bits = 32, shifted = 1 << bits;\n    (void)shifted;",
)
"""redis-check-aof shifts by more than C defines. Tests wait for this program, and read what it prints."""


def planted_tree(edit: mutations.Edit) -> Path:
    """The default release with one planted edit."""
    server = "redis-7.0.15"
    source = quiet_workbench().fetcher.server(Catalog().servers[server]).path
    planted = mutations.Mutation(name="upstream", title="", fault="alignment", server=server, edits=[edit], expected=[])
    key = key_of([source.name, json_codec.encode(edit).decode()])
    make = functools.partial(mutations.plant, planted, source)
    return Cache.default().folder("test-trees", f"upstream-{key}", lambda into: make(into / server)) / server


def checked(folder: Path, target: str, *words: object) -> dict[str, Any]:
    """The document of a check of this suite."""
    return document(run("check", "--suite", "upstream", "--target", target, "--json", "--run", folder, *words))


def events_of(folder: Path, target: str) -> list[cell_events.TestEvent]:
    events = event_log.read_events(folder / target / "upstream" / event_log.NAME)
    return [event for event in events if isinstance(event, cell_events.TestEvent)]


@pytest.mark.parametrize("name", sorted(Catalog().servers))
def test_every_release_names_the_files_of_its_tests(name: str) -> None:
    release = quiet_workbench().fetcher.server(Catalog().servers[name])
    files = {file.name for file in upstream_files(release.path)}
    assert len(files) > 40
    assert {"unit/type/hash", "unit/sort", "sentinel/00-base" if name < "valkey-9" else "unit/cluster/info"} <= files


def test_the_default_release_has_every_file_of_the_short_list() -> None:
    catalog = Catalog()
    release = quiet_workbench().fetcher.server(catalog.servers[DEFAULT_SERVER])
    short = next(suite.quick_files for suite in catalog.suites.values() if suite.upstream)
    assert set(short) <= {file.name for file in upstream_files(release.path)}
    assert len(short) == 4


@pytest.mark.slow(
    instead=(
        "test_tests_that_pass_have_run_on_the_target_and_crashes_on_purpose_are_no_findings; "
        "tests/unit/run/test_upstream.py"
    )
)
def test_beside_other_suites_long_tests_are_skipped_with_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert (
        document(
            run("check", "--suite", "upstream", "--suite", "sds", "--target", "native", "--run", folder, "--json")
        )["verdict"]
        == "PASS"
    )
    events = {test.upstream: test for test in events_of(folder, "native")}
    (globs,) = (suite.quick_leaves_out for suite in Catalog().suites.values() if suite.upstream)
    left_out = {name for name, test in events.items() if "--tier full" in test.message}
    assert {name for name in events if any(fnmatch.fnmatchcase(name, glob) for glob in globs)} == left_out
    assert [glob for glob in globs if not fnmatch.filter(left_out, glob)] == [], "a glob that matches no omitted test"
    assert {events[name].outcome for name in left_out} == {"skipped"}
    ran = [test for name, test in events.items() if name.startswith("unit/type/hash::") and name not in left_out]
    assert len(ran) > 60
    assert {test.outcome for test in ran} == {"passed"}


def test_tests_that_pass_have_run_on_the_target_and_crashes_on_purpose_are_no_findings(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    read = checked(folder, "armv5", "--test", "unit/type/incr", "--test", "integration/logging")
    assert (read["verdict"], read["findings"]) == ("PASS", [])
    (tally,) = tallies(folder, run_folder.read_run(folder))
    assert (tally.outcomes, len(tally.tests)) == ({"passed": 28}, 28)
    assert "28 of 28 tests pass on armv5" in " ".join(read["remarks"])
    announced = {test.upstream: test.announced for test in events_of(folder, "armv5") if test.announced}
    assert "integration/logging::Crash report generated on SIGABRT" in announced
    faults = [path for path in folder.rglob("faults.jsonl") if b'"event":"fault"' in path.read_bytes()]
    assert faults, "DEBUG SEGFAULT left no record: nothing was emulated"
    assert processes_of(folder) == []


@pytest.mark.slow(instead="the other tests of test_upstream_suite.py, which run the same files")
def test_the_emulators_processor_time_is_counted(tmp_path: Path) -> None:
    """The same tests take more processor time under an emulator than natively, although the clients are the same."""
    seconds = {}
    for target in ("sparc64", "native"):
        folder = tmp_path / target
        assert checked(folder, target, "--test", "unit/sort")["verdict"] == "PASS"
        (tally,) = tallies(folder, run_folder.read_run(folder))
        seconds[target] = tally.processor_seconds
    assert seconds["sparc64"] > EMULATED * seconds["native"] > 0


def test_a_selection_of_no_file_is_a_usage_error(tmp_path: Path) -> None:
    ended = run(
        "check", "--suite", "upstream", "--target", "armv5", "--run", tmp_path / "run", "--test", "unit/nowhere"
    )
    assert ended.returncode == ExitCode.USAGE
    assert "the release has no test file unit/nowhere" in ended.stderr


def test_the_list_of_differences_names_tests_that_exist_and_at_most_three_in_a_hundred() -> None:
    release = quiet_workbench().fetcher.server(Catalog().servers["redis-7.0.15"])
    names = [
        f"{file.name}::{name}"
        for file in upstream_files(release.path)
        for name in re.findall(
            r'^\s*test\s+[{"](.+?)[}"]\s', (release.path / file.path).read_text("utf-8"), re.MULTILINE
        )
    ]
    assert len(names) > 2000
    entries = [entry for entry in table.table().differences if entry.since <= release.version]
    living = [entry for entry in entries if not entry.until or release.version < entry.until]
    globs = {glob: [name for name in names if fnmatch.fnmatchcase(name, glob)] for one in living for glob in one.tests}
    assert [glob for glob, found in globs.items() if not found] == []
    listed = {name for found in globs.values() for name in found}
    assert len(listed) <= 0.03 * len(names)


@pytest.mark.slow(instead="the other tests of test_upstream_suite.py; tests/unit/run/test_upstream.py")
def test_a_planted_misalignment_is_one_finding_and_what_it_hinders_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    read = checked(folder, "sparc64", "--server", planted_tree(NO_WORD_BOUNDARY), "--test", "unit/bitops")
    assert read["verdict"] == "FAIL"
    assert {finding["id"] for finding in read["findings"]} == {"alignment-redisPopcount-load"}
    (finding,) = read["findings"]
    assert (finding["file"], finding["function"]) == ("src/bitops.c", "redisPopcount")
    assert any(test.blocked_by for test in events_of(folder, "sparc64"))
    words = shlex.split(finding["replay"])[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS
    assert run(*words, "--server", "redis-7.0.15", program=PLUMB).returncode == ExitCode.PASS


@pytest.mark.slow(instead="the other tests of test_upstream_suite.py; tests/unit/run/test_upstream.py")
def test_a_planted_wrong_value_is_a_finding_with_the_test_and_its_words(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    read = checked(folder, "armv5", "--server", planted_tree(LONG_INCREMENT), "--test", "unit/type/hash")
    found = {finding["id"]: finding for finding in read["findings"]}
    name = "wrong-result-unit_type_hash_HINCRBY_over_32bit_value_with_over_32bit_increment"
    assert name in found
    reproducer = json.loads((folder / "reproducers" / f"{name}.json").read_text("utf-8"))
    assert "34359738368" in reproducer["detail"]
    words = shlex.split(found[name]["replay"])[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS
    assert run(*words, "--server", "redis-7.0.15", program=PLUMB).returncode == ExitCode.PASS


@pytest.mark.slow(instead="tests/unit/run/test_upstream.py, for a script in the program's place")
def test_a_report_in_a_program_that_a_test_waits_for_is_a_finding(tmp_path: Path) -> None:
    """Tcl removes the file with the program's errors when the program has ended."""
    folder = tmp_path / "run"
    read = checked(folder, "native-ubsan", "--server", planted_tree(WIDE_SHIFT), "--test", "integration/aof")
    found = {finding["id"]: finding for finding in read["findings"]}
    assert read["verdict"] == "FAIL"
    assert found["undefined-shift-redis_check_aof_main"]["file"] == "src/redis-check-aof.c"
    (cell,) = [cell for cell in read["cells"] if cell["suite"] == "upstream"]
    assert "log is gone" not in cell["reason"]
