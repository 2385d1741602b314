"""What a workload requires of a server: options, commands that it must know, and the command that forks a child."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.plan.workloads import BenchWorkload
    from harness.protocol.resp import Reply

SAVING = {
    "none": (),
    "aof-everysec": ("--appendonly", "yes", "--appendfsync", "everysec"),
    "aof-always": ("--appendonly", "yes", "--appendfsync", "always"),
}
"""A workload's `saving` -> the server's options."""
CHILD_SECONDS, CHILD_POLL_SECONDS = 20.0, 0.05
"""The deadline of a released child, in seconds, before the target's slowdown; and the interval between two checks of
it.
"""
FORKS = {"aof-rewrite": "BGREWRITEAOF", "bgsave": "BGSAVE"}
"""A workload's `during` -> the command that forks the child."""


class ChildFields(NamedTuple):
    """The names of INFO's fields about a child that saves."""

    running: str
    status: str
    """How the last child ended."""
    copied: str
    """How many bytes the kernel copied for the last child. Releases before 4.0 lack this field."""


CHILD_FIELDS = {
    "aof-rewrite": ChildFields("aof_rewrite_in_progress", "aof_last_bgrewrite_status", "aof_last_cow_size"),
    "bgsave": ChildFields("rdb_bgsave_in_progress", "rdb_last_bgsave_status", "rdb_last_cow_size"),
}
"""A workload's `during` -> INFO's fields about the child."""


class LacksCommandError(Exception):
    """The server does not know a command of the workload."""


def refuse_unknown_commands(workload: BenchWorkload, ask: Callable[..., Reply]) -> None:
    """Raise LacksCommandError for commands that a server does not know. `ask` sends it a request.

    Its source does not show this, because a built-in module also has commands.
    """
    lacking = [name.upper() for name in sorted(workload.needs) if ask("COMMAND", "INFO", name) in ([None], [])]
    if lacking:
        raise LacksCommandError(f"the release has no {' '.join(lacking)}")
