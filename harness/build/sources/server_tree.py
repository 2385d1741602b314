"""Finds a server's tree by name or path: resolves the name before any work starts, and opens the tree when needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build.sources import source_tree
from harness.core.errors import UsageError
from harness.plan.catalog import select

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.build.sources.archives import Fetcher
    from harness.core.model import Server, SourceTree
    from harness.plan.catalog import Catalog


def known_server(catalog: Catalog, name: str, *, tell: Callable[[str], None] | None = None) -> Server | Path:
    """A release by name, or the path of a tree. Raises UsageError for anything else, before any work starts.

    `tell` receives the release that a development tree counts as.
    """
    path = Path(name).expanduser()
    if name not in catalog.servers and (path.exists() or os.sep in name):
        tree = source_tree.open_tree(path, digest="not needed yet")
        if tell and tree.development:
            tell(f"{tree.name} is {tree.development}")
        return tree.path
    chosen = select("server", [name], catalog.servers)
    if len(chosen) > 1:
        raise UsageError(
            f"'{name}' names {len(chosen)} servers", where="--server", remedy="one of: " + ", ".join(chosen)
        )
    return catalog.servers[chosen[0]]


def open_server(catalog: Catalog, fetcher: Fetcher, name: str) -> SourceTree:
    """The tree of a release, fetched if necessary, or of a path. Raises UsageError for anything else.

    It reports which release a development tree counts as.
    """
    known = known_server(catalog, name)
    # A tree at a path may be edited while it is built and run.
    private = fetcher.cache.private
    tree = source_tree.take(known, private(known.name)) if isinstance(known, Path) else fetcher.server(known)
    if tree.development:
        fetcher.progress.say(f"{tree.name} is {tree.development}")
    return tree
