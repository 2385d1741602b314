"""Says which server a test of upstream's waits for that does not end, and what that server does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.processes import process_tree
from harness.core.sockets import connect
from harness.run.upstream.launches import port_of, read_launches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.core.sockets import Address
    from harness.run.upstream.launches import Launch

SHOWN = 3
"""How many servers a message names."""
LOOPBACK = "127.0.0.1"
_REPLIED, _SILENT = "replied to PING", "did not reply to PING"


def awaited(pids: Sequence[int], homes: Iterable[Path], stage: Path, *, probe_seconds: float) -> dict[str, list[str]]:
    """What the servers with these process numbers do, or the one that started last -> their guests' names.

    `homes`: the folders with the records of programs. `stage`: the folder in which those of this file run.
    `probe_seconds`: how long a server may take to reply.
    """
    launches = [
        launch
        for home in homes
        for launch in read_launches(home)
        if launch.working_folder.is_relative_to(stage) and not launch.is_client
    ]
    servers = [launch for launch in launches if launch.pid in pids]
    if not servers:
        servers = sorted(launches, key=lambda launch: launch.began_ms)[-1:]
    states: dict[str, list[str]] = {}
    for launch in servers:
        states.setdefault(_state(launch, probe_seconds), []).append(launch.guest)
    return states


def told(states: Mapping[str, list[str]]) -> str:
    """What servers do, for the reader."""
    # A server that runs and replies explains the least.
    ordered = sorted(states, key=lambda state: state == _REPLIED)
    return "; ".join(f"{_named(states[state])}, which {state}" for state in ordered) or "no server"


def are_silent(states: Iterable[str]) -> bool:
    """Whether one of the servers runs and does not reply."""
    return any(state.startswith(_SILENT) for state in states)


def state_of(server: Address, probe_seconds: float) -> str:
    """Whether a server replies to PING. Any reply counts: it may load its data, or require a password."""
    try:
        with connect(server, deadline_seconds=probe_seconds) as client:
            client.sendall(b"*1\r\n$4\r\nPING\r\n")
            replied = bool(client.recv(1))
    except OSError:
        replied = False
    return _REPLIED if replied else f"{_SILENT} within {probe_seconds:.0f} s"


def _state(launch: Launch, probe_seconds: float) -> str:
    process = process_tree.look_at(launch.pid)
    if process is None or process.state in {"Z", "X"}:
        return "had ended"
    port = port_of(launch)
    return state_of((LOOPBACK, port), probe_seconds) if port else "ran"


def _named(guests: list[str]) -> str:
    others = len(guests) - SHOWN
    return ", ".join(guests[:SHOWN]) + (f" and {others} more" if others > 0 else "")
