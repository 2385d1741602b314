"""The emulator's log of a guest's faults: its records, their counts, the ends of processes, and damage to the log.

toolchains/qemu/overlay/linux-user/plumbline.c writes it. On a real kernel, harness.run.vm.machine writes it from init's
messages. A judgement must respect `damage`: the cut or lost line may have been the decisive one.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from harness.core import json_codec
from harness.core.errors import ABSENT_FILE
from harness.core.model import Record
from harness.core.processes.process_tree import FAULTS
from harness.core.target_model import AccessClass  # noqa: TC001 - msgspec reads the annotations when it decodes

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

NAME = "faults.jsonl"
_LEDGER_BYTES = 16
_CUT_SHORT = b"-fault-log: a record was cut short"
_CRASHED = re.compile(rb"^QEMU internal SIG\w+", re.MULTILINE)


Hexadecimal = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{2})*\Z")]
"""Bytes, as digits."""


class MapRecord(Record, frozen=True):
    """A file-backed mapping of the guest."""

    start: int
    end: int
    offset: int
    path: str


class Fault(Record, frozen=True):
    """One line of the emulator's fault log, written by toolchains/qemu/overlay/linux-user/plumbline.c.

    On a real kernel, toolchains/kernels/init/trace.c writes it from the kernel's reports to a tracer.
    """

    event: Literal["fault", "access", "last"]
    """A signal about to be delivered, or (policy audit) the first occurrence of a permitted misaligned access.

    last: where a process was when it exited with a status other than 0, which is the code, or received the signal
    that kills it, if no instruction raised that (`-log-ends`, below a command).
    """
    pid: int
    tid: int
    signal: int
    """The host's signal number; 0 for an access."""
    code: int
    address: int
    access: Literal["load", "store", ""]
    handled: bool
    """Whether the program had installed a handler."""
    pc: int
    instruction: Hexadecimal
    registers: list[Hexadecimal]
    """Values in the order of QEMU's gdb stub, each in the guest's byte order; empty for a number without a register."""
    stack_address: int
    stack: Hexadecimal
    maps: list[MapRecord]
    access_class: AccessClass | Literal[""] = ""
    access_bytes: int = 0
    """The size of the unit whose alignment counts; 0 unless a misaligned access caused the signal."""
    access_hint: int = 0
    """The alignment that the instruction itself requires, if that is more than `access_bytes`; otherwise 0."""
    session: int = 0
    """In the kernel tier: the program that the harness started. The process may be its child or thread."""
    call: str = ""
    """The system call at which the environment's filter killed the process; also empty if its number is unknown."""
    call_number: int = -1
    """Its number in the guest's architecture; -1 unless a system call caused the signal."""
    misaligned_address: int = -1
    """The misaligned address that a real kernel's siginfo omits, from the processor's registers; -1 if siginfo has it,
    or if there was none.
    """
    kernel_log: tuple[str, ...] = ()
    """A real kernel's log lines on the fault; empty unless its alignment mode warns."""


BUS_ADRALN = 1
"""si_code of SIGBUS for a misaligned address (Linux, asm-generic/siginfo.h)."""


class Count(Record, frozen=True):
    """How often an instruction has done something so far, in one process."""

    event: Literal["count", "repeat"]
    """count: it made a reported access. repeat: it raised more signals than the log records in full."""
    pid: int
    pc: int
    count: int


class ProcessEnd(Record, frozen=True):
    """How a process of the guest ended."""

    event: Literal["end"]
    pid: int
    signal: int
    """The host's number of the fatal signal; 0 if the process exited."""
    status: int
    """Exit status, if the process exited."""


class Overtake(Record, frozen=True):
    """Two stores that another thread saw in the wrong order (`--memory-order weak`).

    The `early` one was in memory before the older `late` one of its thread. The other thread read the place of the
    first, and then the old value at that of the second.
    """

    event: Literal["overtake"]
    pid: int
    tid: int
    """The thread that read."""
    pc: int
    """Its load of the late store's place."""
    early: int
    """The program counter of a store."""
    late: int
    early_place: int
    """Its address."""
    late_place: int
    maps: list[MapRecord]


class MissedStore(Record, frozen=True):
    """A load that returned the value from before a store of another thread, as if it had been executed early
    (`--memory-order weak`).
    """

    event: Literal["missed"]
    pid: int
    tid: int
    """The thread that loaded."""
    pc: int
    """Its load."""
    store: int
    """The program counter of the store."""
    place: int
    """The address."""
    maps: list[MapRecord]


class StoreCounts(Record, frozen=True):
    """What the stores of a process's threads have done so far (`--memory-order weak`)."""

    event: Literal["order"]
    pid: int
    stores: int
    """Those that waited before they went to memory."""
    overtakes: int
    """Those of them that did so before an older one."""
    pauses: int
    """How often the emulator held a thread in between."""


class LackingCall(Record, frozen=True):
    """A system call that a program asked for and that the emulator lacks (`-log-ends`): it failed with ENOSYS.

    That of the C library for its own restartable sequences, rseq(2), is not among them: it does without.
    """

    event: Literal["lacking"]
    pid: int
    call: Annotated[str, msgspec.Meta(pattern=r"^\w+\Z")]
    """Its name: `get_mempolicy`."""


class FaultLog(Record, frozen=True):
    """The content of a guest's fault log."""

    faults: list[Fault]
    counts: dict[tuple[int, int], int]
    """(Process, program counter) -> how often its access was reported, or its signal raised. The emulator writes a
    count when it doubles and when the process ends, so up to half may be missing for a killed process."""
    ends: dict[int, ProcessEnd]
    """Process -> how it ended. Killed processes are absent. On a real kernel, only processes that a signal ended are
    present.
    """
    damage: list[str]
    """Human-readable losses; empty if the log has every line that the emulator began."""
    overtakes: list[Overtake] = msgspec.field(default_factory=list)
    """In the order in which they were seen; each set of three instructions once in a process."""
    missed: list[MissedStore] = msgspec.field(default_factory=list)
    """In the order in which they were missed; each pair of instructions once in a process."""
    lasts: dict[int, Fault] = msgspec.field(default_factory=dict)
    """Process -> where it was when it failed without a fault."""
    stores: dict[int, StoreCounts] = msgspec.field(default_factory=dict)
    """Process -> its counts. The emulator writes them when the first has doubled, so up to half may be missing."""
    lacking: list[str] = msgspec.field(default_factory=list)
    """The names of the system calls that the emulator lacks, in the order in which they were asked for."""

    def unrecorded_crashes(self, servers: Collection[int]) -> list[ProcessEnd]:
        """The ends of processes other than the `servers` that crashed without a record of a fault, as by abort()."""
        known = {*servers, *(fault.pid for fault in self.faults if fault.event == "fault")}
        return [end for end in self.ends.values() if end.signal in CRASHES and end.pid not in known]


CRASHES = FAULTS
"""Signals of a crash. A server never sends them to its own children, which it ends with SIGTERM and SIGUSR1."""


def signal_name(number: int) -> str:
    """The name of a recorded signal: `SIGBUS`, or `signal 40` if it has none, as a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ledger_of(log: Path) -> Path:
    """The file beside a log in which the emulator counts the lines that it begins and those that it has written."""
    return log.with_name(f"{log.name}.counts")


def open_ledger(log: Path) -> None:
    """Create the ledger in which the emulator counts its lines. Must be called before the emulator starts.

    Allocates real blocks: on a full disk, the emulator could not fill a hole in a mapped file.
    """
    ledger_of(log).write_bytes(bytes(_LEDGER_BYTES))


def read(log: Path) -> FaultLog:
    """Everything in a log. A missing log counts as empty, since a guest without faults writes none."""
    records: list[_Line] = []
    counts: dict[tuple[int, int], int] = {}
    lines, damage = _lines(log)
    for number, line in enumerate(lines, 1):
        record, whole = _record(line)
        if not whole:
            damage.append(f"line {number} of {log.name} is damaged")
        if isinstance(record, Count):
            key = (record.pid, record.pc)
            counts[key] = max(record.count, counts.get(key, 0))
        elif record is not None:
            records.append(record)
    damage += _missing(log, len(lines))
    faults = [one for one in records if isinstance(one, Fault)]
    return FaultLog(
        faults=[one for one in faults if one.event != "last"],
        counts=counts,
        ends={one.pid: one for one in records if isinstance(one, ProcessEnd)},
        damage=damage,
        overtakes=[one for one in records if isinstance(one, Overtake)],
        missed=[one for one in records if isinstance(one, MissedStore)],
        lasts={one.pid: one for one in faults if one.event == "last"},
        stores={one.pid: one for one in records if isinstance(one, StoreCounts)},
        lacking=list(dict.fromkeys(one.call for one in records if isinstance(one, LackingCall))),
    )


def read_faults(log: Path) -> list[Fault]:
    """Only the faults and reported accesses, in the order in which they were written."""
    return read(log).faults


def count_faults(log: Path) -> int:
    """How many faults and reported accesses a log has so far. It must be cheap: every test calls it."""
    return sum(line.startswith(_FAULT) for line in _lines(log)[0])


def signals_of(log: Path, pid: int) -> set[int]:
    """The signals that instructions of a process raised."""
    return {fault.signal for fault in read_faults(log) if fault.event == "fault" and fault.pid == pid}


def crashed_processes(log: Path) -> set[int]:
    """The processes that a log says a crash ended."""
    return {end.pid for end in read(log).ends.values() if end.signal in CRASHES}


def count_faults_in(content: bytes) -> int:
    """The number of faults and reported accesses in the first part of a log."""
    return sum(line.startswith(_FAULT) for line in content.split(b"\n"))


def end_in(content: bytes, pid: int) -> tuple[ProcessEnd | None, int]:
    """A process' end in a log and its offset there; None, and the log's length, for a process that left no end."""
    found, at = None, len(content)
    offset = 0
    for line in content.split(b"\n"):
        if line.startswith(b'{"event":"end"'):
            record, _ = _record(line)
            if isinstance(record, ProcessEnd) and record.pid == pid:
                found, at = record, offset
        offset += len(line) + 1
    return found, at


def lost_record(log: bytes) -> str:
    """What the emulator says in a guest's log of a record that it could not write; empty if it says nothing."""
    return "its emulator could not write a record of a fault" if _CUT_SHORT in log else ""


def emulator_trouble(log: bytes) -> str:
    """The emulator's own error in a guest's log, to which the emulator also writes; empty if there is none."""
    if lost := lost_record(log):
        return lost
    crash = _CRASHED.search(log)
    return f"its emulator crashed: {crash[0].decode()}" if crash else ""


def is_misaligned(fault: Fault) -> bool:
    """Whether a record shows a misaligned access: a reported one, or one that raised a signal.

    On z/Architecture the signal is SIGILL, and only the emulator's record of the access identifies this cause. Where
    a real kernel's siginfo does not, as on z/Architecture and MIPS, the processor's registers do.
    """
    if fault.event == "access" or fault.misaligned_address >= 0:
        return True
    if fault.signal == signal.SIGILL:
        return bool(fault.access_class)
    return fault.signal == signal.SIGBUS and fault.code == BUS_ADRALN


_FAULT = (b'{"event":"fault"', b'{"event":"access"')
_Line = Fault | Count | ProcessEnd | Overtake | MissedStore | StoreCounts | LackingCall
_KINDS: dict[bytes, type[_Line]] = {
    b"fault": Fault,
    b"access": Fault,
    b"last": Fault,
    b"count": Count,
    b"repeat": Count,
    b"end": ProcessEnd,
    b"overtake": Overtake,
    b"missed": MissedStore,
    b"order": StoreCounts,
    b"lacking": LackingCall,
}
_HEAD = re.compile(rb'\{"event":"(\w+)"')
# It begins with a literal, which Python's `re` then looks for 25 times as fast as for a choice of beginnings.
_ESCAPES = re.compile(rb"\\(?:[0-7]{3}(?:\\[0-7]{3})*|\\012|.)", re.DOTALL)
_JSON_OF = {rb"\v": rb"\u000b", rb"\\012": rb"\n"}


def _lines(log: Path) -> tuple[list[bytes], list[str]]:
    try:
        content = log.read_bytes()
    except ABSENT_FILE:
        return [], []
    *lines, rest = content.split(b"\n")
    return lines, [f"{log.name} ends in the middle of a line"] if rest else []


def _record(line: bytes) -> tuple[_Line | None, bool]:
    """The record on a line, and whether the line is undamaged. A complete record may follow a cut one on a line."""
    heads = list(_HEAD.finditer(line))
    kind = _KINDS.get(heads[-1][1]) if heads else None
    if kind is None:
        return None, False
    # No record contains another, so only the last one can be complete.
    begin = heads[-1].start()
    try:
        return json_codec.decode(_as_json(line[begin:]), kind), begin == 0
    except msgspec.DecodeError:
        return None, False


def _as_json(record: bytes) -> bytes:
    r"""A record with escapes that JSON has. In paths the emulator writes those of C: `\v`, and `\303` for a byte.

    The kernel, whose paths these are, writes `\012` for a newline (proc(5), /proc/PID/maps).
    """
    return _ESCAPES.sub(lambda found: _JSON_OF.get(found[0]) or _text_of(found[0]), record)


def _text_of(escapes: bytes) -> bytes:
    """The JSON form of bytes in octal, or of an escape that JSON also has."""
    if not escapes[1:2].isdigit():
        return escapes
    text = bytes(int(one, 8) & 0xFF for one in escapes.split(b"\\")[1:]).decode("utf-8", "backslashreplace")
    return json_codec.encode(text)[1:-1]


def _missing(log: Path, lines: int) -> list[str]:
    ledger = ledger_of(log)
    if not ledger.is_file():
        return []
    content = ledger.read_bytes()
    if len(content) < _LEDGER_BYTES:
        return [f"{ledger.name} is damaged"]
    begun, written = (int.from_bytes(content[at : at + 8], "little") for at in (0, 8))
    if begun == written == lines:
        return []
    return [f"{log.name} has {lines} lines, of {begun} that the emulator began and {written} that it wrote"]
