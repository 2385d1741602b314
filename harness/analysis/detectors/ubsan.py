"""Reads the undefined behaviour sanitizer's reports.

A report contains a line `FILE:LINE:COLUMN: runtime error: …`, three lines of memory if it has an address, with
print_stacktrace=1 the stack, and an empty line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from harness.analysis.detectors.detector import Detector
from harness.analysis.detectors.report import Report, without_addresses
from harness.analysis.detectors.stack import SANITIZER_RUNTIME, sanitizer_stack
from harness.analysis.symbols import place_in_tree
from harness.core.finding import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.analysis.detectors.report import Line

_UBSAN = re.compile(r"(?<![^\s:])(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): runtime error: (?P<message>.+)")
_MISALIGNED = re.compile(
    r"(load of|store to|member access within|.+?) misaligned address 0x(?P<address>[0-9a-f]+)"
    r" for type (?P<type>.+), which requires (?P<alignment>\d+) byte alignment"
)
# Text in a message -> GCC's name of the check (GCC manual, Instrumentation Options).
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


def read(lines: list[Line]) -> Iterator[Report]:
    """Every report, in order."""
    for number, line in enumerate(lines):
        head = _UBSAN.search(line.text)
        if head is None:
            continue
        message = head["message"]
        misaligned = _MISALIGNED.fullmatch(message)
        stack = sanitizer_stack(lines[number + 1 :], ends_with=_UBSAN)
        direction = _direction(message) if misaligned else ""
        named = re.search(r"type '([^']*)'", message)
        alignment = int(misaligned["alignment"]) if misaligned else 0
        yield Report(
            detector="ubsan",
            kind="alignment" if misaligned else f"undefined-{_check(message)}",
            message=without_addresses(message),
            direction=direction,
            size_bytes=0,
            alignment_bytes=alignment,
            modulo=int(misaligned["address"], 16) % alignment if misaligned else 0,
            type=named[1] if named else "",
            column=int(head["column"]),
            through="",
            frames=_placed(stack, file=head["file"], line=int(head["line"])),
            fatal=False,
            offset=line.place_of(head.start()),
        )


def _direction(message: str) -> Literal["load", "store", ""]:
    """The direction of an access; empty for a member access, where the sanitizer checks the whole object's address."""
    return "load" if message.startswith("load of") else "store" if message.startswith("store to") else ""


def _check(message: str) -> str:
    return next((name for pattern, name in _CHECKS if re.search(pattern, message)), "other")


def _placed(stack: list[Frame], *, file: str, line: int) -> list[Frame]:
    """Move the innermost frame to the message's line: the stack has the line of the call, which may differ."""
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


UBSAN = Detector(
    name="ubsan",
    read=read,
    kinds={"undefined-": "Undefined behaviour of C, reported by GCC's sanitizer."},
    canary={
        "misaligned-load": "alignment-misaligned_load-load",
        "misaligned-store": "alignment-misaligned_store-store",
        "misaligned-member": "alignment-misaligned_member",
        "misaligned-exempt": "alignment-misaligned_exempt-load",
        "misaligned-in-child": "alignment-misaligned_in_child-load",
        "shift": "undefined-shift-shift",
    },
    runtime=SANITIZER_RUNTIME,
    # All kinds, including `alignment`.
    undefined_kinds=("",),
    # GCC's library reads UBSAN_OPTIONS from /proc/self/environ at the first report, when a server has already
    # overwritten it with its process title. The library also calls this function (LLVM, ubsan_flags.cpp).
    prelude="""\
#ifndef __ASSEMBLER__
#ifdef __cplusplus
extern "C"
#endif
__attribute__((weak, visibility("default"))) const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "print_stacktrace=1:halt_on_error=0"; }
#endif
""",
)
