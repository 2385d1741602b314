"""What gdb is told of a guest, and the way between it and the emulator's stub.

The stub of user-mode QEMU listens to gdb only while the guest is stopped (10.0: gdbstub/user.c), so that Ctrl-C would
do nothing. It sends one byte, 0x03, outside of any packet (GDB manual, "Interrupts"); the relay in between sees it, and
has the guest sent SIGINT, which the stub reports as it does any signal.
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
"""Where, in the folder that holds the guest's, gdb connects to."""
INTERRUPT = 0x03
_BYTES = 65536


class Interrupts:
    """Finds what gdb sends to interrupt among the bytes of a connection."""

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
                    # In a packet it stands for nothing else: binary data escape it.
                    self._in_packet, self._checksum_bytes = False, 2
            elif byte == INTERRUPT:
                continue
            elif byte == ord("$"):
                self._in_packet = True
            kept.append(byte)
        return bytes(kept), len(content) - len(kept)


class Relay:
    """Between gdb, which connects to `path`, and the stub that listens at `stub`; until it is closed."""

    def __init__(self, path: Path, stub: Path, interrupt: Callable[[], None]) -> None:
        self._stub = stub
        self._interrupt = interrupt
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """End it, and both connections."""
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

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
    """The commands for gdb of a guest under the emulator, stopped in main, or let run."""
    connect = f"target remote {guest.folder.parent / RELAY}"
    return _script([*_about(guest, tree), f"set sysroot {sysroot}", connect, *_first_stop(running=running), "continue"])


def native_script(guest: Guest, tree: SourceTree, *, running: bool) -> str:
    """The same for a server that gdb itself starts; what it says goes to the guest's log."""
    preload = guest.build.preload
    preparing = [f"set exec-wrapper env LD_PRELOAD={preload}"] if preload else []
    preparing += [f"set args {shlex.join(guest.arguments())} > {guest.log} 2>&1", f"set cwd {guest.folder}"]
    return _script([*_about(guest, tree), *preparing, *_first_stop(running=running), "run"])


def _first_stop(*, running: bool) -> list[str]:
    return [] if running else [f"tbreak {FIRST_STOP}"]


def _script(commands: Sequence[str]) -> str:
    return "\n".join(commands) + "\n"


def _about(guest: Guest, tree: SourceTree) -> list[str]:
    binary = guest.build.server_binary
    # Without the questions of what to do with a program that is still there: it goes with the shell.
    moved = [f"set substitute-path {folder} {tree.path}" for folder in compiled_in_folders(binary)]
    return ["set confirm off", f"file {binary}", *moved, f"directory {tree.path / 'src'}"]


def compiled_in_folders(binary: Path) -> list[str]:
    """Where the tree lay when a binary's parts were compiled, by its debug information; none where it has none."""
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
