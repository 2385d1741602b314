"""The known list: findings that are expected for now. Each entry has a reason and a last day.

An entry selects targets and releases; harness.judge.known.matching compares it with findings.
"""

from __future__ import annotations

import datetime  # noqa: TC003 - msgspec reads the annotations when it decodes
import fnmatch
import itertools
import operator
import re
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.errors import UsageError
from harness.core.model import Allocator, GuestEnvironment, MemoryOrder, Record
from harness.core.strict_toml import ROOT, at_line, decode_toml, line_of, read_text
from harness.core.target_model import DEFAULT_FAMILY, ORACLE, Endianness
from harness.isa import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from harness.core.target_model import Target
    from harness.record.run_record import RunRecord

DEFAULT = ROOT / "ci" / "known.toml"
EMPTY = "findings = []\n"


class KnownFinding(Record, frozen=True):
    """One entry."""

    id: str
    """The finding's id; globs allowed."""
    reason: str
    expires: datetime.date
    """The last day on which the entry counts."""
    server: str = "*"
    """Server name, or path of a tree; globs allowed. Without the key: any."""
    release: str = ""
    """The releases of a family that show it, such as `redis >=7.0, <7.2.4`: by name, and trees by the release in their
    source (docs/howto/known-findings.md). Without the key: any."""
    targets: list[str] = msgspec.field(default_factory=lambda: ["*"])
    """Target names; globs allowed. Without the key: all targets."""
    width_bits: Literal[32, 64] | None = None
    """Restricts the targets to those of this word size. Without the key: any."""
    time_bits: Literal[32, 64] | None = None
    """Restricts the targets to those whose time_t has this size. Without the key: any."""
    endianness: Endianness | None = None
    """Restricts the targets to those of this byte order, `little` or `big`. Without the key: either."""
    toolchain: str = "*"
    """The family of toolchains that compiled, such as `clang-musl`; globs allowed. Without the key: any."""
    environment: str = "*"
    """The environment of the programs (`--environment`), such as `musl-stack` or `usual`; globs allowed. Without the
    key: any.
    """
    memory_order: str = "*"
    """The order of memory accesses (`--memory-order`), `usual` or `weak`; globs allowed. Without the key: any."""
    policy: str = "*"
    """The policy for misaligned accesses (`--policy`), such as `strict`; globs allowed. Without the key: any."""
    allocator: str = "*"
    """The servers' allocator, such as `guard`; globs allowed. Without the key: any."""
    suite: str = ""
    """The only suite that may show it. A run without that suite does not report the entry as unseen. Empty: any."""
    test: str = "*"
    """The test that shows it; globs allowed, `?` for a bracket."""
    command: str = "*"
    """The client's request; globs allowed."""
    said: str = "*"
    """The whole message of a failed test, or the title of any other finding; globs allowed."""
    line: str = "*"
    """The text of the source line that shows it, without indentation; globs allowed. Without the key: any line, or
    none."""
    via: list[str] = msgspec.field(default_factory=list)
    """Functions that must all be on the stack, in any order; globs allowed."""
    conditional: bool = False
    """Whether it appears only with some seeds, in some tiers, or beside some targets. No run reports such an entry as
    unseen.
    """
    intermittent: bool = False
    """Whether it appears by chance. No run reports such an entry as unseen, and `premerge` runs its tests whatever
    changes.
    """


class KnownList(Record, frozen=True):
    """A known-findings file: Plumbline's own, the one that `--known` names, or a tree's own."""

    findings: list[KnownFinding]


class Settings(Record, frozen=True):
    """The settings of a run that determine what it can find."""

    toolchain: str = DEFAULT_FAMILY
    environment: GuestEnvironment = "usual"
    memory_order: MemoryOrder = "usual"
    policy: str = "signal"
    """The policy, without the prefix of an audit, which lists what the policy forbids."""
    allocator: Allocator = "libc"

    @classmethod
    def of(cls, run: Record) -> Settings:
        """The settings of a run, from its record or its judgement."""
        chosen = {name: getattr(run, name) for name in cls.__struct_fields__}
        return cls(**{**chosen, "policy": rules.base_name(chosen["policy"])})

    def keys_on(self, target: str) -> dict[str, str]:
        """The keys that restrict an entry to these settings on a target: those whose values are not the default."""
        default, here = Settings(), self._on(target)
        names = type(self).__struct_fields__
        return {name: value for name in names if (value := getattr(here, name)) != getattr(default, name)}

    def select(self, entry: KnownFinding, name: str, machine: Target) -> bool:
        """Whether an entry applies to findings of a run with these settings on a target."""
        here = self._on(name)
        here = msgspec.structs.replace(here, toolchain=_family(machine, name, here.toolchain))
        return all(fnmatch.fnmatchcase(getattr(here, key), getattr(entry, key)) for key in type(self).__struct_fields__)

    def _on(self, target: str) -> Settings:
        """The settings that apply to a target. The oracle always has the host's compiler, environment and kernel."""
        return Settings(allocator=self.allocator) if target == ORACLE else self


def load_known(path: Path, machines: Mapping[str, Target], settings: Settings) -> KnownList:
    """Read a known-findings file, and resolve each entry's targets to the names of machines.

    Raises UsageError, with file and line, if the file is invalid.
    """
    return KnownList(findings=resolved(entries_of(read_text(path), path), machines, settings))


def entries_of(text: str, path: Path) -> list[KnownFinding]:
    """The entries of a known-findings file as they are written. `path` is for messages.

    Raises UsageError, with file and line.
    """
    entries = decode_toml(text, path, KnownList).findings
    for number, entry in enumerate(entries):
        if not entry.reason.strip():
            raise UsageError(
                "an entry needs a reason",
                where=at_line(path, line_of(text, "findings", number, "reason")),
                because=f"reason = '{entry.reason}'",
                remedy="say why the finding is expected for now: reason = 'issue 1234'",
            )
        if entry.release and not _RANGE.fullmatch(entry.release):
            raise UsageError(
                "not a range of releases",
                where=at_line(path, line_of(text, "findings", number, "release")),
                because=f"release = '{entry.release}'",
                remedy="a family, and conditions between commas: release = 'redis >=7.0, <7.2.4'",
            )
    return entries


def resolved(entries: Sequence[KnownFinding], machines: Mapping[str, Target], settings: Settings) -> list[KnownFinding]:
    """The entries with the names of those machines that their targets, width, byte order and settings select."""
    return [
        msgspec.structs.replace(
            entry,
            targets=[
                name
                for name, machine in machines.items()
                if settings.select(entry, name, machine) and _covers(entry, name, machine)
            ],
        )
        for entry in entries
    ]


def _family(machine: Target, name: str, toolchain: str) -> str:
    """The family of toolchains that compiled for a machine. Where the distribution has no compiler, the machine has
    another family's, and its toolchain is named FAMILY-TARGET.
    """
    if name == ORACLE or toolchain != DEFAULT_FAMILY:
        return toolchain
    own = machine.toolchain.removesuffix(f"-{name}")
    return own if own != machine.toolchain else DEFAULT_FAMILY


def _covers(entry: KnownFinding, name: str, machine: Target) -> bool:
    return (
        any(fnmatch.fnmatch(name, pattern) for pattern in entry.targets)
        and entry.width_bits in {None, machine.width_bits}
        and entry.time_bits in {None, machine.time_bits}
        and entry.endianness in {None, machine.endianness}
    )


_CONDITION = r"(==|>=|<=|>|<)\s*(\d+(?:\.\d+)*)"
_RANGE = re.compile(rf"(redis|valkey)(\s+{_CONDITION}(\s*,\s*{_CONDITION})*)?")
_RELEASE_NAME = re.compile(r"(redis|valkey)-(\d+(?:\.\d+)*)")
_COMPARISONS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def concerns(entry: KnownFinding, server: str, release: str = "") -> bool:
    """Whether an entry applies to a server. `release`: the release that it is or counts as, `redis-7.0.15`; empty: its
    name.
    """
    return fnmatch.fnmatchcase(server, entry.server) and (
        not entry.release or _in_range(release or server, entry.release)
    )


def _in_range(release: str, wanted: str) -> bool:
    name = _RELEASE_NAME.fullmatch(release)
    if name is None or not wanted.startswith(name[1]):
        return False
    return all(
        _COMPARISONS[sign](*_of_equal_length(name[2], version)) for sign, version in re.findall(_CONDITION, wanted)
    )


def _of_equal_length(*versions: str) -> list[tuple[int, ...]]:
    """The versions' numbers. Missing ones are 0: 7.0 is 7.0.0."""
    numbers = ([int(part) for part in version.split(".")] for version in versions)
    return list(zip(*itertools.zip_longest(*numbers, fillvalue=0), strict=True))


def release_name(run: RunRecord) -> str:
    """The release that a run's server is or counts as, `redis-7.0.15`; empty for a tree in a run of an old format."""
    return f"{run.family}-{run.release}" if run.release else ""
