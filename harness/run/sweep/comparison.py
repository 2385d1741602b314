"""Compares the effect of every encoding under a policy with the rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.processes import process
from harness.isa import rules
from harness.record import fault_log

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.target_model import Policy, Target
    from harness.isa.encodings.encoding import Encoding

OFFSETS = 64
"""The offsets past a boundary at which sweep.c makes an access: 0 to 63."""
PLACES = ("inside a page", "at the end of a page")
RUN_SECONDS = 600.0
_ROW = re.compile(r"^(\d+) ([01]) ([dstr?]{64})$", re.MULTILINE)
_TOLD = re.compile(r"^\? (\d+) ([01]) (\d+) (.*)$", re.MULTILINE)


class Disagreement(Record, frozen=True):
    """An encoding whose effect at some offsets is not the prescribed one."""

    encoding: str
    section: str
    """The section of the manual that describes it."""
    place: str
    prescribed: str
    """A letter for each offset, as sweep.c has them."""
    actual: str
    details: str
    """The program's output about the first offset whose outcome has no letter; empty if all have one."""

    def __str__(self) -> str:
        at = [offset for offset in range(OFFSETS) if self.prescribed[offset] != self.actual[offset]]
        first = f"'{self.actual[at[0]]}' where '{self.prescribed[at[0]]}' is prescribed"
        details = f" ({self.details})" if self.details else ""
        return f"{self.encoding}, {self.place}: {first} at {_ranges(at)}{details}"


class SweepResult(Record, frozen=True):
    """One run of a sweep."""

    encodings: int
    executions: int
    outcomes: dict[str, int]
    """Letter -> how often it was the outcome."""
    disagreements: list[Disagreement]


def prescription(target: Target, policy: Policy, encoding: Encoding) -> str:
    """The required effect of an encoding at each offset, in the notation of sweep.c."""
    ignored = "r" if rules.rotates(encoding) else "t"
    letters = {"done": "d", "signal": "s", "rotated": ignored, "truncated": ignored}
    if encoding.truncates:
        return "".join("t" if offset % encoding.unit_bytes else "d" for offset in range(OFFSETS))
    shapes = [rules.shape(encoding, offset) for offset in range(OFFSETS)]
    return "".join(letters[rules.prescribed(target, policy, one)] for one in shapes)


def _command(program: Path, runner: Runner, arguments: Sequence[str] = (), log: Path | None = None) -> list[str]:
    """The command line. Translated code is not kept: it is large, and these programs run once for a policy."""
    return msgspec.structs.replace(runner, translations=None).command(program, arguments, log)


def sweep(program: Path, runner: Runner, encodings: Sequence[Encoding]) -> SweepResult:
    """Run a program of `program.compile_sweep`, made of these encodings.

    Raises InfrastructureError when it did not reach the end of its table.
    """
    ran = process.run(_command(program, runner), deadline_seconds=runner.target.deadline_seconds(RUN_SECONDS))
    rows = {(int(number), int(place)): letters for number, place, letters in _ROW.findall(ran.text)}
    if ran.code != 0 or len(rows) != len(PLACES) * len(encodings):
        how = "did not end" if ran.expired else f"ended with status {ran.code}"
        at = encodings[len(rows) % len(encodings)].name
        raise InfrastructureError(
            f"the sweep {how} on {runner.target.name}", because=f"after {len(rows)} rows, at {at}: {ran.text[-200:]}"
        )
    told: dict[tuple[int, int], str] = {}
    for number, place, offset, words in _TOLD.findall(ran.text):
        told.setdefault((int(number), int(place)), f"at {offset}: {words}")
    wrong = []
    for (number, place), actual in rows.items():
        one = encodings[number]
        expected = prescription(runner.target, runner.policy, one)
        if actual != expected:
            wrong.append(
                Disagreement(
                    encoding=one.name,
                    section=one.section,
                    place=PLACES[place],
                    prescribed=expected,
                    actual=actual,
                    details=told.get((number, place), ""),
                )
            )
    every = "".join(rows.values())
    counts = {letter: every.count(letter) for letter in "dstr?"}
    return SweepResult(encodings=len(encodings), executions=len(every), outcomes=counts, disagreements=wrong)


def misrecorded(
    program: Path, runner: Runner, encodings: Sequence[Encoding], addresses: Sequence[int], log: Path
) -> list[str]:
    """One phrase for each encoding whose access at one byte past a boundary is not recorded exactly once with its
    correct kind and size.

    `runner`: of an audit. `addresses`: where the encodings' instructions are in the program.
    """
    offset = 1
    deadline = runner.target.deadline_seconds(RUN_SECONDS)
    process.run_successfully(
        _command(program, runner, ["at", str(offset)], log), problem="the sweep did not end", deadline_seconds=deadline
    )
    recorded = fault_log.read(log)
    found: dict[int, list[tuple[str, ...]]] = {}
    for fault in recorded.faults:
        times = recorded.counts.get((fault.pid, fault.pc), 1)
        what = (fault.event, fault.access, fault.access_class, fault.access_bytes, fault.access_hint, times)
        found.setdefault(fault.pc, []).append(tuple(map(str, what)))
    wrong = []
    for one, address in zip(encodings, addresses, strict=True):
        shape = rules.shape(one, offset)
        forbidden = not one.truncates and rules.forbidden(runner.target, runner.policy, shape)
        due = ("access", one.direction, one.access_class, str(one.unit_bytes), str(one.hint_bytes), "1")
        actual = found.get(address, [])
        if actual != ([due] if forbidden else []):
            wrong.append(f"{one.name}: recorded {actual}, where {due if forbidden else 'nothing'} is due")
    return wrong


def _ranges(numbers: Sequence[int]) -> str:
    """`1-3, 5` for 1, 2, 3 and 5."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
