"""Errors by whose fault they are; each family owns an exit code.

PlumblineError                       exit
├── UsageError                       4   the command line or a TOML file is wrong
├── NothingSelectedError             5   the selection is empty
├── InconclusiveError                6   the evidence is damaged or missing: nothing can be said
└── InfrastructureError              7   this machine lacks something: a tool, the network, disk space

What the operating system refuses for want of something counts as the last (`is_machine_fault`). Any other exception is
a bug of Plumbline's own (exit 3). A fault of the server under test is never an error: it is evidence, judged into a
finding (exit 1) or an UNKNOWN (exit 6).
"""

from __future__ import annotations

import errno
import os
from enum import IntEnum


class ExitCode(IntEnum):
    """What `plumb` tells the shell."""

    PASS = 0
    FINDINGS = 1
    INTERRUPTED = 2
    HARNESS_BUG = 3
    USAGE = 4
    NOTHING_SELECTED = 5
    INCONCLUSIVE = 6
    INFRASTRUCTURE = 7


class PlumblineError(Exception):
    """What went wrong, where, because of what, and what to type next."""

    exit_code = ExitCode.HARNESS_BUG

    def __init__(self, what: str, *, where: str = "", because: str = "", remedy: str = "", log: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.because = because
        self.remedy = remedy
        self.log = log

    def __str__(self) -> str:
        """`error: WHAT (WHERE)`, then the lines that are known of `because`, `try` and `log`."""
        lines = [f"error: {self.what}" + (f" ({self.where})" if self.where else "")]
        for label, text in (("because", self.because), ("try", self.remedy), ("log", self.log)):
            if text:
                lines.append(f"  {label}: " + text.replace("\n", "\n    "))
        return "\n".join(lines)


class UsageError(PlumblineError):
    """The user asked for something that does not exist or cannot be."""

    exit_code = ExitCode.USAGE


class NothingSelectedError(PlumblineError):
    """The request was well-formed and selects nothing."""

    exit_code = ExitCode.NOTHING_SELECTED


class InconclusiveError(PlumblineError):
    """What was recorded is damaged or missing, so that no verdict follows from it."""

    exit_code = ExitCode.INCONCLUSIVE


class InfrastructureError(PlumblineError):
    """The machine cannot do it as it is."""

    exit_code = ExitCode.INFRASTRUCTURE


MACHINE_ERRNOS = frozenset(
    {
        errno.EACCES,  # a folder that this user may not write
        errno.EADDRNOTAVAIL,  # all ports of loopback are taken
        errno.EDQUOT,
        errno.EFBIG,  # a limit on the size of files
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EPERM,
        errno.EROFS,
    }
)
"""What the operating system says when this machine is to blame, whatever was asked of it (errno(3)).

EAGAIN is not among them, because a socket that is merely slow says the same; nor is what a server does that ends:
ECONNREFUSED, ECONNRESET, EPIPE, ETIMEDOUT, and ENOENT for its Unix socket.
"""

_REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT),
        "free some space (plumb clean shows the cache), or name other folders: --run, PLUMBLINE_CACHE, TMPDIR",
    ),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "name folders that you may write: --run, PLUMBLINE_CACHE, TMPDIR"
    ),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (ulimit -n 4096), or fewer --jobs"),
    errno.EFBIG: "allow larger files: ulimit -f unlimited",
    errno.ENOMEM: "fewer --jobs",
}


def is_machine_fault(error: BaseException) -> bool:
    """Whether an exception says that this machine lacks something, so that nothing may be concluded of a server."""
    if isinstance(error, OSError):
        return error.errno in MACHINE_ERRNOS
    # CPython has no class of its own for a refused thread.
    return isinstance(error, (MemoryError, InfrastructureError)) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )


def machine_fault(error: BaseException) -> InfrastructureError:
    """The same as an error that says what is lacking, and where. `error` is one of which `is_machine_fault` holds."""
    if isinstance(error, InfrastructureError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        return InfrastructureError(
            f"this machine refuses: {os.strerror(error.errno)}",
            where=os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes, os.PathLike)) else "",
            remedy=_REMEDIES.get(error.errno, ""),
        )
    return InfrastructureError(
        "this machine refuses: no more memory or threads", because=str(error), remedy="fewer --jobs"
    )
