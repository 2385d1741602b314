"""Fixtures of the fuzz suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream


@pytest.fixture(scope="session")
def defaults() -> dict[str, Stream]:
    """A server's folder -> the commands that restore its settings, read once before any test changes them."""
    return {}
