"""What an assertion or a panic says before it ends a server by SIGABRT, for which an emulator has no record.

Two ways to say it: the C library's assert() (glibc, assert/assert.c), and the servers' own (src/debug.c).
"""

from __future__ import annotations

import re

from harness.core.finding import Frame

_SAID = re.compile(
    rb"^\S+: (?P<file>\S+):(?P<line>\d+): (?P<function>\w+): Assertion `.*' failed\.$"
    rb"|==> (?P<own_file>[^\s:]+):(?P<own_line>\d+) '.*' is not true$"
    rb"|Guru Meditation: .* #(?P<panic_file>[^\s:]+):(?P<panic_line>\d+)$",
    re.MULTILINE,
)

UNKNOWN = "??"
"""The function, where only its file and line were told."""


def asserted(log: bytes) -> Frame | None:
    """Where the last assertion that failed stands, as a server's log has it; None where none did.

    The file is named as the compiler was told it, which is as a rule without its folder: the origin is not known.
    Only the C library names the function (harness.analysis.symbols finds it by the line).
    """
    said = list(_SAID.finditer(log))
    if not said:
        return None
    told = {
        name.rpartition("_")[2]: text.decode("utf-8", "replace")
        for name, text in said[-1].groupdict(b"").items()
        if text
    }
    return Frame(
        function=told.get("function", UNKNOWN), file=told["file"], line=int(told["line"]), origin="unknown", pc=0
    )


def asserting_frames(frames: list[Frame], *, dies_there: bool) -> list[Frame]:
    """The stack from the function on that asserted what does not hold; none where no assertion did it.

    `dies_there`: a stack counts only if it ends in the assertion itself, which old releases end by a store to an
    address that cannot be; what ends below it, in the report, is a fault of its own. A self-test's assertion however
    dies in the server's log, which is not set up yet: that is not the place to look at.
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
