"""`plumb premerge` before its run: messages about a checkout, refusals, and changes for which nothing must run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis.code.code_map import CodeMap
from harness.analysis.code.elf_object import ObjectCode
from harness.cli.console_script import main
from harness.cli.group import plumb as group
from harness.core.errors import ExitCode
from harness.core.finding import Occasion
from harness.core.model import COMPILED_IN
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.workflows.premerge.altered_code import asked_besides, with_suites
from harness.workflows.premerge.base_comparison import earlier_tests
from harness.workflows.premerge.change_selection import MANY_FILES
from harness.workflows.preparation.reach.base_code import altered_files, functions_of_files
from harness.workflows.suite_selection import choose, read_ignored_paths
from tests.support import fakes
from tests.support.histories import finding
from tests.support.repositories import commit, git
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.finding import Finding

    Premerge = Callable[..., tuple[int, str, str]]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A server's repository of one commit."""
    path = fakes.server_tree(tmp_path / "valkey")
    git(path, "init", "--quiet")
    commit(path, "first")
    return path


@pytest.fixture
def premerge(checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Premerge:
    """Run the command in the checkout: (exit code, standard output, standard error)."""
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PLUMBLINE_CACHE", str(checkout.parent / "cache"))
    monkeypatch.setattr(process, "stop_on_signals", lambda: None)

    def run(*words: object, base: str = "HEAD") -> tuple[int, str, str]:
        base_words = ["--base", base] if base else []
        with pytest.raises(SystemExit) as ended:
            main(["premerge", "--offline", "--no-install", *base_words, *map(str, words)])
        output = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, output.out, output.err

    return run


def base_line(checkout: Path) -> str:
    return f"BASE  {git(checkout, 'rev-parse', 'HEAD')[:12]} 'first' (where HEAD branched off HEAD)\n"


def test_a_checkout_without_changes_passes_with_a_message(premerge: Premerge, checkout: Path) -> None:
    assert premerge() == (0, base_line(checkout) + "nothing has changed since BASE: nothing to run\n", "")


def test_a_file_that_no_build_reads_passes_with_a_message_and_named_suites_run_all_the_same(
    premerge: Premerge, checkout: Path
) -> None:
    fakes.write(checkout / "README.md", "")
    assert premerge() == (0, base_line(checkout) + "1 changed file, not used by any build: nothing to run\n", "")
    assert "canary, sds on armv5 (2 cells)" in premerge("--explain", "--suite", "sds", "--target", "armv5")[1]


def test_explain_lists_each_files_suites_with_the_reason_and_the_plan(premerge: Premerge, checkout: Path) -> None:
    fakes.write(checkout / "src" / "bitops.c", "int changed;\n")
    fakes.write(checkout / "COPYING", "")
    code, out, err = premerge("--explain", "--target", "armv5")
    assert (code, err) == (0, "")
    assert out == (
        f"{base_line(checkout)}"
        "\n"
        "COPYING\n"
        "    nothing to run: a document\n"
        "src/bitops.c\n"
        "    bitops fuzz units visible width: these suites cover it\n"
        "\n"
        "2 changed files: canary, bitops, fuzz, units, visible, width on armv5 (6 cells)\n"
    )


def test_without_a_base_it_looks_at_nothing_and_is_exit_4(premerge: Premerge, checkout: Path) -> None:
    """Regression: directly after a commit, it printed 'nothing has changed' and exited with 0."""
    fakes.write(checkout / "src" / "bitops.c", "int changed;\n")
    commit(checkout, "second")
    code, out, err = premerge(base="")
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith("error: no base to compare with")


def test_it_works_from_a_folder_of_the_server(
    premerge: Premerge, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes.write(checkout / "src" / "bitops.c", "int changed;\n")
    from_top = premerge("--explain", "--json")
    monkeypatch.chdir(checkout / "src")
    assert premerge("--explain", "--json") == from_top
    assert json.loads(from_top[1])["server"] == str(checkout)


def test_altered_files_require_suites_that_alone_cover_them_unless_suites_are_named(tmp_path: Path) -> None:
    catalog = Catalog()
    changes = choose(["src/server.h"], catalog.suites, read_ignored_paths()).changes
    altered = asked_besides(
        changes, ["src/bitops.c", "src/cluster.c", "src/defrag.c", "src/server.c", "src/sds.c"], catalog, "libc"
    )
    assert {change.file: change.covering for change in altered} == {
        "src/cluster.c": ["cluster", "moduleapi", "width"],
        "src/sds.c": [],
        "src/server.c": [],
    }
    (server,) = (change for change in altered if change.file == "src/server.c")
    assert {"clock", "eviction"} < {*server.suites}, "no other suite covers what they cover of it"

    def planned(*suites: str) -> set[str]:
        plan = make_plan(catalog, targets=["armv5"], server="redis-7.0.15", suites=suites)
        request = fakes.quick_request(plan, server="redis-7.0.15", known=tmp_path, run=tmp_path)
        plan = with_suites(request, catalog, changes, altered).plan
        assert {cell.suite for cell in plan.cells} == {*plan.suites}
        return {*plan.suites} - {"canary"}

    chosen = changes[0].suites
    assert planned(*chosen) - {*chosen} == {"clock", "cluster", "eviction", "moduleapi", "selftests", "width"}
    assert planned("sds") == {"sds"}


def test_a_change_of_many_files_causes_a_warning(premerge: Premerge, checkout: Path) -> None:
    for number in range(MANY_FILES):
        fakes.write(checkout / f"{number}.md", "")
    assert premerge()[1] == base_line(checkout) + "30 changed files, not used by any build: nothing to run\n"
    fakes.write(checkout / "one-more.md", "")
    warning = "WARNING: 31 changed files are unusually many. If your work did not start at BASE, add --base REVISION"
    assert premerge()[1].endswith(f"nothing to run\n{warning}\n")
    assert premerge("--explain")[1].endswith(f"\n{warning}\n")
    assert json.loads(premerge("--explain", "--json")[1])["warning"] == warning


def test_ignored_sources_cause_a_warning_even_if_there_is_nothing_to_run(premerge: Premerge, checkout: Path) -> None:
    """A build reads them, but no diff shows them."""
    fakes.write(checkout / ".gitignore", "mine.*\n")
    commit(checkout, "first")
    for name in ("src/mine.h", "deps/jemalloc/mine.h", "tests/mine.c", "utils/mine.h"):
        fakes.write(checkout / name, "")
    warning = "WARNING: git does not look for changes in src/mine.h, so any change there was not checked\n"
    assert premerge()[1] == f"{base_line(checkout)}nothing has changed since BASE: nothing to run\n{warning}"
    fakes.write(checkout / "src" / "bitops.c", "int changed;\n")
    assert premerge("--explain")[1].endswith(f" cells)\n{warning}")
    unseen = json.loads(premerge("--explain", "--json", "--allocator", "jemalloc")[1])["unseen"]
    assert unseen == ["deps/jemalloc/mine.h", "src/mine.h"]


def test_a_change_that_no_suite_covers_is_reported_and_does_not_pass(premerge: Premerge, checkout: Path) -> None:
    fakes.write(checkout / "src" / "fuzzer_c.c", "")
    code, out, err = premerge()
    assert (code, err) == (ExitCode.INCONCLUSIVE, "")
    assert out == base_line(checkout) + (
        "1 changed file, not tested by any suite: nothing to run\n"
        "NOT CHECKED: src/fuzzer_c.c is not tested by any suite: another program than the server, which no suite runs\n"
    )
    code, out, _ = premerge("--json")
    assert (code, len(json.loads(out)["unchecked"])) == (ExitCode.INCONCLUSIVE, 1)
    assert premerge("--explain")[0] == ExitCode.PASS, "--explain does not judge"


def test_files_that_the_named_suites_do_not_check_are_reported_before_the_run(
    premerge: Premerge, checkout: Path
) -> None:
    fakes.write(checkout / "src" / "cluster.c", "")
    remark = "NOT CHECKED: src/cluster.c is covered only by `cluster`, `moduleapi` and `width`: not run\n"
    assert premerge("--explain", "--suite", "sds")[1].endswith(remark)
    assert "NOT CHECKED" not in premerge("--explain")[1]
    assert "NOT CHECKED" not in premerge("--explain", "--suite", "cluster")[1]


def test_explain_as_json_is_one_document_and_the_seed_is_the_bases(premerge: Premerge, checkout: Path) -> None:
    fakes.write(checkout / "src" / "bitops.c", "int changed;\n")
    read = json.loads(premerge("--explain", "--json", "--target", "armv5")[1])
    assert (read["suites"], read["targets"]) == (["canary", "bitops", "fuzz", "units", "visible", "width"], ["armv5"])
    assert read["seed"] == int(read["base"]["commit"][:8], 16)
    assert [change["file"] for change in read["changes"]] == ["src/bitops.c"]


ENTRY = '[[findings]]\nid = "{}"\nreason = "why"\nexpires = 2099-01-01\n'


def test_changes_of_the_checkouts_known_list_are_reported_though_no_build_reads_it(
    premerge: Premerge, checkout: Path
) -> None:
    listed = fakes.write(checkout / ".plumbline" / "known.toml", ENTRY.format("old") + ENTRY.format("kept"))
    commit(checkout, "a list")
    assert premerge()[1].splitlines()[1:] == ["nothing has changed since BASE: nothing to run"]
    fakes.write(listed, ENTRY.format("kept") + ENTRY.format("new"))
    remarks = [
        "the change edits .plumbline/known.toml",
        "it adds new (why; until 2099-01-01); entries that a change adds excuse none of its findings",
        "it removes old (why; until 2099-01-01)",
    ]
    code, out, _ = premerge()
    assert (code, out.splitlines()[1:]) == (0, ["1 changed file, not used by any build: nothing to run", *remarks])
    assert premerge("--explain")[1].splitlines()[-3:] == remarks
    assert json.loads(premerge("--explain", "--json")[1])["known"] == remarks
    fakes.write(checkout / "src" / "bitops.c", "int changed;\n")
    assert "1 changed file" not in (out := premerge("--explain")[1])
    assert out.splitlines()[-3:] == remarks


def test_a_new_list_and_one_that_replaces_a_damaged_one_excuse_nothing(premerge: Premerge, checkout: Path) -> None:
    added = "it adds new (why; until 2099-01-01); entries that a change adds excuse none of its findings"
    listed = fakes.write(checkout / ".plumbline" / "known.toml", ENTRY.format("new"))
    assert premerge()[1].splitlines()[2:] == ["the change edits .plumbline/known.toml", added]
    fakes.write(listed, "[[findings]\n")
    commit(checkout, "damaged")
    code, out, err = premerge()
    assert (code, out, "/.plumbline/known.toml:1)" in err) == (ExitCode.USAGE, "", True), err
    fakes.write(listed, ENTRY.format("new"))
    assert premerge()[1].splitlines()[3:] == [added]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--base", "nonsense"), "error: no revision 'nonsense'"),
        (("--since", "nonsense"), "error: no revision 'nonsense'"),
        (("--server", "."), ""),
        (("--server", "src"), ""),
        (("--server", ".."), "error: no checkout of a server here"),
        (("--server", "../nowhere"), "error: no checkout of a server here"),
        (("--run", "runs/here"), "error: the run folder is inside the checkout"),
        (("--target", "sparc46"), "error: unknown target 'sparc46'"),
        (("--suite", "bitop"), "error: unknown suite 'bitop'"),
    ],
)
def test_a_wrong_request_is_exit_4(premerge: Premerge, words: tuple[str, ...], error: str) -> None:
    code, _, err = premerge(*words, base="" if {"--base", "--since"} & set(words) else "HEAD")
    assert code == (ExitCode.USAGE if error else ExitCode.PASS), err
    assert err.startswith(error)
    assert not error or "  try: " in err


def test_the_checkouts_own_list_is_refused_for_known(premerge: Premerge, checkout: Path) -> None:
    fakes.write(checkout / ".plumbline" / "known.toml", "findings = []\n")
    code, _, err = premerge("--known", ".plumbline/known.toml")
    assert (code, err.partition(" (")[0]) == (ExitCode.USAGE, "error: the checkout's own list needs no --known")


def test_a_server_that_is_not_a_checkout_is_exit_4(premerge: Premerge, tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "unpacked")
    code, _, err = premerge("--server", tree)
    assert (code, f"error: not a git checkout ({tree})" in err) == (ExitCode.USAGE, True), err


def test_it_accepts_every_option_of_a_check_except_those_that_it_sets_itself() -> None:
    has = {name: {one.name for one in group.commands[name].params} for name in ("check", "premerge")}
    assert has["premerge"] - has["check"] == {"all_tests", "base_name", "explain"}
    settled = {"tier", "fail_fast", "tests", "mixed", "target_clients"}
    # It compares with the base on the same machine.
    assert has["check"] - has["premerge"] == settled | {"on", "insecure", "board", "flush"}


def test_the_hook_for_pre_commit_is_valid_and_its_entry_exists() -> None:
    manifest = ROOT / ".pre-commit-hooks.yaml"
    validated = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", manifest],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert validated.returncode == 0, validated.stdout
    entry = re.search(r"^  entry: (\S+)$", manifest.read_text("utf-8"), re.MULTILINE)
    assert entry is not None
    assert (ROOT / entry[1]).stat().st_mode & 0o111


def test_files_whose_code_cannot_be_compared_count_as_altered(tmp_path: Path) -> None:
    for name in ("src/bitops.c", "src/sds.c", "src/sds.h", "deps/lua/src/lua.c"):
        fakes.write(tmp_path / name, "")

    def code(**digests: str) -> CodeMap:
        objects = {
            f"src/{name}.o": ObjectCode(
                sha256=digest, functions={"f": digest}, data="", defines=[], needs=[], places=[]
            )
            for name, digest in digests.items()
        }
        return CodeMap(objects=objects, link=[], recipe="1")

    base = code(bitops="1", sds="1")
    changed = code(bitops="1", sds="2")
    assert altered_files({"armv5": base}, {"armv5": changed}, tmp_path) == ["src/sds.c"]
    assert altered_files({"armv5": base}, {}, tmp_path) == [], "the check says that it does not compile"
    for old, new in (({"armv5": None}, changed), ({"armv5": base}, None), ({}, changed)):
        assert altered_files(old, {"armv5": new}, tmp_path) == ["src/bitops.c", "src/sds.c"]


def test_the_functions_of_files_are_those_of_their_objects(tmp_path: Path) -> None:
    objects = {
        f"{COMPILED_IN}/{name}.o": ObjectCode(
            sha256="", functions=dict.fromkeys(functions.split(), ""), data="", defines=[], needs=[], places=[]
        )
        for name, functions in {"src/tls": "one two", "src/sds": "three", "src/gone": "four"}.items()
    }
    for name in ("src/tls.c", "src/sds.c"):
        fakes.write(tmp_path / name, "")
    code = CodeMap(objects=objects, link=[], recipe="1")
    assert functions_of_files(code, tmp_path, ["src/tls.c", "src/gone.c"]) == {"one", "two"}
    assert functions_of_files(code, tmp_path, ["src/*.c"]) == {"one", "two", "three"}
    assert functions_of_files(code, tmp_path, []) == set()


def test_the_base_runs_what_shared_a_server_with_a_failed_test_before_it(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run", suites=("canary", "bitops", "interfaces", "replication", "units"))
    for name, guest in (("first", "guest-1"), ("other", "guest-2"), ("failed", "guest-1"), ("later", "guest-1")):
        stored.test("armv5", "bitops", name, outcome="failed" if name == "failed" else "passed", guest=guest)
    stored.test("armv5", "units", "before", guest="guest-unit-a")
    stored.test("armv5", "units", "failed", outcome="failed", guest="guest-unit-b")
    stored.test("armv5", "interfaces", "failed", outcome="failed")
    stored.test("armv5", "replication", "failed", outcome="failed", guest="guest-1")
    run = stored.finish()

    def of(suite: str) -> Finding:
        made = finding(suite, "armv5", suite=suite)
        occasion = Occasion(test="failed", command="", title="", said="", functions=())
        return msgspec.structs.replace(
            made, witnesses=[msgspec.structs.replace(one, occasions=[occasion]) for one in made.witnesses]
        )

    found = [of(suite) for suite in ("bitops", "interfaces", "replication", "units")]
    whole = {"interfaces": ["interfaces/*"], "replication": ["replication/*"]}
    assert earlier_tests(run, found, Catalog().suites, ["failed"]) == {
        "bitops": ["first", "failed"],
        **whole,
    }, "each unit has a process of its own, the log names no server of interfaces, and replication has several targets"
    assert earlier_tests(run, found, Catalog().suites, ["first"]) == {
        "bitops": ["first", "failed"],
        **whole,
        "units": ["failed"],
    }, "the base has not run what failed"
