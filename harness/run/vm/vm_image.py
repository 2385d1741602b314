"""The parts of a machine: a kernel, a root file system, and the state that it resumes from."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes

from harness.build.initramfs import Initramfs  # noqa: TC001 - the same
from harness.build.kernel import Kernel  # noqa: TC001 - the same
from harness.core.model import Record


class VmImage(Record, frozen=True):
    """A machine that can be started."""

    kernel: Kernel
    initramfs: Initramfs
    snapshot: Path | None = None
    """The state after booting of a machine with this kernel and root file system, from which it can resume."""
    mode: int | None = None
    """The alignment mode to write to the kernel's alignment file; None if the kernel has no such file."""
    counted: bool = False
    """Its clocks count instructions, a nanosecond each."""
    timeout_multiplier: float = 1.0
    """How many times longer than usual to wait for it (`--timeout-multiplier`)."""

    def deadline_seconds(self, base_seconds: float) -> float:
        """The deadline of a task of the machine itself: its boot, an answer of its init, or its state in a file."""
        return base_seconds * self.timeout_multiplier
