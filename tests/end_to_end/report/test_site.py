"""The documentation site is built from scratch, a broken link is refused, and a real browser shows the pages."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import process
from harness.core.strict_toml import ROOT
from tests.end_to_end.support.browser import look
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow(instead="tests/house/test_documents.py and tests/house/test_generated.py"),
]

BUILD_SECONDS = 300.0


def build(source: Path, folder: Path) -> process.Result:
    """The command of `tox -e docs`, in a source tree."""
    words = [sys.executable, "-m", "tools.site", str(folder)]
    return process.run(words, folder=source, deadline_seconds=BUILD_SECONDS, usable=True, environment=dict(os.environ))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Writes no log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the name is the library's
        del format, args


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.code == 0, built.text
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of the site on a web server that behaves like GitHub Pages."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def text(document: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", document).split())


def test_the_address_of_the_site_leads_to_the_landing_page(address: str) -> None:
    document, console = look(f"{address}/")
    assert console == []
    assert "Plumbline's documentation" in text(document).replace("’", "'")
    for caption in ("Tutorial", "How-to guides", "Reference", "Explanation", "Bugs found"):
        assert f'<span class="caption-text">{caption}</span>' in document


def test_a_finding_has_its_own_page(address: str) -> None:
    document, console = look(f"{address}/docs/found/lua-murmur32-alignment.html")
    assert console == []
    assert "alignment-murmur32-load" in document
    assert "plumb check --server valkey-9.1.2" in text(document)


def test_every_finding_has_a_page_and_is_in_the_navigation(site: Path) -> None:
    entries = sorted((ROOT / "docs" / "found").glob("*.md"))
    assert len(entries) >= 35
    index = (site / "docs" / "FOUND.html").read_text("utf-8")
    for entry in entries:
        assert (site / "docs" / "found" / entry.with_suffix(".html").name).is_file()
        assert f'href="found/{entry.stem}.html"' in index


def test_a_search_finds_a_bug_by_a_function_of_the_server(address: str) -> None:
    document, console = look(f"{address}/search.html?q=murmur32")
    assert console == []
    assert "found/lua-murmur32-alignment.html" in document


def test_a_search_for_an_absent_word_finds_nothing(address: str) -> None:
    document, _ = look(f"{address}/search.html?q=nosuchword")
    assert "did not match any documents" in text(document)


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """The site has two pages, and is built without errors if the link is right."""
    source, page = tmp_path / "source", tmp_path / "source" / "docs" / "tutorial.md"
    shutil.copytree(ROOT / "tools", source / "tools")
    fakes.write(source / "docs" / "README.md", "# Documents\n\n## Tutorial\n\n- [First steps](tutorial.md)\n")
    fakes.write(page, "# First steps\n\n[Back](README.md#tutorial), or [begin](#first-steps)\n")
    built = build(source, tmp_path / "whole")
    assert built.code == 0, built.text
    with page.open("a", encoding="utf-8") as pages_text:
        pages_text.write("\n[a](nosuch.md) [b](README.md#no-heading-there) [c](#no-heading-here)\n")
    built = build(source, tmp_path / "site")
    assert built.code != 0
    for end in ("nosuch.md", "no-heading-there", "no-heading-here"):
        assert re.search(rf"tutorial\.md:\d+: WARNING: .*{re.escape(end)}", built.text), built.text
