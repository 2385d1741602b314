"""Documents that are generated are those that the code and the data say now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.generated import DOCUMENTS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_generated_document_is_current(path: Path) -> None:
    assert DOCUMENTS[path]() == path.read_text("utf-8"), f"{path} is not current: run python -m tests.generated"
