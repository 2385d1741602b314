"""The value that every workflow starts from: what can be selected, where results are kept, and how sources arrive.

It holds no state of a job: a workflow that needs a builder or emulators makes them here, and they share the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.build.qemu_user import Emulators
from harness.build.server_build import Builder
from harness.build.sources.archives import Fetcher
from harness.build.sources.server_tree import open_server
from harness.core.cache import Cache
from harness.core.progress import Progress
from harness.plan.catalog import Catalog

if TYPE_CHECKING:
    from harness.core.model import BuildSettings, Flavour, SourceTree


class Workbench(msgspec.Struct, frozen=True, kw_only=True):
    """The catalog, the cache, the progress report, and whether anything may be downloaded."""

    catalog: Catalog
    cache: Cache
    progress: Progress
    offline: bool = False

    @classmethod
    def default(cls, *, offline: bool = False) -> Workbench:
        """The project's catalog, the user's cache, and progress on standard error."""
        return cls(catalog=Catalog(), cache=Cache.default(), progress=Progress(), offline=offline)

    @property
    def fetcher(self) -> Fetcher:
        """Gets source archives from the cache or, unless offline, from their registries."""
        return Fetcher(self.cache, self.progress, offline=self.offline)

    @property
    def builder(self) -> Builder:
        """Compiles servers into the cache."""
        return Builder(self.cache, self.progress)

    def emulators(self, flavour: Flavour = "pinned") -> Emulators:
        """Builds the emulators of a flavour into the cache, or finds them there."""
        return Emulators(self.cache, self.fetcher, self.progress, flavour=flavour)

    def open_server(self, name: str, settings: BuildSettings | None = None) -> SourceTree:
        """The source tree of a release or of a path, built with `settings`. Raises UsageError for neither."""
        tree = open_server(self.catalog, self.fetcher, name)
        return msgspec.structs.replace(tree, settings=settings) if settings else tree

    def with_new_stages(self, label: str) -> Workbench:
        """The same workbench for a run within a run: its messages begin with `label`, and its stages are its own."""
        return msgspec.structs.replace(self, progress=self.progress.fresh(label))
