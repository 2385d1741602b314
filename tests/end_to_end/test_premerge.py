"""Before a merge, on a real checkout: a planted bug is caught and named, what the base has too is not blamed."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from harness.build.sources.archives import Fetcher
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.judge import known_findings
from harness.plan.catalog import Catalog
from harness.record import event_log, run_folder
from harness.record.run_folder import read_run
from harness.workflows import suite_selection
from harness.workflows.mutation_testing import mutations
from tests import fakes
from tests.end_to_end.plumb_runs import document, run
from tests.test_suite_selection import FILES

pytestmark = pytest.mark.end_to_end

PLANTED = "alignment-redisPopcount-load"
SOURCE = {".c", ".h", ".cc", ".cpp", ".hpp", ".def"}
OF = ("--base", "HEAD", "--server")
UNITS = ("--suite", "units")
"""The quickest that sees what is planted."""


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=unstable"]
    subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", "more")


def edit(path: Path, anchor: str, replacement: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(anchor) == 1, f"{anchor} in {path}"
    path.write_text(text.replace(anchor, replacement), "utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A release as a repository of one commit. The compiler's cache knows its files."""
    catalog = Catalog()
    planted = mutations.mutations()["bitcount-alignment"]
    original = Fetcher(Cache.default(), fakes.quiet()).server(catalog.servers[planted.server])
    path = tmp_path / "my-redis"
    mutations.plant(planted, original.path, path)
    bug = (path / "src" / "bitops.c").read_bytes()
    (path / "src" / "bitops.c").write_bytes((original.path / "src" / "bitops.c").read_bytes())
    git(path, "init", "--quiet")
    commit(path)
    (tmp_path / "bug.c").write_bytes(bug)
    return path


def premerge(checkout: Path, folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    finished = run(
        "premerge", "--server", checkout, "--base", "HEAD", "--target", "armv5", "--run", folder, "--json", *words
    )
    return finished.returncode, document(finished), finished.stderr


def test_a_planted_bug_is_caught_then_inherited_then_another_is_blamed_and_the_fix_passes(
    checkout: Path, tmp_path: Path
) -> None:
    source = checkout / "src" / "bitops.c"
    clean = source.read_text("utf-8")

    source.write_bytes((tmp_path / "bug.c").read_bytes())
    code, read, errors = premerge(checkout, tmp_path / "planted", *UNITS)
    assert code == ExitCode.FINDINGS, errors
    (finding,) = [one for one in read["findings"] if one["id"] == PLANTED]
    assert (finding["known"], finding["file"], finding["targets"]) == ("", "src/bitops.c", ["armv5"])
    assert (tmp_path / "planted" / "base" / "report.html").is_file(), "the base was looked at"
    assert f"BASE is {read['base']}" in errors

    commit(checkout)
    edit(source, "/* Bit operations.", "/* Changed. Bit operations.")
    code, read, errors = premerge(checkout, tmp_path / "inherited", *UNITS)
    assert code == ExitCode.PASS, errors
    (finding,) = [one for one in read["findings"] if one["id"] == PLANTED]
    assert finding["known"] == f"also in BASE {read['base'].split()[0]}"
    assert {cell["verdict"] for cell in read["cells"]} == {"PASS", "XFAIL"}

    edit(source, "/* Changed. Bit operations.", "/* Changed again. Bit operations.")
    head = "long redisBitpos(void *s, unsigned long count, int bit) {"
    edit(source, head, head + " (void)*(volatile int *)((char *)s + 1);")
    code, read, errors = premerge(checkout, tmp_path / "another", *UNITS)
    assert code == ExitCode.FINDINGS, errors
    assert "the findings of BASE are in the cache" in errors
    blamed = {one["function"] for one in read["findings"] if not one["known"]}
    assert blamed == {"redisBitpos"}, read["findings"]
    assert PLANTED in {one["id"] for one in read["findings"] if one["known"]}

    source.write_text(clean, "utf-8")
    code, read, errors = premerge(checkout, tmp_path / "mended", *UNITS)
    news = [one for one in read["findings"] if not one["known"]]
    assert (code, read["verdict"], news) == (ExitCode.PASS, "PASS", []), errors
    assert not (tmp_path / "mended" / "base").exists(), "nothing was found, so the base does not matter"


def test_a_change_that_does_not_compile_for_this_machine_stops_at_once(checkout: Path, tmp_path: Path) -> None:
    edit(checkout / "src" / "bitops.c", "/* Bit operations.", "an error /* Bit operations.")
    finished = run("premerge", *OF, checkout, "--target", "armv5", "--run", tmp_path / "run", *UNITS)
    assert finished.returncode == ExitCode.INCONCLUSIVE, finished.stderr
    assert f"error: {checkout.name} does not compile for this machine" in finished.stderr
    assert "bitops.c:1:" in finished.stderr
    assert "for native" in finished.stderr
    assert "for armv5" not in finished.stderr
    assert not (tmp_path / "run").exists()


def test_a_change_cannot_excuse_what_it_breaks_and_a_check_uses_the_trees_own_list(
    checkout: Path, tmp_path: Path
) -> None:
    (checkout / "src" / "bitops.c").write_bytes((tmp_path / "bug.c").read_bytes())
    entry = f'[[findings]]\nid = "{PLANTED}"\nreason = "ours"\nexpires = 2099-01-01\n'
    listed = fakes.write(checkout / ".plumbline" / "known.toml", entry)
    code, read, errors = premerge(checkout, tmp_path / "planted", *UNITS)
    assert code == ExitCode.FINDINGS, errors
    assert [one["known"] for one in read["findings"] if one["id"] == PLANTED] == [""]
    added = f"it adds {PLANTED} (ours; until 2099-01-01): an entry of the change itself excuses nothing"
    assert added in read["remarks"]
    assert added in errors, "it is said before anything runs"

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


def test_what_a_file_changes_is_run_by_the_suites_that_it_chooses(checkout: Path, tmp_path: Path) -> None:
    edit(checkout / "src" / "bitops.c", "/* Bit operations.", "/* Changed. Bit operations.")
    explained = run("premerge", *OF, checkout, "--target", "native", "--explain", "--json")
    chosen = {"canary", *document(explained)["suites"]}
    finished = run(
        "premerge",
        "--server",
        checkout,
        "--base",
        "HEAD",
        "--target",
        "native",
        "--run",
        tmp_path / "chosen",
        "--json",
    )
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.PASS, "PASS"), finished.stderr
    assert {cell["suite"] for cell in read["cells"]} == chosen
    assert chosen == {"canary", "bitops", "fuzz", "units", "visible", "width"}


def test_a_file_that_a_longer_suite_alone_covers_is_checked_by_it_or_said_not_to_be(
    checkout: Path, tmp_path: Path
) -> None:
    """A bus error on every packet of the cluster's bus passed: the suite that sends any is of the full tier."""
    head = "    clusterMsg *hdr = (clusterMsg*) link->rcvbuf;\n    uint32_t totlen = ntohl(hdr->totlen);\n"
    edit(checkout / "src" / "cluster.c", head, head + "    (void)*(volatile int *)(link->rcvbuf + 1);\n")
    explained = run("premerge", *OF, checkout, "--target", "armv5", "--explain", "--json")
    assert "cluster" in document(explained)["suites"]

    code, read, errors = premerge(checkout, tmp_path / "without", "--suite", "sds")
    assert (code, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN"), errors
    assert read["unchecked"] == ["NOT CHECKED: src/cluster.c is covered by `cluster` and `moduleapi` alone: not run"]
    assert {cell["verdict"] for cell in read["cells"]} == {"PASS"}

    code, read, errors = premerge(checkout, tmp_path / "with", "--suite", "cluster")
    assert code == ExitCode.FINDINGS, errors
    blamed = {one["id"] for one in read["findings"] if not one["known"]}
    assert "alignment-clusterProcessPacket-load" in blamed
    assert read["unchecked"] == []


def test_fail_overs_are_tested_although_they_wait_for_time_outs(checkout: Path, tmp_path: Path) -> None:
    """A planted bug of what a returning primary is told passed: of the suite that covers it, no such test ran."""
    edit(checkout / "src" / "cluster.c", '#include "cluster.h"', '#include "cluster.h" /* changed */')
    words = ("--base", "HEAD", "--target", "native", "--run", tmp_path / "run", "--suite", "cluster")
    finished = run("premerge", "--server", checkout, *words)
    assert finished.returncode == ExitCode.PASS, finished.stderr
    events = event_log.read_events(tmp_path / "run" / "native" / "cluster" / event_log.NAME)
    outcomes = {event.name: event.outcome for event in events if isinstance(event, run_folder.TestEvent)}
    waiting = "cluster/test_membership.py::test_a_primary_that_returns_learns_who_has_replaced_it"
    assert outcomes[waiting] == "passed"


def test_a_header_asks_for_the_suites_that_alone_cover_what_it_alters(checkout: Path, tmp_path: Path) -> None:
    """A macro that the cluster's bus alone uses passed: for a header, no suite ran that sends a packet."""
    header, user = checkout / "src" / "server.h", checkout / "src" / "cluster.c"
    edit(header, "void bitopCommand(client *c);", "void bitopCommand(client *c);\n#define PLUMB_AT(buffer) (buffer)\n")
    head = "    clusterMsg *hdr = (clusterMsg*) link->rcvbuf;\n    uint32_t totlen = ntohl(hdr->totlen);\n"
    edit(user, head, f"{head}    (void)*(volatile char *)PLUMB_AT(link->rcvbuf);\n")
    commit(checkout)
    edit(header, "PLUMB_AT(buffer) (buffer)", "PLUMB_AT(buffer) ((volatile int *)((buffer) + 1))")
    code, read, errors = premerge(checkout, tmp_path / "without", "--suite", "units")
    assert (code, read["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN"), errors
    told = "NOT CHECKED: src/cluster.c is covered by `cluster` and `moduleapi` alone: not run"
    assert read["unchecked"][-1] == told
    assert not any("src/bitops.c" in one for one in read["unchecked"])


BITOP = "void bitopCommand(client *c) {\n"
REACHING = ("--suite", "bitops", "--suite", "units")
LEFT = "and do not reach what differs"


def test_tests_that_a_change_cannot_reach_are_left_out_and_what_it_breaks_is_found_all_the_same(
    checkout: Path, tmp_path: Path
) -> None:
    source = checkout / "src" / "bitops.c"
    # The number makes the tree another one each time: nothing is in the cache of it.
    unique = 100_000 + time.time_ns() % 1_000_000_000
    edit(source, BITOP, BITOP + f"    if (c->argc == {unique}) return;\n")
    code, first, errors = premerge(checkout, tmp_path / "first", *REACHING)
    assert (code, first["left_out"]) == (ExitCode.PASS, 0), errors
    assert not any(LEFT in remark for remark in first["remarks"])

    edit(source, f"== {unique}", f"== {unique} + 1")
    code, second, errors = premerge(checkout, tmp_path / "second", *REACHING)
    assert code == ExitCode.PASS, errors
    ran = {cell["suite"]: cell["passed"] for cell in second["cells"]}
    all_of = {cell["suite"]: cell["passed"] for cell in first["cells"]}
    assert 0 < ran["bitops"] < all_of["bitops"]
    # Of what the change does not reach, only that runs which fails for a known reason, and one test beside it.
    assert ran["units"] == 1
    assert ran["canary"] == all_of["canary"]
    assert second["left_out"] == sum(all_of.values()) - sum(ran.values())
    (remark,) = [one for one in second["remarks"] if LEFT in one]
    assert f"they passed in {tmp_path / 'first'} {LEFT} (bitopCommand): " in remark
    assert f"{second['left_out']} tests passed before, and the change cannot reach them: left out" in errors

    # The native build alone does otherwise what tests ask for that enter nothing of what differs on the target.
    stores = "void setUnsignedBitfield(unsigned char *p, uint64_t offset, uint64_t bits, uint64_t value) {"
    elsewhere = " if (sizeof(long) == 8 && bits == 7) return;"
    edit(source, stores, stores + elsewhere)
    edit(source, f"== {unique} + 1", f"== {unique} + 9")
    code, parted, errors = premerge(checkout, tmp_path / "parted", *REACHING)
    assert code == ExitCode.FINDINGS, errors
    assert parted["left_out"] > 0
    assert {one["kind"] for one in parted["findings"] if not one["known"]} == {"wrong-result"}
    edit(source, elsewhere, "")
    edit(source, f"== {unique} + 9", f"== {unique} + 1")

    head = "long redisBitpos(void *s, unsigned long count, int bit) {"
    edit(source, head, head + " (void)*(volatile int *)((char *)s + 1);")
    code, planted, errors = premerge(checkout, tmp_path / "planted", *REACHING)
    assert code == ExitCode.FINDINGS, errors
    assert planted["left_out"] > 0
    assert {one["function"] for one in planted["findings"] if not one["known"]} == {"redisBitpos"}

    # What failed is not kept: the next run compares with the one that passed.
    edit(source, " (void)*(volatile int *)((char *)s + 1);", "")
    edit(source, f"== {unique} + 1", f"== {unique} + 2")
    code, whole, errors = premerge(checkout, tmp_path / "whole", *UNITS, "--all-tests")
    assert (code, whole["left_out"]) == (ExitCode.PASS, 0), errors

    # Other random numbers are other tests.
    edit(source, f"== {unique} + 2", f"== {unique} + 3")
    code, seeded, errors = premerge(checkout, tmp_path / "seeded", *UNITS, "--seed", "5")
    assert (code, seeded["left_out"]) == (ExitCode.PASS, 0), errors


def test_what_a_server_does_late_is_found_where_the_tests_that_met_it_do_not_meet_it_again(
    checkout: Path, tmp_path: Path
) -> None:
    """It counted for the tests that ran when it was due. These alone are over before."""
    source, server = checkout / "src" / "bitops.c", checkout / "src" / "server.c"
    unique = 100_000 + time.time_ns() % 1_000_000_000
    head = "void call(client *c, int flags) {\n"
    due = "    if (server.stat_numcommands == 3000) { static long long at[2]; plumbTick((char *)at); }\n"
    edit(server, head, f"void plumbTick(char *at);\n{head}{due}")
    tick = f"void plumbTick(char *at) {{ if (server.hz == {unique}) at[1] = 1; }}\n"
    edit(source, BITOP, f"{tick}{BITOP}")
    commit(checkout)
    edit(source, f"== {unique})", f"== {unique} + 1)")
    code, first, errors = premerge(checkout, tmp_path / "first", "--suite", "bitops")
    assert (code, first["left_out"]) == (ExitCode.PASS, 0), errors

    edit(source, f"== {unique} + 1) at[1] = 1;", f"!= {unique} + 2) *(volatile int *)(at + 1) = 1;")
    code, planted, errors = premerge(checkout, tmp_path / "planted", "--suite", "bitops")
    assert code == ExitCode.FINDINGS, errors
    assert {one["function"] for one in planted["findings"] if not one["known"]} == {"plumbTick"}
    assert "armv5/bitops: what differs was not entered as before, so that all tests run" in errors


def test_a_table_that_is_made_from_a_changed_file_is_made_whatever_its_time(checkout: Path, tmp_path: Path) -> None:
    """A table of commands with a changed argument's number passed, because make took the old one for newer."""
    described, table = checkout / "src" / "commands" / "getbit.json", checkout / "src" / "commands.c"
    marker = f"plumb {time.time_ns()}"
    edit(described, '"summary": "Returns the bit value', f'"summary": "{marker}. Returns the bit value')

    def built(folder: Path) -> bytes:
        code, read, errors = premerge(checkout, folder, *UNITS)
        assert (code, {cell["verdict"] for cell in read["cells"]}) == (ExitCode.INCONCLUSIVE, {"PASS", "XFAIL"}), errors
        return Path(read_run(folder).binaries["armv5"]).read_bytes()

    os.utime(described, (0, 0))
    assert marker.encode() in built(tmp_path / "described")
    os.utime(described)
    # Who has both changed has made the table already.
    edit(table, "Returns the bit value", f"Of hand: {marker}. Returns the bit value")
    os.utime(table, (0, 0))
    assert b"Of hand: " in built(tmp_path / "both")


def unentered(judged: dict[str, Any]) -> set[str]:
    """The functions that differ from the base's and that no test has entered."""
    begin = "of what differs from BASE, no test enters "
    (told,) = [remark.removeprefix(begin) for remark in judged["remarks"] if remark.startswith(begin)]
    return set(told.partition(" on armv5")[0].split(", "))


def test_a_change_that_no_test_enters_is_not_checked(checkout: Path, tmp_path: Path) -> None:
    """It passed in the first check of a checkout, and where another one was checked before."""
    source = checkout / "src" / "bitops.c"
    unique = 100_000 + time.time_ns() % 1_000_000_000
    # At the end: assertions know their line.
    with source.open("a", encoding="utf-8") as file:
        file.write(f"int plumbIdle(int n) {{ return n + {unique}; }}\n")
    for options in ((), ("--all-tests",)):
        code, idle, errors = premerge(checkout, tmp_path / f"idle{len(options)}", *UNITS, *options)
        assert (code, idle["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN"), errors
        assert idle["unchecked"] == ["NOT CHECKED: no test enters what differs from BASE on armv5: plumbIdle"]
    assert document(run("judge", tmp_path / "idle0", "--json"))["unchecked"] == idle["unchecked"]

    fields = "void bitfieldCommand(client *c) {\n"
    edit(source, fields, f"{fields}    if (c->argc == {unique}) return;\n")
    position = "void bitposCommand(client *c) {\n"
    edit(source, position, f"{position}    if (c->argc == {unique + 1}) return;\n")
    code, entered, errors = premerge(checkout, tmp_path / "entered", "--suite", "bitops")
    assert (code, entered["unchecked"], entered["left_out"]) == (ExitCode.PASS, [], 0), errors
    assert "plumbIdle" in unentered(entered)
    assert not {"bitfieldCommand", "bitposCommand"} & unentered(entered)

    # Tests that are left out have entered bitfieldCommand before, as it is now.
    edit(source, f"== {unique + 1}", f"== {unique + 2}")
    code, part, errors = premerge(checkout, tmp_path / "part", "--suite", "bitops")
    assert (code, part["unchecked"]) == (ExitCode.PASS, []), errors
    assert part["left_out"] > 0
    assert unentered(part) == unentered(entered)


def test_what_no_build_sees_is_not_run(checkout: Path) -> None:
    fakes.write(checkout / "README.md", "# Changed\n")
    finished = run("premerge", *OF, checkout)
    assert finished.returncode == ExitCode.PASS
    assert finished.stdout.splitlines()[1:] == ["1 changed file, of which no build sees any: nothing to run"]


def test_every_file_that_is_covered_or_ignored_is_one_of_some_release() -> None:
    catalog, fetcher = Catalog(), Fetcher(Cache.default(), fakes.quiet())
    names = ("redis-5.0.6", "redis-7.0.15", "redis-8.0.6", "valkey-9.1.2")
    trees = [fetcher.server(catalog.servers[name]).path for name in names]
    files = {str(path.relative_to(tree)) for tree in trees for path in tree.rglob("*")}
    globs = [glob for suite in catalog.suites.values() for glob in (*suite.source_globs, *suite.partial_globs)]
    table = suite_selection.read_ignored_paths()
    ignored = [glob for entry in (*table.ignored, *table.unchecked) for glob in entry.files]
    # A tree's own list of known findings is Plumbline's, and no release's.
    files.add(known_findings.IN_TREE.as_posix())
    lost = {glob for glob in {*globs, *ignored} if not fnmatch.filter(files, glob)}
    assert lost == set(), "no release has such a file: a slip of the pen?"


@pytest.mark.parametrize("table", sorted(FILES.iterdir()), ids=lambda path: path.stem)
def test_the_table_of_what_looks_at_a_releases_files_has_all_of_them(table: Path) -> None:
    tree = Fetcher(Cache.default(), fakes.quiet()).server(Catalog().servers[table.stem]).path
    rows = {line.split("  ")[0] for line in table.read_text("utf-8").splitlines()}
    paths = [path for top in ("src", "deps") for path in (tree / top).rglob("*") if path.suffix in SOURCE]
    files = {str(path.relative_to(tree)) for path in paths}
    stars = {row for row in rows if row.endswith("*")}
    assert files - rows == {file for star in stars for file in fnmatch.filter(files, star)}
    assert rows - stars <= files
