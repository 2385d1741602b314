"""Every architecture that the code knows, and how to find one: docs/howto/add-an-architecture.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.errors import UsageError
from harness.isa import aarch64, alpha, arm, hppa, loongarch, m68k, mips, powerpc, riscv, s390x, sparc, x86

if TYPE_CHECKING:
    from harness.isa.architecture import Architecture, Variant
    from harness.isa.encodings.encoding import EncodingTable

ARCHITECTURES: tuple[Architecture, ...] = (
    aarch64.AARCH64,
    alpha.ALPHA,
    arm.ARM,
    hppa.HPPA,
    loongarch.LOONGARCH,
    m68k.M68K,
    mips.MIPS,
    powerpc.POWERPC,
    powerpc.POWERPC64,
    riscv.RISCV,
    s390x.S390X,
    sparc.SPARC,
    x86.X86,
)

MACROS = "|".join(architecture.macros for architecture in ARCHITECTURES)
"""A pattern of macros that distinguish architectures in C, without underscores around them."""

UNWINDING_SECTIONS = tuple(name for architecture in ARCHITECTURES for name in architecture.unwinding_sections)
"""Prefixes of the names of sections that describe an object's code, for all architectures."""
SYMBOL_FIRST = frozenset(architecture.symbol_first for architecture in ARCHITECTURES) - {""}
"""See `Architecture.symbol_first`: ELF's names of these machines."""
TABLE_RELOCATIONS = {
    machine: types for architecture in ARCHITECTURES for machine, types in architecture.table_relocations.items()
}
"""See `Architecture.table_relocations`."""
EXACT_RELOCATIONS = {
    machine: types for architecture in ARCHITECTURES for machine, types in architecture.exact_relocations.items()
}
"""See `Architecture.exact_relocations`."""
RELATIVE_ENTRIES = {
    machine: types for architecture in ARCHITECTURES for machine, types in architecture.relative_entries.items()
}
"""See `Architecture.relative_entries`."""
BRANCHES = {machine: found for architecture in ARCHITECTURES for machine, found in architecture.branches.items()}
"""See `Architecture.branches`."""
PADDING = {machine: pattern for architecture in ARCHITECTURES for machine, pattern in architecture.padding.items()}
"""See `Architecture.padding`."""
AT_ANY_ADDRESS = frozenset[str]().union(*(architecture.at_any_address for architecture in ARCHITECTURES))
"""See `Architecture.at_any_address`."""


def of_isa(isa: str) -> Architecture:
    """The architecture that targets call so. Raises UsageError for a name that no module claims."""
    found = next((architecture for architecture in ARCHITECTURES if isa in architecture.isas), None)
    if found is None:
        raise UsageError(
            f"no architecture has the instruction set '{isa}'",
            where="harness/isa/registry.py",
            remedy="docs/howto/add-an-architecture.md",
        )
    return found


def of_emulator(qemu: str) -> Architecture | None:
    """The architecture that one of QEMU's user-mode emulators runs; None for an unknown emulator."""
    return next((architecture for architecture in ARCHITECTURES if qemu in architecture.variants), None)


def variant(qemu: str) -> Variant | None:
    """The machine that one of QEMU's user-mode emulators runs; None for an unknown emulator."""
    architecture = of_emulator(qemu)
    return architecture.variants[qemu] if architecture else None


def encoding_table(isa: str) -> EncodingTable | None:
    """Every encoding of an access that targets with this instruction set have; None if they are not written yet."""
    # Making the tables takes a sixth of a second, and only the sweep of all encodings needs them.
    from harness.isa.encodings import (  # noqa: PLC0415
        aarch64,
        alpha,
        hppa,
        loongarch,
        mips,
        riscv,
        sparc,
    )
    from harness.isa.encodings.arm import table as arm  # noqa: PLC0415
    from harness.isa.encodings.m68k import table as m68k  # noqa: PLC0415
    from harness.isa.encodings.powerpc import table as powerpc  # noqa: PLC0415
    from harness.isa.encodings.s390x import table as s390x  # noqa: PLC0415

    tables = {
        "aarch64": aarch64.TABLE,
        "alpha": alpha.TABLE,
        "arm": arm.TABLE,
        "hppa": hppa.TABLE,
        "loongarch64": loongarch.TABLE,
        "m68k": m68k.TABLE,
        "mips": mips.TABLE,
        "powerpc": powerpc.TABLE,
        "powerpc64": powerpc.TABLE64,
        "riscv64": riscv.TABLE,
        "s390x": s390x.TABLE,
        "sparc": sparc.TABLE,
    }
    return tables.get(isa)
