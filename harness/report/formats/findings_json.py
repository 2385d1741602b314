"""findings.json: the judgement itself, for programs. harness.report.schema publishes its shape."""

from __future__ import annotations

from harness.core import json_codec
from harness.core.ci_streams import in_json
from harness.report.report_format import ReportFormat

FORMAT = ReportFormat(
    name="json",
    file="findings.json",
    render=lambda _, judgement: json_codec.pretty(judgement).decode(),
    is_json=True,
    guard=in_json,
)
