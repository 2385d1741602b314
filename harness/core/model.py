"""The nouns of what there is: machines, servers, suites, builds. No behaviour beyond what identity needs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import Annotated, Literal

import msgspec

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*\Z")]
"""What becomes part of a path: a target, suite, guest or file. A record that a stranger wrote leads nowhere else."""

NameOrNone = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._+-]*)?\Z")]
"""The same, or empty."""

FileName = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._+-]*/)*[A-Za-z0-9_][A-Za-z0-9._+-]*\Z")]
"""A file's path below a folder that is told elsewhere: `dump.rdb`, `appendonlydir/appendonly.aof.1.base.rdb`."""

FileNameOrNone = Annotated[
    str, msgspec.Meta(pattern=r"^(([A-Za-z0-9_][A-Za-z0-9._+-]*/)*[A-Za-z0-9_][A-Za-z0-9._+-]*)?\Z")
]
"""The same, or empty."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen, keyword-only value; decoding one from a file refuses unknown keys."""


class Endianness(StrEnum):
    """Byte order."""

    LITTLE = "little"
    BIG = "big"


Allocator = Literal["libc", "jemalloc", "guard", "guard-natural"]
"""What gives a server its memory (harness.build.allocator)."""


CompilerWarnings = Literal["note", "fail", "off"]
"""What becomes of what a compiler warns of on a target alone: noted, findings that fail, not asked for (off)."""


class EmulatorSpec(Record, frozen=True):
    """What runs a target's programs."""

    kind: Literal["user", "native", "system"]
    qemu: str = ""
    """QEMU's name of the user-mode emulator that runs the same programs: `arm` for qemu-arm."""
    machine: str = ""
    """Of a system: which of toolchains/kernels/*.toml, the emulated computer and its kernel."""
    cpu: str = ""
    """QEMU's name of the CPU model; empty for the emulator's default."""
    detector: str = ""
    """A sanitizer that `compiler_flags` put into the program, or a tool that a native program runs under: one of
    harness.analysis.detectors.registry."""

    @property
    def runs_here(self) -> bool:
        """Whether this machine's processor and kernel run the programs: nothing is emulated or enforced."""
        return self.kind == "native"

    @property
    def has_kernel(self) -> bool:
        """Whether an emulated computer boots its own Linux: programs have no process and no folder on this machine."""
        return self.kind == "system"

    @property
    def is_qemu_user(self) -> bool:
        """Whether QEMU's user-mode emulator runs each program as a process of this machine."""
        return self.kind == "user"

    @property
    def can_audit(self) -> bool:
        """Whether the emulator can report a forbidden access and then perform it."""
        return self.is_qemu_user


AccessClass = Literal[
    "half",
    "word",
    "dword",
    "multi",
    "pair",
    "vfp",
    "neon",
    "float",
    "double",
    "exclusive",
    "acquire",
    "swap",
    "cas",
    "linked",
    "other",
]
"""What sort of instruction an access is, as far as CPUs and kernels treat alignment alike: the emulator's own names.

dword: LDRD, STRD, 64-bit integer registers. multi: LDM, STM. pair: A64 LDP, STP. vfp: VLDR, VSTR, VLDM. float, double:
SPARC's and MIPS' floating point. linked: LL, SC.
"""

Direction = Literal["load", "store"]


class Policy(Record, frozen=True):
    """What a misaligned access does: which ones are forbidden, and what becomes of a forbidden one."""

    name: str
    title: str
    source: str
    """Where it is documented."""
    targets: list[str]
    """Globs of the targets that it makes sense for."""
    demand: Literal["arch", "natural", "none"] = "arch"
    """What is forbidden: what the architecture forbids, whatever is not naturally aligned, or nothing."""
    fixup: tuple[AccessClass, ...] = ()
    """Classes that are repaired: the access is done. Those in neither list raise SIGBUS."""
    ignore: tuple[AccessClass, ...] = ()
    """Classes left to hardware with its check off: before ARMv6 a loaded word is rotated, else low bits are lost."""
    assumed_bytes: Literal[1, 2, 4, 8, 16] = 16
    """Compilers are taken to split wider plain accesses into units of so many bytes (Solaris' -xmemalign)."""
    report: bool = False
    """Every forbidden access is logged, whatever becomes of it."""
    mode: int | None = None
    """What /proc/cpu/alignment is set to for it, on a real 32-bit ARM kernel; None: no mode of that file is this."""
    effective_policy: dict[str, str] = msgspec.field(default_factory=dict)
    """Target -> the policy that its kernel silently applies instead of this one."""


class PlannedAccess(Record, frozen=True):
    """An access that the canary program can make: harness/isa/accesses/ISA.toml."""

    name: str
    access_class: AccessClass
    direction: Direction
    size_bytes: int
    """How many bytes it moves."""
    unit_bytes: int
    """The unit whose alignment counts: 4 for LDM."""
    code: list[str]
    """Assembly, in C's extended form: from the address in %0 to the buffer at %1, or back for a store."""
    targets: tuple[str, ...] = ("*",)
    """Globs of the targets that have the instruction."""
    hint_bytes: int = 0
    """The alignment that the instruction itself asks for (NEON's `:64`); 0 where the target's demand decides."""


SHORT_TASK_MARGIN = 3
"""How many times slower than the host a target may be before the base of a short task's deadline grows."""


class Target(Record, frozen=True):
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
    isa: str
    """Which file of harness/isa/accesses/ holds its instructions."""
    demand: dict[AccessClass, int]
    """Class -> alignment in bytes that CPU and kernel insist on, at most the access's own unit; absent: none."""
    kernel: str
    """The most forgiving policy that its own Linux has: what survives under it, a kernel can repair."""
    groups: list[str]
    slowdown: float
    """How many times slower than the host; deadlines grow with it."""
    emulator: EmulatorSpec
    userland: str = ""
    """Of a system: the target whose builds it runs; empty for a target's own."""

    def deadline_seconds(self, base_seconds: float) -> float:
        """The deadline of a short task that takes well under `base_seconds` on the host.

        The base has a margin of three: a target up to three times slower than the host, such as a sanitizer's, keeps
        it, and a slower one gets a third of its slowdown, so that a task that hangs is not waited for needlessly.
        """
        return base_seconds * max(1.0, self.slowdown / SHORT_TASK_MARGIN)


class Toolchain(Record, frozen=True):
    """How to compile for a target."""

    name: str
    triple: str
    """Prefix of the tools without the last dash; empty for the host's own."""
    packages: list[str]
    """Debian packages that provide it."""
    sysroot: dict[str, str]
    """Folder inside the guest's root -> folder on the host; empty for native programs."""


class MachineSpec(Record, frozen=True):
    """The emulated computer that a kernel is for, in the words of its emulator's command line."""

    emulator: str
    """`qemu-system-arm`."""
    packages: list[str]
    """Debian packages that provide it, firmware included."""
    machine: str
    cpu: str
    memory_mib: int
    options: list[str]
    """Devices: what makes the netdev `network` a card, and the chardev `control` a line."""
    console: str
    """What the kernel calls the line that it writes to."""
    control: str
    """The control channel's device in the guest; a pattern (glob(7)) where its number is not known beforehand.
    Or `tcp:PORT`: the guest listens there."""
    append: list[str]
    """More words for the kernel's command line."""
    snapshots: bool
    """Whether its state can be saved and loaded again."""
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    """File below /proc/sys -> what is written to it after boot."""


class KernelSpec(Record, frozen=True):
    """A Linux kernel for one machine: toolchains/kernels/NAME.toml."""

    name: str
    title: str
    toolchain: str
    """What compiles the kernel and the guest's init."""
    architecture: str
    """Linux' ARCH."""
    fragments: list[str]
    """Files of options, on top of allnoconfig, in toolchains/kernels."""
    make: list[str]
    """Targets of its makefile."""
    image: str
    """What the emulator loads, in the build folder."""
    device_tree: str
    """The machine's description, in the build folder; empty where the emulator makes it."""
    machine: MachineSpec


class ArchivePlace(Record, frozen=True):
    """Where a source archive can be had."""

    registry: Literal["debian", "pypi"]
    package: str
    file: str
    suite: str = ""
    """Debian only: the suite whose sources index lists the file."""
    version: str = ""
    """PyPI only: the release."""


class Server(Record, frozen=True):
    """A source tree of the server under test: a release pinned by hash."""

    name: str
    family: Literal["redis", "valkey"]
    version: str
    sha256: str
    note: str
    places: list[ArchivePlace]
    folder: str = ""
    """Folder of the tree inside the archive, below its single top folder; empty for the top folder itself."""


class Abilities(Record, frozen=True):
    """What a server can do, as its source tells it (harness.build.sources.tree_features): of a release's number nothing
    is concluded.
    """

    commands: tuple[str, ...] = ()
    """In lower case; a container's as `CONTAINER|COMMAND`, which sources tell since Redis 7.0."""
    options: tuple[str, ...] = ()
    """What may stand in its configuration, and on its command line behind `--`; other words of its source, too."""


class SourceTree(Record, frozen=True):
    """An unpacked, readable tree of a server."""

    name: str
    family: Literal["redis", "valkey"]
    version: tuple[int, ...]
    """Its release; of a development tree, the one that it is taken for."""
    path: Path
    digest: str
    """SHA-256 of what the compiler can see: of the archive for a release, of the files for a path."""
    abilities: Abilities = Abilities()
    development: str = ""
    """Of a tree between two releases: what it calls itself, and by what it was taken for its `version`."""
    files: str = ""
    """The digest of the files (harness.build.sources.tree_files): what is compiled must have it. Empty where nothing is
    compiled."""
    copy: Path | None = None
    """A copy of the tree as it was when it was opened; None for a release, which nobody edits."""

    @property
    def content(self) -> Path:
        """What is built: the copy where there is one. `path` is where the user has it."""
        return self.copy or self.path


COMPILED_IN = "tree"
"""The folder of a build directory where a server is compiled: debug information keeps its name in every path."""

SuiteTier = Literal["quick", "full", "thorough"]
Tier = Literal["quick", "full", "thorough", "kernel"]
"""How much a run does: what suites say, and what real kernels are asked."""
Flavour = Literal["pinned", "distro"]
"""Which emulator runs it: the pinned QEMU with our changes, or the distribution's."""

Program = Literal["units", "selftests"]
"""The program that a suite runs instead of a server: the server's functions called by Plumbline's drivers
(harness.build.unit_drivers), or the server's own tests (harness.run.selftests)."""

SuiteRole = Literal["", "canary"]
"""The part that a suite plays for the harness: `canary` proves that a target enforces alignment."""

CANARY_SUITE = "canary"
"""The name of the suite with the role `canary`. Run folders record it, and are judged without a catalog."""


class Suite(Record, frozen=True):
    """A folder of tests."""

    name: str
    title: str
    path: Path
    needs_server: bool
    program: Program | Literal[""] = ""
    """The program that its tests run instead of a server. The drivers of `units` stand in units.toml and drivers/."""
    role: SuiteRole = ""
    """`canary` for the suite that proves that a target enforces alignment: every plan has it, and runs it first."""
    module: str = ""
    """The C source, in the suite's folder, of a module that its servers load (harness.build.server_module)."""
    tier: SuiteTier = "quick"
    """The least tier that runs it unasked."""
    guided: bool = False
    """Whether its thorough tier is led by the edges of the guest's code that it reaches."""
    source_globs: tuple[str, ...] = ()
    """Globs of the server's source files that the suites with such a glob test as well as the whole quick tier does:
    `plumb premerge` runs only these suites for a change of such a file alone."""
    multi_target_tier: SuiteTier | Literal[""] = ""
    """The lowest tier in which its tests combine several targets of the run, so that a single target tests less."""
    io_bound: bool = False
    """Whether its tests mostly wait for servers: its cells run in addition to the cells that `--jobs` counts."""
    since: tuple[int, ...] = ()
    """The first release that has what it tests; cells of an earlier one are skipped. Empty: every one has it."""


class Cell(Record, frozen=True):
    """Target x Server x Suite: the unit of planning, CI and reporting."""

    target: str
    server: str
    suite: str

    @property
    def identity(self) -> str:
        """`TARGET/SERVER/SUITE`, what globs select by."""
        return f"{self.target}/{self.server}/{self.suite}"


class Build(Record, frozen=True):
    """Compiled binaries of a server for a target, in the cache."""

    key: str
    target: str
    server: str
    optimisation: str
    folder: Path
    server_binary: Path
    command_line: list[str]
    """The make command, for the record."""
    allocator: Allocator = "libc"
    preload: Path | None = None
    """A shared object that the server is started with."""
    abilities: Abilities = Abilities()
    """What the source says that the server can do."""
