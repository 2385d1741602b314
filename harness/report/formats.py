"""The judgement as people and programs read it: each module one format, none knows another.

write(folder, judgement)     all the files, beside the evidence
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError
from harness.judge.findings import Judgement
from harness.record import run_folder
from harness.report import github, junit, markdown, page, sarif, throughput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FILES = {
    "json": "findings.json",
    "markdown": "summary.md",
    "junit": "junit.xml",
    "sarif": "findings.sarif",
    "html": "report.html",
}
"""Format -> its file in the run folder."""
DOCUMENTS = [form for form in FILES if form != "html"]
"""What can be written of several runs at once: the page shows one run's folder."""
FORMATS = [*FILES, "github", "outputs", "throughput"]


def render(folder: Path, judgement: Judgement, form: str) -> str:
    """One format's document."""
    documents: dict[str, Callable[[], str]] = {
        "json": lambda: json_codec.pretty(judgement).decode(),
        "markdown": lambda: markdown.render(judgement),
        "junit": lambda: junit.render(judgement),
        "sarif": lambda: sarif.render(judgement),
        "html": lambda: page.render(folder, judgement, run_folder.read_run(folder)),
        "github": lambda: github.render(judgement),
        "outputs": lambda: github.outputs(folder, judgement),
        "throughput": lambda: throughput.render(folder, run_folder.read_run(folder)),
    }
    return documents[form]()


def write(folder: Path, judgement: Judgement, *, forms: Sequence[str] = tuple(FILES)) -> list[Path]:
    """All the files of a report, beside the evidence; the judgement first, which the history of runs is read from.

    `forms`: these formats alone.
    """
    written = []
    for form in forms:
        name = FILES[form]
        (folder / name).write_text(render(folder, judgement, form), "utf-8")
        written.append(folder / name)
    return written


def read(folder: Path) -> Judgement:
    """The judgement that a run folder holds. Raises UsageError where it has none, or one of another version."""
    path = folder / FILES["json"]
    try:
        return json_codec.decode(path.read_bytes(), Judgement)
    except FileNotFoundError as error:
        why = "it has not been judged" if (folder / "run.json").is_file() else "it has no run.json"
        remedy = f"plumb judge {folder}" if (folder / "run.json").is_file() else "name a folder below runs/"
        raise UsageError("no judgement to report", where=str(folder), because=why, remedy=remedy) from error
    except msgspec.DecodeError as error:
        remedy = f"plumb judge {folder}"
        raise UsageError("the judgement is damaged", where=str(path), because=str(error), remedy=remedy) from error
