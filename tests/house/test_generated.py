"""Generated documents match the current code and data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT
from tools.generated import DOCUMENTS, TOML_FILES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_generated_document_is_current(path: Path) -> None:
    assert DOCUMENTS[path]() == path.read_text("utf-8"), f"{path} is not current: run python -m tools.generated"


def test_every_kind_of_toml_file_is_documented() -> None:
    sources = [*(ROOT / "harness").rglob("*.py"), *(ROOT / "suites").rglob("*.py")]
    text = "".join(path.read_text("utf-8") for path in sources)
    read = set(re.findall(r"\bread_toml\([^,()]+(?:\([^()]*\))?[^,()]*, (?:\w+\.)?([A-Z]\w+)", text))
    assert len(read) > 10
    # A family of policies consists of a source and its policies, which are documented.
    assert read - {"PolicyFamily"} <= {kind.__name__ for _, kind in TOML_FILES}


def test_every_entry_of_the_command_line_has_a_text_and_each_usage_one_line() -> None:
    lines = (ROOT / "docs" / "cli.md").read_text("utf-8").splitlines()
    assert [line for line in lines if re.fullmatch(r"- `[^`]*`:\s*", line)] == []
    assert [line for line in lines if line.count("`") % 2] == []
