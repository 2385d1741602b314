"""Reads the address sanitizer's reports.

A report contains `==PID==ERROR: AddressSanitizer: …`, the access, the stack; further stacks (of the allocation, of the
release), each after an empty line; and the memory around the address.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.analysis.detectors.detector import Detector
from harness.analysis.detectors.report import Report
from harness.analysis.detectors.stack import SANITIZER_RUNTIME, sanitizer_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.analysis.detectors.report import Line

_ASAN = re.compile(r"==(?P<pid>\d+)==ERROR: AddressSanitizer: (?P<message>.+)")
_ASAN_ACCESS = re.compile(r"(READ|WRITE) of size (\d+) at |.*The signal is caused by a (READ|WRITE) memory access")
_ASAN_FATAL = {"segv", "bus", "fpe", "ill", "abrt", "trap", "stack-overflow"}


def read(lines: list[Line]) -> Iterator[Report]:
    """Every report, in order."""
    for number, line in enumerate(lines):
        head = _ASAN.search(line.text)
        if head is None:
            continue
        error = _asan_error(head["message"])
        after = lines[number + 1 :]
        access = next((match for follower in after[:4] if (match := _ASAN_ACCESS.match(follower.text))), None)
        verb = (access[1] or access[3]) if access else ""
        size = int(access[2] or 0) if access else 0
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
            through="",
            frames=sanitizer_stack(after, ends_with=_ASAN),
            fatal=error in _ASAN_FATAL,
            offset=line.place_of(head.start()),
            pid=int(head["pid"]),
        )


def _asan_error(message: str) -> str:
    """The error's name in the sanitizer's own summary: the message begins with it in all but three cases."""
    for sign, name in (
        ("attempting double-free", "double-free"),
        ("attempting free on address which was not malloc", "bad-free"),
        ("requested allocation size", "allocation-size-too-big"),
    ):
        if message.startswith(sign):
            return name
    return message.split(maxsplit=1)[0].rstrip(":").lower()


ASAN = Detector(
    name="asan",
    read=read,
    kinds={"asan-": "A memory error, reported by the address sanitizer."},
    canary={
        "overflow-load": "asan-heap-buffer-overflow-overflow_load-load",
        "overflow-store": "asan-heap-buffer-overflow-overflow_store-store",
        "overflow-copy": "asan-heap-buffer-overflow-overflow_copy-store",
        "use-after-free": "asan-heap-use-after-free-use_after_free-load",
    },
    runtime=SANITIZER_RUNTIME,
    # An oversized allocation fails as in libc, and no suite here looks for leaks. The flags are common to all
    # sanitizers (LLVM, sanitizer_flags.inc).
    environment={"ASAN_OPTIONS": "halt_on_error=0:detect_leaks=0:allocator_may_return_null=1"},
)
