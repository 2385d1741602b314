"""Every link between documents leads to an existing place, and every page can be reached from the README."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "suites/**/*.md",
        "targets/*.md",
        "toolchains/**/*.md",
        "harness/*.md",
        "measurements/*.md",
    )
    for path in ROOT.glob(pattern)
)


def headings(page: Path) -> set[str]:
    """The anchors of a page, in GitHub's form."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text))
    return [link for link in found if not link.startswith(("http:", "https:"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in links(page):
        name, _, heading = link.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), f"{link} leads nowhere"
        assert not heading or heading in headings(place), f"{link}: no such heading; {sorted(headings(place))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_has_a_header(page: Path) -> None:
    """A blank line before a row ends a table, so the rest of it would be shown as text."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    tables = re.findall(r"^(?: {0,3}\|.*\n)+", text, re.MULTILINE)
    assert [table for table in tables if not re.match(r".*\n *\|[ :|-]+\|?\n", table)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    new = list(reached)
    while new:
        page = new.pop()
        there = {(page.parent / link.partition("#")[0]).resolve() for link in links(page) if not link.startswith("#")}
        found = {one for one in there if one.suffix == ".md"} - reached
        reached |= found
        new += found
    docs = {path.resolve() for path in (ROOT / "docs").rglob("*.md")}
    assert docs <= reached, sorted(str(path.relative_to(ROOT)) for path in docs - reached)


def test_the_readme_begins_with_commands() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 90
    assert next(line for line in lines[1:] if line) == "```sh", "the commands come first"
    assert [line.split("#")[0].strip() for line in lines[3:5]] == ["ci/check", "ci/test"]


PATHS = re.compile(
    r"(?<![\w/.-])(?:harness|suites|tests|toolchains|targets|tools|measurements|ci)(?:/[\w.-]+)+(?<![.])"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        pytest.skip("it describes files of the past")
    named = {
        re.sub(r"/[\w.-]*(?:NAME|FILE|ISA|FAMILY|KEY|SUITE)\b.*", "", name)
        for name in PATHS.findall(page.read_text("utf-8"))
    }
    assert {name for name in named if not (ROOT / name).exists() and not (page.parent / name).exists()} == set()


def test_every_page_that_the_code_names_exists() -> None:
    """In the remedy of an error, or in a comment."""
    files = [
        path
        for folder in ("harness", "suites", "ci", "targets", "toolchains", "tests")
        for path in (ROOT / folder).rglob("*")
    ]
    readable = [path for path in files if path.suffix in {".py", ".toml", ".c", ".h", ".tcl", ""} and path.is_file()]
    named: dict[str, str] = {}
    for path in readable:
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text("utf-8", errors="replace")):
            named[name] = str(path.relative_to(ROOT))
    assert len(named) > 10
    assert {name: place for name, place in named.items() if not (ROOT / name).is_file()} == {}


def test_every_file_under_the_emulators_licence_has_its_identifier() -> None:
    folder = ROOT / "toolchains" / "qemu"
    ours = [folder / "hooks.patch", *(path for path in (folder / "overlay").rglob("*") if path.is_file())]
    assert len(ours) >= 7
    silent = [
        path for path in ours if "SPDX-License-Identifier: GPL-2.0-or-later" not in path.read_text("utf-8")[:2000]
    ]
    assert silent == []


def test_every_folder_of_tests_has_a_row() -> None:
    """A contributor looks there for the place of a test."""
    table = (ROOT / "docs" / "TESTS.md").read_text("utf-8")
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    folders = {"tests/unit" if file.parts[1] == "unit" else str(file.parent) for file in files}
    assert {folder for folder in folders if f"`{folder}`" not in table} == set()
    units = {file.parts[2] for file in files if file.parts[1] == "unit"}
    packages = {path.name for path in (ROOT / "harness").iterdir()}
    assert units <= {*packages, "support"}, "a folder of unit tests without a package"


KEPT = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
"""The kinds of changes of https://keepachangelog.com/en/1.1.0/."""


def test_the_changelog_has_the_kinds_of_keep_a_changelog_and_a_version_fits_on_three_pages() -> None:
    """It is for users, who must read it before they update. Git has the rest."""
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert {kind for version in versions for kind in re.findall(r"^### (.+)$", version, re.MULTILINE)} <= KEPT
    assert {version.splitlines()[0]: version.count("\n") for version in versions if version.count("\n") > 150} == {}
