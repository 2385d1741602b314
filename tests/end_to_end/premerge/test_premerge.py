"""`plumb premerge` on a real checkout finds and locates a planted bug, and reports no bug of the base."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

import pytest

from harness.build.sources.archives import Fetcher
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.judge.known import tree_list
from harness.plan.catalog import Catalog
from harness.record import cell_events, event_log
from harness.workflows import suite_selection
from harness.workflows.cell_process import OUT_OF_TIME
from tests.end_to_end.support.changed_checkouts import OF, UNITS, commit, edit, premerge, unentered
from tests.end_to_end.support.plumb_runs import document, run
from tests.support import fakes
from tests.unit.workflows.test_suite_selection import FILES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

PLANTED = "alignment-redisPopcount-load"
SOURCE = {".c", ".h", ".cc", ".cpp", ".hpp", ".def"}


def units_run(folder: Path) -> set[str]:
    """The tests of units that ran in a run's folder."""
    events = event_log.read_events(folder / "armv5" / "units" / "events.jsonl")
    return {event.name for event in events if isinstance(event, cell_events.TestEvent)}


def test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src" / "bitops.c"
    source.write_bytes((tmp_path / "bug.c").read_bytes() + b"int plumbIdle(int n) { return n + 7; }\n")
    code, read, errors = premerge(checkout, tmp_path / "planted", *UNITS)
    assert code == ExitCode.FINDINGS, errors
    (finding,) = [one for one in read["findings"] if one["id"] == PLANTED]
    assert (finding["known"], finding["file"], finding["targets"]) == ("", "src/bitops.c", ["armv5"])
    assert (tmp_path / "planted" / "base" / "report.html").is_file(), "the base must be checked"
    assert f"BASE is {read['base']}" in errors
    # The base runs what failed. No other unit can matter before the change is blamed: each has a process of its own.
    failed = {occasion["test"] for witness in finding["witnesses"] for occasion in witness["occasions"]}
    assert units_run(tmp_path / "planted" / "base") == failed
    assert not (tmp_path / "planted" / "base-behind").exists()
    # The unit suite calls redisPopcount, and no command.
    assert {"plumbIdle", "redisPopcount"} & unentered(read) == {"plumbIdle"}, read["remarks"]


@pytest.mark.slow(
    instead=(
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named; "
        "tests/unit/judge/test_baseline.py, for inherited findings"
    )
)
def test_a_planted_bug_is_found_and_another_beside_an_inherited_one_is_reported(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src" / "bitops.c"
    source.write_bytes((tmp_path / "bug.c").read_bytes())
    code, read, errors = premerge(checkout, tmp_path / "planted", *UNITS)
    assert code == ExitCode.FINDINGS, errors
    (finding,) = [one for one in read["findings"] if one["id"] == PLANTED]
    assert (finding["known"], finding["file"], finding["targets"]) == ("", "src/bitops.c", ["armv5"])
    assert (tmp_path / "planted" / "base" / "report.html").is_file(), "the base must be checked"
    assert f"BASE is {read['base']}" in errors

    commit(checkout)
    head = "long redisBitpos(void *s, unsigned long count, int bit) {"
    edit(source, head, head + " (void)*(volatile int *)((char *)s + 1);")
    code, read, errors = premerge(checkout, tmp_path / "another", *UNITS)
    assert code == ExitCode.FINDINGS, errors
    blamed = {one["function"] for one in read["findings"] if not one["known"]}
    assert blamed == {"redisBitpos"}, read["findings"]
    (inherited,) = [one for one in read["findings"] if one["id"] == PLANTED]
    assert inherited["known"] == f"also in BASE {read['base'].split()[0]}"


@pytest.mark.slow(instead="tests/unit/judge/test_baseline.py, on the same two judgements")
def test_a_second_faulting_line_of_a_function_that_has_one_in_the_base_is_new(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src" / "bitops.c"
    source.write_bytes((tmp_path / "bug.c").read_bytes())
    commit(checkout)
    for name in ("first", "second"):
        source.write_bytes((tmp_path / "bug.c").read_bytes())
        head = "long long redisPopcount(void *s, long count) {"
        edit(source, head, head + f" (void)*(volatile int *)((char *)s + 1); /* {name} */")
        code, read, errors = premerge(checkout, tmp_path / name, *UNITS)
        assert code == ExitCode.FINDINGS, errors
        assert PLANTED in {one["id"] for one in read["findings"] if not one["known"]}
    assert "using the cached findings of BASE" in errors


@pytest.mark.slow(
    instead=(
        "tests/unit/judge/test_baseline.py, for inherited findings; "
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named"
    )
)
def test_an_inherited_bug_passes_and_so_does_its_fix(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "src" / "bitops.c"
    clean = source.read_text("utf-8")
    source.write_bytes((tmp_path / "bug.c").read_bytes())
    commit(checkout)
    edit(source, "/* Bit operations.", "/* Changed. Bit operations.")
    code, read, errors = premerge(checkout, tmp_path / "inherited", *UNITS)
    assert code == ExitCode.PASS, errors
    (finding,) = [one for one in read["findings"] if one["id"] == PLANTED]
    assert finding["known"] == f"also in BASE {read['base'].split()[0]}"
    assert {cell["verdict"] for cell in read["cells"]} == {"PASS", "XFAIL"}
    assert len(units_run(tmp_path / "inherited" / "base")) == 1
    assert not (tmp_path / "inherited" / "base-behind").exists()

    source.write_text(clean, "utf-8")
    code, read, errors = premerge(checkout, tmp_path / "mended", *UNITS)
    news = [one for one in read["findings"] if not one["known"]]
    assert (code, read["verdict"], news) == (ExitCode.PASS, "PASS", []), errors
    assert not (tmp_path / "mended" / "base").exists(), "nothing was found, so the base must not be checked"


@pytest.mark.slow(instead="tests/unit/judge/test_integrity.py, for audits of servers that do not start")
def test_audits_test_a_change_where_neither_the_tree_nor_its_base_starts(checkout: Path, tmp_path: Path) -> None:
    """Regression: the verdict was UNKNOWN, whatever the change."""
    head = "void initServerConfig(void) {"
    misaligned = " char *volatile s = (char *)&server; (void)*(volatile int *)(s + 1);"
    edit(checkout / "src" / "server.c", head, head + misaligned)
    commit(checkout)
    source = checkout / "src" / "bitops.c"
    edit(source, "    size_t bitval = 0;", "    size_t bitval = c == NULL;")
    code, read, errors = premerge(checkout, tmp_path / "right", "--suite", "bitops")
    assert code == ExitCode.PASS, errors
    assert {cell["suite"]: cell["verdict"] for cell in read["cells"]} == {"canary": "PASS", "bitops": "XFAIL"}
    (cell,) = [one for one in read["cells"] if one["suite"] == "bitops"]
    assert (cell["passed"], cell["audited"] > 150) == (0, True)
    assert any(one.startswith("armv5: because of known findings no test of bitops passed; ") for one in read["remarks"])

    edit(source, "    size_t bitval = c == NULL;", "    size_t bitval = 0; (void)*(volatile int *)((char *)c + 1);")
    code, read, errors = premerge(checkout, tmp_path / "wrong", "--suite", "bitops")
    assert code == ExitCode.FINDINGS, errors
    assert {one["function"] for one in read["findings"] if not one["known"]} == {"getbitCommand"}


@pytest.mark.slow(instead="tests/unit/judge/test_baseline.py, on the same two judgements")
def test_another_wrong_value_of_a_test_that_fails_in_the_base_is_new(checkout: Path, tmp_path: Path) -> None:
    """Regression: any wrong number counted as the same as another one."""
    source = checkout / "src" / "bitops.c"
    edit(source, "    return bits;", "    return bits + (bits > 8 && sizeof(long) == 4 ? 1 : 0);")
    commit(checkout)
    edit(source, "== 4 ? 1", "== 4 ? 2")
    code, read, errors = premerge(checkout, tmp_path / "more", *UNITS)
    assert code == ExitCode.FINDINGS, errors
    (new,) = [one for one in read["findings"] if not one["known"]]
    (remark,) = [one for one in read["remarks"] if one.startswith(new["id"])]
    assert remark.startswith(
        f"{new['id']} is in BASE as well, but here it also has a suite, test, message or source line "
    )
    assert f"asking BASE 2 more times, since these may vary by chance: {new['id']}\n" in errors
    folders = ("base", "base-again-1", "base-again-2")
    assert all((tmp_path / "more" / name / "report.html").is_file() for name in folders)

    edit(source, "== 4 ? 2", "/* As before. */ == 4 ? 1")
    edit(source, "/* Bit operations.", "\n/* Bit operations.")
    code, read, errors = premerge(checkout, tmp_path / "moved", *UNITS)
    assert code == ExitCode.PASS, errors
    assert {one["id"]: one["known"] for one in read["findings"]}[new["id"]].startswith("also in BASE ")


def test_a_change_that_does_not_compile_for_this_machine_stops_at_once(checkout: Path, tmp_path: Path) -> None:
    edit(checkout / "src" / "bitops.c", "/* Bit operations.", "an error /* Bit operations.")
    finished = run("premerge", *OF, checkout, "--target", "armv5", "--run", tmp_path / "run", *UNITS)
    assert finished.returncode == ExitCode.INCONCLUSIVE, finished.stderr
    assert f"error: {checkout.name} does not compile natively" in finished.stderr
    assert "bitops.c:1:" in finished.stderr
    assert "for native" in finished.stderr
    assert "for armv5" not in finished.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow(instead="tests/unit/judge/test_own_known_lists.py and tests/unit/workflows/test_premerge.py")
def test_a_change_cannot_excuse_what_it_breaks_and_a_check_uses_the_trees_own_list(
    checkout: Path, tmp_path: Path
) -> None:
    (checkout / "src" / "bitops.c").write_bytes((tmp_path / "bug.c").read_bytes())
    entry = f'[[findings]]\nid = "{PLANTED}"\nreason = "ours"\nexpires = 2099-01-01\n'
    listed = fakes.write(checkout / ".plumbline" / "known.toml", entry)
    code, read, errors = premerge(checkout, tmp_path / "planted", *UNITS)
    assert code == ExitCode.FINDINGS, errors
    assert [one["known"] for one in read["findings"] if one["id"] == PLANTED] == [""]
    added = f"it adds {PLANTED} (ours; until 2099-01-01); entries that a change adds excuse none of its findings"
    assert added in read["remarks"]
    assert added in errors, "the remark must come before anything runs"

    words = ("--server", checkout, "--target", "armv5", "--run", tmp_path / "checked", "--json")
    finished = run("check", *UNITS, *words)
    checked = document(finished)
    assert finished.returncode == ExitCode.PASS, finished.stderr
    assert [one["known"] for one in checked["findings"] if one["id"] == PLANTED] == ["ours"]
    listed.unlink()
    assert document(run("judge", tmp_path / "checked", "--json"))["findings"] == checked["findings"]
    listed.write_text("[[findings]\n", "utf-8")
    damaged = run("check", *UNITS, "--server", checkout, "--target", "armv5", "--run", tmp_path / "damaged")
    assert (damaged.returncode, f"({listed}:1)" in damaged.stderr) == (ExitCode.USAGE, True), damaged.stderr


def test_what_a_time_limit_leaves_no_time_for_is_unknown_and_named(checkout: Path, tmp_path: Path) -> None:
    head = "long redisBitpos(void *s, unsigned long count, int bit) {"
    edit(checkout / "src" / "bitops.c", head, head + ' __asm__ volatile("nop");')
    code, read, errors = premerge(checkout, tmp_path / "run", *UNITS, "--time", "1s")
    assert code == ExitCode.INCONCLUSIVE, errors
    found = {cell["suite"]: (cell["verdict"], cell.get("reason", "")) for cell in read["cells"]}
    assert found["canary"][0] == "PASS"
    assert found["units"] == ("UNKNOWN", OUT_OF_TIME)


def test_a_change_that_no_build_uses_runs_nothing(checkout: Path) -> None:
    fakes.write(checkout / "README.md", "# Changed\n")
    finished = run("premerge", *OF, checkout)
    assert finished.returncode == ExitCode.PASS
    assert finished.stdout.splitlines()[1:] == ["1 changed file, not used by any build: nothing to run"]


def test_every_covered_or_ignored_file_exists_in_some_release() -> None:
    catalog, fetcher = Catalog(), Fetcher(Cache.default(), fakes.quiet())
    names = ("redis-5.0.6", "redis-7.0.15", "redis-8.0.6", "valkey-9.1.2")
    trees = [fetcher.server(catalog.servers[name]).path for name in names]
    files = {str(path.relative_to(tree)) for tree in trees for path in tree.rglob("*")}
    globs = [glob for suite in catalog.suites.values() for glob in (*suite.source_globs, *suite.partial_globs)]
    table = suite_selection.read_ignored_paths()
    ignored = [glob for entry in (*table.ignored, *table.unchecked) for glob in entry.files]
    # A tree's own list of known findings belongs to Plumbline, not to a release.
    files.add(tree_list.IN_TREE.as_posix())
    lost = {glob for glob in {*globs, *ignored} if not fnmatch.filter(files, glob)}
    assert lost == set(), "no release has these files; check the spelling"


@pytest.mark.parametrize("table", sorted(FILES.iterdir()), ids=lambda path: path.stem)
def test_the_coverage_table_has_all_files_of_a_release(table: Path) -> None:
    tree = Fetcher(Cache.default(), fakes.quiet()).server(Catalog().servers[table.stem]).path
    rows = {line.split("  ")[0] for line in table.read_text("utf-8").splitlines()}
    paths = [path for top in ("src", "deps") for path in (tree / top).rglob("*") if path.suffix in SOURCE]
    files = {str(path.relative_to(tree)) for path in paths}
    stars = {row for row in rows if row.endswith("*")}
    assert files - rows == {file for star in stars for file in fnmatch.filter(files, star)}
    assert rows - stars <= files
