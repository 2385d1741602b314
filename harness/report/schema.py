"""The published schema of findings.json and of the output of `check --json`: `plumb schema`, docs/schema."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import msgspec

from harness.core.finding import Cause, Difference, Finding, Frame, Occasion, Witness
from harness.judge.findings import SCHEMA, Judgement
from harness.judge.verdict import CellVerdict
from harness.record.cell_events import Counters

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The JSON Schema, draft 2020-12, of a judgement. It allows unknown fields: a later Plumbline may add some."""
    _, definitions = msgspec.json.schema_components([Judgement], ref_template="#/$defs/{name}")
    for kind in (Judgement, CellVerdict, Cause, Counters, Difference, Finding, Frame, Occasion, Witness):
        shape = definitions[kind.__name__]
        del shape["additionalProperties"]
        for name, docstring in field_docstrings(kind).items():
            shape["properties"][name]["description"] = docstring
    # Version 1 publishes verdicts as plain text, and must not change.
    for kind in (Judgement, CellVerdict):
        definitions[kind.__name__]["properties"]["verdict"] = {"type": "string"}
    del definitions["Verdict"]
    definitions["Judgement"]["properties"]["schema"] = {"const": SCHEMA, "description": "This document's version."}
    return {
        "$schema": _DRAFT,
        "$id": f"urn:plumbline:findings:{SCHEMA}",
        "title": "findings.json of Plumbline",
        "$ref": "#/$defs/Judgement",
        "$defs": dict(sorted(definitions.items())),
    }


def field_docstrings(kind: type) -> dict[str, str]:
    """Field -> the string under it. Python itself does not keep these strings."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    docstrings = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            assert isinstance(after.value, ast.Constant)
            docstrings[field.target.id] = inspect.cleandoc(str(after.value.value)).replace("\n", " ")
    return docstrings
