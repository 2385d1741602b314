"""The workflow files: the actions that they use, and their inputs, all of which the how-to describes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.cache import Cache, default_root
from harness.core.strict_toml import ROOT
from harness.judge import merge
from harness.plan.catalog import Catalog
from tests.end_to_end.support.expressions import ExpressionError, Strict, evaluate, expand
from tests.end_to_end.support.workflows import block_of
from tools import bugs
from tools.matrix.document import questions

FILES = sorted([ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")])


def uses(value: Any) -> list[str]:
    """Every value of `uses:` in a file."""
    if isinstance(value, dict):
        here = [str(value["uses"])] if "uses" in value else []
        return here + [one for inner in value.values() for one in uses(inner)]
    return [one for inner in value for one in uses(inner)] if isinstance(value, list) else []


PINNED = r"uses: ((?:actions|github)/[\w-]+)((?:/[\w-]+)?)@([0-9a-f]{40} # v\d+\.\d+\.\d+)$"


def test_only_githubs_actions_are_used_each_pinned_to_a_commit_with_its_version() -> None:
    """A repository's settings may require commits for every action that it uses, directly or indirectly."""
    commits: dict[str, set[str]] = {}
    for path in FILES:
        text = path.read_text("utf-8")
        foreign = [one for one in uses(yaml.safe_load(text)) if not one.startswith("./")]
        pinned = re.findall(PINNED, text, re.MULTILINE)
        assert len(pinned) == len(foreign), f"{path.name}: not every action of others has its commit and its version"
        for repository, _, commit in pinned:
            commits.setdefault(repository, set()).add(commit)
    assert len(commits) > 3
    assert {name: found for name, found in commits.items() if len(found) != 1} == {}


def checkouts(jobs: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of jobs that check a repository out."""
    steps = [step for job in jobs.values() for step in job.get("steps", [])]
    return [step for step in steps if str(step.get("uses", "")).startswith("actions/checkout@")]


def test_the_code_of_a_pull_request_finds_no_token() -> None:
    """A check compiles and runs it, and by default a checkout keeps the job's token for later git commands."""
    called = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8"))["jobs"]
    shown = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "howto" / "ci.md").read_text("utf-8"), re.DOTALL)
    found = checkouts(called) + [step for text in shown for step in checkouts(yaml.safe_load(text).get("jobs", {}))]
    assert len(found) > 5
    assert [step for step in found if step.get("with", {}).get("persist-credentials") is not False] == []


def test_nightly_fuzzing_begins_with_the_corpus_of_previous_nights(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8"))["jobs"]["fuzz"]["steps"]
    kinds = [str(step.get("uses", "")).partition("@")[0] for step in steps]
    restore, fuzz, save = (kinds.index(kind) for kind in ("actions/cache/restore", "./", "actions/cache/save"))
    assert restore < fuzz < save
    assert steps[save]["if"] == "always()", "a night with findings fails, but its corpus has grown the most"
    for name in ("PLUMBLINE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert steps[save]["with"]["key"].startswith(steps[restore]["with"]["restore-keys"])
    # Cache entries are immutable: with the previous night's key, a night would save nothing.
    assert "github.run_id" in steps[save]["with"]["key"]
    for step in (steps[restore], steps[save]):
        assert Path(step["with"]["path"]).expanduser() == Cache(default_root()).path("corpus", "")


def test_each_server_of_the_matrix_has_a_job_for_each_way_to_build_it() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "matrix.yml").read_text("utf-8"))["jobs"]
    entries = jobs["ask"]["strategy"]["matrix"]["asked"]
    assert sorted((one["server"], one["way"]) for one in entries) == sorted(
        {(one.server, one.way) for one in questions()}
    )
    # An artifact's name must not contain a colon or a slash, and must be unique.
    names = [one["name"] for one in entries]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in names)


def test_the_parts_of_a_sample_of_mutants_have_different_seeds_and_a_patch_where_the_server_needs_one() -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "recall.yml").read_text("utf-8"))["jobs"]["sample"]
    entries, parts = job["strategy"]["matrix"]["sampled"], job["strategy"]["matrix"]["part"]
    steps = {step.get("name", ""): step for step in job["steps"]}
    seed, name = steps["Sample"]["env"]["SEED"], steps["Name the document"]["env"]["NAME"]
    named = set()
    for entry in entries:
        seeds = set()
        for part in parts:
            contexts = {
                "matrix": {"sampled": entry, "part": part},
                "github": Strict(run_number=12),
                "inputs": Strict(tier=""),
            }
            seeds.add(int(expand(seed, contexts)))
            named.add(expand(name, contexts))
        assert len(seeds) == len(parts), "two machines would examine the same mutants"
        assert max(seeds) < 2**32
    # All these documents are in one folder, measurements/recall.
    assert len(named) == len(entries) * len(parts)
    known, documented = Catalog().servers, bugs.read_bugs()
    for entry in entries:
        assert entry["name"] in known
        assert entry["server"].rpartition("/")[2] == entry["name"], (
            "a sample's document is named after the server's folder"
        )
        assert not entry["bug"] or documented[entry["bug"]].patches, "the step has no patch to apply"


def test_a_plan_is_asked_what_its_jobs_are_asked() -> None:
    """`plumb join` refuses runs with other options than the plan's, and the plan had the defaults."""
    document = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8"))
    steps = {name: {step.get("name"): step for step in job["steps"]} for name, job in document["jobs"].items()}
    planned, checked = steps["plan"]["Plan"]["env"], steps["check"]["Check"]["with"]
    # YAML 1.1 reads the key `on` as true.
    shared = merge.OPTIONS.keys() & document[True]["workflow_call"]["inputs"].keys()
    assert {"policy", "allocator", "toolchain"} <= shared
    for name in sorted(shared):
        assert checked[name] == planned[f"PLUMBLINE_{name.upper()}"] == f"${{{{ inputs.{name} }}}}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_shell_line_contains_an_expression(path: Any) -> None:
    """The shell would execute a branch's name or an input as code."""

    def lines(value: Any) -> list[str]:
        if isinstance(value, dict):
            here = [str(value["run"])] if isinstance(value.get("run"), str) else []
            return here + [one for inner in value.values() for one in lines(inner)]
        return [one for inner in value for one in lines(inner)] if isinstance(value, list) else []

    for line in lines(yaml.safe_load(path.read_text("utf-8"))):
        assert "${{" not in line


def test_the_job_for_upstreams_workflow_equals_that_of_the_how_to() -> None:
    """Only the condition differs: upstream's workflows run on pushes to any branch."""
    whole = yaml.safe_load(block_of(ROOT / "docs" / "howto" / "ci.md"))["jobs"]["plumbline"]
    job = yaml.safe_load("jobs:\n" + block_of(ROOT / "docs" / "howto" / "upstream-ci.md"))["jobs"]["plumbline"]
    assert job.pop("if") == "github.event_name == 'pull_request' || github.ref == 'refs/heads/unstable'"
    assert job == whole


def test_the_how_to_describes_every_input_and_output() -> None:
    page = (ROOT / "docs" / "howto" / "ci.md").read_text("utf-8")
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    # YAML 1.1 parses the key `on` as true.
    called = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8"))[True]["workflow_call"]
    for kind in ("inputs", "outputs"):
        for name in {**action[kind], **called[kind]}:
            assert f"`{name}`" in page, f"docs/howto/ci.md does not tell the {kind[:-1]} {name}"


CONTEXTS = {"inputs": Strict(name="a b", flag=False), "steps": {"one": {"outputs": {"cache-hit": "true"}}}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${{ inputs.name }}", "a b"),
        ("x ${{ inputs.flag }} ${{ 'it''s' }}", "x false it's"),
        ("${{ steps.one.outputs.cache-hit != 'true' }}", False),
        ("${{ steps.one.outputs.absent != 'true' && !inputs.flag }}", True),
        ("${{ inputs.flag || 'else' }}", "else"),
        ('${{ join(fromJSON(\'["a", "b"]\'), fromJSON(\'"\\n"\')) }}', "a\nb"),
        ('${{ fromJSON(\'{"a": [1, {"b": 2}]}\').a[1].b }}', 2),
        ("${{ (inputs.name == 'A B') == true }}", True),
        ("${{ '' == null }}", True),
    ],
)
def test_expressions_are_evaluated_like_githubs(text: str, value: Any) -> None:
    assert expand(text, CONTEXTS) == value


@pytest.mark.parametrize("text", ["inputs.noname", "nosuch.name", "nosuch()", "'open", "a b", "(inputs.name"])
def test_an_expression_that_github_would_evaluate_to_nothing_is_an_error(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text, CONTEXTS)
