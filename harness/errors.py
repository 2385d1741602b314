"""Errors by whose fault they are; each family owns an exit code.

PlumblineError                       exit
├── UsageError                       4   the command line or a TOML file is wrong
├── NothingSelectedError             5   the selection is empty
└── InfrastructureError              7   this machine lacks something: a tool, the network, disk space

Any other exception is a bug of Plumbline's own (exit 3). A fault of the server under test is never an error: it is
evidence, judged into a finding (exit 1) or an UNKNOWN (exit 6).
"""

from __future__ import annotations

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


class InfrastructureError(PlumblineError):
    """The machine cannot do it as it is."""

    exit_code = ExitCode.INFRASTRUCTURE
