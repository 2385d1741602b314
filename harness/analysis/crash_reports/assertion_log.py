"""Reads the message of an assertion or a panic, which ends a server with SIGABRT and leaves no fault record, and sees
whether a server reports its crash: in its log, or on a stack.

Messages have two sources: the C library's assert() (glibc, assert/assert.c) and the servers' own (src/debug.c).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from harness.core.finding import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

_MESSAGE = re.compile(
    rb"^\S+: (?P<file>\S+):(?P<line>\d+): (?P<function>\w+): Assertion `.*' failed\.$"
    rb"|==> (?P<own_file>[^\s:]+):(?P<own_line>\d+) '.*' is not true$"
    rb"|Guru Meditation: .* #(?P<panic_file>[^\s:]+):(?P<panic_line>\d+)$",
    re.MULTILINE,
)

UNKNOWN = "??"
"""The function of a message that names only file and line."""


def asserted(log: bytes) -> Frame | None:
    """The place of the last failed assertion in a server's log; None if none failed.

    The file has the name passed to the compiler, usually without its folder, so the origin is unknown. Only the C
    library names the function; harness.analysis.symbols finds it from the line.
    """
    messages = list(_MESSAGE.finditer(log))
    if not messages:
        return None
    parts = {
        name.rpartition("_")[2]: text.decode("utf-8", "replace")
        for name, text in messages[-1].groupdict(b"").items()
        if text
    }
    return Frame(
        function=parts.get("function", UNKNOWN), file=parts["file"], line=int(parts["line"]), origin="unknown", pc=0
    )


class CrashReport(NamedTuple):
    """What a server's log says of its crash."""

    offset: int
    """Where the report begins."""
    signal: int
    """The signal that the server names; 0 for a failed assertion that names none."""
    code: int | None = None
    """The signal's si_code, which servers name since 6.2."""
    address: int | None = None
    """The address that was accessed, if the server names one."""


class FaultPlace(NamedTuple):
    """The instruction that a crash report names, in the program itself."""

    function: str
    """Empty for a static function, of which glibc knows no name (backtrace_symbols(3))."""
    offset: int
    """Past the function's beginning, or without a name past the program's."""
    address: int
    """Where the process had it in its memory."""


def fault_place(log: bytes) -> FaultPlace | None:
    """Where a server that reports its crash says that it died; None if it does not say, or died in a library."""
    found = _FAULT_PLACE.search(log)
    if found is None:
        return None
    return FaultPlace(found["function"].decode("utf-8", "replace"), int(found["offset"], 16), int(found["address"], 16))


_FAULT_PLACE = re.compile(
    rb"^EIP:\n(?:(?!\.so\b)[^\n(])*\((?P<function>\w*)\+0x(?P<offset>[0-9a-f]+)\)\[0x(?P<address>[0-9a-f]+)\]",
    re.MULTILINE,
)


def unnamed_addresses(log: bytes) -> list[int]:
    """The addresses of the stack in a crash report at which glibc names no function: those of static functions, in the
    program itself and relative to its start (backtrace_symbols(3)).
    """
    # The report begins with the instruction at fault. All others are where calls return to, behind the call.
    return [int(one["offset"], 16) - (not one["fault"]) for one in _UNNAMED.finditer(log)]


_UNNAMED = re.compile(
    rb"^(?P<fault>EIP:\n)?(?:(?!\.so\b)[^\n(])*\(\+0x(?P<offset>[0-9a-f]+)\)\[0x[0-9a-f]+\]", re.MULTILINE
)


def reports_crash(log: bytes, pid: int) -> bool:
    """Whether the process with this number says in the log that it crashed, or that an assertion of it failed.

    A server logs its number before each message: `1234:M`, and before Redis 3.0 `[1234]` (src/server.c, serverLogRaw).
    Its children write to the same log.
    """
    return next(_crash_lines(log, pid), None) is not None


def crash_report(log: bytes, pid: int) -> CrashReport | None:
    """The report of the process with this number; None if there is none."""
    lines = list(_crash_lines(log, pid))
    if not lines:
        return None
    named = [line for line in lines if line["signal"]]
    number, code = (int(named[0]["signal"]), named[0]["code"]) if named else (0, None)
    accessed = re.search(_ACCESSED % (pid, pid), log[lines[0].start() :], re.MULTILINE)
    address = int(accessed["address"] or b"0", 16) if accessed else None
    return CrashReport(lines[0].start(), number, int(code) if code else None, address)


def reports_sent_signal(log: bytes, pid: int) -> bool:
    """Whether the process with this number says that it crashed by a signal which a process sent with kill(2).

    Since 6.2 a report names the signal's si_code, which is then 0 (SI_USER).
    """
    return any(line["code"] == b"0" for line in _crash_lines(log, pid))


def raised_its_signal(log: bytes, pid: int) -> bool:
    """Whether the process with this number says that it crashed by a signal which no other process sent: by an
    instruction, whose si_code is above 0, or by abort(), whose si_code is SI_TKILL.
    """
    return any(int(line["code"] or 0) != 0 for line in _crash_lines(log, pid))


def _crash_lines(log: bytes, pid: int) -> Iterator[re.Match[bytes]]:
    return re.finditer(rb"^(?:%d:\w|\[%d\]) [^#\n]*# (?:%s)" % (pid, pid, _CRASHES), log, re.MULTILINE)


def child_crashes(log: bytes, pid: int) -> set[tuple[int, int]]:
    """The children of the server with this number that died of a signal, according to its log: a child's number, or 0
    if the server does not name it, and the signal, or 0 for a failed assertion that names none.

    A child tells of its own crash, with its number and a C (src/server.c, serverLogRaw), as only the first lines of a
    server have besides. The server tells which signal ended a child (backgroundSaveDoneHandler in src/rdb.c, and its
    like in src/aof.c and src/module.c).
    """
    own = ((int(line["pid"]), int(line["signal"] or 0)) for line in _CHILD_CRASH.finditer(log))
    ends = re.finditer(rb"^(?:%d:\w|\[%d\]) [^#*\n]*[#*] (?:%s)" % (pid, pid, _CHILD_END), log, re.MULTILINE)
    told = ((int(line["pid"] or 0), int(line["saving"] or line["fork"])) for line in ends)
    return {(child, number) for child, number in (*own, *told) if child != pid}


_CHILD_END = (
    rb"Background [A-Za-z ]+ terminated by signal (?P<saving>\d+)$"
    rb"|Module fork exited pid: (?P<pid>\d+), retcode: -?\d+, bysignal: (?P<fork>\d+)$"
)
_CRASHES = (
    rb"\s*\S+ \S+ crashed by signal: (?P<signal>\d*)(?:, si_code: (?P<code>-?\d+)$)?"
    rb"|=== (?:RECURSIVE )?ASSERTION FAILED ===|(?:==> )?Guru Meditation: "
)
"""What only a server says that is about to end (src/debug.c)."""
_ACCESSED = rb"^(?:%d:\w|\[%d\]) [^#\n]*#\s*Accessing address: (?:0x(?P<address>[0-9a-f]+)|\(nil\))$"
"""printf's %%p, as glibc writes it (src/debug.c, sigsegvHandler)."""
_CHILD_CRASH = re.compile(rb"^(?P<pid>\d+):C [^#\n]*# (?:%s)" % _CRASHES, re.MULTILINE)


def asserting_frames(frames: list[Frame], *, dies_there: bool) -> list[Frame]:
    """The stack from the asserting function outwards; empty if no assertion failed.

    `dies_there`: a stack counts only if it ends in the assertion itself, which old releases end with a store to an
    impossible address; a stack that ends deeper, in the report, is a separate fault. A self-test's assertion, in
    contrast, dies in the server's logging, which is not set up yet.
    """
    innermost = frames[:1] if dies_there else frames
    if not any(frame.function in _ASSERTIONS for frame in innermost):
        return []
    last = max(number for number, frame in enumerate(frames) if frame.function in _ASSERTIONS)
    return frames[last + 1 :]


_ASSERTIONS = {
    f"_{family}{how}"
    for family in ("server", "redis")
    for how in ("Assert", "AssertWithInfo", "AssertPrintClientInfo", "AssertPrintObject", "Panic")
}


def is_in_report(frames: list[Frame]) -> bool:
    """Whether the stack of a server is that of its crash report: of the memory test, or below a failed assertion.

    The memory test runs only there. It may have overwritten the stack above it, so its own function suffices: it notes
    more mappings than it has room for, and the guard allocator makes many.
    """
    return any(frame.function in _MEMORY_TEST for frame in frames) or any(
        frame.function in _ASSERTIONS for frame in frames[1:]
    )


_MEMORY_TEST = {"memtest_preserving_test", "memtest_test_linux_anonymous_maps", "doFastMemoryTest"}
