"""Compiles the emulator's plugin that notes which functions a program enters, and lists the functions for it.

The plugin is a program of this machine (toolchains/function_reach/reach.c).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile

from harness.analysis.function_symbols import function_symbols
from harness.build.instruction_counter import PLUGIN_HEADER, compile_plugin
from harness.build.qemu_user import QEMU_FOLDER, Qemu
from harness.build.sources.archives import archive_name
from harness.core.strict_toml import ROOT, read_toml
from harness.record.reach.function_map import blank_map

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain

FOLDER = ROOT / "toolchains" / "function_reach"


def compile_reach(cache: Cache, tools: Toolchain) -> Path | None:
    """The plugin, compiled for this machine (`tools`) against the emulator's own header.

    None where the emulator's source is not there: emulators of a wheel need none, and it is large. Raises
    InfrastructureError when it does not compile.
    """
    qemu = read_toml(QEMU_FOLDER / "qemu.toml", Qemu)
    header = cache.path("sources", archive_name(f"qemu-{qemu.version}", qemu.sha256)) / PLUGIN_HEADER
    # The one file is part of the plugin's identity: the other ten thousand need no look.
    if not header.is_file():
        return None
    return compile_plugin(
        cache,
        tools,
        header,
        FOLDER / "reach.c",
        title="the plugin that notes functions",
        owner=f"reach-{qemu.version}",
    )


def functions_of(program: Path) -> bytes:
    """The map of a program before it runs: its functions, none of which was entered."""
    with program.open("rb") as stream:
        first = next(ELFFile(stream).iter_segments("PT_LOAD"))
        base = first["p_vaddr"] - first["p_offset"]
    names: dict[int, list[str]] = {}
    for symbol in function_symbols(str(program)).found:
        # What other objects define has no address here.
        if symbol.start:
            names.setdefault(symbol.start, []).append(symbol.name)
    return blank_map(base, names)
