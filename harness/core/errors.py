"""Errors, classified by cause. Each class has an exit code.

PlumblineError                       exit
├── UsageError                       4   the command line or a TOML file is wrong
│   └── RefusedTreeError             4   a server's source tree is
├── NothingSelectedError             5   the selection is empty
├── InconclusiveError                6   the evidence is damaged or missing: no verdict is possible
└── InfrastructureError              7   the host lacks something: a tool, the network, disk space

An operating system error for lack of a resource counts as the last class (`is_machine_fault`). Any other exception is a
bug of Plumbline (exit 3). A fault of the server under test is never an error: it is evidence, and judging turns it into
a finding (exit 1) or an UNKNOWN (exit 6).
"""

from __future__ import annotations

import errno
import os
import re
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of `plumb`."""

    PASS = 0
    FINDINGS = 1
    INTERRUPTED = 2
    HARNESS_BUG = 3
    USAGE = 4
    NOTHING_SELECTED = 5
    INCONCLUSIVE = 6
    INFRASTRUCTURE = 7


class PlumblineError(Exception):
    """What went wrong, where, why, and what to try next."""

    exit_code = ExitCode.HARNESS_BUG

    def __init__(self, what: str, *, where: str = "", because: str = "", remedy: str = "", log: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.because = because
        self.remedy = remedy
        self.log = log

    def __str__(self) -> str:
        """`error: WHAT (WHERE)`, then a line each for `because`, `try` and `log`, if given."""
        lines = [f"error: {self.what}" + (f" ({self.where})" if self.where else "")]
        for label, text in (("because", self.because), ("try", self.remedy), ("log", self.log)):
            if text:
                lines.append(f"  {label}: " + text.replace("\n", "\n    "))
        return "\n".join(lines)


class UsageError(PlumblineError):
    """The command line or a TOML file names something that does not exist or is impossible."""

    exit_code = ExitCode.USAGE


class RefusedTreeError(UsageError):
    """A server's source tree contains what no build may use. Another commit may not."""


class NothingSelectedError(PlumblineError):
    """The request is well-formed, but selects nothing."""

    exit_code = ExitCode.NOTHING_SELECTED


class InconclusiveError(PlumblineError):
    """The evidence is damaged or missing, so it supports no verdict."""

    exit_code = ExitCode.INCONCLUSIVE


class InfrastructureError(PlumblineError):
    """The machine lacks something that the work needs."""

    exit_code = ExitCode.INFRASTRUCTURE


MACHINE_ERRNOS = frozenset(
    {
        errno.EACCES,  # this user may not write the folder
        errno.EADDRNOTAVAIL,  # all loopback ports are in use
        errno.EDQUOT,
        errno.EFBIG,  # a limit on file sizes
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
"""Error numbers (errno(3)) that are the host's fault, whatever the request was.

EAGAIN is not among them, because a slow socket also reports it. Neither are the errors that a server causes when it
ends: ECONNREFUSED, ECONNRESET, EPIPE, ETIMEDOUT, and ENOENT for its Unix socket.
"""

MISNAMED_ERRNOS = frozenset({errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR})
"""Error numbers for a name that cannot be that of the file: a folder is there, or a link that leads to itself."""

SHOWN_CHARACTERS = 200
"""How much of a name an error shows on either side of a wrong character."""

ABSENT_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""The exceptions when a path that is opened leads to no file. A damaged run folder may have a folder in its place."""

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
    """Whether an exception means that the host lacks something, and therefore says nothing about a server."""
    if isinstance(error, OSError):
        return _number_of(error) in MACHINE_ERRNOS
    # CPython has no exception class for a thread that cannot start.
    return isinstance(error, (MemoryError, InfrastructureError)) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )


def _number_of(error: OSError) -> int | None:
    """The error number; for a copy of a folder (shutil.Error), which only quotes its errors, the first one's."""
    of_copies = error.args and isinstance(error.args[0], list)
    quoted = re.search(r"\[Errno (\d+)\]", str(error)) if of_copies else None
    return int(quoted[1]) if quoted else error.errno


def is_misnamed(error: BaseException) -> bool:
    """Whether an exception means that a file, as the user or a run folder names it, cannot be one, or not of a run."""
    if isinstance(error, UnicodeEncodeError):
        # Python reads bytes that are not UTF-8 as these surrogates.
        return any("\udc80" <= character <= "\udcff" for character in error.object[error.start : error.end])
    return isinstance(error, OSError) and error.errno in MISNAMED_ERRNOS


def misnamed(error: BaseException) -> UsageError:
    """Convert an exception for which `is_misnamed` is true to an error that names the file."""
    if isinstance(error, UnicodeEncodeError):
        return UsageError(
            "a name is not UTF-8",
            where=_word_at(error.object, error.start),
            because="the documents of a run, which name it, are",
            remedy="rename the file, the folder or the option's value",
        )
    assert isinstance(error, OSError)
    return UsageError(f"the file cannot be used: {error.strerror}", where=_place_of(error))


def _word_at(text: str, at: int) -> str:
    """The name around a character of a text, which may be a script or a whole document."""
    before = re.split(r"[\s\0'\"=]", text[max(0, at - SHOWN_CHARACTERS) : at])[-1]
    return before + re.split(r"[\s\0'\"=]", text[at : at + SHOWN_CHARACTERS])[0]


def _place_of(error: OSError) -> str:
    return os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes, os.PathLike)) else ""


def machine_fault(error: BaseException) -> InfrastructureError:
    """Convert an exception for which `is_machine_fault` is true to an error that says what is missing, and where."""
    if isinstance(error, InfrastructureError):
        return error
    if isinstance(error, OSError) and (number := _number_of(error)) is not None:
        return InfrastructureError(
            f"the operating system refuses: {os.strerror(number)}",
            where=_place_of(error),
            remedy=_REMEDIES.get(number, ""),
        )
    return InfrastructureError(
        "the operating system refuses: no more memory or threads", because=str(error), remedy="fewer --jobs"
    )
