"""A server's clocks: the points in time and durations at which numbers of seconds outgrow their types, the file that
moves the clocks there, and the tolerance for the times that the server then reports.
"""

from __future__ import annotations

import time
from typing import Any

# An hour before seconds exceed 31 bits, and a minute after they exceed 31, 32 and 33 bits.
MOMENTS = {"before 2038": (1 << 31) - 3700, "2038": (1 << 31) + 60, "2106": (1 << 32) + 60, "2242": (1 << 33) + 60}
SLACK = 30
"""Seconds that a slow server may take from one command to the next."""
# Microseconds exceed 32 bits during the test; microseconds already exceed them; milliseconds exceed 32 bits; seconds
# exceed 31 bits.
UPTIMES = {
    "71 minutes": (1 << 32) // 10**6 - 1,
    "3 days": 1 << 18,
    "50 days": (1 << 32) // 1000 + 60,
    "69 years": 1 << 31,
}
# Their milliseconds slightly exceed 31, 32 and 33 bits, so that a truncated number is far too short.
SILENCES = {"25 days": (1 << 31) // 1000 + 60, "50 days": (1 << 32) // 1000 + 60, "100 days": (1 << 33) // 1000 + 60}
SLEEPS = ["61", "2147.25", "2148.5", "4294.75", "4295", "100000.5", "8000000"]
"""Microseconds around the limits of 31 and 32 bits, and beyond; seconds that fit an int."""
AHEAD = "ahead"
"""The file in a server's folder from which ahead.c, which it preloads, reads by how many seconds its clocks are
ahead.
"""


def wall_clock_at(moment: int) -> bytes:
    """The content of `ahead` with which the wall clock now shows a given time, in seconds since 1970."""
    return b"%d" % (moment - int(time.time()))


def machine_running_for(uptime: int) -> bytes:
    """The content of `ahead` with which the machine has now run for `uptime` seconds. The wall clock is right."""
    return b"0 %d" % (uptime - int(time.monotonic()))


def near(actual: Any, due: float) -> bool:
    """Whether a time in seconds is the expected one, or a little later."""
    return due - 1 <= float(actual) <= due + SLACK
