"""The description of a report format: its name, its file, its renderer and its guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.judge.findings import Judgement


class ReportFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A format of `plumb report --format NAME`. harness.report.formats.registry lists all of them."""

    name: str
    render: Callable[[Path, Judgement], str]
    """Renders the document of a judged run folder."""
    file: str = ""
    """The file in the run folder; empty for a format that is only printed."""
    is_json: bool = False
    """Whether it is JSON, whose own escapes keep the content of every text."""
    shows_folder: bool = False
    """Whether the document shows files of one run folder. Joined runs then lack this format."""
    guard: Callable[[str], str] | None = str
    """Makes a server's words harmless to a CI system that reads standard output (harness.core.ci_streams). None for a
    format that consists of commands to the CI system."""
