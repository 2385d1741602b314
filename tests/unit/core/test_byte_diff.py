"""Differences locate the byte, the record and the function of damage in a file, and appear in findings, reports and
reproducers.
"""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from rich.console import Console

from harness.core.byte_diff import DifferenceError, by_chance, described, excerpt, parted
from harness.core.finding import Difference, Frame, Reproduction
from harness.judge.findings import judge
from harness.record import cell_events, run_folder, stored_run
from harness.report import terminal
from harness.report.formats import github, junit, markdown, page, sarif
from harness.workflows.mutation_testing.mutations import Expected, Mutation, caught
from suites._shared.checksums import crc64
from suites._shared.formats import places, rdb, records
from suites._shared.keyspace import dataset
from suites._shared.keyspace.values import Key
from suites._shared.paired_servers import differing
from suites.persistence.conftest import golden_files
from tests.support import judgements
from tests.support.stored import StoredRun, reproducer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.core.finding import Finding
    from suites._shared.formats.rdb import RdbPlace

VERSION = (7, 0, 15)
GOOD = next(path for path in golden_files() if path.stem == "redis-7.0.15").read_bytes()
FOUND = rdb.read(GOOD)


@given(some.binary(max_size=30), some.binary(max_size=30))
def test_two_byte_strings_differ_where_their_common_prefix_ends(left: bytes, right: bytes) -> None:
    at = parted(left, right)
    if left == right:
        assert at == -1
    else:
        assert left[:at] == right[:at]
        assert left[at : at + 1] != right[at : at + 1]


@given(some.lists(some.text("ab 1", max_size=8), min_size=1, max_size=4))
@example(["a a", "a a a"])
def test_what_a_run_of_the_reference_said_is_due_to_chance(runs: list[str]) -> None:
    assert all(by_chance(run, runs) for run in runs)


@pytest.mark.parametrize(
    ("message", "runs", "expected"),
    [
        ("port 3 of 7", ["port 1 of 7", "port 2 of 7"], True),
        ("port 3 of 8", ["port 1 of 7", "port 2 of 7"], False),
        ("port 3 of 7", ["port 1 of 7"], False),
        # With other numbers of words, everything from the first difference to the last is due to chance.
        ("keys: a b c d, none lost", ["keys: a, none lost", "keys: b c, none lost"], True),
        ("keys: a b c d, 1 lost", ["keys: a, none lost", "keys: b c, none lost"], False),
        ("key: a, none lost", ["keys: a, none lost", "keys: b c, none lost"], False),
        ("keys:", ["keys: a, none lost", "keys: b c, none lost"], False),
    ],
)
def test_a_message_differs_by_chance_where_the_runs_of_the_reference_do(
    message: str, runs: list[str], *, expected: bool
) -> None:
    assert by_chance(message, runs) is expected


def swapped(key: Key, what: str) -> bytes:
    """The golden file with the bytes of a key's first part of this kind reversed, and a matching checksum."""
    place: RdbPlace = FOUND.places[key]
    part = next(one for one in FOUND.parts if place.start <= one.start < place.end and one.what == what)
    # An integer's first byte gives the number of bytes that follow.
    start = part.start + what.startswith("integer")
    body = GOOD[:start] + GOOD[start : part.end][::-1] + GOOD[part.end : -8]
    return body + crc64(body).to_bytes(8, "little")


def the_error(content: bytes) -> DifferenceError:
    with pytest.raises(DifferenceError) as caught_error:
        places.check_file(content, GOOD, writer="sparc64", version=VERSION, family="redis")
    return caught_error.value


def test_the_golden_file_has_no_difference() -> None:
    found = places.check_file(GOOD, GOOD, writer="native", version=VERSION, family="redis")
    assert found.entries == dataset.expected(VERSION, "redis")


@pytest.mark.parametrize(
    ("key", "part", "record", "function"),
    [
        (b"expires:1", records.EXPIRY, "time of expiry of string 'expires:1' of database 0", "rdbSaveMillisecondTime"),
        (
            b"integer:-129",
            "integer of 2 bytes",
            "integer of 2 bytes in string 'integer:-129' of database 0",
            "rdbEncodeInteger",
        ),
        (b"stream:groups", "identifier", "identifier in stream 'stream:groups' of database 0", "streamEncodeID"),
    ],
)
def test_bytes_in_the_wrong_order_are_reported_with_offset_record_and_function(
    key: bytes, part: str, record: str, function: str
) -> None:
    name = Key(0, key)
    error = the_error(swapped(name, part))
    difference = error.difference
    assert (difference.record, difference.function, difference.writer) == (record, function, "sparc64")
    place = FOUND.places[name]
    assert place.start <= difference.offset < place.end
    assert bytes.fromhex(difference.expected) == GOOD[difference.offset : place.end][: len(difference.expected) // 2]
    assert difference.expected != difference.actual
    assert error.again is not None
    assert error.again.requests[-1] == "SAVE"
    assert key.decode() in error.again.requests[0]
    # The reproduction must show the wrong bytes, which occur nowhere in the right file.
    assert bytes.fromhex(error.again.wrong) not in GOOD


def test_a_score_with_reversed_bytes_is_reported_as_a_double() -> None:
    key = next(key for key, kind in FOUND.types.items() if kind == 5)
    difference = the_error(swapped(key, "double")).difference
    assert difference.record == f"double in {records.record_of(5, key)}"
    assert difference.function == "rdbSaveBinaryDoubleValue"


def test_a_listpack_that_contradicts_itself_is_reported_with_its_record() -> None:
    key = Key(0, b"list:one")
    part = next(one for one in FOUND.parts if one.what == "listpack" and one.start >= FOUND.places[key].start)
    # After four bytes of length come two bytes with the number of elements, little-endian.
    at = part.start + 4
    body = GOOD[:at] + GOOD[at : at + 2][::-1] + GOOD[at + 2 : -8]
    difference = the_error(body + crc64(body).to_bytes(8, "little")).difference
    assert difference.record == "listpack in list 'list:one' of database 0"
    assert difference.offset == at


def test_a_checksum_in_the_wrong_order_is_reported_as_a_checksum() -> None:
    error = the_error(GOOD[:-8] + GOOD[-8:][::-1])
    assert (error.difference.record, error.difference.offset) == ("checksum", len(GOOD) - 8)


def test_a_wrong_dump_is_reported_with_its_byte() -> None:
    body = b"\x00\xc1\x7f\xff" + (10).to_bytes(2, "little")
    right = body + crc64(body).to_bytes(8, "little")
    turned = b"\x00\xc1\xff\x7f" + (10).to_bytes(2, "little")
    wrong = turned + crc64(turned).to_bytes(8, "little")
    key = Key(0, b"integer:-129")
    assert places.check_dump(right, right, key, writer="native", version=VERSION, family="redis") == 10
    with pytest.raises(DifferenceError) as error:
        places.check_dump(wrong, right, key, writer="sparc64", version=VERSION, family="redis")
    assert error.value.difference.offset == 2
    assert error.value.difference.record == "integer of 2 bytes in string 'integer:-129' of database 0"
    assert error.value.again is not None
    assert error.value.again.requests[-1] == "DUMP integer:-129"


def test_two_files_of_one_data_set_are_compared_byte_by_byte() -> None:
    places.check_same(GOOD, GOOD, writer="native", other_writer="sparc64")
    key = Key(0, b"integer:-129")
    with pytest.raises(DifferenceError, match="the bytes of 1 values differ") as error:
        places.check_same(swapped(key, "integer of 2 bytes"), GOOD, writer="sparc64", other_writer="native")
    assert (error.value.difference.writer, error.value.difference.reader) == ("sparc64", "native")


def test_a_wrong_reply_is_reported_with_its_byte_and_its_request() -> None:
    difference = differing(["GET", "k"], b"abXd", b"abcd", "armv5").difference
    assert (difference.where, difference.record, difference.offset) == ("the reply", "reply to GET k", 2)
    assert (bytes.fromhex(difference.actual), bytes.fromhex(difference.expected)) == (b"Xd", b"cd")
    assert differing(["STRLEN", "k"], 3, 4, "armv5").difference.offset == -1


# In findings, reports and reproducers.

DIFFERENCE = Difference(
    where="dump.rdb",
    record="double in sorted set 'z' of database 0",
    writer="sparc64",
    reader="an independent reader",
    offset=77,
    expected="00f03f",
    actual="3ff000",
    function="rdbSaveBinaryDoubleValue",
)
AGAIN = Reproduction(
    target="sparc64", requests=("ZADD z 1 a", "SAVE"), wrong="3ff000", file="dump.rdb", guest="guest-2"
)


def judged(tmp_path: Path) -> Finding:
    stored = StoredRun(tmp_path / "run", targets=("sparc64",), suites=("canary", "persistence"))
    stored.canary("sparc64")
    given = stored.cell("sparc64", "persistence") / "guest-2" / run_folder.INPUTS / "dump.rdb"
    given.parent.mkdir(parents=True)
    given.write_bytes(b"REDIS")
    event = cell_events.TestEvent(
        name="test_x", outcome="failed", seconds=1, message="1 keys differ", difference=DIFFERENCE, again=AGAIN
    )
    stored.add("sparc64", "persistence", event)
    (finding,) = judge(stored_run.read(stored.finish()))[0]
    return finding


def test_a_difference_is_in_its_finding_and_its_reproducer(tmp_path: Path) -> None:
    finding = judged(tmp_path)
    kept = reproducer(finding)
    assert finding.difference == finding.witnesses[0].difference == DIFFERENCE
    assert finding.command == "ZADD z 1 a; SAVE"
    assert (kept.again, kept.difference, kept.target) == (AGAIN, DIFFERENCE, "sparc64")
    assert {name: base64.b64decode(text) for name, text in kept.files.items()} == {"dump.rdb": b"REDIS"}


def test_a_mutation_can_require_a_record(tmp_path: Path) -> None:
    finding = judged(tmp_path)

    def shown(record: str) -> bool:
        expected = Expected(targets=["sparc64"], suites=["persistence"], finding="wrong-*", record=record)
        planted = Mutation(name="m", title="", fault="byte-order", server="s", edits=[], expected=[expected])
        return bool(caught(planted, [finding])["sparc64"])

    assert shown("double in *")
    assert not shown("checksum")


def on_a_terminal(whole: Any, _: Path) -> str:
    console = Console(file=io.StringIO(), width=400)
    terminal.show(console, whole)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


FORMATS: dict[str, Callable[[Any, Path], str]] = {
    "terminal": on_a_terminal,
    "markdown": lambda whole, _: markdown.render(whole),
    "junit": lambda whole, _: junit.render(whole),
    "sarif": lambda whole, _: sarif.render(whole),
    "github": lambda whole, _: github.render(whole),
    "page": lambda whole, folder: page.render(folder, whole, run_folder.read_run(folder)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_which_bytes_differ(name: str, tmp_path: Path) -> None:
    finding = judged(tmp_path)
    cells = [judgements.cell("sparc64", "persistence", "FAIL", "1 finding")]
    whole = msgspec.structs.replace(judgements.judgement(), findings=[finding], cells=cells)
    text = FORMATS[name](whole, judgements.run_folder(tmp_path / "page"))
    for words in ("77", "double in sorted set", "rdbSaveBinaryDoubleValue", "3ff000", "00f03f", "sparc64"):
        assert words in text, f"{name} does not contain {words}"


def test_sarif_has_the_fields_for_programs(tmp_path: Path) -> None:
    finding = judged(tmp_path)
    writer = Frame(function="rdbSaveBinaryDoubleValue", file="src/rdb.c", line=1, origin="server", pc=0)
    finding = msgspec.structs.replace(finding, implicated=writer)
    whole = msgspec.structs.replace(judgements.judgement(), findings=[finding])
    (result,) = json.loads(sarif.render(whole))["runs"][0]["results"]
    assert result["properties"]["difference"]["offset"] == 77
    assert result["properties"]["difference"]["record"] == DIFFERENCE.record


def test_a_difference_fits_one_line() -> None:
    assert described(DIFFERENCE) == (
        "byte 77 of dump.rdb, double in sorted set 'z' of database 0, which rdbSaveBinaryDoubleValue writes: 3ff000, "
        "due 00f03f; written by sparc64, read by an independent reader"
    )
    assert excerpt(b"x" * 40, 38) == "7878"


def test_without_bytes_to_compare_the_place_is_where_reading_stopped() -> None:
    key = Key(0, b"list:one")
    part = next(one for one in FOUND.parts if one.what == "listpack" and one.start >= FOUND.places[key].start)
    body = GOOD[: part.start + 4] + b"\xff" + GOOD[part.start + 5 : -8]
    wrong = body + crc64(body).to_bytes(8, "little")
    with pytest.raises(DifferenceError) as error:
        places.check_file(wrong, wrong, writer="armv5", version=VERSION, family="redis")
    difference = error.value.difference
    assert (difference.offset, difference.expected) == (part.start, "")
    assert difference.record.startswith("listpack in ")
