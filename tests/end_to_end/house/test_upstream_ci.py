"""Plumbline's job in the workflow files of Redis and Valkey, in a checkout of each: linted, run, compared with a check.

The tests do not use GitHub, so the newest releases stand for the branches `unstable`, whose trees have the same
workflow files. A checkout calls itself 255.255.255, as those branches do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harness.core.strict_toml import ROOT
from tests.end_to_end.servers.test_development_trees import disguise
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import document, run
from tests.end_to_end.support.workflows import COMMIT, GitHub, actionlint, as_tags, block_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

RELEASES = ("redis-8.0.6", "valkey-9.1.2")
CI = ".github/workflows/ci.yml"
HOW_TO = ROOT / "docs" / "howto" / "upstream-ci.md"


def git(top: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "safe.directory=*"]
    return subprocess.run(
        ["git", "-C", top, *identity, *words], check=True, capture_output=True, encoding="utf-8"
    ).stdout


def their_tree(name: str, into: Path) -> Path:
    """All files of a release, which calls itself 255.255.255."""
    shutil.copytree(machines.release(name), into, symlinks=True)
    return disguise(into, name)


def checkout(tree: Path, *inputs: str) -> Path:
    """A repository of a tree. Its ci.yml has Plumbline's job, with further inputs after those on the page."""
    text = (tree / CI).read_text("utf-8")
    (tree / CI).write_text(
        "\n".join([text.rstrip(), "", block_of(HOW_TO), *(f"      {one}" for one in inputs), ""]), "utf-8"
    )
    git(tree, "init", "--quiet", "--initial-branch", "unstable")
    git(tree, "add", "--all", "--force")
    git(tree, "commit", "--quiet", "--message", "Check alignment and byte order")
    return tree


def linted(top: Path) -> set[str]:
    """The complaints about a repository's ci.yml, without line numbers. Complaints about its shell code are ignored."""
    command = [actionlint(), "-oneline", "-shellcheck=", CI]
    found = subprocess.run(command, cwd=top, capture_output=True, encoding="utf-8", check=False).stdout
    return {line.split(": ", maxsplit=1)[1] for line in found.splitlines()}


@pytest.mark.parametrize("name", [RELEASES[0], *map(machines.beyond, RELEASES[1:])])
def test_plumblines_job_is_valid_in_their_workflow_file(tmp_path: Path, name: str) -> None:
    before = their_tree(name, tmp_path / "before")
    git(before, "init", "--quiet")
    own = yaml.safe_load((before / CI).read_text("utf-8"))
    assert {"push", "pull_request"} <= set(own[True]), "the job distinguishes these two events"
    top = checkout(their_tree(name, tmp_path / "after"))
    assert set(yaml.safe_load((top / CI).read_text("utf-8"))["jobs"]) == {*own["jobs"], "plumbline"}
    # Both checkers need the inputs of the called file, which they do not have, so Plumbline's file replaces it.
    called = top / ".github" / "workflows" / "check.yml"
    called.write_text(as_tags((ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8")), "utf-8")
    text = (top / CI).read_text("utf-8")
    local = text.replace("OWNER/plumbline/.github/workflows/check.yml@main", "./.github/workflows/check.yml")
    (top / CI).write_text(local, "utf-8")
    assert linted(top) - linted(before) == set()
    (top / CI).write_text(local.replace("retention-days: 14", "retention: 14"), "utf-8")
    (complaint,) = linted(top) - linted(before)
    assert 'input "retention" is not defined' in complaint


@pytest.mark.slow(
    instead="test_the_action_checks_what_a_pull_request_changes; test_plumblines_job_is_valid_in_their_workflow_file"
)
@pytest.mark.parametrize("name", [RELEASES[0], *map(machines.beyond, RELEASES[1:])])
def test_a_pull_request_that_changes_only_documents_passes_after_the_plan(tmp_path: Path, name: str) -> None:
    top = checkout(their_tree(name, tmp_path / "theirs"))
    git(top, "update-ref", "refs/remotes/origin/unstable", "HEAD")
    (top / "README.md").write_text("changed\n", "utf-8")
    git(top, "commit", "--quiet", "--all", "--message", "words")
    github = GitHub(tmp_path / "github", {"": top, "OWNER/plumbline": ROOT})
    github.base = "unstable"
    github.workflow(top / CI, {}, only=["plumbline"])
    assert github.outputs["plumbline"] == {"verdict": "PASS", "findings": "0"}, github.printed
    assert "touches nothing that a suite covers" in github.summaries["plumbline / plan"]


@pytest.mark.slow(instead="the other tests of test_upstream_ci.py: the job is linted, and runs for a change of text")
@pytest.mark.parametrize(
    ("name", "targets", "suite"),
    [("redis-8.0.6", "native sparc32plus", "modules"), ("valkey-9.1.2", "armv5 native", "bitops")],
)
def test_a_push_to_unstable_says_what_a_check_of_the_release_says(
    tmp_path: Path, name: str, targets: str, suite: str
) -> None:
    top = checkout(their_tree(name, tmp_path / "theirs"), f"targets: {targets}", f"suites: {suite}")
    head = git(top, "rev-parse", "HEAD")
    github = GitHub(tmp_path / "github", {"": top, "OWNER/plumbline": ROOT})
    github.workflow(top / CI, {}, only=["plumbline"])
    joined = json.loads((github.artifacts / "plumbline" / "findings.json").read_text("utf-8"))
    seed = int(COMMIT[:7], 16)
    words = [word for target in targets.split() for word in ("--target", target)]
    checked: dict[str, Any] = document(
        run("check", "--server", name, *words, "--suite", suite, "--seed", seed, "--json")
    )
    assert shown(joined) == shown(checked)
    assert checked["verdict"] == "FAIL", "both releases have a bug there (docs/FOUND.md)"
    new = sum(not one["known"] for one in checked["findings"])
    assert github.outputs["plumbline"] == {"verdict": checked["verdict"], "findings": str(new)}
    assert github.results["plumbline / verdict"] == "failure"
    assert "is a development tree (255.255.255)" in "".join(github.printed.values())
    assert github.alerts, "a push makes alerts"
    assert set(github.days.values()) == {14}
    assert {path.name for path in github.artifacts.iterdir()} == {
        "plumbline",
        *(f"plumbline-{one}" for one in targets.split()),
    }
    for repository in (top, *tmp_path.glob("github/machines/*/work/repository")):
        assert git(repository, "status", "--porcelain", "--ignored") == "", "a checkout was written to"
        assert git(repository, "rev-parse", "HEAD") == head


def shown(judged: dict[str, Any]) -> dict[str, Any]:
    """The parts of a judgement that do not depend on its evidence's origin."""
    cells = {f"{one['target']}/{one['suite']}": one["verdict"] for one in judged["cells"]}
    findings = {one["id"]: (one["targets"], one["title"], bool(one["known"])) for one in judged["findings"]}
    return {"verdict": judged["verdict"], "cells": cells, "findings": findings}
