"""Entries of a cache with an age. Processes of tests import this module alone, which takes a third of the time that
pytest takes.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache

DAY = 86400
SIZE = 1000


def add(cache: Cache, name: str, *, days: float = 0, content: bytes = b"x" * SIZE) -> Path:
    """An entry whose last use was that many days ago."""
    kind, _, key = name.partition("/")

    def fill(into: Path) -> None:
        (into / "file").write_bytes(content)

    folder = cache.folder(kind, key, fill)
    age(cache, name, days)
    return folder


def age(cache: Cache, name: str, days: float) -> None:
    kind, _, key = name.partition("/")
    then = time.time_ns() - int(days * DAY * 1e9)
    os.utime(cache.seal_path(kind, key), ns=(then, then))
