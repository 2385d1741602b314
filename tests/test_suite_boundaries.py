"""Suites stand alone: a suite imports what suites share and itself, never another suite."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARED = "_shared"


def imported(source: str) -> Iterator[str]:
    """The absolute names of the modules that a file imports, with the names that it takes from them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "suites import by absolute name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def trespasses(folder: Path) -> list[str]:
    """Each import by which a suite below `folder`, or what suites share, depends on a suite that is another one."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        file = path.relative_to(folder)
        own = file.parts[0] if len(file.parts) > 1 else ""
        for name in imported(path.read_text("utf-8")):
            package, _, rest = name.partition(".")
            suite = rest.partition(".")[0]
            if package == "suites" and suite not in {SHARED, own}:
                found.append(f"{file} imports {name}")
    return found


def test_no_suite_imports_another_suite() -> None:
    assert trespasses(ROOT / "suites") == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("bitops/test_bitops.py", "from suites.fuzz.model import Model"),
        ("bitops/test_bitops.py", "from suites import fuzz"),
        ("bitops/test_bitops.py", "import suites.fuzz.model"),
        ("bitops/test_bitops.py", "if TYPE_CHECKING:\n    from suites.fuzz import model"),
        ("_shared/link.py", "from suites.fuzz.model import Model"),
        ("conftest.py", "from suites.fuzz.model import Model"),
    ],
)
def test_an_import_of_another_suite_is_found(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"from suites._shared import link\n{line}\n", "utf-8")
    assert len(trespasses(tmp_path)) == 1


def test_a_suite_imports_itself_and_what_suites_share(tmp_path: Path) -> None:
    path = tmp_path / "fuzz" / "session.py"
    path.parent.mkdir()
    path.write_text("import harness.core\nfrom suites._shared import link\nfrom suites.fuzz import model\n", "utf-8")
    assert trespasses(tmp_path) == []
