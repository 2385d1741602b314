"""Runs workflow files locally: executes every `run:` line in order, with GitHub's files and contexts.

Folders replace GitHub's services: a checkout is a copy, artifacts and caches are in a folder, and alerts are stored.
Each of these steps is as strict as GitHub: whatever GitHub would refuse is an error.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from harness.core.cache import Cache
from harness.core.digests import key_of, sha256_of
from tests.end_to_end.support.expressions import Strict, evaluate, expand, is_true, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STEP_SECONDS = 1800.0
MOST_KEY_LENGTH = 512
MOST_DAYS = 90
RUNNER_USER = 1001
ASKED = {"contents": "read", "security-events": "write"}
"""The permissions that docs/howto/ci.md requires of a caller."""
UNASKED = {"contents": "read", "packages": "read"}
"""The permissions of a workflow that requests none, with a repository's default settings."""
_TYPES: dict[str, type] = {"string": str, "boolean": bool, "number": int}
COMMIT = "0000007" + "0" * 33


class GitHub:
    """The data that jobs share: repositories, caches, artifacts, alerts, and the output of every step."""

    def __init__(self, folder: Path, repositories: dict[str, Path]) -> None:
        """`repositories`: name → folder; the empty name is the repository for which the workflow runs."""
        self.folder = folder
        self.repositories = repositories
        self._machines = 0
        self.base = ""
        """The target branch of a pull request; empty for a push."""
        self.history = "0"
        """Number of commits that the checkout of `action` fetches; 0 for all."""
        self.cached: dict[str, list[str]] = {}
        self.outputs: dict[str, dict[str, str]] = {}
        """Job → its outputs."""
        self.days: dict[str, int] = {}
        """Artifact → its retention in days; 0 for the repository's setting."""
        self.alerts: list[dict[str, Any]] = []
        """The `file` and `root` of each upload to code scanning."""
        self.summaries: dict[str, str] = {}
        self.printed: dict[str, str] = {}
        """`JOB/STEP` → its output."""
        self.permissions: dict[str, str] = {}
        """The permissions of the current job's token."""
        self.results: dict[str, str] = {}
        """Job → success, failure or skipped; a job of a matrix is `JOB (NAME)`."""

    def _new_folder(self) -> Path:
        self._machines += 1
        return self.folder / "machines" / str(self._machines)

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def action(self, inputs: dict[str, str]) -> dict[str, str]:
        """Run a caller's job that checks out the repository and uses the action. Returns the action's outputs."""
        steps = [
            {"uses": "actions/checkout@v4", "with": {"path": "repository", "fetch-depth": self.history}},
            {"uses": "actions/checkout@v4", "with": {"repository": "owner/plumbline", "path": "plumbline"}},
            {"id": "action", "uses": "./plumbline", "with": {"directory": "repository", **inputs}},
        ]
        self.permissions = UNASKED
        machine = CiMachine(self, "action", self._new_folder())
        done, failed = machine.steps(steps, {})
        self.results["action"] = "failure" if failed else "success"
        self.summaries["action"] = machine.summary.read_text("utf-8")
        outputs: dict[str, str] = done["action"]["outputs"]
        return outputs

    @property
    def context(self) -> Strict:
        """The context `github`, as far as the workflows use it."""
        return Strict(
            repository="owner/server",
            repository_owner="owner",
            sha=COMMIT,
            event_name="pull_request" if self.base else "push",
            ref="refs/pull/7/merge" if self.base else "refs/heads/unstable",
            head_ref="change" if self.base else "",
        )

    def workflow(
        self,
        path: Path,
        inputs: dict[str, Any],
        *,
        only: Sequence[str] = (),
        permissions: dict[str, str] | None = None,
        caller: str = "",
    ) -> dict[str, Any]:
        """Run all or some jobs of a workflow. Returns the outputs of a called workflow.

        `permissions`: those of the caller's token; None for those that docs/howto/ci.md requires. `caller`: the calling
        job.
        """
        read = yaml.safe_load(path.read_text("utf-8"))
        # YAML 1.1 reads the key `on` as true.
        called = (read[True] or {}).get("workflow_call") or {} if isinstance(read[True], dict) else {}
        declared = called.get("inputs", {})
        given = Strict({name: inputs.get(name, one.get("default")) for name, one in declared.items()})
        missing = [name for name, one in declared.items() if one.get("required") and name not in inputs]
        assert not missing, f"inputs are missing: {missing}"
        assert not set(inputs) - set(declared), f"no input {set(inputs) - set(declared)}"
        wrong = {
            name: given[name] for name, one in declared.items() if not isinstance(given[name], _TYPES[one["type"]])
        }
        assert not wrong, f"inputs have a different type than declared: {wrong}"
        if not called:
            permissions = UNASKED
        needs = Strict()
        for name, job in read["jobs"].items():
            if not only or name in only:
                self.permissions = job.get("permissions", read.get("permissions", permissions or ASKED))
                contexts = {"inputs": given, "needs": needs, "github": self.context}
                needs[name] = self._job(f"{caller} / {name}" if caller else name, job, contexts)
        if only:
            return {}
        contexts = {"jobs": needs}
        return {key: expand(one["value"], contexts) for key, one in called.get("outputs", {}).items()}

    def _called(self, name: str, job: dict[str, Any], contexts: dict[str, Any]) -> dict[str, Any]:
        """Run the workflow that a job calls, as strictly as GitHub does."""
        foreign = set(job) - {
            "name",
            "uses",
            "with",
            "secrets",
            "strategy",
            "needs",
            "if",
            "concurrency",
            "permissions",
        }
        assert not foreign, f"{name} calls a workflow, and has {foreign}"
        place, _, version = job["uses"].partition("@")
        assert version, f"{job['uses']} has no version"
        owner, repository, path = place.split("/", maxsplit=2)
        given = {key: expand(one, contexts) if isinstance(one, str) else one for key, one in job["with"].items()}
        file = self.repositories[f"{owner}/{repository}"] / path
        outputs = self.workflow(file, given, permissions=self.permissions, caller=name)
        failed = any(one.startswith(f"{name} / ") and result == "failure" for one, result in self.results.items())
        self.results[name] = "failure" if failed else "success"
        self.outputs[name] = outputs
        return {"result": self.results[name], "outputs": Strict(outputs)}

    def _job(self, name: str, job: dict[str, Any], contexts: dict[str, Any]) -> dict[str, Any]:
        needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        healthy = all(contexts["needs"][one]["result"] == "success" for one in needed)
        if not is_true(evaluate(_bare(job.get("if", "success()")), contexts, _states(healthy=healthy))):
            self.results[name] = "skipped"
            return {"result": "skipped", "outputs": Strict(dict.fromkeys(job.get("outputs", {}), ""))}
        if "uses" in job:
            return self._called(name, job, contexts)
        axes = job.get("strategy", {}).get("matrix", {})
        assert len(axes) <= 1, "a matrix with more than one axis is not supported"
        for axis, values in axes.items():
            entries = expand(values, contexts) if isinstance(values, str) else values
            done = [self._machine(name, job, {**contexts, "matrix": Strict({axis: one})}) for one in entries]
            failed = any(one["result"] == "failure" for one in done)
            return {"result": "failure" if failed else "success", "outputs": Strict()}
        return self._machine(name, job, contexts)

    def _machine(self, name: str, job: dict[str, Any], contexts: dict[str, Any]) -> dict[str, Any]:
        shown = name + (f" ({expand(job['name'], contexts)})" if "matrix" in contexts else "")
        machine = CiMachine(self, shown, self._new_folder())
        for key in ("runs-on", "container", "timeout-minutes", "name"):
            expand(str(job.get(key, "")), contexts)
        steps, failed = machine.steps(job["steps"], contexts)
        self.results[shown] = "failure" if failed else "success"
        self.summaries[shown] = machine.summary.read_text("utf-8")
        outputs = {key: expand(value, {**contexts, "steps": steps}) for key, value in job.get("outputs", {}).items()}
        self.outputs[shown] = outputs
        return {"result": self.results[shown], "outputs": Strict(outputs)}


class CiMachine:
    """The machine of one job: a workspace, a folder for temporary files, and the files to which steps write."""

    def __init__(self, github: GitHub, job: str, folder: Path) -> None:
        self.github = github
        self.job = job
        self.workspace = folder / "work"
        self.temporary = folder / "temp"
        self.summary = folder / "summary.md"
        for made in (self.workspace, self.temporary):
            made.mkdir(parents=True)
        self.summary.touch()

    def steps(
        self, steps: list[dict[str, Any]], contexts: dict[str, Any], action: Path | None = None
    ) -> tuple[Strict, bool]:
        """Run the steps of a job or of a composite action. Returns their outputs, and whether one failed."""
        done = Strict({step["id"]: {"outputs": {}, "outcome": "skipped"} for step in steps if "id" in step})
        failed = False
        inside = {
            **contexts,
            "steps": done,
            "github": Strict(self.github.context, workspace=str(self.workspace)),
        }
        for step in steps:
            functions = _states(healthy=not failed)
            if not is_true(evaluate(_bare(step.get("if", "success()")), inside, functions)):
                continue
            with_ = {key: text_of(expand(str(value), inside)) for key, value in step.get("with", {}).items()}
            if "uses" in step:
                outputs, wrong = self._use(step["uses"], with_)
            else:
                outputs, wrong = self._run(step, inside, action)
            failed = failed or wrong
            if "id" in step:
                done[step["id"]] = {"outputs": outputs, "outcome": "failure" if wrong else "success"}
        return done, failed

    def _run(self, step: dict[str, Any], contexts: dict[str, Any], action: Path | None) -> tuple[dict[str, str], bool]:
        output = self.temporary / "output"
        output.write_text("", "utf-8")
        script = self.temporary / "step.sh"
        script.write_text(text_of(expand(step["run"], contexts)), "utf-8")
        environment = {key: text_of(expand(str(value), contexts)) for key, value in step.get("env", {}).items()}
        # Composite actions must name their shell, and a named bash also fails if a command of a pipe does.
        assert action is None or step.get("shell") == "bash", f"{step.get('name')}: no shell"
        options = ["--noprofile", "--norc", "-eo", "pipefail"] if step.get("shell") == "bash" else ["-e"]
        finished = subprocess.run(
            ["bash", *options, str(script)],
            cwd=self.workspace / text_of(expand(step.get("working-directory", "."), contexts)),
            env={
                **os.environ,
                **environment,
                "CI": "true",
                "GITHUB_ACTIONS": "true",
                "GITHUB_SHA": COMMIT,
                "GITHUB_BASE_REF": self.github.base,
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(self.summary),
                "GITHUB_WORKSPACE": str(self.workspace),
                "RUNNER_TEMP": str(self.temporary),
                **({"GITHUB_ACTION_PATH": str(action)} if action else {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=STEP_SECONDS,
            check=False,
        )
        self.github.printed[f"{self.job}/{step.get('name', step['run'])}"] = finished.stdout
        return read_outputs(output.read_text("utf-8")), finished.returncode != 0

    def _use(self, used: str, given: dict[str, str]) -> tuple[dict[str, str], bool]:
        if used.startswith("./"):
            return self._composite(self.workspace / used, given)
        name, _, version = used.partition("@")
        assert version, f"{used} has no version"
        return _ACTIONS[name](self, given), False

    def _composite(self, path: Path, given: dict[str, str]) -> tuple[dict[str, str], bool]:
        read = yaml.safe_load((path / "action.yml").read_text("utf-8"))
        declared = read["inputs"]
        assert not set(given) - set(declared), f"{path} has no input {set(given) - set(declared)}"
        inputs = Strict({name: given.get(name, one.get("default", "")) for name, one in declared.items()})
        steps, failed = self.steps(read["runs"]["steps"], {"inputs": inputs}, path)
        return {key: text_of(expand(one["value"], {"steps": steps})) for key, one in read["outputs"].items()}, failed

    def checkout(self, given: dict[str, str]) -> dict[str, str]:
        assert self.github.permissions.get("contents") in {"read", "write"}, "the token may not read the repository"
        place = self.workspace / given.get("path", ".")
        source = self.github.repositories[given.get("repository", "")]
        if "repository" in given:
            # Plumbline's own repository, with the environment that ci/setup has made there.
            place.symlink_to(source)
        elif place == self.workspace:
            place.rmdir()
            place.symlink_to(source)
        else:
            shutil.copytree(source, place, symlinks=True)
            if given.get("fetch-depth") != "0":
                _forget_history(place)
            if os.geteuid() == 0:
                # As in a container, where root works in a folder that belongs to the runner's user.
                subprocess.run(["chown", "--recursive", str(RUNNER_USER), str(place)], check=True)
        return {}

    def restore(self, given: dict[str, str]) -> dict[str, str]:
        _cache_input(given)
        return {"cache-hit": "true" if given["key"] in self.github.cached else ""}

    def save(self, given: dict[str, str]) -> dict[str, str]:
        paths = _cache_input(given)
        absent = [path for path in paths if not Path(path).exists()]
        assert not absent, f"nothing to save at {absent}"
        assert given["key"] not in self.github.cached, f"{given['key']} exists already"
        self.github.cached[given["key"]] = paths
        return {}

    def upload(self, given: dict[str, str]) -> dict[str, str]:
        # GitHub refuses other numbers, and an empty one.
        assert 0 <= int(given.get("retention-days", "0")) <= MOST_DAYS
        place = self.github.artifacts / given["name"]
        self.github.days[given["name"]] = int(given.get("retention-days", "0"))
        assert not place.exists(), f"the artifact {given['name']} exists already"
        if (self.workspace / given["path"]).is_dir():
            shutil.copytree(self.workspace / given["path"], place, symlinks=True)
        return {}

    def download(self, given: dict[str, str]) -> dict[str, str]:
        for found in sorted(self.github.artifacts.iterdir()):
            if fnmatch.fnmatch(found.name, given["pattern"]):
                shutil.copytree(found, self.workspace / given["path"] / found.name, symlinks=True)
        return {}

    def alert(self, given: dict[str, str]) -> dict[str, str]:
        assert self.github.permissions.get("security-events") == "write", "the token may not write alerts"
        file = self.workspace / given["sarif_file"]
        self.github.alerts.append({"text": file.read_text("utf-8"), "root": Path(given["checkout_path"])})
        return {}


def block_of(page: Path, language: str = "yaml") -> str:
    """The first block of a language that a page shows."""
    found = re.search(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{page} shows no {language}"
    return found[1]


@cache
def actionlint() -> str:
    """The path of actionlint: the machine's own, or the pinned version, which is compiled once."""
    if found := shutil.which("actionlint"):
        return found
    folder = Path(__file__).with_name("actionlint")
    key = key_of([sha256_of(folder / "go.sum")])

    def compile_into(into: Path) -> None:
        command = ["go", "build", "-o", str(into / "actionlint"), "github.com/rhysd/actionlint/cmd/actionlint"]
        subprocess.run(command, cwd=folder, check=True)

    return str(Cache.default().folder("test-programs", f"actionlint-{key}", compile_into) / "actionlint")


def as_tags(text: str) -> str:
    """A workflow with the versions whose inputs the pinned actionlint knows. It does not know those of a commit."""
    text = re.sub(r"(uses: actions/[\w/-]+)@[0-9a-f]{40} # \S+", r"\1@v4", text)
    return re.sub(r"(uses: github/[\w/-]+)@[0-9a-f]{40} # \S+", r"\1@v3", text)


_ACTIONS: dict[str, Callable[[CiMachine, dict[str, str]], dict[str, str]]] = {
    "actions/checkout": CiMachine.checkout,
    "actions/cache/restore": CiMachine.restore,
    "actions/cache/save": CiMachine.save,
    "actions/upload-artifact": CiMachine.upload,
    "actions/download-artifact": CiMachine.download,
    "github/codeql-action/upload-sarif": CiMachine.alert,
}


def read_outputs(text: str) -> dict[str, str]:
    """The content of $GITHUB_OUTPUT: `name=value`, or `name<<end`, lines, `end`."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, sign, value = line.partition("<<" if "<<" in line.split("=")[0] else "=")
        assert sign, f"'{line}' is no output"
        if sign == "=":
            found[name] = value
        else:
            content = []
            while (inner := next(lines)) != value:
                content.append(inner)
            found[name] = "\n".join(content)
    return found


def _forget_history(place: Path) -> None:
    """Reduce a clone to its latest commit, without other branches, as in a checkout without `fetch-depth: 0`."""
    git = ["git", "-C", str(place)]
    head = subprocess.run([*git, "rev-parse", "--verify", "HEAD"], capture_output=True, encoding="utf-8", check=False)
    if head.returncode != 0:
        return
    refs = subprocess.run(
        [*git, "for-each-ref", "--format=%(refname)", "refs/remotes"], capture_output=True, encoding="utf-8", check=True
    )
    for ref in refs.stdout.split():
        subprocess.run([*git, "update-ref", "-d", ref], check=True)
    (place / ".git" / "shallow").write_text(head.stdout, "utf-8")


def _cache_input(given: dict[str, str]) -> list[str]:
    assert len(given["key"]) <= MOST_KEY_LENGTH, given["key"]
    assert "," not in given["key"], given["key"]
    paths = given["path"].splitlines()
    assert paths, "no path to cache"
    return paths


def _bare(condition: Any) -> str:
    text = str(condition).strip()
    bare = text.removeprefix("${{").removesuffix("}}") if text.startswith("${{") else text
    # GitHub's rule: a condition that names no state requires success.
    return bare if any(f"{name}(" in bare for name in _states(healthy=True)) else f"success() && ({bare})"


def _states(*, healthy: bool) -> dict[str, Callable[[], bool]]:
    return {
        "success": lambda: healthy,
        "failure": lambda: not healthy,
        "always": lambda: True,
        "cancelled": lambda: False,
    }
