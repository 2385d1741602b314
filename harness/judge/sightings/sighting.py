"""One piece of evidence of a misbehaviour, as a value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypedDict

import msgspec

from harness.record import run_folder

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Difference, Fate, Frame, Reproduction
    from harness.core.model import Program, StorePair
    from harness.core.target_model import AccessClass
    from harness.record.cell_events import TestEvent


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence, before sightings of the same site are grouped."""

    kind: str
    title: str
    frames: list[Frame]
    instruction: str
    access: str
    direction: str
    target: str
    suite: str
    test: str
    command: str
    evidence: str
    transcript: Path | None
    identity: str
    detector: str
    """`signal`: a fault record. `audit`: a reported access. A detector's name: its report in the guest's log.
    `process`: a guest's bad end or hang. `suite`: a failed test. `compiler`: a failed build. `counters`: a
    kernel's count of accesses that it repaired.
    """
    against: list[Frame] = msgspec.field(default_factory=list)
    """The frames of the other thread's access, of a data race; else empty."""
    count: int = 1
    """The number of occurrences. In an audit, one sighting stands for every misaligned access by an instruction."""
    access_class: AccessClass | Literal[""] = ""
    fate: Fate = ""
    unit: str = ""
    """The unit that ran instead of a server, or empty."""
    program: Program = "units"
    """The program that contains the unit."""
    wrong_line: str = ""
    """The wrong line of the unit's output."""
    upstream: str = ""
    """The one of the release's own tests that showed it: `unit/type/string::SETRANGE against non-existing key`."""
    kernel: str = ""
    """A real kernel's report of the fault: see harness.core.finding.Witness."""
    started_with: StartedWith | None = None
    """None if the guest was started in the usual way."""
    detail: str = ""
    """How the guest ended, if the sighting is a bad end; the whole error of a failed build."""
    starting: bool = False
    """Whether the guest ended before it was ready."""
    may_be_sent: bool = False
    """Whether the native build ended by a signal, and nothing in its evidence shows that it raised it itself."""
    after_tests: bool = False
    """Whether it happened outside of every test, on a guest that tests had used."""
    difference: Difference | None = None
    again: Reproduction | None = None
    message: str = ""
    """The whole message of a failed test. The title has its first line."""
    asserted: str = ""
    """The place of the failed assertion in the suite; empty if it is not known, or if the test has only one."""
    exact_identity: str = ""
    """The identity with the test's parameters, if the identity has the name of a test without them."""
    launched: Path | None = None
    """The folder of a program that ran instead of a server, or of the cell whose command failed; else None."""
    everywhere: bool = False
    """Whether the native build shows it as well: see harness.judge.opinions.second_opinion."""
    address: int = -1
    """The address of a misaligned access that may be in an allocated block; else -1."""
    required_bytes: int = 0
    """The alignment that this access requires."""
    blocks: str = ""
    """`4 mod 8`: where the server's allocator puts every block, if that explains the access; else empty."""
    reordered: bool = False
    """Whether it happens only while stores wait: see harness.judge.opinions.second_opinion."""
    overtakes: tuple[str, ...] = ()
    """Stores of the process that another thread saw in another order (harness.judge.sightings.overtakes)."""
    pair: StorePair | None = None
    """The only two stores that must be reordered for it; None if that is not known, or if there is no such pair."""
    pair_program: str = ""
    """SHA-256 of the program that contains both; empty if one is in a library, or if the program is gone."""
    replays: int = 1
    """How many replays make it probable that one shows it: it may happen by chance."""
    output: str = ""
    """The end of what a failing program below a command wrote to its standard output and error."""
    unlike: str = ""
    """How the types of its program differ from those of the host, if its end may be due to that."""
    ended: int = 0
    """The place of its program's end among the ends of all programs below the command, from 1; 0 if there is none."""
    cell: str = ""
    """The cell of the sighting, `TARGET/SUITE`. A peer's sighting belongs to a cell of another target."""


class StartedWith(msgspec.Struct, frozen=True, kw_only=True):
    """Extra files, options and a shared object that a guest was started with."""

    inputs: Path
    """A folder of files that were copied into the guest's folder."""
    options: tuple[str, ...]
    preloads: bool
    """Whether it preloaded the suite's shared object."""
    tls: bool = False
    """Whether it was compiled with TLS."""


class TestFields(TypedDict):
    """The fields of a sighting that describe the test and its guest."""

    test: str
    unit: str
    upstream: str
    program: Program
    transcript: Path | None
    started_with: StartedWith | None


def fields_of(test: TestEvent | None, guest: Path | None) -> TestFields:
    """A sighting's data about the test that showed it. Without a guest there is nothing to send again."""
    if test is None:
        return TestFields(test="", unit="", upstream="", program="units", transcript=None, started_with=None)
    return TestFields(
        test=name_of(test),
        unit=test.unit,
        upstream=test.upstream,
        program=test.program,
        transcript=guest / test.transcript if guest is not None and test.transcript else None,
        started_with=_started_with(test, guest) if guest is not None else None,
    )


def _started_with(test: TestEvent, guest: Path) -> StartedWith | None:
    inputs = guest / run_folder.INPUTS
    if not (inputs.is_dir() or test.options or test.preloads or test.tls):
        return None
    return StartedWith(inputs=inputs, options=test.options, preloads=test.preloads, tls=test.tls)


def name_of(test: TestEvent | None) -> str:
    """A test's name as its authors gave it; empty without a test."""
    return (test.upstream or test.name) if test is not None else ""


def assertion_title(function: str) -> str:
    """The title of a failed assertion."""
    return f"assertion failed in {function}"


def as_name(text: str) -> str:
    """The text with characters that an identity may contain. An identity becomes a file name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text)
