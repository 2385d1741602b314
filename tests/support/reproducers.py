"""Reproducers for tests: a test sets only the fields that matter to it."""

from __future__ import annotations

from typing import Any

from harness.judge.reproducer import Reproducer


def reproducer(**of: Any) -> Reproducer:
    """A misaligned load in bitopCommand, with the given fields changed."""
    usual = {
        "finding": "alignment-bitopCommand-load",
        "kind": "alignment",
        "function": "bitopCommand",
        "server": "redis-3.2.6",
        "target": "armv5",
        "policy": "signal",
        "optimisation": "O2",
        "emulator": "pinned",
        "chunks": [],
    }
    return Reproducer(**{**usual, **of})
