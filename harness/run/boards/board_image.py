"""What a cell needs to know of a board: how to reach it, and which programs of this host it runs."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations when it decodes

import msgspec

from harness.core.model import Record
from harness.plan.board import Board  # noqa: TC001 - the same


class BoardImage(Record, frozen=True):
    """A board and the programs that are copied to it."""

    board: Board
    file: str
    """The user's file, for messages."""
    environment: dict[str, str]
    """The environment of the commands that reach it."""
    counting_file: str = ""
    """The file there in which the target's kernel counts misaligned accesses; empty if it has none."""
    switch_file: str = ""
    """The file there that sets what the kernel does with them; empty if it has none."""
    mode: int | None = None
    """What the policy sets there; None: nothing."""
    programs: dict[str, Path] = msgspec.field(default_factory=dict)
    """Name there -> file here."""
    timeout_multiplier: float = 1.0
    """How many times longer than usual to wait for it (`--timeout-multiplier`)."""

    @property
    def check_command(self) -> str:
        """The command that checks each step of reaching it, for messages."""
        return f"plumb board {shlex.quote(self.file)}"

    def deadline_seconds(self, base_seconds: float) -> float:
        """The deadline of a task of the connection itself, such as a login."""
        return base_seconds * self.timeout_multiplier
