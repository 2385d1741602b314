"""The limits that a caller gave this process, and that servers inherit: with too low ones a server lacks what it has on
every other machine, and its failure would be reported as its fault (setrlimit(2)).
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import NamedTuple

from harness.core.errors import InfrastructureError


class _Need(NamedTuple):
    limit: int
    least: int
    """The lowest value with which each suite runs: in bytes, or for processes their number."""
    what: str
    option: str
    """The option of the shell's `ulimit`, and how many of the limit's units one of its units has."""
    unit: int


_NEEDS = (
    # An emulator of a 32-bit machine reserves the whole address space of its guest.
    _Need(resource.RLIMIT_AS, 8 << 30, "address space", "-v", 1024),
    _Need(resource.RLIMIT_DATA, 4 << 30, "memory", "-d", 1024),
    _Need(resource.RLIMIT_FSIZE, 1 << 30, "the size of a file", "-f", 1024),
    _Need(resource.RLIMIT_STACK, 8 << 20, "the stack", "-s", 1024),
    _Need(resource.RLIMIT_NPROC, 1000, "processes", "-u", 1),
)


def refuse_low() -> None:
    """Raise each limit that is too low for servers, for this process and those that it starts.

    Raises InfrastructureError for one that this user may not raise.
    """
    for need in _NEEDS:
        soft, hard = resource.getrlimit(need.limit)
        if not _is_low(soft, need) or (need.limit == resource.RLIMIT_NPROC and os.geteuid() == 0):
            # The number of root's processes is not limited.
            continue
        wanted = need.least if hard == resource.RLIM_INFINITY else min(hard, need.least)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(need.limit, (wanted, hard))
        if _is_low(resource.getrlimit(need.limit)[0], need):
            raise InfrastructureError(
                f"the limit on {need.what} is {hard // need.unit} (ulimit {need.option}), but "
                f"{need.least // need.unit} are needed",
                because="servers inherit it, and the run would report what they lack as their fault",
                remedy=f"ulimit {need.option} {need.least // need.unit}, as root if the hard limit is lower",
            )


def _is_low(value: int, need: _Need) -> bool:
    return value != resource.RLIM_INFINITY and value < need.least
