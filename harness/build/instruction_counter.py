"""Compiles the counter of instructions that the emulator loads, and finds the numbers of a target's system calls.

The counter runs on the host (toolchains/instruction_counter/counter.c). The target's own compiler provides
the facts about the target, so there is no table of system calls here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from elftools.elf.elffile import ELFFile

from harness.build import toolchain
from harness.build.emulators.qemu_source import pinned_qemu, unpacked_source
from harness.build.helper_program import compiled
from harness.core.strict_toml import ROOT
from harness.core.target_model import Endianness

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.target_model import Target, Toolchain

FOLDER = ROOT / "toolchains" / "instruction_counter"
PLUGIN_HEADER = "include/qemu/qemu-plugin.h"
"""The emulator's header for plugins, below its source."""
CALLS = {
    "wait": ("epoll_wait", "epoll_pwait", "epoll_pwait2"),
    "write": ("write", "writev", "pwrite64", "pwritev", "pwritev2"),
    "sync": ("fsync", "fdatasync", "sync_file_range", "sync_file_range2", "syncfs"),
    "end": ("exit_group",),
}
"""The counter's name of a kind of system calls -> their names in <sys/syscall.h>; no target has all of them."""
GUEST_BASE, GUEST_BYTES = 1 << 44, 1 << 40
"""The start of a guest's address space in the emulator's, and the size of a 64-bit guest's. The known place
distinguishes its pages from the emulator's own.
"""


def compile_counter(cache: Cache, tools: Toolchain, fetcher: Fetcher) -> Path:
    """The counter, compiled for the host (`tools`) against the emulator's own header.

    Raises InfrastructureError when it does not compile.
    """
    qemu = pinned_qemu()
    source = unpacked_source(fetcher, qemu)
    return compile_plugin(
        cache,
        tools,
        source / PLUGIN_HEADER,
        FOLDER / "counter.c",
        title="the instruction counter",
        owner=qemu.archive,
    )


def compile_plugin(cache: Cache, tools: Toolchain, header: Path, source: Path, *, title: str, owner: str) -> Path:
    """A plugin of the emulator, compiled for the host (`tools`) against the emulator's own header.

    Raises InfrastructureError, with `title`, when it does not compile.
    """
    return compiled(
        cache,
        tools,
        title=title,
        kind="instruction-counters",
        owner=owner,
        file=f"{source.stem}.so",
        flags=["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"],
        sources=[source],
        headers=[FOLDER / "glib.h", header],
    )


def call_numbers(cache: Cache, target: Target, tools: Toolchain) -> dict[str, list[int]]:
    """Kind of `CALLS` -> the target's numbers. Raises InfrastructureError when the target's compiler does not run."""
    lines = ["#include <sys/syscall.h>"]
    for kind, names in CALLS.items():
        lines.append(f'__attribute__((section("plumb.{kind}"), used)) static const int {kind}_numbers[] = {{')
        for name in names:
            lines += [f"#ifdef SYS_{name}", f"SYS_{name},", "#endif"]
        lines.append("};")
    numbers = compiled(
        cache,
        tools,
        title=f"the numbers of system calls of {target.name}",
        kind="call-numbers",
        owner=target.name,
        file="numbers.o",
        flags=[*toolchain.compiler_flags(target, "O1"), "-c"],
        generated={"numbers.c": "\n".join([*lines, ""])},
        where=FOLDER,
    )
    order: Literal["big", "little"] = "big" if target.endianness is Endianness.BIG else "little"
    found: dict[str, list[int]] = {}
    with numbers.open("rb") as stream:
        elf = ELFFile(stream)
        for kind in CALLS:
            section: Any = elf.get_section_by_name(f"plumb.{kind}")
            data = section.data()
            found[kind] = [int.from_bytes(data[at : at + 4], order) for at in range(0, len(data), 4)]
    return found


def counted(runner: Runner, counter: Path, numbers: dict[str, list[int]], arguments: Sequence[str]) -> Runner:
    """The runner with the counter loaded. `arguments`: its output (`InstructionCounts.arguments`)."""
    kinds = [f"{kind}={'+'.join(map(str, values))}" for kind, values in numbers.items()]
    guest = f"guest={GUEST_BASE:x}-{GUEST_BASE + GUEST_BYTES:x}"
    plugin = ",".join([str(counter), *arguments, *kinds, guest])
    # The emulator reserves the whole address space of a 32-bit guest by itself.
    reserved = ["-R", hex(GUEST_BYTES)] if runner.target.width_bits == 64 else []
    options = [*runner.options, "-B", hex(GUEST_BASE), *reserved, "-plugin", plugin]
    return msgspec.structs.replace(runner, options=options)
