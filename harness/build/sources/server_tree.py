"""Finds a server's tree by name or path: resolves the name before any work starts, and opens the tree when needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.build.sources import source_tree
from harness.build.sources.server_package import ServerPackages, debian_architecture, package_named, upstream_version
from harness.core.errors import UsageError
from harness.core.model import ServerPackage
from harness.core.target_model import ORACLE
from harness.plan.name_selection import select

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.build.sources.archives import Fetcher
    from harness.core.model import Server, SourceTree
    from harness.plan.catalog import Catalog


def known_server(
    catalog: Catalog, name: str, *, tell: Callable[[str], None] | None = None, packages: bool = False
) -> Server | Path | ServerPackage:
    """A release by name, or the path of a tree. Raises UsageError for anything else, before any work starts.

    `packages`: also accept a distribution's package. `tell` receives the release that a development tree counts as.
    """
    if package := package_named(name):
        if not packages:
            raise UsageError(
                f"{name} is a package, but this command needs a source tree",
                where="--server",
                remedy=f"one of: {', '.join(catalog.servers)}; or plumb check --server {name}",
            )
        return package
    path = Path(name).expanduser()
    if name not in catalog.servers and (path.exists() or os.sep in name):
        tree = source_tree.open_tree(path, digest="not needed yet")
        if tell and tree.development:
            tell(f"{tree.name} is {tree.development}")
        return tree.path
    chosen = select("server", [name], catalog.servers)
    if len(chosen) > 1:
        raise UsageError(
            f"'{name}' matches {len(chosen)} servers", where="--server", remedy="one of: " + ", ".join(chosen)
        )
    return catalog.servers[chosen[0]]


def open_server(catalog: Catalog, fetcher: Fetcher, name: str, *, packages: bool = False) -> SourceTree:
    """The tree of a release, fetched if necessary, or of a path. Raises UsageError for anything else.

    `packages`: also accept a distribution's package, whose tree is that of the release from which it was built.

    It reports which release a development tree counts as.
    """
    known = known_server(catalog, name, packages=packages)
    # A tree at a path may be edited while it is built and run.
    private = fetcher.cache.private
    if isinstance(known, ServerPackage):
        return _packaged(catalog, fetcher, known)
    tree = source_tree.take(known, private(known.name)) if isinstance(known, Path) else fetcher.server(known)
    if tree.development:
        fetcher.progress.say(f"{tree.name} is {tree.development}")
    return tree


def _packaged(catalog: Catalog, fetcher: Fetcher, package: ServerPackage) -> SourceTree:
    """The tree of the release that a package was built from. Raises UsageError for a release that is not known."""
    packages = ServerPackages(fetcher.cache, fetcher.progress, offline=fetcher.offline)
    # The oracle's package decides the version: the other architectures' must be the same.
    oracle = catalog.targets[ORACLE]
    package = packages.resolve(package, debian_architecture(catalog.toolchain_of(oracle), oracle))
    family, version = package.family, upstream_version(package)
    release = next((one for one in catalog.servers.values() if (one.family, one.version) == (family, version)), None)
    if release is None:
        raise UsageError(
            f"{package.title} is built from {family} {version}, which is not a release in the catalog",
            where="--server",
            because="suites look up its features in its source",
            remedy="one of: " + ", ".join(catalog.servers),
        )
    return msgspec.structs.replace(
        fetcher.server(release), name=f"{package.suite}-{package.name}-{version}", package=package
    )
