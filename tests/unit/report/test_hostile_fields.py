"""No field of a stranger's findings.json reaches a terminal, a browser or a parser with characters that it obeys.

The fields are those of the schema: each text is made hostile in turn, so a new field is covered as soon as it exists.
"""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import msgspec
import pytest

from harness.core import json_codec
from harness.judge.findings import Judgement
from harness.report.formats import registry
from tests.support import judgements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = "\x1b]0;x\x07\r\x9b31m\u202e\u2066<b>"
"""What terminals, and readers of text in two directions, obey; and a tag."""
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
PRINTED = ("json", "markdown", "junit", "sarif")
"""The formats that need no run folder: test_page.py has the page."""

Path_ = tuple[str | int, ...]


def texts(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Where a document has texts."""
    if isinstance(value, str):
        yield at
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from texts(one, (*at, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from texts(one, (*at, number))


def with_text(document: Any, at: Path_) -> Judgement | None:
    """The judgement with a hostile text there; None if the schema accepts none."""
    changed = copy.deepcopy(document)
    inner = changed
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] += HOSTILE
    try:
        return json_codec.convert(changed, Judgement)
    except msgspec.ValidationError:
        return None


PLAIN = msgspec.to_builtins(judgements.judgement())
HOSTILE_ONES = [(at, one) for at in texts(PLAIN) if (one := with_text(PLAIN, at)) is not None]


def test_most_fields_can_be_hostile() -> None:
    names = {at[-1] for at, _ in HOSTILE_ONES}
    assert {"title", "policy", "kind", "origin", "access", "reason", "command", "replay"} <= names
    assert len(HOSTILE_ONES) > 30


@pytest.mark.parametrize("name", PRINTED)
def test_what_a_reader_obeys_is_escaped_in_every_field(tmp_path: Path, name: str) -> None:
    for at, one in HOSTILE_ONES:
        document = registry.render(tmp_path, one, name)
        assert not (found := OBEYED.findall(document)), f"{at}: {found}"
        if name == "junit":
            ElementTree.fromstring(document)  # noqa: S314 - it has just been written here
        if name in {"json", "sarif"}:
            json.loads(document)


def test_json_keeps_the_content_of_each_text(tmp_path: Path) -> None:
    for at, one in HOSTILE_ONES:
        document = registry.render(tmp_path, one, "json")
        assert json_codec.decode(document.encode(), Judgement) == one, at
