"""Finds processes that are still alive after a test should have ended them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


WAIT_SECONDS = 60.0
"""The longest wait for an event. It ends a test that would otherwise hang, and asks nothing of a machine's speed."""

SLEEP = "86399"
"""A sleep in seconds that no other process uses, so that a surviving process belongs to the test."""


def eventually(condition: Callable[[], bool]) -> bool:
    """True as soon as the condition holds; False if it does not hold before the deadline."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def pids_in(path: Path, count: int) -> list[int]:
    assert eventually(lambda: path.is_file() and len(path.read_text("utf-8").split()) == count), (
        f"{path} does not list {count} processes"
    )
    return [int(word) for word in path.read_text("utf-8").split()]
