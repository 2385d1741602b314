"""The hints in error messages: a command works when it is pasted, and a named folder is the right one."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.errors import ExitCode
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.record.run_folder import read_run
from harness.report.formats import registry as formats
from tests.support import fakes
from tests.support.judgements import run_folder, several_findings

if TYPE_CHECKING:
    from tests.support.fakes import Plumb

_HINT = re.compile(r"^  try: (.*)$", re.MULTILINE)
_COMMAND = re.compile(r"(?:^|: )plumb (.*)$")


def hint_of(message: str) -> str:
    """The last hint of an error's message."""
    hints = _HINT.findall(message)
    assert hints, f"no hint: {message}"
    last: str = hints[-1]
    return last


def judged(tmp_path: Path) -> Path:
    """A run folder whose name a shell would split."""
    folder = run_folder(tmp_path / "my runs")
    record = read_run(folder).digest
    formats.write(folder, msgspec.structs.replace(several_findings(), record=record))
    return folder


@pytest.mark.parametrize(
    "mistake",
    [
        ("check", "--target", "arm"),
        ("check", "--target", "???"),
        ("check", "--target", "xyzzy"),
        ("check", "--suite", "bitop"),
        ("check", "--suite", "xyzzy*"),
        ("check", "--policy", "kernel"),
        ("check", "--server", "redis-7.0.1"),
        ("check", "--server", "nowhere/at/all"),
        ("check", "--taget", "armv5"),
        ("list", "target"),
        ("lst",),
        ("findings",),
        ("show", "RUN", "nothing-like-it"),
        ("show", "RUN", "exit-strat"),
        ("report", "RUN", "--format", "htm"),
        ("port", "--cflags", "x"),
    ],
    ids=" ".join,
)
def test_the_command_of_a_hint_works_when_it_is_pasted(plumb: Plumb, tmp_path: Path, mistake: tuple[str, ...]) -> None:
    run = judged(tmp_path)
    code, _, err = plumb(*(str(run) if word == "RUN" else word for word in mistake))
    assert code in {ExitCode.USAGE, ExitCode.NOTHING_SELECTED}, err
    command = _COMMAND.search(hint_of(err))
    assert command is not None, err
    code, out, err = plumb(*shlex.split(command[1]))
    assert (code, bool(out)) == (ExitCode.PASS, True), err


def test_a_folder_without_a_run_is_distinguished_from_a_missing_one(plumb: Plumb, tmp_path: Path) -> None:
    (tmp_path / "here" / "runs" / "20261122-100000").mkdir(parents=True)
    for command in ("findings", "judge", "report"):
        for folder, why in (("gone", "there is no such folder"), (".", "it has no run.json")):
            code, _, err = plumb(command, folder)
            assert (code, f"because: {why}\n" in err) == (ExitCode.USAGE, True), err
            listed = process.run(["sh", "-c", hint_of(err).rpartition(": ")[2]], deadline_seconds=20)
            assert (listed.code, listed.text) == (0, "runs/20261122-100000/\n")


def test_outside_a_checkout_the_hint_is_for_this_command(plumb: Plumb, tmp_path: Path) -> None:
    code, _, err = plumb("premerge")
    assert (code, "error: no checkout of a server here" in err) == (ExitCode.USAGE, True)
    assert "plumb premerge --server PATH" in hint_of(err)
    tree = fakes.server_tree(tmp_path / "a tree")
    code, _, err = plumb("premerge", "--server", tree)
    assert (code, "error: not a git checkout" in err) == (ExitCode.USAGE, True)
    hint = hint_of(err).partition(",")[0]
    assert shlex.split(hint) == ["plumb", "check", "--server", str(tree)]


@pytest.mark.parametrize("debug", [False, True])
def test_a_command_that_a_signal_ended_has_a_hint_about_debugging(*, debug: bool) -> None:
    """The supervisor prints the line, because the command no longer exists."""
    program = Path(sys.executable).with_name("plumb")
    words = [*(["--debug"] if debug else []), "list", "targets"]
    script = f"""
import os, signal, sys
from harness.cli import console_script
console_script._command = lambda words: os.kill(os.getpid(), signal.SIGSEGV)
sys.argv = {[str(program), *words]!r}
console_script.main()
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert ended.returncode == ExitCode.HARNESS_BUG
    assert f"error: a bug in Plumbline: {signal.SIGSEGV.name} ended it\n" in ended.stderr
    hints = _HINT.findall(ended.stderr)
    assert bool(hints) is not debug, "the hint must not suggest --debug if it was given"
    for hint in hints:
        assert hint.endswith("plumb --debug list targets")
        pasted = subprocess.run(["sh", "-c", hint], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
        assert (pasted.returncode, "sparc64" in pasted.stdout) == (0, True), pasted.stderr
