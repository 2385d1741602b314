"""GitHub's workflow commands: a runner turns them, in any step's output, into annotations on the lines of a diff.

The syntax and its escapes follow docs.github.com, "Workflow commands for GitHub Actions", and the runner's
ActionCommand. GitHub shows ten of each level per step, so the output has one line per finding, worst first.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness.core.byte_diff import described
from harness.core.finding import Verdict
from harness.core.untrusted_text import one_line, visible
from harness.report.finding import frame_in_tree, level_of, unexplained
from harness.report.report_format import ReportFormat
from harness.report.verdict_sentence import unjudged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.core.finding import Finding, Frame
    from harness.judge.findings import Judgement

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(judgement: Judgement) -> str:
    """One line per finding, per cell that no finding explains, and per reason why the whole run is UNKNOWN. A finding
    that may follow from another one is not on a line of the tree.
    """
    starts = _starts(judgement)
    places = _places(judgement, starts)
    lines = [
        _finding(finding, judgement.place, places.get(finding.id), starts.get(finding.id, ""))
        for finding in judgement.findings
    ]
    lines += [
        _command(
            "error" if cell.verdict == Verdict.FAIL else "warning",
            {"title": f"{cell.verdict} {cell.target}/{cell.suite}"},
            cell.reason,
        )
        for cell in unexplained(judgement)
    ]
    lines += [_command("warning", {"title": "UNKNOWN"}, why) for why in unjudged(judgement)]
    return "".join(f"{line}\n" for line in lines)


def annotated_places(judgement: Judgement) -> dict[str, Frame]:
    """The line of the tree for each finding's annotation, by the finding's id; without findings that have no line."""
    return _places(judgement, _starts(judgement))


def _places(judgement: Judgement, starts: Mapping[str, str]) -> dict[str, Frame]:
    places = {finding.id: frame_in_tree(finding) for finding in judgement.findings if finding.id not in starts}
    return {identity: place for identity, place in places.items() if place}


def outputs(folder: Path, judgement: Judgement) -> str:
    """A step's outputs for $GITHUB_OUTPUT: the verdict, the number of new findings, the run folder and the report."""
    new = sum(not finding.known for finding in judgement.findings)
    # Joined runs have a summary but no page.
    report = next((folder / name for name in ("report.html", "summary.md") if (folder / name).is_file()), "")
    outputs = {"verdict": judgement.verdict, "findings": new, "run": folder, "report": report}
    return "".join(f"{name}={one_line(str(value))}\n" for name, value in outputs.items())


def _starts(judgement: Judgement) -> dict[str, str]:
    """The first finding of the cause from which a finding may follow, by the latter's id."""
    return {name: cause.start for cause, _ in judgement.findings_by_cause() for name in cause.followers}


def _finding(finding: Finding, prefix: str, place: Frame | None, follows: str) -> str:
    where = {"file": str(PurePosixPath(prefix) / place.file), "line": str(place.line)} if place else {}
    text = [f"{finding.id} on {', '.join(finding.targets)} ({finding.occurrences}×)"]
    first = finding.witnesses[0]
    text += [part for part in (first.instruction, first.access) if part]
    text += [described(finding.difference)] if finding.difference else []
    text += [f"after: {finding.command}"] if finding.command else []
    text += [f"known: {finding.known}"] if finding.known else []
    text += [f"may follow from {follows}"] if follows else []
    return _command(
        _COMMANDS[level_of(finding)], {**where, "title": one_line(finding.title)}, "\n".join([*text, finding.replay])
    )


def _command(name: str, properties: dict[str, str], message: str) -> str:
    arguments = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {arguments}::{_data(message)}"


def _data(text: str) -> str:
    # The runner obeys the older form even in the middle of a line.
    plain = visible(text).replace("##[", r"##\[")
    return plain.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


ANNOTATIONS = ReportFormat(name="github", render=lambda _, judgement: render(judgement), guard=None)
OUTPUTS = ReportFormat(name="outputs", render=outputs, guard=None)
