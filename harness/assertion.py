"""What a C library's assert() says before it ends a server by SIGABRT, for which an emulator has no record."""

from __future__ import annotations

import re

from harness.finding import Frame

_FAILED = re.compile(rb"^\S+: (\S+):(\d+): (\w+): Assertion `.*' failed\.$", re.MULTILINE)


def asserted(log: bytes) -> Frame | None:
    """Where the last assertion that failed stands, as a server's log has it; None where none did (glibc, assert.c).

    The file is named as the compiler was told it, which is as a rule without its folder: the origin is not known.
    """
    told = _FAILED.findall(log)
    if not told:
        return None
    file, line, function = (word.decode("utf-8", "replace") for word in told[-1])
    return Frame(function=function, file=file, line=int(line), origin="unknown", pc=0)
