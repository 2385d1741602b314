"""measurements/: each file is listed, each JSON file conforms to its schema, and a damaged one does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tools.stored_data import DATA, FOLDER, StoredData

if TYPE_CHECKING:
    from pathlib import Path

FILES = [(data, path) for data in DATA if data.kind for path in data.paths()]


def conforms(data: StoredData, document: Any) -> bool:
    """Whether a document conforms to the published schema."""
    schema = json.loads(data.schema_path.read_text("utf-8"))
    return jsonschema.Draft202012Validator(schema).is_valid(document)


def objects(document: Any) -> list[dict[str, Any]]:
    """The objects on the way to an innermost one, the outermost first."""
    found = []
    while document:
        if isinstance(document, dict):
            found.append(document)
        inner = document.values() if isinstance(document, dict) else document
        document = next((one for one in inner if isinstance(one, dict | list) and one), None)
    return found


@pytest.mark.parametrize(("data", "path"), FILES, ids=[path.name for _, path in FILES])
def test_a_file_conforms_to_its_schema(data: StoredData, path: Path) -> None:
    assert conforms(data, json.loads(path.read_text("utf-8")))


@pytest.mark.parametrize("data", dict.fromkeys(data for data, _ in FILES), ids=lambda data: data.files)
def test_a_damaged_file_does_not_conform(data: StoredData) -> None:
    """An unknown key at each depth, whose value no record or table of these files may have; and the wrong root."""
    text = data.paths()[0].read_text("utf-8")
    assert not conforms(data, [*json.loads(text), "damage"] if text.startswith("[") else [json.loads(text)])
    depths = len(objects(json.loads(text)))
    assert depths
    for depth in range(depths):
        document = json.loads(text)
        objects(document)[depth]["damage"] = "damage"
        assert not conforms(data, document), f"an unknown key conforms at depth {depth}"


@pytest.mark.parametrize("data", [data for data in DATA if data.kind], ids=lambda data: data.files)
def test_a_schema_is_valid(data: StoredData) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(data.schema_path.read_text("utf-8")))


def test_every_file_is_listed() -> None:
    listed = [path for data in DATA for path in data.paths()]
    assert len(listed) == len(set(listed))
    schemas = {data.schema_path for data in DATA if data.kind}
    assert {path for path in FOLDER.rglob("*") if path.is_file()} == {FOLDER / "README.md", *listed, *schemas}
