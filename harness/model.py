"""The nouns: frozen values that the modules hand to each other. No behaviour beyond what identity and order need."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import Literal

import msgspec


class Noun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen, keyword-only value; decoding one from a file refuses unknown keys."""


class Verdict(IntEnum):
    """Ordered so that merging takes the maximum."""

    SKIP = 0
    XFAIL = 1
    PASS = 2
    UNKNOWN = 3
    FAIL = 4

    @staticmethod
    def merge(verdicts: list[Verdict]) -> Verdict:
        """The worst of several; of none it is UNKNOWN, because silence is never a PASS."""
        return max(verdicts, default=Verdict.UNKNOWN)


class Policy(StrEnum):
    """What a misaligned access that the architecture or its kernel does not allow does."""

    SIGNAL = "signal"
    """The kernel's fixup is off: the program gets SIGBUS. The default."""
    AUDIT = "audit"
    """The access succeeds and is reported: every misaligned site of a run is listed, not only the first."""
    FIXUP = "fixup"
    """Every plain access succeeds, as if the kernel repaired all of them."""
    STRICT = "strict"
    """Every access must be naturally aligned, whatever the architecture allows."""


class Endianness(StrEnum):
    """Byte order."""

    LITTLE = "little"
    BIG = "big"


Detector = Literal["", "ubsan", "asan", "valgrind"]
"""What in or around a program reports its errors on standard error (harness.detector reads it); empty for nothing."""


class EmulatorSpec(Noun, frozen=True):
    """What runs a target's programs."""

    kind: Literal["user", "native"]
    qemu: str = ""
    """QEMU's name of the user-mode emulator: `arm` for qemu-arm."""
    cpu: str = ""
    """QEMU's name of the CPU model; empty for the emulator's default."""
    detector: Detector = ""
    """A sanitizer that `compiler_flags` put into the program, or a tool that a native program runs under."""


class CanarySpec(Noun, frozen=True):
    """Accesses by name and offset from a 16-byte boundary, as `load-word@1`, under the signal policy."""

    trap: list[str]
    allowed: list[str]


class Target(Noun, frozen=True):
    """A machine to imitate."""

    name: str
    title: str
    toolchain: str
    machine: str
    """What `uname -m` says there; the servers' makefiles choose by it."""
    compiler_flags: list[str]
    width_bits: Literal[32, 64]
    endianness: Endianness
    page_size_bytes: int
    alignment: str
    """The rule in a sentence, for the reader of a report."""
    groups: list[str]
    slowdown: float
    """How many times slower than the host; every deadline is multiplied by it."""
    emulator: EmulatorSpec
    canaries: CanarySpec


class Toolchain(Noun, frozen=True):
    """How to compile for a target."""

    name: str
    triple: str
    """Prefix of the tools without the last dash; empty for the host's own."""
    packages: list[str]
    """Debian packages that provide it."""
    sysroot: dict[str, str]
    """Folder inside the guest's root -> folder on the host; empty for native programs."""


class Place(Noun, frozen=True):
    """Where a source archive can be had."""

    registry: Literal["debian", "pypi"]
    package: str
    file: str
    suite: str = ""
    """Debian only: the suite whose sources index lists the file."""
    version: str = ""
    """PyPI only: the release."""


class Server(Noun, frozen=True):
    """A source tree of the server under test: a release pinned by hash."""

    name: str
    family: Literal["redis", "valkey"]
    version: str
    sha256: str
    note: str
    places: list[Place]
    folder: str = ""
    """Folder of the tree inside the archive, below its single top folder; empty for the top folder itself."""


class SourceTree(Noun, frozen=True):
    """An unpacked, readable tree of a server."""

    name: str
    family: Literal["redis", "valkey"]
    version: tuple[int, ...]
    path: Path
    digest: str
    """SHA-256 of what the compiler can see: of the archive for a release, of the files for a path."""


class Suite(Noun, frozen=True):
    """A folder of tests."""

    name: str
    title: str
    path: Path
    needs_server: bool


class Cell(Noun, frozen=True):
    """Target x Server x Suite: the unit of planning, CI and reporting."""

    target: str
    server: str
    suite: str

    @property
    def identity(self) -> str:
        """`TARGET/SERVER/SUITE`, what globs select by."""
        return f"{self.target}/{self.server}/{self.suite}"


class Build(Noun, frozen=True):
    """Compiled binaries of a server for a target, in the cache."""

    key: str
    target: str
    server: str
    optimisation: str
    folder: Path
    server_binary: Path
    command_line: list[str]
    """The make command, for the record."""


class Access(Noun, frozen=True):
    """The shape of a misaligned access."""

    direction: Literal["load", "store", ""]
    size_bytes: int
    """0 where the instruction does not tell."""
    modulo: int
    """Address modulo the size (modulo 16 where the size is unknown)."""

    def __str__(self) -> str:
        if not self.direction:
            return ""
        size = f"{self.size_bytes} bytes" if self.size_bytes else "unknown size"
        return f"{self.direction} of {size} at {self.modulo} mod {self.size_bytes or 16}"


class Frame(Noun, frozen=True):
    """One level of a stack: innermost first; inlined functions are frames of their own."""

    function: str
    file: str
    line: int
    origin: str
    """Whose code it is: `server`, `bundled/NAME`, `libc`, `library/NAME` or `unknown` (docs/reference.md)."""
    pc: int
    inlined: bool = False


class Witness(Noun, frozen=True):
    """One target's evidence for a finding."""

    target: str
    suite: str
    file: str
    line: int
    instruction: str
    access: str
    test: str
    evidence: str
    """Path in the run folder."""
    backtrace: list[Frame]
    detector: str = "signal"
    """What saw it: see harness.sighting.Sighting."""


class Finding(Noun, frozen=True):
    """One judged misbehaviour, across all the targets that show it."""

    id: str
    kind: str
    title: str
    function: str
    file: str
    line: int
    instruction: str
    access: str
    origin: str
    """Of the innermost frame, as Frame.origin has it."""
    targets: list[str]
    command: str
    """What the client had asked for when it happened."""
    replay: str
    """The shell command that shows it again."""
    known: str
    """Reason from the known list, or empty."""
    witnesses: list[Witness]
    occurrences: int
