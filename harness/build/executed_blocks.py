"""Compiles the emulator's plugin that records which blocks of a program are executed, and provides their addresses.

The plugin runs on the host (toolchains/executed_blocks/blocks.c).
"""

from __future__ import annotations

import shutil
from pathlib import PurePath
from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile

from harness.analysis.function_symbols import function_symbols
from harness.build.emulators.qemu_source import pinned_qemu, unpacked_source
from harness.build.instruction_counter import PLUGIN_HEADER, compile_plugin
from harness.build.sources.archives import tree_name
from harness.core.strict_toml import ROOT
from harness.isa import registry
from harness.record.executed_blocks.block_map import Function, ProgramCode

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain

FOLDER = ROOT / "toolchains" / "executed_blocks"
_HEADER_NAME = PurePath(PLUGIN_HEADER).name
_EXECUTABLE = 1
"""PF_X of <elf.h>."""


def compile_blocks(cache: Cache, tools: Toolchain, fetcher: Fetcher) -> Path:
    """The plugin, compiled for the host (`tools`) against the emulator's own header. Raises InfrastructureError when it
    does not compile, and as `Fetcher.tree` does.
    """
    return compile_plugin(
        cache,
        tools,
        _header(cache, fetcher),
        FOLDER / "blocks.c",
        title="the plugin that notes executed blocks",
        owner=f"blocks-{pinned_qemu().version}",
    )


def _header(cache: Cache, fetcher: Fetcher) -> Path:
    """A copy of the emulator's header for plugins. It outlives the emulator's source: that is large, and the cache's
    limit may remove it once the emulators are built.
    """
    qemu = pinned_qemu()

    def fill(into: Path) -> None:
        shutil.copyfile(unpacked_source(fetcher, qemu) / PLUGIN_HEADER, into / _HEADER_NAME)

    return cache.folder("plugin-headers", tree_name(qemu.archive, qemu.sha256), fill) / _HEADER_NAME


def code_of(program: Path, machine: str) -> ProgramCode:
    """The places of a program's code and functions. `machine`: QEMU's name of the machine that runs it."""
    with program.open("rb") as stream:
        segments = [segment.header for segment in ELFFile(stream).iter_segments("PT_LOAD")]
    code = [each for each in segments if each["p_flags"] & _EXECUTABLE]
    names: dict[int, tuple[int, set[str]]] = {}
    for symbol in function_symbols(str(program)).found:
        # Symbols of other objects have no address here.
        if symbol.start:
            size, named = names.get(symbol.start, (0, set()))
            names[symbol.start] = max(size, symbol.size), named | {symbol.name}
    return ProgramCode(
        base=segments[0]["p_vaddr"] - segments[0]["p_offset"],
        begin=min(each["p_vaddr"] for each in code),
        end=max(each["p_vaddr"] + each["p_memsz"] for each in code),
        step=_least_instruction_bytes(machine),
        functions=[
            Function(start=start, size=size, names=sorted(named)) for start, (size, named) in sorted(names.items())
        ],
    )


def _least_instruction_bytes(machine: str) -> int:
    """The length of the shortest instruction; 1 if it is unknown."""
    variant = registry.variant(machine)
    if variant is None:
        return 1
    if variant.state_instructions is not None:
        return 2
    return variant.instructions.instruction_bytes or 1
