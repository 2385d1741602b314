"""The action and the workflows, run step by step as on a runner, for a server with a planted bug and a clean one."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from harness.build.sources.archives import Fetcher
from harness.build.sources.tree_files import copy_tree
from harness.core.cache import Cache
from harness.core.progress import Progress
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.workflows.mutation_testing import mutations
from tests.end_to_end.support.expressions import Strict
from tests.end_to_end.support.workflows import GitHub, actionlint, as_tags
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

SERVER = "redis-7.0.15"
PLANTED = mutations.mutations()["bitcount-alignment"]
FOLDER = f"vendor/{SERVER}"
"""The server's folder in the repository. Reported paths must begin at the repository's top."""
WORKFLOWS = ROOT / ".github" / "workflows"


def repository(top: Path, *, broken: bool) -> Path:
    """A repository with the server in a folder, with or without the planted bug."""
    source = Fetcher(Cache.default(), Progress()).server(Catalog().servers[SERVER])
    if broken:
        mutations.plant(PLANTED, source.path, top / FOLDER)
    else:
        copy_tree(source.path, top / FOLDER)
    subprocess.run(["git", "init", "--quiet", str(top)], check=True)
    return top


def run_check(github: GitHub, **inputs: str | bool | int) -> dict[str, str]:
    all_inputs = {"plumbline": "owner/plumbline", "server": FOLDER, "suites": "units", "code-scanning": True, **inputs}
    return github.workflow(WORKFLOWS / "check.yml", all_inputs)


@pytest.mark.slow(
    instead=(
        "test_the_action_checks_what_a_pull_request_changes; tests/house, for what workflows say; "
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named; tests/unit/report, for annotations"
    )
)
def test_the_workflow_finds_a_planted_bug_names_its_line_everywhere_and_fails(tmp_path: Path) -> None:
    top = repository(tmp_path / "server", broken=True)
    github = GitHub(tmp_path / "github", {"": top, "owner/plumbline": ROOT})
    outputs = run_check(github, targets="armv5 native", **{"retention-days": 7})
    assert github.results == {
        "plan": "success",
        "check (native)": "success",
        "check (armv5)": "failure",
        "verdict": "failure",
    }, github.printed
    assert outputs == {"verdict": "FAIL", "findings": "1"}, github.printed["verdict/Join"]

    lines = (top / FOLDER / "src" / "bitops.c").read_text("utf-8").splitlines()
    (annotation,) = [line for line in github.printed["verdict/Join"].splitlines() if line.startswith("::error ")]
    place = dict(word.split("=") for word in annotation.removeprefix("::error ").split("::")[0].split(","))
    assert (place["file"], place["title"]) == (f"{FOLDER}/src/bitops.c", "misaligned load in redisPopcount")
    assert "p4" in lines[int(place["line"]) - 1], "the annotation is not on a line that loads words"
    # There are two targets but one diff: a finding is reported once.
    assert not [name for name, text in github.printed.items() if "::error" in text and name != "verdict/Join"]

    (alert,) = github.alerts
    document = json.loads(alert["text"])
    schema = json.loads((fakes.DATA / "schemas" / "sarif-schema-2.1.0.json").read_text("utf-8"))
    jsonschema.Draft4Validator(schema).validate(document)
    # Warnings of compilers are also reported, as notes.
    (result,) = [one for one in document["runs"][0]["results"] if one["level"] == "error"]
    physical = result["locations"][0]["physicalLocation"]
    assert (physical["artifactLocation"]["uri"], str(physical["region"]["startLine"])) == (place["file"], place["line"])
    assert (alert["root"] / physical["artifactLocation"]["uri"]).is_file()

    whole = github.summaries["verdict"]
    assert "FAIL" in whole.splitlines()[0]
    assert github.summaries["check (armv5)"] == ""
    rows = [line.split("|")[1].strip() for line in whole.splitlines() if line.startswith("| ")]
    assert rows[:3] == ["target", "armv5", "native"]
    assert "alignment-redisPopcount-load" in whole
    assert {"plumbline", "plumbline-armv5", "plumbline-native"} == {path.name for path in github.artifacts.iterdir()}
    assert set(github.days.values()) == {7}
    assert (github.artifacts / "plumbline-armv5" / "report.html").is_file()
    kinds = sorted(key.removeprefix("plumbline-").split("-")[0] for key in github.cached)
    assert kinds == ["builds", "builds", "emulators"]


@pytest.mark.slow(
    instead="test_a_pull_requests_suites_become_the_plan_and_uncovered_changes_are_unknown, on a clean server"
)
def test_a_clean_server_passes_and_its_caches_are_kept(tmp_path: Path) -> None:
    top = repository(tmp_path / "server", broken=False)
    github = GitHub(tmp_path / "github", {"": top, "owner/plumbline": ROOT})
    assert run_check(github, targets="armv5") == {"verdict": "PASS", "findings": "0"}, github.printed
    assert set(github.results.values()) == {"success"}
    assert github.alerts, "an empty list of findings closes earlier alerts"
    assert sorted(key.split("-")[1] for key in github.cached) == ["builds", "emulators"]


def git(top: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", top, *identity, *words], check=True, capture_output=True)


def pull_request(folder: Path) -> GitHub:
    """A pull request for the branch `release` that changes only documents."""
    top = repository(folder / "server", broken=False)
    git(top, "add", "--all", "--force")
    git(top, "commit", "--quiet", "--message", "base")
    git(top, "update-ref", "refs/remotes/origin/release", "HEAD")
    (top / FOLDER / "README.md").write_text("changed\n", "utf-8")
    git(top, "commit", "--quiet", "--all", "--message", "words")
    github = GitHub(folder / "github", {"": top, "owner/plumbline": ROOT})
    github.base = "release"
    return github


def break_it(top: Path) -> None:
    """Commit the planted bug."""
    (edit,) = PLANTED.edits
    source = top / FOLDER / edit.file
    source.write_text(source.read_text("utf-8").replace(edit.anchor, edit.replacement), "utf-8")
    git(top, "commit", "--quiet", "--all", "--message", "break it")


def test_the_action_checks_what_a_pull_request_changes(tmp_path: Path) -> None:
    github = pull_request(tmp_path)
    inputs = {"command": "premerge", "server": FOLDER, "targets": "armv5", "artifact": "", "save-caches": "false"}
    outputs = github.action(inputs)
    assert (outputs["verdict"], github.results["action"]) == ("PASS", "success"), github.printed
    assert "touches nothing that a suite covers" in github.summaries["action"]
    github.history = "1"
    assert github.action(inputs)["verdict"] == "UNKNOWN", "without the base's commit nothing can be compared"
    assert "error: no revision 'origin/release'" in github.printed["action/Check"]


@pytest.mark.slow(
    instead=(
        "test_a_pull_requests_suites_become_the_plan_and_uncovered_changes_are_unknown; "
        "test_the_action_checks_what_a_pull_request_changes"
    )
)
def test_the_workflow_checks_what_a_pull_request_changes(tmp_path: Path) -> None:
    """A commit always has the same verdict, because both jobs and every other run draw the same random numbers."""
    github = pull_request(tmp_path)
    outputs = run_check(github, command="premerge", suites="", targets="armv5")
    assert (outputs["verdict"], outputs["findings"]) == ("PASS", "0"), github.printed
    assert github.results == {"plan": "success", "check": "skipped", "verdict": "skipped"}, github.printed
    assert "touches nothing that a suite covers" in github.summaries["plan"]
    assert github.alerts == [], "nothing was judged, so no alert may close"
    break_it(github.repositories[""])
    outputs = run_check(github, command="premerge", targets="armv5 native")
    assert (outputs["verdict"], outputs["findings"]) == ("FAIL", "1"), github.printed
    del github.results["check"]
    jobs = {"plan": "success", "check (native)": "success", "check (armv5)": "failure", "verdict": "failure"}
    assert github.results == jobs
    assert "compared with BASE" in github.summaries["verdict"]
    assert [line for line in github.printed["verdict/Join"].splitlines() if line.startswith("::error file=")]
    seeds = {
        json.loads((github.artifacts / f"plumbline-{name}" / "findings.json").read_text("utf-8"))["seed"]
        for name in ("armv5", "native")
    }
    top = github.repositories[""]
    explained = json.loads(
        subprocess.run(
            [
                ROOT / ".venv/bin/plumb",
                "premerge",
                "--server",
                top / FOLDER,
                "--base=origin/release",
                "--explain",
                "--json",
            ],
            check=True,
            capture_output=True,
        ).stdout
    )
    assert seeds == {explained["seed"]}
    assert "bitops" in explained["suites"]
    assert github.cached == {}, "the caches of a pull request must not be saved"


def test_a_pull_requests_suites_become_the_plan_and_uncovered_changes_are_unknown(tmp_path: Path) -> None:
    github = pull_request(tmp_path)
    top = github.repositories[""]
    (top / FOLDER / "src" / "setcpuaffinity.c").open("a", encoding="utf-8").write("/* changed */\n")
    git(top, "commit", "--quiet", "--all", "--message", "change what no suite turns on")
    assert run_check(github, command="premerge", suites="", targets="armv5")["verdict"] == "UNKNOWN"
    assert github.results == {"plan": "failure", "check": "skipped", "verdict": "skipped"}, github.printed
    break_it(top)
    github.workflow(
        WORKFLOWS / "check.yml",
        {"plumbline": "owner/plumbline", "server": FOLDER, "targets": "armv5 sparc64", "command": "premerge"},
        only=["plan"],
    )
    plan = json.loads(github.outputs["plan"]["plan"])
    assert [job["name"] for job in plan["jobs"]] == ["armv5", "sparc64"]
    assert {suite for job in plan["jobs"] for suite in job["suites"]} == {"bitops", "fuzz", "units", "visible", "width"}


def test_an_unknown_command_ends_the_workflow(tmp_path: Path) -> None:
    github = GitHub(tmp_path / "github", {"": repository(tmp_path / "server", broken=False), "owner/plumbline": ROOT})
    run_check(github, command="premerg", targets="armv5")
    assert github.results["plan"] == "failure"
    assert "not 'premerg'" in github.printed["plan/Plan"]


class Lossy(GitHub):
    """A GitHub whose job succeeds, but whose artifacts never arrive."""

    def _job(self, name: str, job: dict[str, Any], contexts: dict[str, Any]) -> dict[str, Any]:
        if name == "check":
            (self.artifacts / "plumbline-armv5").mkdir(parents=True)
            return {"result": "success", "outputs": Strict()}
        return super()._job(name, job, contexts)


def test_a_job_without_artifacts_is_unknown(tmp_path: Path) -> None:
    top = repository(tmp_path / "server", broken=False)
    github = Lossy(tmp_path / "github", {"": top, "owner/plumbline": ROOT})
    assert run_check(github, targets="armv5")["verdict"] == "UNKNOWN"
    assert github.results["verdict"] == "failure"
    assert "UNKNOWN" in github.summaries["verdict"]


def test_actionlint_finds_nothing_in_our_workflows_and_something_in_a_bad_one(tmp_path: Path) -> None:
    top = tmp_path / "project"
    for path in [ROOT / "action.yml", *WORKFLOWS.glob("*.yml")]:
        fakes.write(top / path.relative_to(ROOT), as_tags(path.read_text("utf-8")))
    subprocess.run(["git", "init", "--quiet", str(top)], check=True)
    clean = subprocess.run([actionlint()], cwd=top, capture_output=True, encoding="utf-8", check=False)
    assert (clean.returncode, clean.stdout) == (0, ""), clean.stdout
    file = top / ".github" / "workflows" / "check.yml"
    text = file.read_text("utf-8")
    for right, wrong, said in (
        ("needs.plan.outputs.plan", "needs.plan.outputs.blueprint", 'property "blueprint" is not defined'),
        ("fetch-depth:", "depth:", 'input "depth" is not defined'),
    ):
        file.write_text(text.replace(right, wrong), "utf-8")
        found = subprocess.run([actionlint()], cwd=top, capture_output=True, encoding="utf-8", check=False)
        assert found.returncode == 1
        assert said in found.stdout


@pytest.mark.slow(instead="test_the_action_checks_what_a_pull_request_changes")
def test_plumblines_own_workflow_uses_the_action_as_others_do(tmp_path: Path) -> None:
    github = GitHub(tmp_path / "github", {"": ROOT})
    github.workflow(WORKFLOWS / "ci.yml", {}, only=["action"])
    assert github.results == {"action": "success"}, github.printed
    assert "PASS" in github.summaries["action"].splitlines()[0]
