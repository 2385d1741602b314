"""Sphinx' configuration: the repository is the source folder, so that a link means the same here as on GitHub.

Navigation is not written twice: the lists of links in docs/README.md, and in the pages that it calls sections, are the
site's table of contents. A link or an anchor that leads nowhere is a warning, and warnings fail the build.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Plumbline"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**.md",
    "harness/README.md",
    "measurements/README.md",
    "suites/README.md",
    "suites/*/README.md",
    "targets/README.md",
    "toolchains/**.md",
]
exclude_patterns = [".*", "build", "runs"]
"""Folders that are not even searched."""

myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = "Plumbline"
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

SECTIONS = ("docs/README", "docs/FOUND", "docs/howto/README")
"""Pages whose lists of links are navigation."""
_ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)#:]+)\.md\)", re.MULTILINE)


def with_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Append to a section's page what makes its lists of links the site's navigation, a caption for each heading."""
    del app
    if page not in SECTIONS:
        return
    for part in re.split(r"^## ", source[0], flags=re.MULTILINE):
        caption, _, rest = part.partition("\n")
        if entries := _ENTRY.findall(rest):
            named = "" if caption.startswith("#") else f":caption: {caption}\n"
            listed = "\n".join(entries)
            source[0] += f"\n```{{toctree}}\n:hidden:\n{named}\n{listed}\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", with_navigation)
    return {"parallel_read_safe": True}
