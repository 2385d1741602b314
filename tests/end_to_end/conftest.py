"""Fixtures that several files of end-to-end tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.support.changed_checkouts import release_as_repository

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A release as a repository of one commit."""
    return release_as_repository(tmp_path)
