"""What a report format states of itself: its name, its file, how it is rendered, how it is printed."""

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
    """The document of a judged run folder."""
    file: str = ""
    """Its file in the run folder; empty for a format that is only printed."""
    shows_folder: bool = False
    """Whether the document shows files of one run's folder, so that joined runs have none."""
    guard: Callable[[str], str] | None = str
    """Makes a server's words harmless to a CI system that reads standard output (harness.core.ci_streams). None for a
    format that consists of commands to the CI system."""
