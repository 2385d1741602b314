"""Commands that messages suggest are pasted into a shell: no path in them may fall apart into several words."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = re.compile(r"\b(plumb|rm|cd|chmod|mkdir) [^,;:()]*$")
PATHS = re.compile(r"(^|[._])(path|folder|tree|run|keys|page|parent)$")


def unquoted(source: str) -> Iterator[str]:
    """The paths, judged by their names, that the f-strings of a module put unquoted behind a command."""
    for text in ast.walk(ast.parse(source)):
        if not isinstance(text, ast.JoinedStr):
            continue
        before = ""
        for part in text.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                named = ast.unparse(part.value)
                if COMMAND.search(before) and PATHS.search(named):
                    yield named


def test_each_path_in_a_suggested_command_is_quoted() -> None:
    modules = sorted((ROOT / "harness").rglob("*.py"))
    found = {str(one.relative_to(ROOT)): list(unquoted(one.read_text("utf-8"))) for one in modules}
    assert {module: paths for module, paths in found.items() if paths} == {}


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ('f"plumb judge {folder}"', ["folder"]),
        ('f"first: rm -r {self.path} now"', ["self.path"]),
        ('f"plumb judge {shlex.quote(str(folder))}"', []),
        ('f"no run in {folder}"', []),
    ],
)
def test_a_path_without_quotes_is_seen(source: str, paths: list[str]) -> None:
    assert list(unquoted(source)) == paths
