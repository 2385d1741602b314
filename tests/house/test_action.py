"""ci/action reports the verdict of the command that it ran, and ignores earlier files."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT
from harness.plan.plan import read_plan
from tests.support import fakes
from tests.support.repositories import commit, git

if TYPE_CHECKING:
    from pathlib import Path

# A stand-in for plumb: a check writes its judgement, refuses a folder in use, or fails before it has a judgement.
PLUMB = """#!/bin/sh
command=$1
run=$2
while [ $# -gt 0 ]; do [ "$1" != --run ] || run=$2; shift; done
[ "$command" != report ] || { cat "$run/findings.json"; exit 0; }
[ ! -e "$run" ] || exit 4
[ "$CODE" -ne 7 ] || exit 7
mkdir "$run"
echo "verdict=$VERDICT" >"$run/findings.json"
echo "# $VERDICT" >"$run/summary.md"
exit "$CODE"
"""


REAL_PLUMB = f"""#!/bin/sh
exec {shlex.quote(sys.executable)} -m harness.cli "$@"
"""


def planned(folder: Path, **asked: str) -> dict[str, str]:
    """The options of the plan that a step makes for these inputs, by the variable of each without `PLUMBLINE_`."""
    output = folder / "output"
    output.unlink(missing_ok=True)
    (folder / "ci").mkdir(exist_ok=True)
    shutil.copy2(ROOT / "ci" / "action", folder / "ci" / "action")
    fakes.write(folder / ".venv" / "bin" / "plumb", REAL_PLUMB, mode=0o755)
    inputs = {"SERVER": "redis-3.2.6", "TARGETS": "armv5", "SUITES": "bitops", **asked}
    variables = {f"PLUMBLINE_{name}": value for name, value in inputs.items()}
    variables |= {"GITHUB_OUTPUT": str(output), "PYTHONPATH": str(ROOT), "PLUMBLINE_CACHE": str(folder / "cache")}
    subprocess.run([folder / "ci" / "action", "plan"], check=True, env={**os.environ, **variables}, cwd=folder)
    document = output.read_text("utf-8").removeprefix("plan<<end-of-plan\n").removesuffix("\nend-of-plan\n")
    return read_plan(fakes.write(folder / "plan.json", document)).options


@pytest.mark.costly
def test_a_plan_names_the_options_that_the_jobs_have(tmp_path: Path) -> None:
    """The action planned for libc under signal, whatever its jobs ran."""
    usual = planned(tmp_path)
    assert (usual["policy"], usual["allocator"], usual["toolchain"]) == ("signal", "libc", "gcc")
    other = planned(tmp_path, POLICY="fixup", ALLOCATOR="jemalloc")
    assert other == {**usual, "policy": "fixup", "allocator": "jemalloc"}
    assert planned(tmp_path, COMMAND="audit", POLICY="fixup") == {**usual, "policy": "audit-fixup"}


@pytest.mark.costly
def test_a_plan_of_a_pull_request_runs_none_of_its_files(tmp_path: Path) -> None:
    """Regression: Python looked for `json` in the pull request's checkout first, and its json.py wrote the plan."""
    server = fakes.server_tree(tmp_path / "server")
    git(server, "init", "--quiet")
    commit(server)
    fakes.write(server / "src" / "bitops.c", "int changed;\n")
    ran = tmp_path / "ran"
    for name in ("json.py", "pip.py", "venv.py", "sitecustomize.py", "conftest.py", "harness/__init__.py"):
        fakes.write(server / name, f"open({str(ran)!r}, 'a').write({name!r})\n")
    folder, output = tmp_path / "plumbline", tmp_path / "output"
    (folder / "ci").mkdir(parents=True)
    shutil.copy2(ROOT / "ci" / "action", folder / "ci" / "action")
    python = shlex.quote(sys.executable)
    for name, words in (("python", ""), ("plumb", "-I -m harness.cli")):
        fakes.write(folder / ".venv" / "bin" / name, f'#!/bin/sh\nexec {python} {words} "$@"\n', mode=0o755)
    asked = {"COMMAND": "premerge", "BASE": "HEAD", "TARGETS": "armv5", "CACHE": str(tmp_path / "cache")}
    variables = {f"PLUMBLINE_{name}": value for name, value in asked.items()} | {"GITHUB_OUTPUT": str(output)}
    subprocess.run([folder / "ci" / "action", "plan", "changes"], check=True, env=os.environ | variables, cwd=server)
    assert '"bitops"' in output.read_text("utf-8")
    assert not ran.exists(), ran.read_text("utf-8")


def checked(folder: Path, code: int, verdict: str) -> dict[str, str]:
    """The outputs of a step that ran a check with this exit status and verdict."""
    output = folder / "output"
    output.unlink(missing_ok=True)
    (folder / "ci").mkdir(exist_ok=True)
    shutil.copy2(ROOT / "ci" / "action", folder / "ci" / "action")
    fakes.write(folder / ".venv" / "bin" / "plumb", PLUMB, mode=0o755)
    variables = {"CODE": str(code), "VERDICT": verdict, "GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(folder)}
    variables["GITHUB_STEP_SUMMARY"] = str(folder / "summary")
    subprocess.run([folder / "ci" / "action", "check"], check=True, env={**os.environ, **variables}, cwd=folder)
    lines = (line.partition("=") for line in output.read_text("utf-8").splitlines())
    return {name: value for name, _, value in lines}


@pytest.mark.parametrize(("code", "verdict"), [(0, "PASS"), (1, "FAIL"), (6, "UNKNOWN")])
def test_a_steps_outputs_are_those_of_its_judgement(tmp_path: Path, code: int, verdict: str) -> None:
    outputs = checked(tmp_path, code, verdict)
    assert (outputs["code"], outputs["verdict"]) == (str(code), verdict)


def test_the_outputs_are_empty_if_nothing_was_judged(tmp_path: Path) -> None:
    outputs = checked(tmp_path, 7, "PASS")
    assert (outputs["code"], outputs["verdict"], outputs["report"]) == ("7", "UNKNOWN", "")


def test_a_second_step_does_not_repeat_the_verdict_of_the_first(tmp_path: Path) -> None:
    assert checked(tmp_path, 0, "PASS")["verdict"] == "PASS"
    outputs = checked(tmp_path, 1, "FAIL")
    assert (outputs["code"], outputs["verdict"], outputs["report"]) == ("4", "UNKNOWN", "")
