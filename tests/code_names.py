"""The names and texts in a module's code, for tests of what code may know of. Comments and docstrings are prose."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def named_in(source: str, names: re.Pattern[str]) -> list[str]:
    """`LINE: TEXT` of each identifier and string literal that holds a name; the words of an identifier are apart."""
    return [
        f"{line}: {text}"
        for line, text in sorted(_texts(ast.parse(source)))
        if names.search(re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower())
    ]


def named_outside(folder: Path, names: re.Pattern[str]) -> dict[str, list[str]]:
    """The same of every module of the harness that is not in a folder: file -> places."""
    paths = [path for path in (ROOT / "harness").rglob("*.py") if path.parent != folder]
    found = {str(path.relative_to(ROOT)): named_in(path.read_text("utf-8"), names) for path in paths}
    return {path: places for path, places in found.items() if places}


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text), lineno=line) if id(node) not in prose:
                yield line, text
            case ast.Name(id=text, lineno=line) | ast.Attribute(attr=text, lineno=line):
                yield line, text
            case ast.FunctionDef(name=text, lineno=line) | ast.ClassDef(name=text, lineno=line):
                yield line, text
            case ast.keyword(arg=str(text), lineno=line) | ast.arg(arg=text, lineno=line):
                yield line, text
            case ast.alias(name=text, lineno=line):
                yield line, text
