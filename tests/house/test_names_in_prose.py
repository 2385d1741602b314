"""Comments and docstrings name only files, modules and classes that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from harness.core.strict_toml import ROOT

FOLDERS = ("harness", "suites", "tests", "toolchains", "targets", "tools", "ci")
KINDS = {".py", ".c", ".h", ".tcl", ".toml", ".patch", ".sh", ""}
STRING = re.compile(r'^ *"""(.*?)"""|""".*?"""', re.DOTALL | re.MULTILINE)
"""A string of several lines. Group 1 is the text of a docstring, which begins a line."""
MODULE = re.compile(r"\b(?:harness|suites|tests|tools)(?:\.[A-Za-z_]\w*)+")
FILE = re.compile(r"(?<![\w/.-])(?:harness|suites|tests|toolchains|targets|tools|ci|docs)/[\w./-]*\.(?!rst\b)\w+\b")
CONTENT = re.compile(r"([\w/-]+/[\w-]+\.(?:py|c|h|tcl)), `?([A-Z]\w+|\w+\(\))")
QUALIFIED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
PLACEHOLDER = re.compile(r"\b(?:NAME|BUG|ISA|FAMILY|SUITE)\b")
UPSTREAMS = re.compile(r"tests/(?:support|cluster|sentinel|test_helper)\b")
"""Files of Redis' own tests, which are in the release's tree."""


def sources() -> list[Path]:
    every = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in KINDS)
    hidden = {"data", "__pycache__"}
    return [path for path in every if path.is_file() and not hidden & set(path.relative_to(ROOT).parts)]


def prose(path: Path) -> list[str]:
    """The comments and docstrings of a file."""
    text = path.read_text("utf-8", errors="replace")
    if path.suffix in {".c", ".h", ".patch"}:
        return re.findall(r"/\*.*?\*/", text, re.DOTALL)
    return re.findall(r"(?:^|\s)#.*", text) + (STRING.findall(text) if path.suffix == ".py" else [])


@cache
def words_of_code() -> frozenset[str]:
    """Every word in the other Python modules, without their comments and docstrings."""
    modules = (path.read_text("utf-8") for path in sources() if path.suffix == ".py" and path != Path(__file__))
    return frozenset(word for text in modules for word in re.findall(r"\w+", re.sub(r"#.*", "", STRING.sub("", text))))


def exists(module: str) -> bool:
    """Whether a dotted name is a module, or a name that its last module mentions."""
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if place.is_dir() or file.is_file():
            text = file.read_text("utf-8") if file.is_file() else ""
            return all(re.search(rf"\b{part}\b", text) for part in parts[count:])
    return False


def missing(text: str, folder: Path) -> list[str]:
    """The names that do not exist, in a comment or docstring of a file in `folder`."""
    found = [name for name in MODULE.findall(text) if not exists(name)]
    for name in FILE.findall(text):
        known = (ROOT / name).exists() or (folder / name).exists()
        if not known and not PLACEHOLDER.search(name) and not UPSTREAMS.match(name):
            found.append(name)
    for name, content in CONTENT.findall(text):
        file = ROOT / name
        if file.is_file() and not re.search(rf"\b{content.removesuffix('()')}\b", file.read_text("utf-8")):
            found.append(f"{name}, {content}")
    for name in QUALIFIED.findall(text):
        found += [name for part in name.split(".") if part not in words_of_code()]
    return found


def test_comments_and_docstrings_name_only_existing_things() -> None:
    files = sources()
    assert len(files) > 1000
    lost = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for text in prose(path)
        for name in missing(text, path.parent)
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("as harness.record.fault_lag reads it", "harness.record.fault_lag"),
        ("(harness.record.fault_log.Vault)", "harness.record.fault_log.Vault"),
        ("written by tools/matrix.py", "tools/matrix.py"),
        ("(harness/record/run_folder.py, Fault)", "harness/record/run_folder.py, Fault"),
        ("the file of a `coverage.Edgez`", "coverage.Edgez"),
    ],
)
def test_a_missing_name_is_found(text: str, name: str) -> None:
    assert missing(text, ROOT) == [name]
