"""The data of targets: emulators, policies, accesses, toolchains and kernels, as TOML files describe them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes
from typing import Annotated, Literal

import msgspec

from harness.core.model import ArchivePlace, Record

ORACLE = "native"
"""The target with which the others are compared: the host itself."""


class Endianness(StrEnum):
    """Byte order."""

    LITTLE = "little"
    BIG = "big"


class EmulatorSpec(Record, frozen=True):
    """The emulator or machine that runs a target's programs."""

    kind: Literal["user", "native", "system", "board"]
    """`board`: the user's own machine. `--board` sets it, and no file of a target may.
    """
    qemu: str = ""
    """QEMU's name for the user-mode emulator that runs the same programs: `arm` for qemu-arm. For a native target: the
    emulator in which `plumb measure` counts instructions; empty if there is none.
    """
    machine: str = ""
    """For a system: the file toolchains/kernels/NAME.toml with the emulated computer and its kernel."""
    cpu: str = ""
    """QEMU's name for the CPU model; empty for the emulator's default."""
    detector: str = ""
    """A sanitizer that `compiler_flags` put into the program, or a tool that a native program runs under: one of
    harness.analysis.detectors.registry."""
    hosts: list[str] = msgspec.field(default_factory=list)
    """For a native target: the machines that run its programs, by the output of `uname --machine`; empty for any."""

    @property
    def runs_here(self) -> bool:
        """Whether the host's processor and kernel run the programs: nothing is emulated or enforced."""
        return self.kind == "native"

    @property
    def has_kernel(self) -> bool:
        """Whether an emulated computer boots its own Linux: programs have no process and no folder on the host."""
        return self.kind == "system"

    @property
    def is_board(self) -> bool:
        """Whether the user's own machine runs the programs, which commands reach (harness.plan.board)."""
        return self.kind == "board"

    @property
    def is_elsewhere(self) -> bool:
        """Whether programs have no process and no folder on the host: they run on another machine, real or emulated."""
        return self.has_kernel or self.is_board

    @property
    def is_qemu_user(self) -> bool:
        """Whether QEMU's user-mode emulator runs each program as a process of the host."""
        return self.kind == "user"

    @property
    def can_be_board(self) -> bool:
        """Whether a machine of the user's can be what it imitates: no emulated computer, and not the host itself."""
        return self.is_qemu_user or (self.runs_here and bool(self.hosts))

    @property
    def counting(self) -> EmulatorSpec:
        """The emulator that counts instructions. Raises LookupError for a native target without one."""
        if self.runs_here and not self.qemu:
            raise LookupError("nothing counts its instructions")
        return msgspec.structs.replace(self, kind="user") if self.runs_here else self

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
    "stack",
    "other",
]
"""The class of an access: instructions that CPUs and kernels treat alike, by the emulator's names.

dword: LDRD, STRD, 64-bit integer registers. multi: LDM, STM. pair: A64 LDP, STP. vfp: VLDR, VSTR, VLDM. float, double:
SPARC's and MIPS' floating point. linked: LL, SC. stack: accesses through a stack pointer that must itself be aligned.
"""


Direction = Literal["load", "store"]


class Policy(Record, frozen=True):
    """The handling of misaligned accesses: which are forbidden, and the effect of a forbidden one."""

    name: str
    title: str
    source: str
    """The source that documents it."""
    targets: list[str]
    """Globs of the targets to which it applies."""
    unusable: dict[str, str] = msgspec.field(default_factory=dict)
    """Target of those globs -> why none of its programs can run under it. They can in an audit, which performs all
    accesses.
    """
    demand: Literal["arch", "natural", "none"] = "arch"
    """The forbidden accesses: those that the architecture forbids, all that are not naturally aligned, or none."""
    fixup: tuple[AccessClass, ...] = ()
    """Classes whose accesses are repaired and succeed. Classes in neither list raise SIGBUS."""
    ignore: tuple[AccessClass, ...] = ()
    """Classes left to hardware with its check off: before ARMv6 a loaded word is rotated, and other accesses lose the
    low bits of the address.
    """
    assumed_bytes: Literal[1, 2, 4, 8, 16] = 16
    """Compilers are assumed to split wider plain accesses into units of this many bytes (Solaris' -xmemalign)."""
    report: bool = False
    """Whether every forbidden access is logged, including those that succeed."""
    mode: int | None = None
    """The setting of a real kernel: the mode in /proc/cpu/alignment on 32-bit ARM, unaligned_action on MIPS. None: no
    mode corresponds to the policy.
    """
    effective_policy: dict[str, str] = msgspec.field(default_factory=dict)
    """Target -> the policy that its kernel silently applies instead of this one."""


class PlannedAccess(Record, frozen=True):
    """An access that the canary program can make: harness/isa/accesses/ISA.toml."""

    name: str
    access_class: AccessClass
    direction: Direction
    size_bytes: int
    """The number of bytes that it moves."""
    unit_bytes: int
    """The unit whose alignment counts: 4 bytes for LDM."""
    code: list[str]
    """Extended inline assembly: from the address in %0 to the buffer at %1, or back for a store."""
    targets: tuple[str, ...] = ("*",)
    """Globs of the targets that have the instruction."""
    lacking: tuple[str, ...] = ()
    """Globs of targets of the kernel tier that cannot prove it. Their emulated computer lacks the instruction or a
    check of their CPU, or their kernel deviates from the policy.
    """
    hint_bytes: int = 0
    """The alignment that the instruction itself requires (NEON's `:128`, SPARC's blocks); 0 if the target's demand
    decides. It may exceed the unit."""
    addressing: tuple[str, ...] = ()
    """Addressing modes of the table in which the access is also made, each as a separate access."""
    clobbers: tuple[str, ...] = ()
    """Registers that it changes beside those of the table."""
    attribute: str = ""
    """An attribute of the C function that makes the access: `target("arm")`."""


class AddressingMode(Record, frozen=True):
    """Another form of an access's address, which processors decode differently from the plain one."""

    name: str
    """What it adds to the names of accesses: `post-indexed`."""
    setup: list[str]
    """Extended inline assembly that goes before the access."""
    place: str
    """The replacement for the table's `place` in the access's code."""
    clobbers: tuple[str, ...] = ()
    """Registers that it changes beside those of the table."""
    targets: tuple[str, ...] = ("*",)
    """Globs of the targets that have the mode."""


SHORT_TASK_MARGIN = 3
"""How many times slower than the host a target may be before the base of a short task's deadline grows."""


class DemandSource(Record, frozen=True):
    """The source of a CPU's alignment requirements."""

    classes: tuple[AccessClass, ...]
    """The classes; empty if the CPU has no requirements at all."""
    source: str
    """The manual or the kernel's file, with its section or its function."""
    core: str = ""
    """The core whose behaviour counts if the source leaves it open (UNPREDICTABLE, IMPLEMENTATION DEFINED)."""


class Target(Record, frozen=True):
    """A machine that Plumbline imitates."""

    name: str
    title: str
    toolchain: str
    machine: str
    """The output of `uname -m`, which the servers' makefiles use."""
    compiler_flags: list[str]
    width_bits: Literal[32, 64]
    endianness: Endianness
    page_size_bytes: int
    alignment: str
    """The rule in one sentence, for reports."""
    isa: str
    """The file of harness/isa/accesses/ that contains its instructions."""
    demand: dict[AccessClass, Annotated[int, msgspec.Meta(ge=1)]]
    """Class -> alignment in bytes that CPU and kernel require, at most the access's own unit; absent: none."""
    kernel: str
    """The most lenient policy of its own Linux: accesses that survive under it can be repaired by a kernel."""
    groups: list[str]
    slowdown: float
    """How many times slower than the host; deadlines grow with it."""
    emulator: EmulatorSpec
    demand_sources: tuple[DemandSource, ...] = ()
    """The sources of `demand`: each class is in one of them. Runs of earlier versions have none."""
    userland: str = ""
    """For a system: the target whose builds it runs; empty: its own."""
    variant_of: str = ""
    """The target of the same processor with the usual programs, pages and byte order; empty: this is it."""
    timeout_multiplier: float = 1.0
    """How many times longer than usual to wait (`--timeout-multiplier`). The catalog sets it, and no file does."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names under which lists of differences include it: its own, that of the target whose builds it runs, and
        those of its width and byte order, such as `32-bit` and `big-endian`.
        """
        return (self.name, self.userland or self.name, f"{self.width_bits}-bit", f"{self.endianness}-endian")

    @property
    def time_bits(self) -> int:
        """The size of a time_t: that of a long, unless the C library is configured for 64 bits
        (feature_test_macros(7)).
        """
        return 64 if "-D_TIME_BITS=64" in self.compiler_flags else self.width_bits

    def deadline_seconds(self, base_seconds: float) -> float:
        """The deadline of a short task that takes well under `base_seconds` on the host.

        The base has a margin of three: a target up to three times slower than the host, such as a sanitizer's, keeps
        it, and a slower one gets a third of its slowdown, so that a hanging task is detected early.
        """
        return self.host_deadline_seconds(base_seconds) * max(1.0, self.slowdown / SHORT_TASK_MARGIN)

    def whole_deadline_seconds(self, base_seconds: float) -> float:
        """The deadline of a task that may take `base_seconds` on the host: it grows with all of the slowdown."""
        return self.host_deadline_seconds(base_seconds) * self.slowdown

    def host_deadline_seconds(self, base_seconds: float) -> float:
        """The deadline, in seconds, of a task that host programs do in a run on the target."""
        return base_seconds * self.timeout_multiplier


class Toolchain(Record, frozen=True):
    """How to compile for a target."""

    name: str
    triple: str
    """Prefix of the tools without the last dash; empty for the host's own."""
    packages: list[str]
    """Debian packages that provide it."""
    sysroot: dict[str, str]
    """Folder inside the guest's root -> folder on the host; empty for native and for static programs."""
    family: str = ""
    """The family whose compiler it calls if the distribution has none for its machine."""
    tools: str = ""
    """The names of the binary tools if they are not those of the triple: `llvm-{}-19`, which support all machines."""
    compilers: str = ""
    """The folder of the commands `gcc` and `g++` if they are not those of the prefix: a family's."""
    libraries: tuple[str, ...] = ("-latomic",)
    """The last arguments of the linker."""
    is_static: bool = False
    """Whether programs contain their C library, so nothing can be loaded into them."""
    has_lto: bool = True
    """Whether the linker reads the objects of link-time optimisation."""
    debian_architecture: str = ""
    """Debian's name for its architecture, if Debian has packages for it."""
    debian_hosts: dict[str, str] = msgspec.field(default_factory=dict)
    """For the host's own compiler: its names on other hosts, by the machine that uname(2) reports."""
    debian_since: str = "bookworm"
    """The first suite that has them. Servers with TLS are linked with bookworm's OpenSSL, so there are none if this
    suite is later.
    """
    timeout_multiplier: float = 1.0
    """How many times longer than usual to wait for it (`--timeout-multiplier`). The catalog sets it, and no file
    does.
    """

    @property
    def prefix(self) -> str:
        """The prefix of the addr2line that reads its programs; empty, for the host's, if the triple has no tools.

        That one reads the lines of any machine with the host's byte order. LLVM's mistakes labels for functions.
        """
        return "" if self.tools else self.triple

    def deadline_seconds(self, base_seconds: float) -> float:
        """The deadline of a task of its programs."""
        return base_seconds * self.timeout_multiplier


DEFAULT_FAMILY = "gcc"
"""The toolchains that the targets name themselves: Debian's GCC with its C library."""


class HostCompiler(Record, frozen=True):
    """A compiler package for one kind of host."""

    sha256: str
    places: list[ArchivePlace]


class CompilerPackage(Record, frozen=True):
    """A compiler that families of toolchains call: toolchains/families/NAME.toml."""

    name: str
    program: str
    """Its path in the archive."""
    hosts: dict[str, HostCompiler]
    """`uname -m` of the host -> the archive."""


class FamilyTarget(Record, frozen=True):
    """How a family compiles for a target."""

    flags: tuple[str, ...]
    """The flags of every compilation, in place of the target's."""
    sources: tuple[str, ...] = ()
    """C files in addition to the family's, linked into every program: functions that its compiler's own library
    lacks.
    """


class ToolchainFamily(Record, frozen=True):
    """Another compiler for many targets, with or without another C library: toolchains/families/NAME/family.toml."""

    name: str
    folder: Path
    title: str
    compiler: str
    """The name of its CompilerPackage."""
    commands: dict[Literal["gcc", "g++"], tuple[str, ...]]
    """Name of a command -> the words that follow the program's name. `{folder}` is the program's own folder."""
    flags: tuple[str, ...]
    """Flags for every target."""
    is_static: bool
    """Whether programs contain their C library. If they do not, they use that of the target's own toolchain."""
    targets: dict[str, FamilyTarget]
    library_cache: str = ""
    """The environment variable for the folder in which the compiler stores its compiled C library. Empty: it compiles
    none.
    """
    has_lto: bool = True
    """Whether the linker reads the objects of link-time optimisation."""
    sources: tuple[str, ...] = ()
    """C files in addition, linked into every program on every target: functions that its C library lacks."""
    object_cache: str = ""
    """The environment variable for the folder in which it stores every object. Here, only ccache stores objects."""


class MachineSpec(Record, frozen=True):
    """The emulated computer of a kernel, in terms of the emulator's command line."""

    emulator: str
    """`qemu-system-arm`."""
    packages: list[str]
    """Debian packages that provide it, including firmware."""
    machine: str
    cpu: str
    memory_mib: int
    options: list[str]
    """Devices: a network card for the netdev `network`, and a serial line for the chardev `control`."""
    console: str
    """The kernel's name for its console."""
    control: str
    """The control channel's device in the guest, or a pattern (glob(7)) if its number varies. Or `tcp:PORT`, on which
    the guest listens."""
    append: list[str]
    """Further words of the kernel's command line."""
    snapshots: bool
    """Whether its state can be saved and restored."""
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    """File below /proc/sys -> content to write to it after boot."""
    pulse_seconds: float = 0.0
    """Seconds between requests that interrupt the machine, because it may lose timer interrupts; 0: none."""


class KernelSpec(Record, frozen=True):
    """A Linux kernel for one machine: toolchains/kernels/NAME.toml."""

    name: str
    title: str
    toolchain: str
    """The toolchain that compiles the kernel and the guest's init."""
    architecture: str
    """The variable ARCH of Linux's makefile."""
    fragments: list[str]
    """Configuration files in toolchains/kernels, applied to allnoconfig."""
    make: list[str]
    """The targets of Linux's makefile to build."""
    image: str
    """The image that the emulator loads, in the build folder."""
    device_tree: str
    """The device tree, in the build folder; empty if the emulator makes it."""
    alignment_file: str
    """The file in the guest to which a policy's mode is written; empty if the kernel has none."""
    machine: MachineSpec
