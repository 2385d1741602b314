"""Compares the packages that a replay, or gdb, runs with those of the finding's run.

A server's version stays while the distribution's archive gets other libraries: a package that the cache no longer has
is then fetched with these. The finding may be theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.build.sources.server_package import packages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harness.core.model import Build, SourceTree
    from harness.judge.reproducer import Reproducer
    from harness.workflows.replay.recurrence import Recurrence

SHOWN = 5
"""How many packages a sentence names."""


def changed_packages(
    reproducer: Reproducer, tree: SourceTree, targets: Iterable[str], build_of: Callable[[str], Build]
) -> str:
    """A sentence if the packages of the finding's server are others than in its run; empty if they are the same, if the
    server was compiled, and for another server.

    `targets`: those to compare, of which `build_of` returns the builds.
    """
    if tree.package is None or tree.package.title != reproducer.server:
        return ""
    if not reproducer.packages:
        return "the run did not record its packages, which may be others than these"
    found = [
        f"on {name}, {differs}"
        for name in targets
        if (differs := difference(reproducer.packages.get(name, {}), packages_of(build_of(name))))
    ]
    return f"the packages are not those of the run: {'; '.join(found)}" if found else ""


def difference(recorded: Mapping[str, str], here: Mapping[str, str]) -> str:
    """How two sets of packages differ, in words; empty if they are equal. Each: file -> SHA-256.

    A file is named PACKAGE_VERSION_ARCHITECTURE.deb.
    """
    before, now = (
        {file.partition("_")[0]: (file, digest) for file, digest in each.items()} for each in (recorded, here)
    )
    found = []
    for name in sorted(before.keys() | now.keys()):
        if name not in now:
            found.append(f"{before[name][0]} is missing")
        elif name not in before:
            found.append(f"{now[name][0]} is new")
        elif before[name][0] != now[name][0]:
            found.append(f"{now[name][0]} instead of {before[name][0]}")
        elif before[name][1] != now[name][1]:
            found.append(f"{now[name][0]} has other content")
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def unless_changed(ended: Recurrence, changed: str) -> Recurrence:
    """The outcome of a replay: if the packages have changed, a finding that does not come says nothing.

    `changed`: a sentence on how they have; empty if they have not.
    """
    if not changed or ended.outcome != "gone":
        return ended
    return msgspec.structs.replace(ended, outcome="unknown", reason=changed, machine=True)
