"""Writes the history of many runs as a static site: index.html, and runs/NAME with each run's own report.

The site keeps the judgement of every run, so that the next call adds to it, wherever it is then. Run folders are data
from strangers: three files are read of each, pages are rendered again from them, and everything is escaped.
"""

from __future__ import annotations

import re
import shutil
import time
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import source_excerpt
from harness.core import json_codec
from harness.core.cache import disk_errors, write_whole
from harness.core.digests import key_of
from harness.core.errors import InconclusiveError, PlumblineError, UsageError
from harness.core.model import Record
from harness.core.untrusted_text import as_utf8, one_line
from harness.record import run_folder, stored_run
from harness.report.formats import page
from harness.report.formats import registry as formats
from harness.report.history import JudgedRun, compared, read_judged
from harness.report.line_chart import line_chart
from harness.report.run_history.timeline import Timeline, label_of, timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = "history.json"
"""The file that identifies a site. Pages and artifacts omit files whose names begin with a dot."""
FINDINGS, RECORD, REPORT = "findings.json", "run.json", "report.html"
KEPT = (FINDINGS, RECORD, source_excerpt.FILE)
"""The files of a run that its report is rendered from."""
CHART_ROWS, LEAST_ROWS = 12, 2
"""How many revisions the chart of times shows at most, and at least."""
LONGEST_NAME = 80


class HistorySite(Record, frozen=True):
    """SITE/history.json."""

    schema: int
    runs: list[str]
    """The names of the folders in SITE/runs, the latest run first."""
    left_out: list[str]
    """Folders that could not be read in this call, with the reason."""


def write_site(folders: Sequence[Path], site: Path) -> HistorySite:
    """Add judged runs to a site, which is made if it is not there. A folder is a run folder, or holds some.

    Raises UsageError for a folder without a judged run, for a run folder that is named and cannot be read, and for a
    `site` that is neither new nor empty nor an earlier site, or that leads out of itself. Raises InfrastructureError on
    a full or read-only disk.
    """
    found, left_out = _runs_in(folders)
    _check_site(site)
    with disk_errors(site):
        runs = site / "runs"
        runs.mkdir(0o755, parents=True, exist_ok=True)
        for folder in found:
            _keep(folder, runs)
        read = []
        for folder in sorted(runs.iterdir()):
            try:
                read.append(read_judged(folder))
            except (OSError, msgspec.DecodeError) as error:
                left_out.append(f"{folder.name}: {error}")
        ordered = sorted(read, key=lambda one: (one.seconds, one.folder.name), reverse=True)
        pages = {one.folder.name for one in ordered if _write_page(one.folder)}
        made = HistorySite(
            schema=1, runs=[as_utf8(one.folder.name) for one in ordered], left_out=[one_line(one) for one in left_out]
        )
        write_whole(site / "index.html", _index(ordered, pages, made.left_out).encode())
        write_whole(site / MARK, json_codec.pretty(made))
    return made


def _runs_in(folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The run folders, and a sentence on each of those below a named folder that cannot be read."""
    found: list[Path] = []
    left_out: list[str] = []
    for folder in folders:
        if (folder / FINDINGS).is_file():
            _check_run(folder)
            found.append(folder.resolve())
            continue
        below = sorted(each.parent for each in folder.glob(f"*/{RECORD}"))
        below = sorted({*below, *(each.parent for each in folder.glob(f"*/{FINDINGS}"))})
        if not below:
            raise UsageError(
                "no judged run",
                where=str(folder),
                because="neither it nor a folder in it has a findings.json" if folder.is_dir() else "no such folder",
                remedy="name run folders, or a folder of them: plumb history runs --output site",
            )
        for each in below:
            try:
                _check_run(each)
                found.append(each.resolve())
            except (InconclusiveError, UsageError) as error:
                left_out.append(f"{each.name}: {error.because or error.what}")
    return found, left_out


def _check_run(folder: Path) -> None:
    """Raise UsageError or InconclusiveError for a run folder that cannot be shown."""
    stored_run.refuse_ways_out(folder)
    try:
        run_folder.refuse_other(folder, read_judged(folder).judged.record)
    except FileNotFoundError as error:
        raise UsageError(
            "the run has not been judged", where=str(folder), remedy=run_folder.command_to_judge(folder)
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            "the judgement is damaged",
            where=str(folder / FINDINGS),
            because=f"its judgement is damaged: {error}",
            remedy=run_folder.command_to_judge(folder),
        ) from error


def _check_site(site: Path) -> None:
    if site.exists() and not site.is_dir():
        raise UsageError("the site is a folder", where=str(site), remedy="name a new folder: --output FOLDER")
    # A site may come from a stranger's artifact, or from a branch: nothing in it is written, or read, elsewhere.
    stored_run.refuse_ways_out(site, "a site")
    if site.is_dir() and any(site.iterdir()) and not (site / MARK).is_file():
        raise UsageError(
            "the folder is neither empty nor a history",
            where=str(site),
            because=f"it has no {MARK}",
            remedy="name a new folder: --output FOLDER",
        )


def _keep(folder: Path, runs: Path) -> None:
    """Copy the files that the site needs from a run. A run that was judged again replaces its earlier version."""
    if folder.parent == runs.resolve():
        return
    into = runs / _name_of(folder)
    if into.is_dir() and not _is_same_run(folder, into):
        into = runs / f"{into.name}-{key_of([(folder / FINDINGS).read_text('utf-8'), str(folder)])[:8]}"
    into.mkdir(0o755, exist_ok=True)
    if _bytes_of(into / FINDINGS) == _bytes_of(folder / FINDINGS):
        return
    for name in KEPT:
        (into / name).unlink(missing_ok=True)
        if (folder / name).is_file():
            shutil.copyfile(folder / name, into / name)
    (into / REPORT).unlink(missing_ok=True)


def _name_of(folder: Path) -> str:
    """The run's name in the site: its own, behind its time. Copies lose the times of files."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", folder.name)[:LONGEST_NAME]
    if re.match(r"\d{8}-\d{6}", name):
        return name
    began = time.localtime(read_judged(folder).seconds)
    return f"{time.strftime('%Y%m%d-%H%M%S', began)}-{name}"


def _is_same_run(folder: Path, other: Path) -> bool:
    """Whether two folders have one run, which may have been judged again since."""
    name = RECORD if (folder / RECORD).is_file() else FINDINGS
    return _bytes_of(folder / name) == _bytes_of(other / name)


def _bytes_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _write_page(folder: Path) -> bool:
    """Render a run's own report if it is missing, or if a stranger's scripts may be in it. False if that cannot be: for
    joined runs and for old formats.
    """
    report = folder / REPORT
    if report.is_file() and page.is_harmless(report):
        return True
    report.unlink(missing_ok=True)
    try:
        judgement, record = formats.read(folder), run_folder.read_run(folder)
    except PlumblineError:
        return False
    write_whole(report, page.render(folder, judgement, record, shows_history=False).encode())
    return True


def _index(runs: Sequence[JudgedRun], pages: set[str], left_out: Sequence[str]) -> str:
    line = timeline(runs)
    return (
        page.environment(Path(__file__).parent)
        .get_template("history_site.html.jinja")
        .render(
            line=line,
            runs=runs,
            pages=pages,
            compared=list(zip(runs, compared(runs), strict=True)),
            present=sum(not one.is_gone for one in line.traces),
            chart=_chart(line),
            left_out=left_out,
            label_of=label_of,
            link=page.link,
        )
    )


def _chart(line: Timeline) -> str:
    """Seconds by target, the latest revision at the right, as a data URL; empty if there is no line to draw."""
    rows = line.rows[:CHART_ROWS][::-1]
    if len(rows) < LEAST_ROWS:
        return ""
    names = [row.runs[-1].when[5:10] for row in rows]
    seconds = {
        one_line(target): [row.cells[target].seconds if target in row.cells else None for row in rows]
        for target in line.targets
    }
    lines = {target: values for target, values in seconds.items() if sum(one is not None for one in values) > 1}
    if not lines:
        return ""
    drawn = b64encode(line_chart("seconds by target", names, lines).encode()).decode("ascii")
    return f"data:image/svg+xml;base64,{drawn}"
