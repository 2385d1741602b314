"""One module writes all Markdown tables."""

from __future__ import annotations

import re

import pytest

from harness.core.strict_toml import ROOT
from harness.report.markdown_table import table


def test_a_table_has_a_row_of_headings_a_rule_and_the_rows() -> None:
    assert table(["target", "suite", "seconds"], [("armv5", "sds", 3)], numbers_from=2) == [
        "| target | suite | seconds |",
        "|---|---|--:|",
        "| armv5 | sds | 3 |",
    ]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells under 2 headings"):
        table(["a", "b"], [("c",)])


def test_no_other_module_writes_the_rule_of_a_table() -> None:
    files = [path for folder in ("harness", "suites", "tools") for path in (ROOT / folder).rglob("*.py")]
    writers = [path.relative_to(ROOT) for path in files if re.search(r"\|\s*-{3}|-{2}:\|", path.read_text("utf-8"))]
    assert [str(path) for path in writers] == []
