"""The commands that list existing things and missing packages: list, plan, doctor, clean."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.plan.catalog import Catalog
from harness.workflows.git.checkout import revision_of
from tests.support import fakes
from tests.support.cache_entries import add
from tests.support.repositories import commit, git

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fakes import Plumb

TARGET = ("--target", "armv5")


@pytest.mark.usefixtures("bare")
def test_doctor_prints_the_command_and_exits_7(plumb: Plumb) -> None:
    code, out, _ = plumb("doctor", *TARGET)
    assert code == ExitCode.INFRASTRUCTURE
    assert out.startswith("missing: ")
    assert "apt-get install --yes --no-install-recommends " in out


@pytest.mark.usefixtures("bare")
def test_doctor_requires_only_packages_of_the_chosen_target(plumb: Plumb) -> None:
    assert "sparc64" not in plumb("doctor", *TARGET)[1]


@pytest.mark.usefixtures("bare")
def test_doctor_requires_a_browser_and_go_only_for_the_projects_own_tests_and_if_missing(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "dpkg"))
    assert "golang-go" not in plumb("doctor", *TARGET)[1]
    assert "golang-go" in plumb("doctor", *TARGET, "--for-tests")[1]
    fakes.write(tmp_path / "dpkg" / "go", "", mode=0o755)
    assert "golang-go" not in plumb("doctor", *TARGET, "--for-tests")[1]
    assert "chromium" not in plumb("doctor", *TARGET)[1]
    fakes.write(tmp_path / "dpkg" / "google-chrome", "", mode=0o755)
    assert "chromium-driver" in plumb("doctor", *TARGET, "--for-tests")[1], "a browser without its driver"
    fakes.write(tmp_path / "dpkg" / "chromedriver", "", mode=0o755)
    assert "chromium" not in plumb("doctor", *TARGET, "--for-tests")[1]


@pytest.mark.usefixtures("bare")
def test_doctor_names_optional_packages_of_self_tests_that_no_check_requires(plumb: Plumb) -> None:
    command, *others = plumb("doctor", *TARGET)[1].splitlines()[1:]
    assert "googletest" not in command
    assert others[0] == "for Valkey 9's self-tests (suite selftests): googletest"
    assert "googletest" in plumb("doctor", *TARGET, "--for-tests")[1].splitlines()[1]
    assert "googletest" not in plumb("check", *TARGET, "--no-install", "--emulator", "distro")[2]


@pytest.mark.usefixtures("complete")
def test_doctor_with_nothing_missing_exits_0_and_tells_the_size_of_the_cache(plumb: Plumb) -> None:
    cache = Cache.default()
    add(cache, "builds/a", content=bytes(2 << 20))
    code, out, errors = plumb("doctor", *TARGET)
    assert (code, errors) == (0, "")
    assert out == f"nothing is missing\nthe cache holds 2 MiB, of at most 10.0 GiB: {cache.root}\n"


@pytest.mark.parametrize("what", ["targets", "toolchains", "servers", "suites"])
def test_list_names_everything_also_as_json(plumb: Plumb, what: str) -> None:
    catalog = Catalog()
    names = [*(catalog.families if what == "toolchains" else []), *getattr(catalog, what)]
    code, out, err = plumb("list", what)
    assert (0, "", names) == (code, err, [line.split(" ")[0] for line in out.splitlines()])
    assert names == [noun["name"] for noun in json.loads(plumb("list", what, "--json")[1])]


def test_list_alone_lists_all_kinds(plumb: Plumb) -> None:
    code, out, err = plumb("list")
    assert (code, err) == (0, "")
    kinds = ["targets", "toolchains", "servers", "suites", "policies", "workloads"]
    assert [line.removesuffix(":") for line in out.splitlines() if line.endswith(":")] == kinds
    assert out == "\n".join(f"{kind}:\n{plumb('list', kind)[1]}" for kind in kinds)
    assert {kind: json.loads(plumb("list", kind, "--json")[1]) for kind in kinds} == json.loads(
        plumb("list", "--json")[1]
    )


def test_plan_prints_one_line_for_each_cell_also_as_json(plumb: Plumb) -> None:
    code, out, _ = plumb("plan", *TARGET, "--suite", "bitops")
    assert (code, out) == (0, "armv5/redis-7.0.15/canary\narmv5/redis-7.0.15/bitops\n")
    read = json.loads(plumb("plan", *TARGET, "--suite", "bitops", "--json")[1])
    assert [cell["suite"] for cell in read["cells"]] == ["canary", "bitops"]


def test_plan_names_the_release_for_which_a_development_tree_is_taken(plumb: Plumb, tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "mine", version="999.999.999")
    fakes.write(tree / "src" / "server.c", '    {"hscan",hscanCommand,-3},\n    {"pubsub",pubsubCommand,-2},\n')
    code, out, errors = plumb("plan", *TARGET, "--server", tree, "--suite", "bitops")
    assert (code, out) == (0, f"armv5/{tree}/canary\narmv5/{tree}/bitops\n")
    assert "treated as 2.8 because" in errors
    assert "it lacks SCAN" in errors
    with (tree / "src" / "server.c").open("a", encoding="utf-8") as stream:
        stream.write('    {"scan",scanCommand,-2},\n')
    code, out, errors = plumb("plan", *TARGET, "--server", tree, "--suite", "bitops")
    assert (code, out) == (0, f"armv5/{tree}/canary\narmv5/{tree}/bitops\n")
    assert (
        "mine is a development tree (999.999.999), treated as 2.8.0 because of the features of its source"
    ) in " ".join(errors.split())


def test_clean_shows_sizes_and_removes_only_on_request(plumb: Plumb, tmp_path: Path) -> None:
    assert plumb("clean") == (0, "       0 MiB  in all, of at most 10.0 GiB\n", "")
    kept = fakes.write(tmp_path / "cache" / "builds" / "key" / "file", "x" * 10)
    code, out, _ = plumb("clean")
    assert (code, kept.is_file()) == (0, True)
    sizes = json.loads(plumb("clean", "--json")[1])
    assert sizes == [{"folder": str(tmp_path / "cache" / "builds"), "bytes": 10}]
    assert str(tmp_path / "cache" / "builds") in out
    plumb("clean", "--yes")
    assert not kept.exists()


@pytest.mark.parametrize(
    "part",
    [("--server", "redis-7.0.15"), ("--target", "armv5"), ("--older-than", "30d")],
    ids=["server", "target", "age"],
)
def test_clean_does_not_remove_everything_where_a_part_was_named(
    plumb: Plumb, tmp_path: Path, part: tuple[str, str]
) -> None:
    kept = fakes.write(tmp_path / "cache" / "builds" / "key" / "file", "x" * 10)
    code, _, err = plumb("clean", "--yes", *part)
    assert (code, kept.is_file()) == (ExitCode.USAGE, True), err


def test_plan_as_json_has_jobs_and_caches_in_this_machines_store(plumb: Plumb, tmp_path: Path) -> None:
    read = json.loads(plumb("plan", *TARGET, "--suite", "bitops", "--json")[1])
    assert read["jobs"] == [{"name": "armv5", "targets": ["armv5"], "suites": ["bitops"]}]
    paths = [path for cache in read["caches"].values() for path in cache["paths"]]
    assert paths
    assert all(path.startswith(str(tmp_path / "cache")) for path in paths)


def test_plan_as_json_has_the_commit_of_a_tree(plumb: Plumb, tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "valkey")
    words = ("plan", *TARGET, "--server", tree, "--suite", "bitops", "--json")
    assert json.loads(plumb(*words)[1])["revision"] == ""
    git(tree, "init", "--quiet")
    commit(tree)
    read = json.loads(plumb(*words)[1])
    assert read["revision"] == revision_of(tree) != ""


def test_plan_refuses_a_policy_that_does_not_exist(plumb: Plumb) -> None:
    code, _, errors = plumb("plan", *TARGET, "--policy", "signals")
    assert (code, "unknown policy 'signals'" in errors) == (ExitCode.USAGE, True)
