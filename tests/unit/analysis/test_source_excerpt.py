"""Source lines and instructions around a finding are stored once, while tree and binary exist, and shown from there."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis import source_excerpt, symbols
from harness.core import json_codec
from harness.judge import conclusion
from harness.judge.findings import judge
from harness.record import fault_log, run_folder, run_record, stored_run
from tests.support import fakes
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.judge.findings import Judgement

SOURCE = "".join(f"line {number}\n" for number in range(1, 201))


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    """A run with one misaligned load at src/bitops.c:93."""
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    run = StoredRun(tmp_path / "run")
    run.canary("armv5")
    run.fault("armv5", "bitops", "guest-1", fakes.fault(pc=run.place("armv5", "bitopCommand")))
    run.test("armv5", "bitops", "test_a", outcome="failed", guest="guest-1", faults=(0, 1), command="BITOP NOT a b")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGBUS", test="test_a")
    run.finish()
    return run


def tree(path: Path, source: str = SOURCE) -> Path:
    fakes.write(path / "src" / "bitops.c", source)
    return path


def taken(run: StoredRun, at: Path | None) -> source_excerpt.Excerpts:
    findings, *_ = judge(stored_run.read(run.folder))
    source_excerpt.collect(run.folder, run_folder.read_run(run.folder), findings, at)
    return source_excerpt.read(run.folder)


def test_the_lines_around_a_finding_are_kept(stored: StoredRun, tmp_path: Path) -> None:
    around = range(93 - source_excerpt.SOURCE_LINES, 93 + source_excerpt.SOURCE_LINES + 1)
    assert taken(stored, tree(tmp_path / "tree")).sources == {"src/bitops.c": {n: f"line {n}" for n in around}}


def test_the_compiled_source_is_shown_though_the_tree_has_changed_or_is_gone(stored: StoredRun, tmp_path: Path) -> None:
    first = taken(stored, tree(tmp_path / "tree"))
    assert taken(stored, tree(tmp_path / "changed", "changed\n" * 200)) == first
    shutil.rmtree(tmp_path / "tree")
    assert taken(stored, None) == first


def test_a_path_that_leads_out_of_the_tree_is_not_read(
    stored: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree controls the paths in debug information: `#line 93 "../secret"` is valid C."""
    fakes.write(tmp_path / "secret", SOURCE)
    monkeypatch.setattr(symbols, "place_in_tree", lambda _: ("src/../../secret", "server"))
    assert taken(stored, tree(tmp_path / "tree")).sources == {}


def test_a_line_beyond_the_files_end_is_no_error(stored: StoredRun, tmp_path: Path) -> None:
    assert taken(stored, tree(tmp_path / "tree", "one\n")).sources == {}


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1, "sources": 3}'])
def test_damaged_excerpts_are_none(stored: StoredRun, text: str) -> None:
    fakes.write(stored.folder / source_excerpt.FILE, text)
    assert source_excerpt.read(stored.folder) == source_excerpt.Excerpts()


LISTED = """[[findings]]
id = "alignment-bitopCommand-load"
reason = "issue 1234"
expires = 2999-01-01
line = "a = *p;"
"""


@pytest.mark.parametrize("hidden", [False, True], ids=["altered", "altered-and-no-more-recorded"])
@pytest.mark.parametrize(("version", "counts"), [(run_record.VERSION, False), (5, True)])
def test_altered_excerpts_match_no_known_finding(
    stored: StoredRun, tmp_path: Path, version: int, *, counts: bool, hidden: bool
) -> None:
    """Regression: an entry for a source line matched any text written into excerpts.json after the run. Records of
    format 5 have no digest of that file.
    """
    known = fakes.write(tmp_path / "known.toml", LISTED)
    run_folder.write_run(stored.folder, msgspec.structs.replace(run_folder.read_run(stored.folder), version=version))

    def judged(at: Path | None) -> Judgement:
        return conclusion.conclude(stored_run.read(stored.folder), known, fakes.quiet(), tree=at)[0]

    first = judged(tree(tmp_path / "tree"))
    assert (first.verdict, first.unchecked) == ("FAIL", [])
    path = stored.folder / source_excerpt.FILE
    path.write_text(path.read_text("utf-8").replace('"line 93"', '"a = *p;"'), "utf-8")
    if hidden:
        run_folder.write_run(stored.folder, msgspec.structs.replace(run_folder.read_run(stored.folder), beside={}))
    # Judging again does not repair it.
    for _ in range(2):
        again = judged(None)
        assert bool(again.findings[0].known) is counts
        assert bool(source_excerpt.read(stored.folder).sources) is counts
        warned = ["NOT CHECKED: excerpts.json, which differs from what was recorded"]
        assert again.unchecked == ([] if counts else warned)
    assert again.verdict == ("UNKNOWN" if counts else "FAIL"), "nothing else passed in the cell"


def test_missing_excerpts_are_made_again(stored: StoredRun, tmp_path: Path) -> None:
    known, at = (
        fakes.write(tmp_path / "known.toml", LISTED),
        tree(tmp_path / "tree", SOURCE.replace("line 93", "a = *p;")),
    )
    judgements = []
    for _ in range(2):
        judgement, _ = conclusion.conclude(stored_run.read(stored.folder), known, fakes.quiet(), tree=at)
        judgements.append(judgement)
        assert judgement.record == run_folder.read_run(stored.folder).digest
        (stored.folder / source_excerpt.FILE).unlink()
    assert judgements[0].findings[0].known == "issue 1234"
    assert judgements[0] == judgements[1]


def elf(path: Path, code: bytes, *, address: int) -> Path:
    """A minimal ELF file with code: one segment, 32 bits, little-endian, ARM (ELF 1.2, figures 1-3, 2-1)."""
    header = b"\x7fELF\x01\x01\x01" + bytes(9)
    header += struct.pack("<HHIIIIIHHHHHH", 2, 40, 1, address, 52, 0, 0, 52, 32, 1, 40, 0, 0)
    segment = struct.pack("<IIIIIIII", 1, 0x1000, address, address, len(code), len(code), 5, 0x1000)
    path.write_bytes((header + segment).ljust(0x1000, b"\0") + code)
    return path


def listing(run: StoredRun, code: bytes, offset: int, **fault: object) -> source_excerpt.Listing:
    """The listing around an instruction that faulted, at this offset of the code."""
    binary = elf(run.binary("armv5"), code, address=0x10000)
    maps = [fault_log.MapRecord(start=0x10000, end=0x11000, offset=0x1000, path=str(binary))]
    record = fakes.fault(pc=0x10000 + offset, maps=maps, **fault)  # type: ignore[arg-type]
    log = run.cell("armv5", "bitops") / "guest-1" / "faults.jsonl"
    log.unlink()
    log.write_bytes(json_codec.encode(record) + b"\n")
    (kept,) = taken(run, None).listings.values()
    return kept


def instructions(kept: source_excerpt.Listing) -> list[tuple[int, str]]:
    return [(one.address, one.text) for one in kept.instructions]


LDR, ADD, UNKNOWN = bytes.fromhex("001093e5"), bytes.fromhex("042081e0"), bytes.fromhex("ffffffff")


def test_the_instructions_around_it_are_kept_and_unknown_ones_are_bytes(stored: StoredRun) -> None:
    kept = listing(stored, ADD + UNKNOWN + LDR + ADD, 8)
    assert (kept.address, kept.binary) == (0x10008, "redis-server")
    assert instructions(kept) == [
        (0x10000, "add r2, r1, r4"),
        (0x10004, ".inst ffffffff"),
        (0x10008, "ldr r1, [r3]"),
        (0x1000C, "add r2, r1, r4"),
    ]


def test_the_number_of_stored_instructions_is_limited(stored: StoredRun) -> None:
    kept = listing(stored, ADD * 100 + LDR + ADD * 100, 400)
    assert len(kept.instructions) == 2 * source_excerpt.INSTRUCTIONS + 1
    assert kept.instructions[source_excerpt.INSTRUCTIONS].text == "ldr r1, [r3]"


def test_thumb_code_is_read_as_thumb(stored: StoredRun) -> None:
    registers = ["00000000"] * 25 + ["20000000"]
    code = bytes.fromhex("1968") + bytes.fromhex("d3f80420") + bytes.fromhex("0918")
    kept = listing(stored, code, 0, registers=registers, instruction="1968d3f8")
    assert instructions(kept) == [
        (0x10000, "ldr r1, [r3]"),
        (0x10002, "ldr.w r2, [r3, #4]"),
        (0x10006, "adds r1, r1, r0"),
    ]


def findings_of(run: StoredRun) -> list[Finding]:
    return judge(stored_run.read(run.folder))[0]


def test_an_instruction_is_listed_once_for_each_target(stored: StoredRun) -> None:
    (finding,) = findings_of(stored)
    assert [witness.target for witness in source_excerpt.chosen(finding)] == ["armv5"]
