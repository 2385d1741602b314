"""findings.sarif: SARIF 2.1.0 (OASIS Standard, errata 01) for GitHub's code scanning and for editors.

Paths are relative to the repository with the server's tree, or to the tree (uriBaseId SRCROOT), never absolute. A
result's fingerprint depends only on the finding's identity, so it is the same in every run, on every machine and for
every line number.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from harness.analysis.detectors import registry
from harness.core import json_codec
from harness.core.byte_diff import described
from harness.core.ci_streams import in_json
from harness.core.finding import Verdict
from harness.core.model import Record
from harness.core.untrusted_text import one_line, visible
from harness.report.finding import (
    by_place,
    frame_in_tree,
    is_in_tree,
    level_of,
    named_comparison,
    named_order,
    named_suspects,
    unexplained,
)
from harness.report.report_format import ReportFormat
from harness.report.verdict_sentence import unjudged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.finding import Finding, Frame, Witness
    from harness.judge.findings import Judgement

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "SRCROOT"
GITHUB_FINGERPRINT = "primaryLocationLineHash"
"""The key that GitHub's code scanning reads. Without it the uploader hashes the line, which findings may share."""
MOST_RELATED = 20

_RULES = {
    "alignment": "A misaligned access: SIGBUS on machines that enforce alignment, or a slow or wrong repair.",
    "alignment-repaired": "Misaligned accesses that the machine's kernel repaired: slow there, and SIGBUS elsewhere.",
    "crash": "The server died of a signal that left no record.",
    "exit": "The server ended by itself.",
    "hang": "The server stopped answering.",
    "wrong-result": "A reply differs from what the model, or the native build of the same source, says.",
    "warning": "The compiler warns for the target, and not for the host.",
    "build": "The server does not compile for the target.",
}
_FAMILIES = {
    "crash-handler-": "A signal while the server's own crash handler ran: its report is cut short.",
    **{start: text for detector in registry.DETECTORS.values() for start, text in detector.kinds.items()},
    "sig": "The server died of this signal.",
}


def render(judgement: Judgement) -> str:
    """The document: one run, one rule per kind, one result per finding with a place in the code.

    Code scanning shows a result at a line of a file. A finding without one becomes a notification.
    """
    placed = [(finding, frame_in_tree(finding)) for finding in [*judgement.findings, *judgement.warnings]]
    found = [(finding, place) for finding, place in placed if place is not None]
    placeless = [finding for finding, place in placed if place is None]
    kinds = list(dict.fromkeys(finding.kind for finding, _ in found))
    run = {
        "tool": {
            "driver": {
                "name": "Plumbline",
                "version": importlib.metadata.version("plumbline"),
                "rules": [_rule(kind) for kind in kinds],
            }
        },
        "automationDetails": {"id": _category(judgement)},
        "originalUriBaseIds": {
            ROOT: {"description": {"text": "The repository with the server's source, or its tree."}}
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(judgement, placeless)],
        "results": [_result(finding, place, kinds.index(finding.kind), judgement.place) for finding, place in found],
        "properties": {
            "server": visible(judgement.server),
            "seed": judgement.seed,
            "verdict": judgement.verdict,
            "optimisation": judgement.optimisation,
            "environment": judgement.environment,
            "memoryOrder": judgement.memory_order,
            "io": judgement.io,
        },
    }
    return json_codec.pretty({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}).decode()


def fingerprint(finding: Finding) -> str:
    """An identity that is independent of runs, targets, addresses and line numbers."""
    return hashlib.sha256(finding.id.encode()).hexdigest()


def _category(judgement: Judgement) -> str:
    """The category of the document. A later one of the same category replaces it, so each matrix job has its own."""
    targets = dict.fromkeys(cell.target for cell in judgement.cells)
    around = "" if judgement.environment == "usual" else f"{judgement.environment}/"
    around += "" if judgement.memory_order == "usual" else f"{judgement.memory_order}-order/"
    way = "" if judgement.io == "unix" else f"{judgement.io}/"
    return f"plumbline/{judgement.policy}/{around}{way}{'+'.join(targets)}/"


def _rule(kind: str) -> dict[str, Any]:
    family = next((text for start, text in _FAMILIES.items() if kind.startswith(start)), "A misbehaviour.")
    text = _RULES.get(kind, family)
    return {
        "id": kind,
        "name": "".join(word.capitalize() for word in kind.split("-")),
        "shortDescription": {"text": text},
        "fullDescription": {"text": text},
        "help": {"text": "docs/reference.md of Plumbline lists the kinds. The replay command shows a finding again."},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["portability", "correctness"], "precision": "very-high"},
    }


def _invocation(judgement: Judgement, placeless: Iterable[Finding]) -> dict[str, Any]:
    """The run's invocation. The verdict UNKNOWN makes it unsuccessful. Notifications say why, and have the findings
    without a place.
    """
    return {
        "executionSuccessful": judgement.verdict != "UNKNOWN",
        "toolExecutionNotifications": [
            *(
                _notification(
                    "error" if cell.verdict == Verdict.FAIL else "warning",
                    f"{cell.verdict} {cell.target}/{cell.suite}: {cell.reason}",
                )
                for cell in unexplained(judgement)
            ),
            *(_notification("warning", why) for why in unjudged(judgement)),
            *map(_placeless, placeless),
        ],
    }


def _placeless(finding: Finding) -> dict[str, Any]:
    return {"level": level_of(finding), "message": {"text": f"{visible(finding.id)}: {_message(finding)}"}}


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": visible(text)}}


def _result(finding: Finding, place: Frame, rule: int, prefix: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "kind": "fail",
        "level": level_of(finding),
        "message": {"text": _message(finding)},
        "locations": [_location(place.file, place.line, place.function, prefix)],
        "fingerprints": {"plumblineIdentity/v1": fingerprint(finding)},
        "partialFingerprints": {"plumblineIdentity/v1": fingerprint(finding), GITHUB_FINGERPRINT: fingerprint(finding)},
        "occurrenceCount": max(finding.occurrences, 1),
        "relatedLocations": _related(finding, prefix),
        "stacks": _stacks(finding, prefix),
        "properties": {
            "id": visible(finding.id),
            "targets": finding.targets,
            "origin": finding.origin,
            "command": visible(finding.command),
            "replay": visible(finding.replay),
            **({"suspects": [_visible_of(suspect) for suspect in finding.suspects]} if finding.suspects else {}),
            **({"comparison": _visible_of(finding.comparison)} if finding.comparison else {}),
            **({"difference": _visible_of(finding.difference)} if finding.difference else {}),
        },
    }
    if finding.known:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": visible(finding.known)}]
    return result


def _visible_of(record: Record) -> dict[str, Any]:
    """The record's fields, with the server's text escaped."""
    return {name: _visible_value(value) for name, value in msgspec.structs.asdict(record).items()}


def _visible_value(value: object) -> object:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_visible_value(one) for one in value]
    return _visible_of(value) if isinstance(value, Record) else value


def _message(finding: Finding) -> str:
    first = finding.witnesses[0]
    instruction = ", ".join(part for part in (first.instruction, first.access) if part)
    lines = [
        f"{one_line(finding.title)}, on {', '.join(finding.targets)}.",
        one_line(instruction),
        one_line(described(finding.difference)) if finding.difference else "",
        one_line(named_order(finding)),
        one_line(named_suspects(finding)),
        one_line(named_comparison(finding)),
        f"After: {one_line(finding.command)}" if finding.command else "",
        f"Again: {one_line(finding.replay)}",
    ]
    # `[text](address)` in a message is a link (SARIF 3.11.6). A server's text must not make one.
    return "\n".join(line for line in lines if line).replace("](", "] (")


def _location(file: str, line: int, function: str, prefix: str) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(str(PurePosixPath(prefix) / file)), "uriBaseId": ROOT},
            "region": {"startLine": line},
        }
    }
    if function:
        location["logicalLocations"] = [{"name": one_line(function), "kind": "function"}]
    return location


def _related(finding: Finding, prefix: str) -> list[dict[str, Any]]:
    """The other places in the tree where targets show the finding, and the place where compared values diverge."""
    places: dict[tuple[str, int], list[Witness]] = {}
    for witness in by_place(finding.witnesses):
        if witness.line and witness.backtrace and is_in_tree(witness.backtrace[0]):
            places.setdefault((witness.file, witness.line), []).append(witness)
    related = []
    for number, ((file, line), here) in enumerate(list(places.items())[:MOST_RELATED], start=1):
        accesses = dict.fromkeys(f"{one.target}: {one.instruction or one.access or one.detector}" for one in here)
        text = one_line("; ".join(accesses))
        related.append({"id": number, "message": {"text": text}, **_location(file, line, "", prefix)})
    parted = finding.comparison.place if finding.comparison else None
    if parted is not None and is_in_tree(parted):
        message = {"text": "the first value that differs from the native build's; the function need not be at fault"}
        location = _location(parted.file, parted.line, parted.function, prefix)
        related.append({"id": len(related) + 1, "message": message, **location})
    return related


def _stacks(finding: Finding, prefix: str) -> list[dict[str, Any]]:
    """One stack per target, from its first witness with a stack."""
    firsts: dict[str, Witness] = {}
    for witness in finding.witnesses:
        if witness.backtrace:
            firsts.setdefault(witness.target, witness)
    return [
        {"message": {"text": target}, "frames": [_frame(frame, prefix) for frame in witness.backtrace]}
        for target, witness in firsts.items()
    ]


def _frame(frame: Frame, prefix: str) -> dict[str, Any]:
    location = _location(frame.file, frame.line, frame.function, prefix) if is_in_tree(frame) else {}
    named = {"logicalLocations": [{"name": one_line(frame.function), "kind": "function"}]}
    return {"location": {**named, **location}}


FORMAT = ReportFormat(
    name="sarif",
    file="findings.sarif",
    render=lambda _, judgement: render(judgement),
    is_json=True,
    guard=in_json,
)
