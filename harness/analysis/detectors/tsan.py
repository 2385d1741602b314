"""Reads the thread sanitizer's reports.

A report begins with `WARNING: ThreadSanitizer: WHAT (pid=PID)`. Of a data race it has both accesses, each with its
stack and an empty line; then the places where the memory and the threads come from; and it ends with a summary.

The sanitizer does not know fences, so the prelude tells it of each: a release fence adds to a variable and an acquire
fence reads it, both atomically. Everything before the one is then ordered before everything after the other, whether or
not a flag between them was read. An acquire fence also orders what precedes the stores that this thread's last relaxed
loads have read, if these stores are releases (C11, 7.17.4: the sanitizer knows no more of it than of other fences). An
access to a volatile object is not checked: servers have flags of that kind beside their fences.

Mutexes that are locked in two orders may stop two threads for ever. If the main thread alone ever holds two of them, no
other thread can wait for the second, and there is no report.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from harness.analysis.detectors.detector import Detector
from harness.analysis.detectors.report import Report, frames_of
from harness.analysis.detectors.stack import SANITIZER_RUNTIME
from harness.analysis.symbols import is_own

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.analysis.detectors.report import Line
    from harness.core.finding import Frame

_TSAN = re.compile(r"WARNING: ThreadSanitizer: (?P<what>.+?) \(pid=(?P<pid>\d+)\)")
_END = re.compile(r"SUMMARY: ThreadSanitizer: ")
_ACCESS = re.compile(r"  (?:Previous )?(?:atomic )?(?P<verb>read|write) of size (?P<size>\d+) at ", re.IGNORECASE)
_FRAME = re.compile(
    r"    #(?P<number>\d+) (?P<function>.+?) (?P<place>/.+?|\S+) \((?P<object>[^()]+)\+0x(?P<pc>[0-9a-f]+)\)"
    r"(?: \(BuildId: \w+\))?"
)
_HOLDING = re.compile(r"  Mutex \S+ acquired here while holding mutex \S+ in (?P<thread>.+):")
_MAIN = "main thread"
_REPORT_WITHIN_LINES = 400
RACE = "data race"


class _Access(NamedTuple):
    direction: Literal["load", "store", ""]
    size_bytes: int
    frames: list[Frame]


def read(lines: list[Line]) -> Iterator[Report]:
    """Every report, in order."""
    for number, line in enumerate(lines):
        head = _TSAN.search(line.text)
        if head is None:
            continue
        report = _report(lines[number + 1 : number + 1 + _REPORT_WITHIN_LINES])
        holders = {found["thread"] for line in report if (found := _HOLDING.fullmatch(line.text)) is not None}
        if holders == {_MAIN}:
            continue
        stacks = _stacks(report)
        first, *others = [one for one in stacks if one.direction] or stacks or [_Access("", 0, [])]
        if RACE in head["what"] and others:
            # Which of the two came first is a matter of chance, and one of them is a store.
            first, *others = sorted([first, others[0]], key=_rank)
        yield Report(
            detector="tsan",
            kind=f"tsan-{_slug(head['what'])}",
            message=_message(head["what"], first, others),
            direction=first.direction,
            size_bytes=first.size_bytes,
            alignment_bytes=0,
            modulo=0,
            type="",
            column=0,
            through="",
            frames=first.frames,
            against=others[0].frames if RACE in head["what"] and others else [],
            fatal=False,
            offset=line.place_of(head.start()),
            pid=int(head["pid"]),
        )


def _report(lines: list[Line]) -> list[Line]:
    """The lines up to the end of a report."""
    return list(itertools.takewhile(lambda line: not (_END.search(line.text) or _TSAN.search(line.text)), lines))


def _stacks(lines: list[Line]) -> list[_Access]:
    """The stacks of a report, those of accesses with their direction."""
    found: list[_Access] = []
    direction: Literal["load", "store", ""] = ""
    size = 0
    stack: list[tuple[int, str, str, int]] = []
    for line in lines:
        frame = _FRAME.fullmatch(line.text)
        if frame is not None and int(frame["number"]) == len(stack):
            stack.append((int(frame["pc"], 16), frame["function"], *_place(frame["place"], frame["object"])))
        elif (access := _ACCESS.match(line.text)) is not None:
            direction = "load" if access["verb"].lower() == "read" else "store"
            size = int(access["size"])
        elif not line.text.strip():
            if stack:
                found.append(_Access(direction, size, frames_of(stack)))
            direction, size, stack = "", 0, []
    return [*found, *([_Access(direction, size, frames_of(stack))] if stack else [])]


def _place(place: str, within: str) -> tuple[str, int]:
    parts = re.fullmatch(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?", place)
    if parts is not None:
        return parts["file"], int(parts["line"])
    return (within if place == "<null>" else place), 0


def _own(access: _Access) -> Frame | None:
    """The innermost function of the program."""
    return next(filter(is_own, access.frames), None)


def _rank(access: _Access) -> tuple[bool, str, str, int]:
    own = _own(access)
    place = (own.function, own.file, own.line) if own is not None else ("", "", 0)
    return (access.direction != "store", *place)


def _message(what: str, first: _Access, others: list[_Access]) -> str:
    if RACE not in what or not others:
        return what
    own = _own(others[0])
    place = f" in {own.function} ({own.file}:{own.line})" if own is not None else ""
    return f"{what}: {first.direction} of {first.size_bytes} bytes, not ordered with the {others[0].direction}{place}"


def _slug(what: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-")


TSAN = Detector(
    name="tsan",
    read=read,
    kinds={"tsan-": "Two threads access memory in an order that nothing determines, reported by the thread sanitizer."},
    canary={
        "race-store": "tsan-data-race-race_store-store",
        "race-fence": "tsan-data-race-race_fence-store",
        "race-loaded": "tsan-data-race-race_loaded-store",
    },
    runtime=SANITIZER_RUNTIME,
    undefined_kinds=("tsan-data-race",),
    # The exit status stays the program's own. A thread that a server never joins is no error, and neither is what a
    # crash handler calls. Servers fork while they have threads. A long history keeps the stacks of earlier accesses.
    environment={
        "TSAN_OPTIONS": "halt_on_error=0:exitcode=0:report_thread_leaks=0:report_signal_unsafe=0:die_after_fork=0"
        ":history_size=7"
    },
    prelude="""\
#ifndef __ASSEMBLER__
#ifdef __cplusplus
extern "C" {
#endif
extern int plumbline_fences;
__attribute__((weak, visibility("default"))) int plumbline_fences;
extern __thread const volatile void *plumbline_loaded[32];
__attribute__((weak, visibility("default"))) __thread const volatile void *plumbline_loaded[32];
extern __thread unsigned plumbline_loads;
__attribute__((weak, visibility("default"))) __thread unsigned plumbline_loads;
void __tsan_acquire(void *place);
static inline __attribute__((always_inline, unused)) void plumbline_load(const volatile void *place, int order)
{
    if (order == __ATOMIC_RELAXED && plumbline_loaded[plumbline_loads % 32] != place) {
        plumbline_loaded[++plumbline_loads % 32] = place;
    }
}
static inline __attribute__((always_inline, unused)) void plumbline_acquire(void)
{
    for (int number = 0; number < 32; number++) {
        if (plumbline_loaded[number]) {
            __tsan_acquire((void *)plumbline_loaded[number]);
            plumbline_loaded[number] = 0;
        }
    }
}
static inline __attribute__((always_inline, unused)) void plumbline_fence(int order)
{
    if (order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE) {
        plumbline_acquire();
    }
    if (order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME) {
        (void)__atomic_load_n(&plumbline_fences, __ATOMIC_ACQUIRE);
    } else if (order == __ATOMIC_RELEASE) {
        (void)__atomic_fetch_add(&plumbline_fences, 1, __ATOMIC_RELEASE);
    } else if (order != __ATOMIC_RELAXED) {
        (void)__atomic_fetch_add(&plumbline_fences, 1, __ATOMIC_SEQ_CST);
    }
}
#define __atomic_thread_fence(order) plumbline_fence(order)
#define __sync_synchronize() plumbline_fence(__ATOMIC_SEQ_CST)
#define __atomic_load_n(place, order) \\
    __extension__({ \\
        __typeof__(&*(place)) plumbline_place = (place); \\
        plumbline_load(plumbline_place, order); \\
        __atomic_load_n(plumbline_place, order); \\
    })
#define __atomic_load(place, result, order) \\
    __extension__({ \\
        __typeof__(&*(place)) plumbline_place = (place); \\
        plumbline_load(plumbline_place, order); \\
        __atomic_load(plumbline_place, result, order); \\
    })
#define PLUMBLINE_VOLATILE(access) \\
    void __tsan_volatile_##access(void *place); \\
    __attribute__((weak, visibility("default"), no_sanitize_thread)) void __tsan_volatile_##access(void *place) \\
    { \\
        (void)place; \\
    }
PLUMBLINE_VOLATILE(read1)
PLUMBLINE_VOLATILE(read2)
PLUMBLINE_VOLATILE(read4)
PLUMBLINE_VOLATILE(read8)
PLUMBLINE_VOLATILE(read16)
PLUMBLINE_VOLATILE(write1)
PLUMBLINE_VOLATILE(write2)
PLUMBLINE_VOLATILE(write4)
PLUMBLINE_VOLATILE(write8)
PLUMBLINE_VOLATILE(write16)
PLUMBLINE_VOLATILE(unaligned_read2)
PLUMBLINE_VOLATILE(unaligned_read4)
PLUMBLINE_VOLATILE(unaligned_read8)
PLUMBLINE_VOLATILE(unaligned_read16)
PLUMBLINE_VOLATILE(unaligned_write2)
PLUMBLINE_VOLATILE(unaligned_write4)
PLUMBLINE_VOLATILE(unaligned_write8)
PLUMBLINE_VOLATILE(unaligned_write16)
#ifdef __cplusplus
}
#endif
#endif
""",
    # Redis has this file since 8.2.
    suppressions="src/tsan.sup",
    suppressing="""#ifndef __ASSEMBLER__
#ifdef __cplusplus
extern "C"
#endif
__attribute__((weak, visibility("default"), no_sanitize_thread)) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return TEXT; }
#endif
""",
    sees_order=True,
)
