"""What one run of a replay did and left, whatever it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from harness.analysis.detectors.registry import Report
    from harness.core.finding import Frame
    from harness.record.fault_log import Fault
    from harness.workflows.replay.recurrence import Observation

_CUT_SHORT = b"-fault-log: a record was cut short"
"""toolchains/qemu/overlay/linux-user/plumbline.c says it where a write fails."""


class ReplayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, and the records that it left."""

    observation: Observation
    """Without faults, reports and assertions, whose functions have no names yet."""
    faults: list[Fault]
    reports: list[Report]
    assertion: Frame | None


def cut_short(fault_log: Path, log: bytes) -> str:
    """Why a fault log is not trustworthy: its last record is incomplete, or the emulator says so in the server's `log`.

    Empty if it is.
    """
    content = fault_log.read_bytes() if fault_log.is_file() else b""
    whole = (content.endswith(b"\n") or not content) and _CUT_SHORT not in log
    return "" if whole else "the emulator's fault log was cut short"


def why_from_outside(detail: str) -> str:
    """Why the end that `detail` describes says nothing about the server; empty if it does."""
    return f"it was {detail} from outside (out of memory, or by hand)" if "SIGKILL" in detail else ""
