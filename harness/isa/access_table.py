"""The accesses that an instruction set has: harness/isa/accesses/ISA.toml, by addressing modes and states."""

from __future__ import annotations

import functools
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import msgspec

from harness.core.model import Record
from harness.core.strict_toml import PACKAGE, read_toml
from harness.core.target_model import (  # noqa: TC001 - msgspec reads the annotations when it decodes
    AddressingMode,
    PlannedAccess,
)
from harness.isa import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.target_model import Target

ACCESSES = PACKAGE / "isa" / "accesses"


class InstructionState(Record, frozen=True):
    """One of several instruction sets of the same processor: every access is made in each."""

    name: str
    """Its suffix in the names of accesses and, for the globs of accesses and modes, of targets; may be empty."""
    attribute: str
    """The attribute of C functions that are compiled for it: `target("arm")`."""
    targets: tuple[str, ...]
    """Globs of the targets that have it."""


class ExemptEncodings(Record, frozen=True):
    """Encodings that programs contain and that no access has to make."""

    encodings: str
    """A pattern that matches them whole."""
    because: str
    """Why no canary has to make them, with a source."""
    targets: tuple[str, ...] = ("*",)
    """Globs of the targets whose programs may contain them."""


class AccessTable(Record, frozen=True):
    """harness/isa/accesses/ISA.toml."""

    clobbers: list[str]
    accesses: list[PlannedAccess]
    place: str = ""
    """How the address is written in the plain mode, if there are others."""
    addressing: list[AddressingMode] = msgspec.field(default_factory=list)
    states: list[InstructionState] = msgspec.field(default_factory=list)
    """Empty if compilers write one instruction set."""
    exempt: list[ExemptEncodings] = msgspec.field(default_factory=list)
    constraint: str = "r"
    """GCC's constraint for a register that can hold an address: on PowerPC, z/Architecture and m68k not every
    register can."""


_ONLY_STATE = InstructionState(name="", attribute="", targets=())


def of_target(target: Target) -> AccessTable:
    """The part of the instruction set's table that concerns the target, each access in every addressing mode."""
    read = _instruction_set(target.isa)
    model = rules.model(target)
    states = [one for one in read.states if _is_one_of(model, one.targets)]
    mine = [one for state in states or [_ONLY_STATE] for one in _accesses_of(read, model, state)]
    return msgspec.structs.replace(
        read,
        accesses=[one for one in mine if not _is_one_of(target.name, one.lacking)],
        exempt=[one for one in read.exempt if _is_one_of(model, one.targets)],
    )


def plain_accesses(target: Target) -> list[PlannedAccess]:
    """The target's accesses in the plain addressing mode, by the instruction set that its compiler writes."""
    names = {one.name for one in _instruction_set(target.isa).accesses}
    return [one for one in of_target(target).accesses if one.name in names]


def _accesses_of(read: AccessTable, model: str, state: InstructionState) -> list[PlannedAccess]:
    """The accesses of a target in a state, each in every addressing mode."""
    suffix = f"-{state.name}" if state.name else ""
    modes = {mode.name: mode for mode in read.addressing if _is_one_of(model + suffix, mode.targets)}
    found = []
    for one in read.accesses:
        if _is_one_of(model + suffix, one.targets):
            found.append(one)
            found += [_addressed(one, modes[mode], read.place) for mode in one.addressing if mode in modes]
    return [msgspec.structs.replace(one, name=one.name + suffix, attribute=state.attribute) for one in found]


def _is_one_of(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatch(name, glob) for glob in globs)


def _addressed(access: PlannedAccess, mode: AddressingMode, place: str) -> PlannedAccess:
    """An access with its address written in another mode."""
    code = [*mode.setup, *(line.replace(place, mode.place) for line in access.code)]
    clobbers = (*access.clobbers, *mode.clobbers)
    return msgspec.structs.replace(access, name=f"{access.name}-{mode.name}", code=code, clobbers=clobbers)


@functools.cache
def _instruction_set(name: str) -> AccessTable:
    return read_toml(ACCESSES / f"{name}.toml", AccessTable)
