"""A trial: tests of a commit, in a copy of its checkout in which files may be changed.

The copy is a layer over a clone in build/harness_mutants, and another lies over Plumbline's cache: a mutant that builds
wrongly must spoil no cache. Both layers are in memory, in namespaces of the trial's own. They and every process of the
trial disappear when it ends, however a mutant ends. That takes Linux, util-linux's unshare, root, and a checkout that
is not in /tmp, of which a trial has its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from harness.core import json_codec
from harness.core.cache import default_root
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import Record
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from tools.harness_mutants import observer, pytest_plugin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STATE = ROOT / "build" / "harness_mutants"
SETUP_SECONDS = 900.0
TEMPORARY = "/tmp"  # noqa: S108 - the folder that trials replace
START = "the start of pytest"
"""Stands for the test that fails if a change keeps pytest from starting: the harness has a plugin."""
END = "the end of pytest"
"""Stands for the test that fails if pytest ends, breaks off or is killed before it has run its tests."""
MEMORY = "8g"
"""Size of a trial's layer and of its temporary files, each: what a mutant writes without an end stays within."""
SCRIPT = """\
set -eu
scratch=$1 checkout=$2 cache=$3 memory=$4
shift 4
mount -t tmpfs -o "size=$memory" plumbline "$scratch/memory"
mkdir "$scratch/memory/code" "$scratch/memory/code-work" "$scratch/memory/cache" "$scratch/memory/cache-work"
cp -a "$scratch/changed/." "$scratch/memory/code"
layer() {
    mount -t overlay plumbline -o "lowerdir=$1,upperdir=$scratch/memory/$2,workdir=$scratch/memory/$2-work" "$1"
}
layer "$checkout" code
layer "$cache" cache
mount -t tmpfs -o "size=$memory,mode=1777" plumbline /tmp
cd "$checkout"
exec "$@"
"""


class End(Record, frozen=True):
    """The end of a test, or of a part that did not pass."""

    test: str
    outcome: Literal["passed", "failed", "skipped"]
    when: Literal["collect", "setup", "call", "teardown"]
    seconds: float


class TrialResult(Record, frozen=True):
    """What a trial showed."""

    ends: list[End]
    expired: bool
    """Whether the time limit ended it."""
    code: int
    """pytest's exit status."""
    seconds: float
    finished: bool = True
    """Whether pytest's session came to its end. A process that is killed or calls os._exit() tells no other status."""

    @property
    def failed(self) -> list[str]:
        """The tests that failed, and the files that could not be read, in the order of their ends.

        Then END, if these do not explain how pytest ended: other tests may not have run, or have failed without a
        record.
        """
        found = list(dict.fromkeys(end.test for end in self.ends if end.outcome == "failed"))
        explained = pytest.ExitCode.TESTS_FAILED if found else pytest.ExitCode.OK
        is_whole = self.finished and self.code == explained
        return found if self.expired or is_whole else [*found, END]


class Checkout:
    """A clone of the project at a commit, with its own environment."""

    def __init__(self, commit: str, folder: Path = STATE) -> None:
        self.commit = commit
        self.state = folder / commit
        """What is known of this commit."""
        self.root = folder / "checkout"

    def provide(self) -> None:
        """Make the clone, or bring it to the commit. Raises InfrastructureError; UsageError if it would be in /tmp."""
        if self.root.is_relative_to(TEMPORARY):
            raise UsageError(f"{self.root} is in {TEMPORARY}", remedy="a checkout elsewhere")
        if not self.root.is_dir():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            _git("clone", "--quiet", "--no-checkout", ROOT, self.root)
        _git("-C", self.root, "fetch", "--quiet", ROOT, "HEAD")
        _git("-C", self.root, "checkout", "--quiet", "--force", "--detach", self.commit)
        process.run_successfully(
            ["bash", "-c", ". ci/setup"],
            problem="the mutants' environment cannot be made",
            folder=self.root,
            deadline_seconds=SETUP_SECONDS,
            environment=dict(os.environ),
        )
        # What a trial compiles, it loses.
        process.run(
            [self.root / ".venv/bin/python", "-m", "pytest", "--collect-only", "-qq", "tests"],
            folder=self.root,
            deadline_seconds=SETUP_SECONDS,
            environment={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        )
        self.state.mkdir(parents=True, exist_ok=True)

    def run(
        self,
        files: Sequence[str],
        *,
        seconds: float,
        chosen: Sequence[str] | None = None,
        changed: Mapping[str, bytes] | None = None,
        functions: bool = False,
        lines: bool = False,
        first_failure: bool = False,
        quick: bool = False,
        slow: bool = False,
        keep: Path | None = None,
    ) -> TrialResult:
        """Run tests: of these files and folders the chosen ones, in this order (None: all).

        `changed`: path -> other content. `functions`, `lines`: record what each test executes, in `keep`. `quick`: only
        tests that `ci/test --quick` runs. `slow`: also those that only `ci/test --all` runs. Raises InfrastructureError
        if pytest did not run without a change. A change that keeps it from starting is noticed.
        """
        with tempfile.TemporaryDirectory(prefix="plumbline-mutant-", dir=self.state) as name:
            folder = Path(name)
            results = folder / "results"
            for each in ("memory", "changed", "results/entered"):
                (folder / each).mkdir(parents=True)
            # Processes of other users write there, too.
            (results / observer.ENTERED).chmod(0o1777)
            folder.chmod(0o755)
            orders = {
                "folder": str(results),
                "root": str(self.root),
                "chosen": chosen,
                "functions": functions,
                "lines": lines,
            }
            self._write(folder / "changed", orders, changed or {})
            wanted = {"--quick": quick, "--all": slow, "-x": first_failure}
            options = [option for option, is_wanted in wanted.items() if is_wanted]
            ended = process.run(
                [
                    *("nice", "-n", "5", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                    *("sh", "-c", SCRIPT, "sh", folder, self.root, default_root(), MEMORY),
                    *(".venv/bin/python", "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:xdist"),
                    *("-p", pytest_plugin.__name__, "--hypothesis-seed=0", *options, *files),
                ],
                deadline_seconds=seconds,
                environment={**os.environ, "PLUMBLINE_CACHE": str(default_root())},
            )
            (self.state / "last.log").write_bytes(ended.output)
            path = results / pytest_plugin.ENDS
            ends = [json_codec.decode(line, End) for line in path.read_bytes().splitlines()] if path.exists() else []
            if not ends and not ended.expired:
                if not changed:
                    raise InfrastructureError("the tests did not run", because=ended.text[-1000:])
                # The same tests have run without the change, when they were recorded.
                ends = [End(test=START, outcome="failed", when="collect", seconds=ended.seconds)]
            if keep is not None:
                shutil.rmtree(keep, ignore_errors=True)
                shutil.copytree(results, keep)
            finished = (results / pytest_plugin.FINISHED).exists()
            return TrialResult(
                ends=ends, expired=ended.expired, code=ended.code, seconds=ended.seconds, finished=finished
            )

    def _write(self, layer: Path, orders: Mapping[str, object], changed: Mapping[str, bytes]) -> None:
        """The files of the trial that differ from the clone's."""
        here = Path(__file__).parent
        tool = layer / "tools" / "harness_mutants"
        tool.mkdir(parents=True)
        # The clone's commit may have another version of them, or none.
        for name in ("__init__.py", "observer.py", "pytest_plugin.py"):
            shutil.copy2(here / name, tool)
        (tool / observer.ORDERS).write_bytes(json_codec.encode(orders))
        packages = next((self.root / ".venv" / "lib").glob("python3*")) / "site-packages"
        start_up = layer / packages.relative_to(self.root)
        start_up.mkdir(parents=True)
        # The name comes after that of the file which makes the checkout importable.
        (start_up / "zz_harness_mutants.pth").write_text(f"import {observer.__name__}\n", "utf-8")
        for file, content in changed.items():
            path = layer / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def is_broken_off(ends: Sequence[End], code: int) -> bool:
    """Whether pytest ended with another status than its tests explain: tests may not have run, and may have failed
    without a record.
    """
    return code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} or (
        code == pytest.ExitCode.TESTS_FAILED and all(end.outcome != "failed" for end in ends)
    )


def _git(*words: str | Path) -> str:
    return process.run_successfully(
        ["git", *words], problem="git does not give the mutants' checkout", deadline_seconds=300
    ).text.strip()


def commit_of(root: Path = ROOT) -> str:
    """The checkout's commit, abbreviated. Raises InfrastructureError."""
    return _git("-C", root, "rev-parse", "--short=12", "HEAD")
