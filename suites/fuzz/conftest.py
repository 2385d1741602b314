"""Fixtures of the fuzz suite."""

from __future__ import annotations

import pytest

from suites.fuzz.emptying import Emptying


@pytest.fixture(scope="session")
def emptying() -> Emptying:
    """Empties the cell's servers between streams."""
    return Emptying()
