"""Keeps the source lines and the instructions around a finding's place.

Judging a run takes the excerpts and stores them in the run folder. A report therefore needs neither the tree, nor the
binaries, nor any tool, and shows the source as it was compiled.

An entry of a known list may name the text of a line, and so may the findings of a base revision: the excerpts then
decide whether a finding is known. The run's record has their digest, and nothing is read from a file that has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import disassembly, unwind
from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.errors import PlumblineError
from harness.core.model import Record
from harness.record import run_folder, stored_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.finding import Finding, Witness
    from harness.isa.architecture import InstructionSet
    from harness.record.fault_log import Fault
    from harness.record.run_record import RunRecord

FILE = "excerpts.json"
WITH_DIGEST = 6
"""The first format of runs whose record has the digest of excerpts.json."""
SOURCE_LINES = 5
"""Lines kept before and after the place."""
INSTRUCTIONS = 6
CODE_PER_TARGET = 1
"""Instructions of a finding whose surroundings are kept, on each target."""
LONGEST_LINE = 400

Sources = Mapping[str, Mapping[int, str]]
"""File -> line number -> the line, as `Excerpts.sources`."""


class Instruction(Record, frozen=True):
    """A line of a listing."""

    address: int
    """The address in the binary's own symbols."""
    code: str
    """The instruction's bytes, in hexadecimal."""
    text: str


class Listing(Record, frozen=True):
    """The instructions around a place."""

    binary: str
    """The file's name."""
    address: int
    """The address of the instruction at the finding's place."""
    instructions: list[Instruction]


class Excerpts(Record, frozen=True):
    """RUN/excerpts.json."""

    schema: int = 1
    sources: dict[str, dict[int, str]] = msgspec.field(default_factory=dict)
    """File in the tree -> line number -> the line."""
    listings: dict[str, Listing] = msgspec.field(default_factory=dict)
    """`place_key` of a witness -> the instructions around it."""


def line_at(witness: Witness, sources: Sources) -> str:
    """The text of the source line that a witness stands for, without indentation; empty if it is not known."""
    return sources.get(witness.file, {}).get(witness.line, "").strip()


def place_key(witness: Witness) -> str:
    """The key of an instruction within a run: the evidence file and the guest address."""
    return f"{witness.evidence}@{witness.backtrace[0].pc:#x}" if witness.backtrace else ""


def collect(folder: Path, run: RunRecord, findings: list[Finding], tree: Path | None) -> None:
    """Write RUN/excerpts.json. Existing excerpts stay: a tree may have changed since, a run may not. A file that is not
    as it was recorded stays, too, so that each judgement says so.

    Without a tree it adds no source, and without a binary no listing; neither raises an error.
    """
    if altered(folder, run):
        return
    kept = read(folder)
    listings = dict(kept.listings)
    for finding in findings:
        for witness in chosen(finding):
            if place_key(witness) not in listings and (listing := _listing(folder, run, witness)):
                listings[place_key(witness)] = listing
    sources = source_lines(findings, tree, kept.sources) if tree is not None else kept.sources
    keep(folder, Excerpts(sources=sources, listings=listings))


def source_lines(findings: Iterable[Finding], tree: Path, kept: Sources | None = None) -> dict[str, dict[int, str]]:
    """The lines of a tree around the places of findings, as `Excerpts.sources`. Lines that were kept before stay."""
    sources = {file: dict(lines) for file, lines in (kept or {}).items()}
    for finding in findings:
        for witness in finding.witnesses:
            if witness.line:
                lines = sources.setdefault(witness.file, {})
                for number, line in _source_around(tree, witness).items():
                    lines.setdefault(number, line)
    return {file: lines for file, lines in sources.items() if lines}


def keep(folder: Path, excerpts: Excerpts) -> None:
    """Write RUN/excerpts.json, and its digest into the run's record.

    The digest comes first: if this process is killed between the two, a new run's excerpts are missing, not altered.
    """
    content = json_codec.encode(excerpts) + b"\n"
    record, digest = run_folder.read_run(folder), hashlib.sha256(content).hexdigest()
    if record.version >= WITH_DIGEST and record.beside.get(FILE) != digest:
        beside = {**record.beside, FILE: digest}
        run_folder.write_run(folder, msgspec.structs.replace(record, beside=beside))
    write_whole(folder / FILE, content)


def altered(folder: Path, run: RunRecord) -> bool:
    """Whether a run's excerpts are there, and not as the run recorded them. A missing file is none: it excuses nothing,
    and judging makes it again.
    """
    is_there = (folder / FILE).exists()
    return is_there and run.version >= WITH_DIGEST and not run_folder.is_recorded(folder, run, FILE)


def read(folder: Path) -> Excerpts:
    """A run's excerpts; empty if they are missing, damaged, or not as the run recorded them."""
    try:
        if (folder / "run.json").exists() and altered(folder, run_folder.read_run(folder)):
            return Excerpts()
        return json_codec.decode((folder / FILE).read_bytes(), Excerpts)
    except (OSError, msgspec.DecodeError, PlumblineError):
        return Excerpts()


def chosen(finding: Finding) -> list[Witness]:
    """The witnesses whose instructions are shown: the first few on each target, each instruction once."""
    taken: dict[str, dict[tuple[str, str], Witness]] = {}
    for witness in finding.witnesses:
        here = taken.setdefault(witness.target, {})
        place = (f"{witness.file}:{witness.line}", witness.instruction)
        if witness.instruction and place not in here and len(here) < CODE_PER_TARGET:
            here[place] = witness
    return [witness for here in taken.values() for witness in here.values()]


def _source_around(tree: Path, witness: Witness) -> dict[int, str]:
    lines = _lines(tree.resolve(), witness.file)
    first, last = max(1, witness.line - SOURCE_LINES), min(len(lines), witness.line + SOURCE_LINES)
    return {number: lines[number - 1][:LONGEST_LINE] for number in range(first, last + 1)}


@cache
def _lines(tree: Path, file: str) -> list[str]:
    """The lines of a file of the tree; empty if the path, written by a compiler, leads out of it."""
    path = (tree / file).resolve()
    if not path.is_relative_to(tree) or not path.is_file():
        return []
    return path.read_text("utf-8", "replace").splitlines()


def _listing(folder: Path, run: RunRecord, witness: Witness) -> Listing | None:
    """The instructions around a witness's own, from the fault record and the binary that it names."""
    fault = _faults(folder / witness.evidence).get(witness.backtrace[0].pc) if witness.backtrace else None
    place = unwind.locate(fault.maps, fault.pc) if fault else None
    if fault is None or place is None:
        return None
    path, address = place[0].path, place[1]
    instruction_set = disassembly.instruction_set(fault, run.machines[witness.target].emulator.qemu)
    if instruction_set is None:
        return None
    start, end = _extent(Path(path), address, instruction_set)
    code = unwind.read_code(path, start, end - start)
    starts = disassembly.instruction_addresses(code, start, instruction_set)
    if address not in starts:
        return None
    middle = starts.index(address)
    shown = starts[max(0, middle - INSTRUCTIONS) : middle + INSTRUCTIONS + 1]
    ends = [*starts[1:], start + len(code)]
    instructions = []
    for begin in shown:
        own = code[begin - start : ends[starts.index(begin)] - start]
        text = disassembly.instruction_text(own, begin, instruction_set)
        instructions.append(Instruction(address=begin, code=own.hex(), text=text))
    return Listing(binary=Path(path).name, address=address, instructions=instructions)


def _extent(path: Path, address: int, instruction_set: InstructionSet) -> tuple[int, int]:
    """The extent of the function's code, or its surroundings if no symbol covers the address."""
    bounds = unwind.function_bounds(path, address)
    if bounds:
        flags = instruction_set.symbol_flag_bits
        return bounds[0] & ~flags, bounds[1] & ~flags
    # The start of an earlier instruction is known only if all instructions have the same length.
    before = INSTRUCTIONS if instruction_set.instruction_bytes else 0
    starts = [address - 4 * number for number in range(before, 0, -1)]
    readable = [start for start in starts if unwind.read_code(str(path), start, 4)]
    return min([*readable, address]), address + 4 * (INSTRUCTIONS + 1)


@cache
def _faults(log: Path) -> dict[int, Fault]:
    """Program counter -> its first record."""
    if log.name != "faults.jsonl" or not log.is_file():
        return {}
    found: dict[int, Fault] = {}
    for fault in stored_run.read_fault_log(log).faults:
        found.setdefault(fault.pc, fault)
    return found
