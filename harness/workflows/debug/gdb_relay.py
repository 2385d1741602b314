"""Writes gdb's commands for a guest, and relays the connection between gdb and the emulator's stub.

The stub of user-mode QEMU listens to gdb only while the guest is stopped (10.0: gdbstub/user.c), so that Ctrl-C would
have no effect. gdb sends it as one byte, 0x03, outside of any packet (GDB manual, "Interrupts"). The relay recognises
the byte and has SIGINT sent to the guest, which the stub reports like any other signal.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import threading
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from harness.analysis.symbols import tree_in
from harness.core.sockets import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.core.model import SourceTree
    from harness.run.server_process import Guest

FIRST_STOP = "main"
RELAY = "gdb"
"""The socket that gdb connects to, in the folder above the guest's."""
INTERRUPT = 0x03
_BYTES = 65536


class Interrupts:
    """Finds gdb's interrupts among the bytes of a connection."""

    def __init__(self) -> None:
        self._in_packet = False
        self._checksum_bytes = 0

    def split(self, content: bytes) -> tuple[bytes, int]:
        """The same bytes without interrupts, and how many there were."""
        kept = bytearray()
        for byte in content:
            if self._checksum_bytes:
                self._checksum_bytes -= 1
            elif self._in_packet:
                if byte == ord("#"):
                    # Inside a packet, # always ends the data: binary data escape it.
                    self._in_packet, self._checksum_bytes = False, 2
            elif byte == INTERRUPT:
                continue
            elif byte == ord("$"):
                self._in_packet = True
            kept.append(byte)
        return bytes(kept), len(content) - len(kept)


class Relay:
    """Connects gdb, which connects to `path`, with the stub that listens at `stub`, until it is closed."""

    def __init__(self, path: Path, stub: Path, interrupt: Callable[[], None]) -> None:
        self._stub = stub
        self._interrupt = interrupt
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop listening and close both connections."""
        for each in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            debugger, _ = self._listener.accept()
            self._open.append(debugger)
            stub = connect(self._stub)
            self._open.append(stub)
            threading.Thread(target=self._from_stub, args=(stub, debugger), daemon=True).start()
            interrupts = Interrupts()
            while content := debugger.recv(_BYTES):
                kept, number = interrupts.split(content)
                stub.sendall(kept)
                if number:
                    self._interrupt()
        self.close()

    def _from_stub(self, stub: socket.socket, debugger: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := stub.recv(_BYTES):
                debugger.sendall(content)
        self.close()


def remote_script(guest: Guest, tree: SourceTree, sysroot: Path, *, running: bool) -> str:
    """Commands for gdb on a guest under the emulator, which stops in main unless it is `running`."""
    connect = f"target remote {guest.folder.parent / RELAY}"
    return _script([*_about(guest, tree), f"set sysroot {sysroot}", connect, *_first_stop(running=running), "continue"])


def native_script(guest: Guest, tree: SourceTree, *, running: bool) -> str:
    """Commands for gdb on a server that gdb itself starts, with its output in the guest's log."""
    preload = guest.build.preload
    preparing = [f"set exec-wrapper env LD_PRELOAD={preload}"] if preload else []
    preparing += [f"set args {shlex.join(guest.arguments())} > {guest.evidence.log} 2>&1", f"set cwd {guest.folder}"]
    return _script([*_about(guest, tree), *preparing, *_first_stop(running=running), "run"])


def _first_stop(*, running: bool) -> list[str]:
    return [] if running else [f"tbreak {FIRST_STOP}"]


def _script(commands: Sequence[str]) -> str:
    return "\n".join(commands) + "\n"


def _about(guest: Guest, tree: SourceTree) -> list[str]:
    binary = guest.build.server_binary
    # gdb does not ask about a program that is still running: the program ends with the shell.
    moved = [f"set substitute-path {folder} {tree.path}" for folder in compiled_in_folders(binary)]
    return ["set confirm off", f"file {binary}", *moved, f"directory {tree.path / 'src'}"]


def compiled_in_folders(binary: Path) -> list[str]:
    """The folders in which the parts of a binary were compiled, from its debug information; empty if it has none."""
    found: dict[str, None] = {}
    with binary.open("rb") as stream, contextlib.suppress(ELFError):
        elf = ELFFile(stream)
        if not elf.has_dwarf_info():
            return []
        for unit in elf.get_dwarf_info().iter_CUs():
            folder = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
            place = tree_in(folder.value.decode("utf-8", "replace")) if folder else ""
            if place:
                found[place] = None
    return list(found)
