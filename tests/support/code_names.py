"""The names and texts in a module's code, for tests of the names that code may contain. Comments and docstrings are
prose, so they are excluded.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HARNESS = ROOT / "harness"


@dataclass(frozen=True, kw_only=True)
class CodeText:
    """A text in code that may contain a name."""

    line: int
    kind: Literal["identifier", "string", "import", "path"]
    """`import`: the absolute name of the imported module or object. `path`: parts joined with `/`; each part is also
    returned separately."""
    text: str


def texts(source: str) -> Iterator[CodeText]:
    """Every identifier, string literal, import and path of a module, in no particular order."""
    tree = ast.parse(source)
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    prose = {id(value) for value in statements if isinstance(value, ast.Constant)}
    for node in ast.walk(tree):
        for kind, text in _texts_of(node):
            if id(node) not in prose:
                yield CodeText(line=getattr(node, "lineno", 0), kind=kind, text=text)


def _texts_of(node: ast.AST) -> Iterator[tuple[Literal["identifier", "string", "import", "path"], str]]:
    match node:
        case ast.Constant(value=str(text)):
            yield "string", text
        case ast.BinOp(op=ast.Div()):
            yield "path", "/".join(part.strip("'\"") for part in ast.unparse(node).split(" / "))
        case ast.Import(names=names):
            yield from (("import", alias.name) for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            yield from (("import", f"{'.' * level}{module or ''}.{alias.name}") for alias in names)
        case ast.alias(asname=str(text)):
            yield "identifier", text
        case ast.alias():
            pass
        case _:
            keys = (getattr(node, key, None) for key in ("id", "attr", "arg", "name"))
            yield from (("identifier", text) for text in keys if isinstance(text, str))


def named_in(source: str, names: re.Pattern[str]) -> list[str]:
    """`LINE: TEXT` of each text that contains a name. Compares in lower case, and splits identifiers into words."""
    # Most modules contain no name at all, also in prose. To parse them takes twenty times as long.
    if not names.search(_in_words(source)):
        return []
    found = [(one.line, one.text) for one in texts(source) if one.kind != "path"]
    return [f"{line}: {text}" for line, text in sorted(found) if names.search(_in_words(text))]


def _in_words(text: str) -> str:
    """Lower case, with identifiers split into words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower()


def named_outside(folder: Path, names: re.Pattern[str], *, root: Path = HARNESS) -> dict[str, list[str]]:
    """File -> the places in it that contain a name, for every module below `root` except those below the folder."""
    paths = [path for path in root.rglob("*.py") if not path.is_relative_to(folder)]
    found = {str(path.relative_to(root.parent)): named_in(path.read_text("utf-8"), names) for path in paths}
    return {path: places for path, places in found.items() if places}
