"""Follows a document exactly: types its commands, and compares their output with the document.

A fenced block of `sh` is typed line by line. `# exit N` after a command is its expected exit status; the default is 0.
The output of that block must contain the lines of a following `text` block in order; `…` stands for any text.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMMAND_SECONDS = 1800.0
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"\s+# exit (\d+)$")


def follow(document: Path, folder: Path, *, stand_ins: Mapping[str, str] | None = None) -> None:
    """Raise AssertionError at the first command or line that differs from the document.

    `stand_ins`: target in the document -> the target on which its commands run here.
    """
    text = document.read_text("utf-8")
    for target, stand_in in (stand_ins or {}).items():
        assert f"--target {target} " in text, f"{document.name} has no command for {target}"
        text = text.replace(f"--target {target} ", f"--target {stand_in} ")
    blocks = _BLOCK.findall(text)
    assert any(kind == "sh" for kind, _ in blocks), f"{document.name} has no commands"
    output = ""
    for kind, text in blocks:
        if kind == "sh":
            output = "".join(_typed(line, folder) for line in text.splitlines() if line and not line.startswith("#"))
        elif kind == "text":
            absent = first_absent(text, output)
            assert not absent, f"{document.name}: no line '{absent}' in\n{output}"


def first_absent(shown: str, output: str) -> str:
    """The first line that the output does not contain after the lines before it; empty if it contains all lines in
    order.
    """
    lines = iter(output.splitlines())
    for line in filter(str.strip, shown.splitlines()):
        parts = [re.escape(" ".join(part.split())) for part in line.split("…")]
        if not any(re.search(".*".join(parts), " ".join(one.split())) for one in lines):
            return line
    return ""


def _typed(line: str, folder: Path) -> str:
    expected = int(found[1]) if (found := _EXIT.search(line)) else 0
    finished = subprocess.run(
        ["bash", "-c", _EXIT.sub("", line)],
        cwd=folder,
        env={**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert finished.returncode == expected, f"exit {finished.returncode} of {line}\n{finished.stdout}"
    return finished.stdout
