"""No field of a stranger's findings.json or run.json reaches a terminal, a browser or a parser with characters that it
obeys.

The fields are those of the schema: a document is made that has each of them, also those that are usually empty. Each
text is made hostile in turn, so a new field is covered as soon as it exists.
"""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, TypeVar
from xml.etree import ElementTree

import msgspec
import msgspec.inspect
import pytest

from harness.cli import output
from harness.core import json_codec
from harness.judge.findings import Judgement
from harness.record import run_folder
from harness.record.run_record import RunRecord
from harness.report.formats import registry
from tests.support import judgements
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = "\x1b]0;x\x07\r\x9b31m\u202e\u2066<b>\"'><i onload=x>[/x]\u2028"
"""What terminals, and readers of text in two directions obey; and tags: out of an attribute, and rich's."""
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u2029\u202a-\u202e\u2066-\u2069]")
MARKUP = ("html", "junit", "flame-graph")

Path_ = tuple[str | int, ...]
Document = TypeVar("Document")


def texts(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Where a document has texts, which may be keys: a path to a key ends with `key of`."""
    if isinstance(value, str):
        yield at
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from texts(one, (*at, key))
            yield (*at, key, KEY)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from texts(one, (*at, number))


KEY = "key of"


def with_text(document: Any, at: Path_, of: type[Document]) -> Document | None:
    """The document with a hostile text there; None if the schema accepts none."""
    changed = copy.deepcopy(document)
    inner = changed
    *way, last = [step for step in at if step != KEY]
    for step in way:
        inner = inner[step]
    if KEY in at:
        inner[f"{last}{HOSTILE}"] = inner.pop(last)
    else:
        inner[last] += HOSTILE
    try:
        made = json_codec.convert(changed, of)
    except msgspec.ValidationError:
        return None
    # An unknown key is ignored.
    return made if made != json_codec.convert(document, of) else None


def hostile_ones(document: Any, of: type[Document]) -> list[tuple[Path_, Document]]:
    return [(at, one) for at in texts(document) if (one := with_text(document, at, of)) is not None]


def filled(of: msgspec.inspect.Type, value: Any, within: tuple[type, ...] = ()) -> Any:
    """A document of a type with something at every place: in each list, mapping and optional part that is empty.

    `within` has the structures around the place, so that those that contain themselves do so once.
    """
    made = value
    match of:
        case msgspec.inspect.UnionType():
            made = filled(next(one for one in of.types if not isinstance(one, msgspec.inspect.NoneType)), value, within)
        case msgspec.inspect.StructType() if of.cls not in within:
            around, parts = (*within, of.cls), value or {}
            made = {one.encode_name: filled(one.type, parts.get(one.encode_name), around) for one in of.fields}
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            made = [filled(of.item_type, one, within) for one in value or [None]]
        case msgspec.inspect.DictType():
            pairs = value or {filled(of.key_type, None): None}
            made = {key: filled(of.value_type, one, within) for key, one in pairs.items()}
        case msgspec.inspect.EnumType() if value is None:
            made = next(iter(of.cls)).value
        case msgspec.inspect.LiteralType() if value is None:
            made = of.values[0]
        case _ if value is None:
            made = SIMPLE.get(type(of))
    return made


SIMPLE = {
    msgspec.inspect.StrType: "x",
    msgspec.inspect.BoolType: False,
    msgspec.inspect.IntType: 1,
    msgspec.inspect.FloatType: 1.0,
}


PLAIN = filled(msgspec.inspect.type_info(Judgement), msgspec.to_builtins(judgements.judgement()))
HOSTILE_ONES = hostile_ones(PLAIN, Judgement)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return StoredRun(tmp_path / "run").finish()


def test_most_fields_can_be_hostile() -> None:
    names = {at[-1] for at, _ in HOSTILE_ONES}
    assert {"title", "policy", "kind", "origin", "access", "reason", "command", "replay", KEY} <= names
    assert len(HOSTILE_ONES) > 150


def test_fields_that_are_usually_empty_can_be_hostile() -> None:
    """Regression: two of three places with a text were left out, since the document had nothing there."""
    names = {".".join(str(step) for step in at if not isinstance(step, int)) for at, _ in HOSTILE_ONES}
    assert {
        "causes.title",
        "findings.comparison.differences",
        "findings.comparison.place.function",
        "findings.difference.expected",
        "findings.implicated.file",
        "findings.suspects.why",
        "findings.witnesses.occasions.said",
        "findings.witnesses.overtakes",
        "unchecked",
        "warnings.title",
    } <= names


class Tags(HTMLParser):
    """The tags of a document, each with the names of its attributes."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}


def harmless(name: str, document: str, at: Path_) -> None:
    """Assert that nobody obeys a document."""
    assert not (found := OBEYED.findall(document)), f"{at}: {found}"
    if name in MARKUP:
        assert not {"b", "i", "onload"} & Tags(document).found, at
    if name in {"junit", "flame-graph"}:
        ElementTree.fromstring(document)  # noqa: S314 - it has just been written here
    if name in {"json", "sarif"}:
        json.loads(document)


@pytest.mark.parametrize("name", registry.FORMATS)
def test_what_a_reader_obeys_is_escaped_in_every_field_of_a_judgement(folder: Path, name: str) -> None:
    for at, one in HOSTILE_ONES:
        harmless(name, registry.render(folder, one, name), at)


def test_what_a_reader_obeys_is_escaped_in_every_field_of_a_runs_record(folder: Path) -> None:
    """Regression: three formats showed the server's name as it stands in run.json."""
    ones = hostile_ones(msgspec.to_builtins(run_folder.read_run(folder)), RunRecord)
    assert {"server", "family", "emulator", "policy", "title"} <= {at[-1] for at, _ in ones}
    for at, one in ones:
        run_folder.write_run(folder, one)
        judged = msgspec.structs.replace(judgements.judgement(), record=run_folder.read_run(folder).digest)
        for name in registry.FORMATS:
            harmless(name, registry.render(folder, judged, name), at)


@pytest.mark.parametrize("as_json", [True, False])
def test_what_a_reader_obeys_is_escaped_in_what_commands_print(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: `--json` printed C1 and bidirectional marks as they are, which the file findings.json escapes."""
    for at, one in HOSTILE_ONES:
        output.show(one, as_json=as_json)
        harmless("json" if as_json else "terminal", capsys.readouterr().out, at)


def test_json_keeps_the_content_of_each_text(folder: Path) -> None:
    for at, one in HOSTILE_ONES:
        document = registry.render(folder, one, "json")
        assert json_codec.decode(document.encode(), Judgement) == one, at
