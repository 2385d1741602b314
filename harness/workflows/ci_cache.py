"""Which parts of the cache a CI system should keep from one job to the next, and under which keys.

A key changes with everything that the entry is made from: pinned sources, the project's patches, compilers, the server,
the host's release. The module is independent of CI systems: each of them needs paths and keys.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import build_progress
from harness.build.emulators.qemu_source import pinned_qemu, qemu_key
from harness.build.kernel import kernel_key, kernel_name, linux_source
from harness.build.server_build import build_name
from harness.build.sources import source_tree
from harness.build.sources.archives import archive_name
from harness.build.sources.family_compiler import LIBRARIES
from harness.build.workshop.build_plan import BuildPlan
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError
from harness.core.model import Record, SourceTree
from harness.isa import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.cache import Cache
    from harness.plan.catalog import Catalog


class CiCacheEntry(Record, frozen=True):
    """One entry of a CI system's cache."""

    key: str
    """Changes whenever the content that should be kept changes."""
    restore_key: str
    """The prefix of the keys whose entries are a good start if no entry has this key; empty if there is none."""
    paths: list[str]
    """Absolute paths, in the host's cache."""


def ci_cache_entries(
    catalog: Catalog, cache: Cache, targets: Sequence[str], server: str, *, optimisation: str = "O2"
) -> dict[str, CiCacheEntry]:
    """`emulators`, `kernels`, `builds` → the entry to keep for a check of a server on targets.

    An entry is missing where there is nothing to keep, or where its compilers are not installed yet: without their
    versions its content has no address. Raises UsageError for a path that is not a server's tree.
    """
    host = host_release()
    entries = {
        "emulators": _emulators(catalog, cache, targets, host),
        "kernels": _kernels(catalog, cache, targets, host),
        "builds": _builds(catalog, cache, targets, server, host, optimisation),
    }
    return {name: entry for name, entry in entries.items() if entry is not None}


def host_release() -> str:
    """The host's distribution and processor, whose libraries and compilers make the entries: `debian12-x86_64`."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return platform.machine()
    return f"{release.get('ID', 'linux')}{release.get('VERSION_ID', '')}-{platform.machine()}"


def _emulators(catalog: Catalog, cache: Cache, targets: Sequence[str], host: str) -> CiCacheEntry | None:
    specs = [catalog.targets[name].emulator for name in targets]
    names = sorted({spec.qemu for spec in specs if spec.is_qemu_user})
    if not names:
        return None
    key = qemu_key(pinned_qemu())
    return CiCacheEntry(
        key=f"plumbline-emulators-{host}-{key}-{'-'.join(names)}",
        restore_key="",
        paths=[str(path) for name in names for path in cache.paths("emulators", f"{key}-{name}")],
    )


def _kernels(catalog: Catalog, cache: Cache, targets: Sequence[str], host: str) -> CiCacheEntry | None:
    specs = [catalog.kernels[machine] for name in targets if (machine := catalog.targets[name].emulator.machine)]
    linux = linux_source()
    try:
        names = sorted({kernel_name(one, kernel_key(one, catalog.toolchains[one.toolchain], linux)) for one in specs})
    except InfrastructureError:
        return None
    if not names:
        return None
    paths = [str(path) for name in names for path in cache.paths("kernels", name)]
    return CiCacheEntry(key=f"plumbline-kernels-{host}-{key_of(names)}", restore_key="", paths=paths)


def _builds(
    catalog: Catalog, cache: Cache, targets: Sequence[str], server: str, host: str, optimisation: str
) -> CiCacheEntry | None:
    """Builds, the compilers' cache, the history of earlier builds, and the release's archive."""
    release = catalog.servers.get(server)
    paths = [cache.path(kind, "") for kind in ("ccache", "canaries", build_progress.KIND)]
    if release is None:
        tree = source_tree.open_tree(Path(server))
    else:
        version = tuple(int(part) for part in release.version.split("."))
        tree = SourceTree(name=server, family=release.family, version=version, path=cache.root, digest=release.sha256)
        paths += cache.paths("archives", archive_name(server, release.sha256))
    # The oracle is the native build of the same source.
    built_for = sorted({rules.userland(catalog.targets[name]) for name in [*targets, "native"]})
    tools = {name: catalog.toolchain_of(catalog.targets[name]) for name in built_for}
    try:
        names = [
            build_name(BuildPlan(tree=tree, target=catalog.targets[name], tools=own, optimisation=optimisation))
            for name, own in tools.items()
            if not own.family
        ]
    except InfrastructureError:
        return None
    start = f"plumbline-builds-{host}-{'-'.join(built_for)}-"
    if catalog.family in catalog.families:
        start += f"{catalog.family}-"
    else:
        paths += [path for name in names for path in cache.paths("builds", name)]
    for family in catalog.families.values():
        if family.name in {catalog.family, *(own.family for own in tools.values())}:
            # Its compiler may not be fetched yet, so its builds have no names. ccache makes rebuilding cheap.
            paths += [cache.path(LIBRARIES, family.name)] if family.library_cache else []
            names += [host.sha256 for host in catalog.compilers[family.compiler].hosts.values()]
    return CiCacheEntry(key=start + key_of(names), restore_key=start, paths=[str(path) for path in paths])
