"""The only list of the report's formats. Each format is a separate module, independent of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import UsageError
from harness.core.untrusted_text import visible, visible_json
from harness.judge.findings import SCHEMA, Judgement
from harness.record import run_folder
from harness.report.formats import (
    findings_json,
    github,
    junit,
    markdown,
    page,
    processor_time,
    sarif,
    throughput,
    upstream_tests,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.report.report_format import ReportFormat

# findings.json comes first: the page's history reads it.
FORMATS: dict[str, ReportFormat] = {
    one.name: one
    for one in (
        findings_json.FORMAT,
        markdown.FORMAT,
        junit.FORMAT,
        sarif.FORMAT,
        page.FORMAT,
        github.ANNOTATIONS,
        github.OUTPUTS,
        throughput.FORMAT,
        processor_time.FORMAT,
        processor_time.FLAME_GRAPH,
        upstream_tests.FORMAT,
    )
}
"""Name -> format, in the order in which files are written and `--help` lists them."""
FILES = tuple(one for one in FORMATS.values() if one.file)
"""The formats that are files of every run folder."""
OF_JOINED_RUNS = tuple(one for one in FILES if not one.shows_folder)


def render(folder: Path, judgement: Judgement, name: str) -> str:
    """The document of one format, by its name."""
    form = FORMATS[name]
    return _document(form, folder, judgement if form.is_json else _harmless(judgement))


def _document(form: ReportFormat, folder: Path, shown: Judgement) -> str:
    text = form.render(folder, shown)
    if form.is_json:
        return visible_json(text)
    # A format may also show the run's record and events. CSV has lines that end with two characters.
    return "\r\n".join(map(visible, text.split("\r\n")))


def _harmless(judgement: Judgement) -> Judgement:
    """A judgement whose texts a terminal, a browser or a parser shows as they are: no field is left to its format."""
    return json_codec.convert(_visible(msgspec.to_builtins(judgement)), Judgement)


def _visible(value: Any) -> Any:
    match value:
        case str():
            return visible(value)
        case list() | tuple():
            return [_visible(one) for one in value]
        case dict():
            return {visible(key): _visible(one) for key, one in value.items()}
    return value


def write(folder: Path, judgement: Judgement, *, formats: Iterable[ReportFormat] = FILES) -> list[Path]:
    """Write the files of a report beside the evidence, and return their paths."""
    written = []
    harmless = _harmless(judgement)
    for one in formats:
        path = folder / one.file
        write_whole(path, _document(one, folder, judgement if one.is_json else harmless).encode())
        written.append(path)
    return written


def read(folder: Path) -> Judgement:
    """The judgement in a run folder. Raises UsageError if it is missing or of another version, or of another run, and
    InconclusiveError if the record of the run is damaged.
    """
    path = folder / findings_json.FORMAT.file
    try:
        content = path.read_bytes()
        _refuse_other_schema(content, path)
        judgement = json_codec.decode(content, Judgement)
    except (FileNotFoundError, NotADirectoryError) as error:
        why, remedy = run_folder.why_none(folder), run_folder.NAMES_ONE
        if (folder / "run.json").is_file():
            why, remedy = "it has not been judged", run_folder.command_to_judge(folder)
        raise UsageError("no judgement to report", where=str(folder), because=why, remedy=remedy) from error
    except msgspec.DecodeError as error:
        remedy = run_folder.command_to_judge(folder)
        raise UsageError("the judgement is damaged", where=str(path), because=str(error), remedy=remedy) from error
    if bare := [one.id for one in [*judgement.findings, *judgement.warnings] if not one.witnesses]:
        because, remedy = f"{bare[0]} has no witness", run_folder.command_to_judge(folder)
        raise UsageError("the judgement is damaged", where=str(path), because=because, remedy=remedy)
    run_folder.refuse_other(folder, judgement.record)
    return judgement


class _Version(msgspec.Struct):
    """The only key that every version of findings.json has."""

    schema: int


def _refuse_other_schema(content: bytes, path: Path) -> None:
    """Raise UsageError for a judgement of another version, whose verdict and findings may mean something else."""
    try:
        version = json_codec.decode(content, _Version).schema
    except msgspec.DecodeError:
        # Whatever it is, it is damaged.
        return
    if version != SCHEMA:
        raise UsageError(
            "the judgement is of another version of Plumbline",
            where=str(path),
            because=f"its schema is {version}, and this one reads {SCHEMA}",
            remedy=run_folder.command_to_judge(path.parent),
        )
