"""A server's clocks: the moments and durations around which numbers of seconds become too large for their
types, the file that moves its clocks there, and the slack of what it then tells.
"""

from __future__ import annotations

import time
from typing import Any

# An hour before the end of 31 bits of seconds; a minute after it, after that of 32 bits, and after that of 33.
MOMENTS = {"before 2038": (1 << 31) - 3700, "2038": (1 << 31) + 60, "2106": (1 << 32) + 60, "2242": (1 << 33) + 60}
SLACK = 30
"""Seconds that a slow server may take from one command to the next."""
# The end of 32 bits of microseconds, which some of the test is before; beyond it; and beyond that of 32 bits of
# milliseconds, and of 31 of seconds.
UPTIMES = {
    "71 minutes": (1 << 32) // 10**6 - 1,
    "3 days": 1 << 18,
    "50 days": (1 << 32) // 1000 + 60,
    "69 years": 1 << 31,
}
# In seconds: their milliseconds exceed 31, 32 and 33 bits, the second ones by so little that what is left is too short.
SILENCES = {"25 days": (1 << 31) // 1000 + 60, "50 days": (1 << 32) // 1000 + 60, "100 days": (1 << 33) // 1000 + 60}
SLEEPS = ["61", "2147.25", "2148.5", "4294.75", "4295", "100000.5", "8000000"]
"""Microseconds around 31 and 32 bits, and beyond; seconds that an int has."""
AHEAD = "ahead"
"""The file in a server's folder that tells ahead.c, which it preloads, by how many seconds its clocks are ahead."""


def wall_clock_at(moment: int) -> bytes:
    """The content of `ahead` with which the wall clock shows a moment now, in seconds since 1970."""
    return b"%d" % (moment - int(time.time()))


def machine_running_for(uptime: int) -> bytes:
    """The content of `ahead` with which the machine has run for so many seconds by now. The wall clock is right."""
    return b"0 %d" % (uptime - int(time.monotonic()))


def near(actual: Any, due: float) -> bool:
    """Whether a time in seconds is due, or a little later."""
    return due - 1 <= float(actual) <= due + SLACK
