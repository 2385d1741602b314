"""What sanitizers and Valgrind say on standard error → reports; and what makes them say it.

The reader is pure: text goes in, it starts nothing and opens no file.

It refuses to guess: an unknown message is a report all the same, of kind `…-other`, and a stack that the detector did
not print is one frame `??`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from harness.model import Detector, Frame, Noun
from harness.symbols import place_in_object, place_in_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENVIRONMENTS: dict[Detector, dict[str, str]] = {
    "": {},
    "ubsan": {},
    # Too large an allocation fails as it does in libc, and leaks are the business of no suite here.
    "asan": {"ASAN_OPTIONS": "halt_on_error=0:detect_leaks=0:allocator_may_return_null=1"},
    "valgrind": {},
}
"""What a program needs in its environment to report and go on: sanitizers' common flags (LLVM, sanitizer_flags.inc)."""

PRELUDES: dict[Detector, str] = {
    "": "",
    # GCC's library reads UBSAN_OPTIONS from /proc/self/environ at the first report, and by then a server has written
    # its process title over it. It asks this function as well (LLVM, ubsan_flags.cpp).
    "ubsan": """\
#ifndef __ASSEMBLER__
#ifdef __cplusplus
extern "C"
#endif
__attribute__((weak, visibility("default"))) const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "print_stacktrace=1:halt_on_error=0"; }
#endif
""",
    "asan": "",
    "valgrind": "",
}
"""C text that precedes every file compiled for a target."""

PREFIXES: dict[Detector, list[str]] = {
    "": [],
    "ubsan": [],
    "asan": [],
    "valgrind": [
        "valgrind",
        "--tool=memcheck",
        # Errors alone: the banner would be taken for the output of a program whose output is read.
        "--quiet",
        "--leak-check=no",
        "--error-exitcode=0",
        # Every error of every place, or silence would mean nothing after the thousandth.
        "--error-limit=no",
        "--num-callers=24",
        # Whole paths: a file is told by its place in the server's tree.
        "--fullpath-after=",
        # Its debugger's pipes in /tmp would outlive a guest that is killed.
        "--vgdb=no",
    ],
}
"""What a native program's command line begins with (Valgrind manual, Core options)."""


def write_prelude(detector: Detector, folder: Path) -> list[str]:
    """Write a detector's prelude, if it has one, into a folder; returns the flags that have compilers read it first."""
    if not PRELUDES[detector]:
        return []
    path = folder / "detector.h"
    path.write_text(PRELUDES[detector], "utf-8")
    return ["-include", str(path)]


class Report(Noun, frozen=True):
    """One error as a detector reports it. The same place is reported once a process, however often it errs."""

    detector: Detector
    kind: str
    """`alignment`; `undefined-` and GCC's -fsanitize= name; `asan-`, `memcheck-` and the tool's own name."""
    message: str
    """What the detector says, without addresses and process numbers."""
    direction: Literal["load", "store", ""]
    size_bytes: int
    """Of the access; 0 where it is not told."""
    alignment_bytes: int
    """Demanded; 0 where the error is another one."""
    modulo: int
    """The address modulo the alignment demanded."""
    type: str
    """The C type of the object, as the compiler writes it; empty where it is not told."""
    column: int
    """Of the line of the innermost frame; 0 where it is not told."""
    through: str
    """The library function in which it happened, where the frames begin with its caller in the server."""
    frames: list[Frame]
    """Innermost first, at least one. They begin in the server's own code if any of them is in it."""
    fatal: bool
    """The process ends of it."""
    offset: int
    """Where the report begins in the text, in bytes."""

    @property
    def access(self) -> str:
        """The misaligned access in a phrase, or what the detector says."""
        if self.kind != "alignment":
            return self.message
        what = f"{self.direction} of" if self.direction else "member access in"
        return f"{what} {self.type} at {self.modulo} mod {self.alignment_bytes}, column {self.column}"

    @property
    def identity(self) -> str:
        """What findings are told apart by; the same as a trapped access' for a misaligned load or store."""
        return "-".join(part for part in (self.kind, self.frames[0].function, self.direction) if part)


class _Line(Noun, frozen=True):
    text: str
    offset: int


def reports(log: bytes, detector: Detector) -> list[Report]:
    """Every report in a guest's log, in order. Lines of the server and of other processes in between do no harm."""
    parsers: dict[Detector, Callable[[list[_Line]], Iterator[Report]]] = {
        "ubsan": _ubsan,
        "asan": _asan,
        "valgrind": _valgrind,
    }
    return list(parsers[detector](_lines(log))) if detector else []


def _lines(log: bytes) -> list[_Line]:
    found, offset = [], 0
    for line in log.split(b"\n"):
        found.append(_Line(text=line.decode("utf-8", "replace").rstrip("\r"), offset=offset))
        offset += len(line) + 1
    return found


# The undefined behaviour sanitizer: a line `FILE:LINE:COLUMN: runtime error: …`, three lines that show the memory where
# it has an address, then with print_stacktrace=1 the stack, then an empty line.

_UBSAN = re.compile(r"(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): runtime error: (?P<message>.+)")
_MISALIGNED = re.compile(
    r"(load of|store to|member access within|.+?) misaligned address 0x(?P<address>[0-9a-f]+)"
    r" for type (?P<type>.+), which requires (?P<alignment>\d+) byte alignment"
)
# What a message begins with or holds -> GCC's name of the check (GCC manual, Instrumentation Options).
_CHECKS = [
    (r"shift exponent|left shift of", "shift"),
    (r"signed integer overflow|negation of", "signed-integer-overflow"),
    (r"division by zero", "integer-divide-by-zero"),
    (r"division of .* cannot be represented", "signed-integer-overflow"),
    (r"index .* out of bounds", "bounds"),
    (r"insufficient space for an object", "object-size"),
    (r"null pointer of type", "null"),
    (r"null pointer passed as argument", "nonnull-attribute"),
    (r"null pointer returned", "returns-nonnull-attribute"),
    (r"pointer index expression|applying (non-)?zero offset", "pointer-overflow"),
    (r"not a valid value for type '_?[Bb]ool'", "bool"),
    (r"not a valid value for type", "enum"),
    (r"outside the range of representable values", "float-cast-overflow"),
    (r"variable length array bound", "vla-bound"),
    (r"unreachable program point|__builtin_unreachable", "unreachable"),
    (r"without returning a value", "return"),
    (r"passing zero to", "builtin"),
]
_STACK_WITHIN_LINES = 12
"""A stack's next line is looked for so far: what other processes write meanwhile comes between."""


def _ubsan(lines: list[_Line]) -> Iterator[Report]:
    for number, line in enumerate(lines):
        head = _UBSAN.fullmatch(line.text)
        if head is None:
            continue
        message = head["message"]
        misaligned = _MISALIGNED.fullmatch(message)
        stack = _sanitizer_stack(lines[number + 1 :], ends_with=_UBSAN)
        frames, through = own_frames(_placed(stack, file=head["file"], line=int(head["line"])))
        direction = _direction(message) if misaligned else ""
        named = re.search(r"type '([^']*)'", message)
        alignment = int(misaligned["alignment"]) if misaligned else 0
        yield Report(
            detector="ubsan",
            kind="alignment" if misaligned else f"undefined-{_check(message)}",
            message=_plain(message),
            direction=direction,
            size_bytes=0,
            alignment_bytes=alignment,
            modulo=int(misaligned["address"], 16) % alignment if misaligned else 0,
            type=named[1] if named else "",
            column=int(head["column"]),
            through=through,
            frames=frames,
            fatal=False,
            offset=line.offset,
        )


def _direction(message: str) -> Literal["load", "store", ""]:
    """Of a member access neither is told: it is the address of the whole object that is checked."""
    return "load" if message.startswith("load of") else "store" if message.startswith("store to") else ""


def _check(message: str) -> str:
    return next((name for pattern, name in _CHECKS if re.search(pattern, message)), "other")


def _placed(stack: list[Frame], *, file: str, line: int) -> list[Frame]:
    """The innermost frame at the line that the message tells: the stack has the call's, which may be another's."""
    if not stack:
        path, origin = place_in_tree(file)
        return [Frame(function="??", file=path, line=line, origin=origin, pc=0)]
    first = stack[0]
    if first.file.rpartition("/")[2] != file.rpartition("/")[2]:
        return stack
    return [
        Frame(
            function=first.function, file=first.file, line=line, origin=first.origin, pc=first.pc, inlined=first.inlined
        ),
        *stack[1:],
    ]


# The address sanitizer: `==PID==ERROR: AddressSanitizer: …`, the access, the stack; more stacks (of the allocation, of
# the release), each after an empty line; a picture of the memory.

_ASAN = re.compile(r"==\d+==ERROR: AddressSanitizer: (?P<message>.+)")
_ASAN_ACCESS = re.compile(r"(READ|WRITE) of size (\d+) at |.*The signal is caused by a (READ|WRITE) memory access")
_ASAN_FATAL = {"segv", "bus", "fpe", "ill", "abrt", "trap", "stack-overflow"}


def _asan(lines: list[_Line]) -> Iterator[Report]:
    for number, line in enumerate(lines):
        head = _ASAN.fullmatch(line.text)
        if head is None:
            continue
        error = _asan_error(head["message"])
        after = lines[number + 1 :]
        access = next((found for one in after[:4] if (found := _ASAN_ACCESS.match(one.text))), None)
        verb = (access[1] or access[3]) if access else ""
        size = int(access[2] or 0) if access else 0
        frames, through = own_frames(_sanitizer_stack(after, ends_with=_ASAN))
        yield Report(
            detector="asan",
            kind=f"asan-{error}",
            message=error + (f", {verb.lower()} of {size} bytes" if size else f", {verb.lower()}" if verb else ""),
            direction="load" if verb == "READ" else "store" if verb == "WRITE" else "",
            size_bytes=size,
            alignment_bytes=0,
            modulo=0,
            type="",
            column=0,
            through=through,
            frames=frames,
            fatal=error in _ASAN_FATAL,
            offset=line.offset,
        )


def _asan_error(message: str) -> str:
    """The error's name in the sanitizer's own summary, which the message begins with but in three cases."""
    for sign, name in (
        ("attempting double-free", "double-free"),
        ("attempting free on address which was not malloc", "bad-free"),
        ("requested allocation size", "allocation-size-too-big"),
    ):
        if message.startswith(sign):
            return name
    return message.split(maxsplit=1)[0].rstrip(":").lower()


_SANITIZER_FRAME = re.compile(r"\s+#(?P<number>\d+) 0x(?P<pc>[0-9a-f]+)\s+(?:in (?P<function>\S+) )?(?P<place>.+)")
_IN_OBJECT = re.compile(r"\((?P<object>.+)\+0x[0-9a-f]+\)(?: \(BuildId: \w+\))?")


def _sanitizer_stack(lines: list[_Line], *, ends_with: re.Pattern[str]) -> list[Frame]:
    """The first stack from here on: frames numbered from 0, up to an empty line or the next report."""
    found: list[tuple[int, str, str, int]] = []
    silence = 0
    for line in lines:
        frame = _SANITIZER_FRAME.fullmatch(line.text)
        if frame is not None and int(frame["number"]) == len(found):
            found.append((int(frame["pc"], 16), frame["function"] or "??", *_sanitizer_place(frame["place"])))
            silence = 0
            continue
        silence += 1
        ended = found and (not line.text.strip() or frame is not None)
        if ended or ends_with.fullmatch(line.text) or silence > _STACK_WITHIN_LINES:
            break
    return _frames(found)


def _sanitizer_place(place: str) -> tuple[str, int]:
    inside = _IN_OBJECT.fullmatch(place)
    if inside is not None:
        return inside["object"], 0
    parts = re.fullmatch(r"(?P<file>.+?)(?::(?P<line>\d+))?(?::\d+)?(?: \(BuildId: \w+\))?", place)
    assert parts is not None
    return parts["file"], int(parts["line"] or 0)


# Valgrind: every line begins `==PID== `; the error at one blank, what is said about it at two, the stacks at four. The
# first stack is the error's.

_VALGRIND = re.compile(r"==(?P<pid>\d+)== (?P<text>.*)")
_VALGRIND_FRAME = re.compile(r"   (?:at|by) 0x(?P<pc>[0-9A-F]+): (?P<function>.+?)(?: \((?P<place>[^()]*)\))?")
_ENDING = "Process terminating"
_MEMCHECK: list[tuple[str, str, Literal["load", "store", ""]]] = [
    (r"Invalid read of size", "invalid-read", "load"),
    (r"Invalid write of size", "invalid-write", "store"),
    (r"Conditional jump or move depends on uninitialised", "uninitialised-condition", ""),
    (r"Use of uninitialised value", "uninitialised-use", ""),
    (r"Syscall param .* uninitialised", "uninitialised-syscall", ""),
    (r"Syscall param .* unaddressable", "unaddressable-syscall", ""),
    (r"Invalid free", "invalid-free", ""),
    (r"Mismatched free", "mismatched-free", ""),
    (r"Source and destination overlap", "overlap", ""),
    (r"Argument .* has a fishy", "fishy-size", ""),
    (r"Jump to the invalid address", "invalid-jump", ""),
]


def _valgrind(lines: list[_Line]) -> Iterator[Report]:
    """Processes write between each other's lines, so each is read on its own; the order is the log's again."""
    by_process: dict[str, list[_Line]] = {}
    for line in lines:
        match = _VALGRIND.fullmatch(line.text)
        if match is not None:
            by_process.setdefault(match["pid"], []).append(_Line(text=match["text"], offset=line.offset))
    found = [report for said in by_process.values() for report in _memcheck(said)]
    yield from sorted(found, key=lambda report: report.offset)


def _memcheck(lines: list[_Line]) -> Iterator[Report]:
    for number, line in enumerate(lines):
        if not line.text or line.text.startswith(" "):
            continue
        after = lines[number + 1 :]
        fatal = line.text.startswith(_ENDING)
        while fatal and after and re.match(r" \S", after[0].text):
            # What the signal was about stands before the stack.
            after = after[1:]
        frames = _valgrind_stack(after)
        if not frames:
            continue
        own, through = own_frames(frames)
        error, direction = _memcheck_error(line.text)
        size = re.search(r"of size (\d+)", line.text)
        yield Report(
            detector="valgrind",
            kind=f"memcheck-{error}",
            message=_plain(line.text),
            direction=direction,
            size_bytes=int(size[1]) if size else 0,
            alignment_bytes=0,
            modulo=0,
            type="",
            column=0,
            through=through,
            frames=own,
            fatal=fatal,
            offset=line.offset,
        )


def _memcheck_error(text: str) -> tuple[str, Literal["load", "store", ""]]:
    if text.startswith(_ENDING):
        name = re.search(r"\((SIG\w+)\)", text)
        return (name[1].lower() if name else "signal"), ""
    return next(((name, way) for pattern, name, way in _MEMCHECK if re.match(pattern, text)), ("other", ""))


def _valgrind_stack(lines: list[_Line]) -> list[Frame]:
    found: list[tuple[int, str, str, int]] = []
    for line in lines:
        frame = _VALGRIND_FRAME.fullmatch(line.text)
        if frame is None:
            break
        place = (frame["place"] or "??").removeprefix("in ")
        file, _, number = place.rpartition(":")
        if not (file and number.isdigit()):
            file, number = place, "0"
        found.append((int(frame["pc"], 16), frame["function"].replace("???", "??"), file, int(number)))
    return _frames(found)


# Frames of all three.

_RUNTIME = re.compile(r"libsanitizer/|lib(a|ub)san\.so|vgpreload_|vg_replace_")


_OBJECT = re.compile(r"\.so(\.[0-9.]+)?$")
"""A frame's place where the object has no line tables."""


def _frames(found: list[tuple[int, str, str, int]]) -> list[Frame]:
    """Frames of (address, function, file, line): those at one address were inlined, each into the next."""
    frames = []
    for number, (pc, function, file, line) in enumerate(found):
        path, origin = place_in_object("??", file) if _OBJECT.search(file) else place_in_tree(file)
        inlined = number + 1 < len(found) and found[number + 1][0] == pc
        frames.append(Frame(function=function, file=path, line=line, origin=origin, pc=pc, inlined=inlined))
    return frames


def own_frames(frames: list[Frame]) -> tuple[list[Frame], str]:
    """Frames from the server's own innermost on, and the library function that it had called; else all of them.

    A library's function serves everybody: an error in it is told apart by who called it. What belongs to the detector
    itself is no part of the program.
    """
    program = list(frames)
    while program and _RUNTIME.search(program[0].file):
        program.pop(0)
    first = next((n for n, frame in enumerate(program) if frame.origin.partition("/")[0] in {"server", "bundled"}), 0)
    left = program[first:] or [Frame(function="??", file="??", line=0, origin="unknown", pc=0)]
    skipped = frames[: len(frames) - len(program) + first]
    through = skipped[-1].function.removeprefix("__interceptor_") if skipped else ""
    return left, through


def _plain(message: str) -> str:
    """A message without what differs from run to run."""
    return re.sub(r"0x[0-9a-fA-F]+", "…", message)
