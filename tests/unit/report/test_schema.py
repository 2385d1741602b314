"""The published schema is current, and written documents conform to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from harness.core import json_codec
from harness.core.strict_toml import ROOT
from harness.judge.conclusion import conclude
from harness.judge.known import known_list
from harness.record import stored_run
from harness.report.formats import registry as formats
from harness.report.schema import schema
from tests.support import fakes
from tests.support.judgements import judgement, run_folder
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

PUBLISHED = ROOT / "docs" / "schema" / "findings-1.json"


def valid(document: Any) -> None:
    jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text("utf-8"))).validate(document)


def test_the_published_schema_is_current() -> None:
    assert json_codec.pretty(schema()).decode() == PUBLISHED.read_text("utf-8"), (
        "run: plumb schema > docs/schema/findings-1.json"
    )


def test_the_published_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(PUBLISHED.read_text("utf-8")))


def test_a_written_document_is_valid(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    formats.write(folder, judgement())
    valid(json.loads((folder / "findings.json").read_text("utf-8")))


def test_the_result_of_judging_a_run_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    stored.fault("armv5", "bitops", "guest-1", fakes.fault(pc=stored.place("armv5", "bitopCommand")))
    stored.test("armv5", "bitops", "test_a", outcome="failed", guest="guest-1", faults=(0, 1), command="BITOP NOT a b")
    judged, _ = conclude(stored_run.read(stored.finish()), known_list.DEFAULT, fakes.quiet())
    document = json.loads(json_codec.encode(judged))
    assert document["findings"]
    valid(document)


@pytest.mark.parametrize("change", [{"verdict": 1}, {"schema": 2}, {"findings": [{}]}])
def test_a_changed_document_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        valid({**json.loads(json_codec.encode(judgement())), **change})


def test_a_later_versions_field_is_allowed() -> None:
    valid({**json.loads(json_codec.encode(judgement())), "added": "later"})


def test_every_field_that_the_code_explains_is_explained() -> None:
    definitions = schema()["$defs"]
    assert definitions["Witness"]["properties"]["evidence"]["description"] == "Path in the run folder."
    assert "description" in definitions["Judgement"]["properties"]["counters"]
