"""Options keep their types from the command line to the request."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import click
import pytest

from harness.cli import run_options
from harness.cli.group import plumb as group
from harness.core.processes import process
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MODULES = sorted((ROOT / "harness" / "cli").rglob("*.py"))
SHARING = {
    **dict.fromkeys(("check", "premerge", "fuzz", "audit", "port"), run_options.RunOptions),
    **dict.fromkeys(("exec", "deb"), run_options.ProgramOptions),
    "self-test": run_options.FolderOptions,
}


@pytest.mark.parametrize(("name", "shared"), SHARING.items())
def test_every_command_that_makes_a_run_has_the_shared_options(
    name: str, shared: type[run_options.FolderOptions]
) -> None:
    declared = {parameter.name for parameter in group.commands[name].params if isinstance(parameter, click.Option)}
    assert set(shared.__struct_fields__) <= declared


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_command_takes_options_of_any_type(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.args.kwarg is not None:
            # The only place that makes the record, with values of a ParamSpec's type.
            assert (path.stem, node.name) == ("run_options", "with_record")


def test_mypy_finds_a_misspelled_option(tmp_path: Path) -> None:
    lines = [
        "from harness.cli.run_options import RunOptions",
        "from harness.plan.request import Request",
        "def right(run: RunOptions) -> bool: return run.offline",
        "def wrong(run: RunOptions) -> bool: return run.ofline",
        "def no_field(run: RunOptions) -> Request: return Request(ofline=run.offline)",
    ]
    snippet = tmp_path / "snippet.py"
    snippet.write_text("\n".join(lines), "utf-8")
    # The cache of the project's own checks saves most of the time.
    ended = process.run([sys.executable, "-m", "mypy", "--strict", snippet], deadline_seconds=300, folder=ROOT)
    errors = {line.split(":")[1] for line in ended.text.splitlines() if ": error: " in line}
    assert errors == {"4", "5"}, ended.text
    assert '"RunOptions" has no attribute "ofline"' in ended.text
    assert 'Unexpected keyword argument "ofline" for "Request"' in ended.text
