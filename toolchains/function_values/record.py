# ruff: noqa: INP001 - gdb runs the file; it is in no package
"""Records the arguments and results of functions of a server under gdb, which harness/run/recorded_values.py starts.

gdb calls `record(PLAN)`. PLAN names the functions, the file to write, a function whose first call begins the recording,
and the function that carries out a command: some functions count only while it runs. After the plan's seconds the
server runs on without breakpoints, and the plan's file `cut` says so. Each line of the file is an entry
of a function or a return, with values under the source's names, and with a place. The place of an entry is the call,
and that of a return is the function's definition. Addresses are left out: instead of a pointer, the file contains the
data that it points to, if the debug information shows their length.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import gdb  # type: ignore[import-not-found, unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES = 64
"""How many bytes of data are recorded."""
SCALARS = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_CHAR)
SEEDED = ("dictSetHashFunctionSeed", "hashtableSetHashFunctionSeed")
"""Functions whose argument points to the random seed of a hash function, in redis and in valkey."""
SEED_BYTES = 16
PRINTABLE = re.compile(rb"[ -~]*")
"""The part of a text without a length that is compared."""
NO_CONTENT = b"SDS_NOINIT".hex()
"""The argument of sdsnewlen() for a string without initial content, instead of bytes of its length."""
LENGTH = re.compile(r"(?:.*(?:len|size|count|nbytes)|n|l)", re.IGNORECASE)
"""The name of an argument with the length of the data that the argument before it points to. Other names may end with
`l` or `n`, too: `lval` is a value.
"""


class Seed(gdb.Breakpoint):  # type: ignore[misc, unused-ignore]
    """Replaces the random seed of a hash function by zeros. Otherwise the order of a hash table differs between
    runs.
    """

    def __init__(self, function: str) -> None:
        super().__init__(f"*{function}", internal=True)

    def stop(self) -> bool:
        """Overwrite the seed, and let the server run on."""
        frame = gdb.newest_frame()
        for symbol in frame.block():
            if symbol.is_argument and _code(value := symbol.value(frame)) == gdb.TYPE_CODE_PTR:
                gdb.selected_inferior().write_memory(int(value), bytes(SEED_BYTES))
        return False


def record(plan: dict[str, Any]) -> None:
    """Run the server until it ends, and write the entries and returns of the functions."""
    gdb.execute("set pagination off")
    gdb.execute("handle all nostop noprint pass")
    gdb.execute("set print thread-events off")
    # Otherwise gdb would remove and insert hundreds of breakpoints at each stop.
    gdb.execute("set breakpoint always-inserted on")
    for name in SEEDED:
        with contextlib.suppress(gdb.error):
            Seed(name)
    trigger = gdb.Breakpoint("*" + plan["trigger"], internal=True)
    gdb.execute(plan["start"], to_string=True)
    trigger.delete()
    hits = []
    gdb.events.stop.connect(lambda event: hits.extend(getattr(event, "breakpoints", [])))
    # If two breakpoints have the same address, gdb reports the older one first.
    serving = Serving(_breakpoint(plan["command"], ""))
    functions = {}
    for name, file, always in plan["functions"]:
        point = _breakpoint(name, file)
        if point is not None:
            functions[point] = name
            if not always and name != plan["command"]:
                serving.limit(point)
    with Path(plan["output"]).open("w", encoding="utf-8", buffering=1) as out:
        _follow(functions, serving, plan, hits, out)


def _breakpoint(name: str, file: str) -> Any:
    """A breakpoint at the function's first instruction; None if the program has no such function."""
    try:
        return gdb.Breakpoint(f"*'{file}'::{name}" if file else f"*{name}", internal=True)
    except gdb.error:
        return None


class Serving:
    """Notices when the server carries out a command. Breakpoints that count only then are enabled only then, because
    each call that does not count would stop the server, too.
    """

    def __init__(self, begins: Any) -> None:
        self._begins = begins
        self._ends: dict[int, Any] = {}
        self._limited: list[Any] = []

    def limit(self, point: Any) -> None:
        """Enable a breakpoint only while the server carries out a command."""
        point.enabled = False
        self._limited.append(point)

    def drop(self, point: Any) -> None:
        """Disable a breakpoint from now on."""
        point.enabled = False
        if point in self._limited:
            self._limited.remove(point)

    def look(self, hits: list[Any]) -> None:
        """Notice the beginning or the end of a command at these breakpoints."""
        if any(point in hits for point in self._ends.values()):
            self._enable(False)
        elif self._begins is not None and self._begins in hits:
            self._enable(True)
            # gdb misses the end of a function that its caller jumps to, but not the return to the caller's caller.
            caller = gdb.newest_frame().older()
            while caller is not None and caller.type() == gdb.TAILCALL_FRAME:
                caller = caller.older()
            if caller is not None and caller.pc() not in self._ends:
                self._ends[caller.pc()] = gdb.Breakpoint(f"*{caller.pc()}", internal=True)

    def end(self) -> None:
        """Notice no more commands."""
        for point in (self._begins, *self._ends.values()):
            if point is not None:
                point.delete()

    def _enable(self, serves: bool) -> None:
        for point in self._limited:
            point.enabled = serves


def _follow(functions: dict[Any, str], serving: Serving, plan: dict[str, Any], hits: list[Any], out: TextIO) -> None:
    calls = dict.fromkeys(functions.values(), 0)
    active = {}
    ends = time.monotonic() + plan["seconds"]
    while any(thread.is_valid() for thread in gdb.selected_inferior().threads()):
        if time.monotonic() > ends:
            Path(plan["cut"]).touch()
            serving.end()
            for point in [*functions, *active]:
                if point.is_valid():
                    point.delete()
            gdb.execute("continue", to_string=True)
            return
        hits.clear()
        gdb.execute("continue", to_string=True)
        serving.look(hits)
        # A return comes before an entry at the same address.
        for point in [each for each in hits if each in active] + [each for each in hits if each in functions]:
            if point in active:
                if not point.is_reached():
                    continue
                name, call, pointed, defined, declared = active.pop(point)
                # gdb returns no value for a function without a result, and no name of its type: `sds` is `char *`.
                made = point.return_value
                result = [["result", *_value(made.cast(declared))]] if made is not None else []
                point.forget()
                out.write(json.dumps([name, call, "return", [*result, *pointed()], defined]) + "\n")
                continue
            name = functions[point]
            call, calls[name] = calls[name], calls[name] + 1
            if calls[name] >= plan["most"]:
                serving.drop(point)
            frame = gdb.newest_frame()
            values, pointed = _arguments(frame)
            out.write(json.dumps([name, call, "entry", values, _call_of(frame)]) + "\n")
            defined = _definition_of(frame)
            try:
                active[_return_of(frame)] = name, call, pointed, defined, _result_type(frame)
            except (ValueError, gdb.error):
                continue


def _call_of(frame: Any) -> tuple[str, str, int] | None:
    """The function that called this one, with the call's file and line; None without debug information."""
    try:
        caller = frame.older()
        line = caller.find_sal() if caller is not None else None
    except gdb.error:
        return None
    return (caller.name(), line.symtab.fullname(), line.line) if line is not None and line.symtab is not None else None


def _definition_of(frame: Any) -> tuple[str, str, int] | None:
    """The function with its file and line; None without debug information."""
    function = frame.function()
    return (function.name, function.symtab.fullname(), function.line) if function is not None else None


class Return(gdb.FinishBreakpoint):  # type: ignore[misc, unused-ignore]
    """The return from a function."""

    def is_reached(self) -> bool:
        """Whether the activation returns: gdb has checked the frame."""
        return True

    def forget(self) -> None:
        """Do nothing: gdb deletes the breakpoint."""


class WindowReturn(gdb.Breakpoint):  # type: ignore[misc, unused-ignore]
    """The return from a function on SPARC.

    gdb drops a FinishBreakpoint when it no longer finds the frame of the caller. That needs the registers of all
    callers, which QEMU keeps in register windows and not on the stack.
    """

    def __init__(self, frame: Any) -> None:
        super().__init__(f"*{frame.older().pc()}", internal=True)
        self._stack = _register("sp")
        self._declared = _result_type(frame)

    def is_reached(self) -> bool:
        """Whether this activation returns, and not another one of the same function: the caller's stack is the same."""
        return bool(_register("sp") == self._stack)

    @property
    def return_value(self) -> Any:
        """The function's result; None for a structure, a number with a fraction, or no result."""
        kind = self._declared.strip_typedefs() if self._declared is not None else None
        if (
            kind is None
            or kind.code not in (*SCALARS, gdb.TYPE_CODE_PTR)
            or kind.sizeof > gdb.lookup_type("long").sizeof
        ):
            return None
        return gdb.parse_and_eval("$o0").cast(self._declared)

    def forget(self) -> None:
        """Delete the breakpoint."""
        self.delete()


def _return_of(frame: Any) -> Any:
    """A breakpoint at the return from a frame."""
    return WindowReturn(frame) if frame.architecture().name().startswith("sparc") else Return(frame, internal=True)


def _register(name: str) -> int:
    return int(gdb.parse_and_eval(f"${name}"))


def _result_type(frame: Any) -> Any:
    """The declared type of a function's result; None without debug information."""
    function = frame.function()
    return function.type.target() if function is not None else None


def _arguments(frame: Any) -> tuple[list[Any], Callable[[], list[Any]]]:
    """The values of the arguments, and a function that reads the data again that they point to and that may have
    changed.
    """
    found, unreadable = [], []
    for symbol in frame.block():
        if symbol.is_argument:
            try:
                value = symbol.value(frame)
                value.fetch_lazy()
            except gdb.error:
                unreadable.append([symbol.name, "unreadable", 0, 0])
                continue
            found.append((symbol.name, value))
    lengths = {}
    for (name, _), (after, length) in pairwise(found):
        if _is_scalar(length) and LENGTH.fullmatch(after):
            lengths[name] = int(length)

    # A buffer may be longer than its content.
    buffers = {name: min(length, MOST_BYTES) for name, length in lengths.items()}
    outputs = {name: _value(value, buffers.get(name)) for name, value in found if _is_output(value)}

    def pointed() -> list[Any]:
        # Strings and objects are not read again: the function may have freed them.
        values = [
            (name, _written(outputs[name], _value(value, buffers.get(name))))
            for name, value in found
            if name in outputs
        ]
        return [[name, *value] for name, value in values if value[0] != "pointer"]

    # Data that a function only writes to may have any value at its entry.
    given = [
        ("pointer", "somewhere", 0) if _is_output(value) else _value(value, lengths.get(name)) for name, value in found
    ]
    values = [[name, *value] for (name, _), value in zip(found, given, strict=True)]
    return values + unreadable + ([["...", "variable", 0, 0]] if _is_variadic(frame) else []), pointed


def _is_variadic(frame: Any) -> bool:
    """Whether the function takes any number of arguments, of any type, which have no names."""
    written = str(frame.function().type) if frame.function() is not None else ""
    return "..." in written or "va_list" in written


def _written(before: tuple[str, int | str, int], now: tuple[str, int | str, int]) -> tuple[str, int | str, int]:
    """The data that a function wrote. Data that it left unchanged are left out, because they may have any value.

    Bytes that are all unchanged count as an input of the function.
    """
    kind, content, _ = now
    if before[0] != kind:
        return now
    if before == now:
        return ("pointer", "somewhere", 0) if kind == "number" else now
    if kind != "bytes":
        return now
    pairs = list(zip(bytes.fromhex(str(before[1])), bytes.fromhex(str(content)), strict=True))
    last = max(number for number, (old, new) in enumerate(pairs) if old != new)
    return kind, str(content)[: 2 * (last + 1)], last + 1


def _is_output(value: Any) -> bool:
    """Whether the function may write to a scalar, or to bytes, that an argument points to."""
    if _code(value) != gdb.TYPE_CODE_PTR or value.type.name == "sds":
        return False
    target = value.type.strip_typedefs().target()
    return not _is_constant(value) and target.strip_typedefs().code in (*SCALARS, gdb.TYPE_CODE_VOID)


def _is_constant(value: Any) -> bool:
    """Whether a pointer's data are `const`."""
    target = value.type.strip_typedefs().target()
    return str(target.unqualified()) != str(target)


def _code(value: Any) -> int:
    return value.type.strip_typedefs().code


def _is_scalar(value: Any) -> bool:
    return _code(value) in SCALARS


def _value(value: Any, length: int | None = None) -> tuple[str, int | str, int]:
    """Kind, value, and size in bytes, of data their number. Numbers do not depend on the machine's byte order."""
    try:
        if value is None:
            return "none", 0, 0
        if _is_scalar(value):
            return "number", int(value), value.type.sizeof
        if _code(value) == gdb.TYPE_CODE_FLT:
            return "number", repr(float(value)), value.type.sizeof
        if _code(value) == gdb.TYPE_CODE_PTR:
            return _pointed(value, length)
    except (gdb.error, OverflowError, ValueError):
        return "unreadable", 0, 0
    return "other", 0, 0


def _pointed(value: Any, length: int | None) -> tuple[str, int | str, int]:
    if int(value) == 0:
        return "pointer", "null", 0
    target = value.type.strip_typedefs().target().strip_typedefs()
    if value.type.name == "sds":
        return _memory(value, _sds_length(value))
    if target.code == gdb.TYPE_CODE_STRUCT and target.tag == "redisObject" and int(value["encoding"]) in (0, 8):
        text = value["ptr"].cast(gdb.lookup_type("char").pointer())
        return _memory(text, _sds_length(text))
    if target.code in SCALARS and target.sizeof > 1:
        return "number", int(value.cast(target.pointer()).dereference()), target.sizeof
    return _bytes_at(value, target, length)


def _bytes_at(value: Any, target: Any, length: int | None) -> tuple[str, int | str, int]:
    """The bytes at an address, if they have a length or are a text."""
    if length is not None and (target.code == gdb.TYPE_CODE_VOID or target.code in SCALARS):
        found = _memory(value, length)
        # The pointer stands for "no content": any data of the program may follow it.
        return ("pointer", "somewhere", 0) if found[1].startswith(NO_CONTENT) else found
    if str(target.unqualified()) == "char" and _is_constant(value):
        text = PRINTABLE.match(bytes(gdb.selected_inferior().read_memory(int(value), MOST_BYTES)))
        return "bytes", text[0].hex(), len(text[0])
    return "pointer", "somewhere", 0


def _sds_length(value: Any) -> int:
    """The length of a string according to the header before it (sds.h)."""
    octets = value.cast(gdb.lookup_type("unsigned char").pointer())
    kind = int(octets[-1]) & 7
    if kind == 0:
        return int(octets[-1]) >> 3
    size = 1 << (kind - 1)
    number = gdb.lookup_type({1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}[size])
    return int((octets - 1 - 2 * size).cast(number.pointer()).dereference())


def _memory(value: Any, length: int) -> tuple[str, str, int]:
    """Bytes, as hexadecimal digits, and their number. Of many bytes, the first and the last ones."""
    if length <= 0:
        return "bytes", "", 0
    read = gdb.selected_inferior().read_memory
    if length <= MOST_BYTES:
        return "bytes", bytes(read(int(value), length)).hex(), length
    half = MOST_BYTES // 2
    ends = bytes(read(int(value), half)) + bytes(read(int(value) + length - half, half))
    return "bytes", ends.hex(), length
