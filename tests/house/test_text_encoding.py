"""Text is UTF-8 in every locale: who opens a file or a pipe as text names its encoding."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS = ("harness", "suites", "tests", "tools", "ci")
PLACES = {"read_text": 0, "write_text": 1}
"""Method of a path -> the place of its encoding among the arguments."""
SPAWNING = {"run", "Popen", "check_output", "check_call", "call"}


OPENING = re.compile(r"\b(?:read_text|write_text|open|fdopen)\b|\b(?:text|universal_newlines) *=")
NAMING = re.compile(r'"utf-8"|\bencoding=')


def may_open(source: str) -> bool:
    """Whether a line has more words that open text than encodings. Otherwise the module is not parsed, which takes
    much longer.
    """
    return any(
        len(OPENING.findall(line)) > len(NAMING.findall(line))
        for line in source.splitlines()
        if not line.lstrip().startswith(("#", '"""'))
    )


def unnamed(source: str) -> Iterator[str]:
    """The calls of a module that leave the encoding to the locale."""
    for call in ast.walk(ast.parse(source)) if may_open(source) else ():
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        options = {one.arg: one.value for one in call.keywords}
        # What opens an archive opens no text.
        if "encoding" in options or "fileobj" in options:
            continue
        if name in PLACES:
            wrong = len(call.args) <= PLACES[name]
        elif name in {"open", "fdopen"}:
            # Path.open names the mode first, the functions second. Other methods of this name take no mode.
            place = 0 if isinstance(call.func, ast.Attribute) and name == "open" else 1
            mode = call.args[place] if len(call.args) > place else options.get("mode")
            named = mode.value if isinstance(mode, ast.Constant) else None
            wrong = isinstance(named, str) and set(named) <= set("rwaxt+") and len(call.args) <= place + 2
            wrong |= mode is None and len(call.args) == place and (place == 1 or not call.keywords)
        else:
            text = options.get("text") or options.get("universal_newlines")
            wrong = name in SPAWNING and isinstance(text, ast.Constant) and text.value is True
        if wrong:
            yield f"{call.lineno}: {ast.unparse(call)[:80]}"


def test_who_opens_text_names_its_encoding() -> None:
    modules = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): list(unnamed(path.read_text("utf-8"))) for path in sorted(modules)}
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("path.read_text()", 1),
        ('path.read_text("utf-8")', 0),
        ('path.write_text(f"{x}")', 1),
        ('path.write_text(text, encoding="utf-8")', 0),
        ("open(path)", 1),
        ('open(path, "w")', 1),
        ('open(path, "rb")', 0),
        ("path.open()", 1),
        ('path.open("a")', 1),
        ('path.open("a", encoding="utf-8")', 0),
        ('os.fdopen(number, "w")', 1),
        ('os.fdopen(number, "wb")', 0),
        ('archive.open("name")', 0),
        ('tarfile.open(fileobj=stream, mode="w")', 0),
        ("subprocess.run(words, text=True)", 1),
        ('subprocess.run(words, encoding="utf-8")', 0),
        ("subprocess.run(words)", 0),
    ],
)
def test_an_encoding_of_the_locale_is_seen(source: str, number: int) -> None:
    assert len(list(unnamed(source))) == number
