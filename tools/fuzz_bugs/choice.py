"""Draws lists of bugs by rule, and builds their servers.

A list has a half of the planted bugs that commands may show, and mutants that a seed draws among those of functions
that the streams of the quick tier enter. What the fuzzer finds does not decide what is in a list.
"""

from __future__ import annotations

import fnmatch
import gzip
import random
import shutil
from typing import TYPE_CHECKING, NamedTuple

from harness.analysis.code.code_map import differences
from harness.build.workshop import build_code
from harness.build.workshop.build_failure import BuildFailedError
from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.model import DEFAULT_OPTIMISATION
from harness.core.target_model import ORACLE
from harness.workflows.mutation_testing import mutations
from harness.workflows.mutation_testing.generator.mutants import in_sample_order
from harness.workflows.mutation_testing.recall.sample_run import mutants_of
from harness.workflows.preparation.reach import reach_store
from harness.workflows.preparation.reach.reached_tests import KeptReach
from harness.workflows.target_setup import set_up_targets
from tools.fuzz_bugs.document import SERVER, Bug, BugList

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from harness.core.model import Build
    from harness.workflows.mutation_testing.mutations import Mutation, Planted
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench
    from tools.fuzz_bugs.document import State

SUITE = "fuzz"
TEST = "fuzz/test_streams.py::test_streams"
TARGETS = ("armv5", "sparc64")
FAULTS = ("alignment", "byte-order", "width")
NO_COMMAND = ("src/aof.c", "src/crccombine.c", "src/rio.c", "src/zipmap.c")
"""Files of the suite that no command enters: they read and write files."""
HALVES = 7
"""The seed that divides the planted bugs between two lists."""


def is_in_reach(mutation: Mutation, globs: Iterable[str]) -> bool:
    """Whether commands may show a planted bug on one of the targets, with the default allocator."""
    files = [edit.file for edit in mutation.edits]
    return (
        mutation.server == SERVER
        and (mutation.allocator, mutation.tier, mutation.memory_order) == ("libc", "quick", "usual")
        and bool(set(TARGETS) & set(mutation.targets))
        and (SUITE in mutation.suites or any(_is_entered(file, globs) for file in files))
    )


def _is_entered(file: str, globs: Iterable[str]) -> bool:
    return file not in NO_COMMAND and any(fnmatch.fnmatchcase(file, glob) for glob in globs)


def entered(bench: Workbench, target: str) -> frozenset[str]:
    """The functions that the streams of the quick tier enter, according to the newest record that the cache has of a
    server on a target (`plumb premerge` makes them).

    Raises UsageError without a record.
    """
    folder = bench.cache.path(reach_store.KIND, "")
    records = sorted(folder.glob(f"{target}-{SUITE}-*/{reach_store.NAME}"), key=lambda path: path.stat().st_mtime)
    if not records:
        raise UsageError(f"nothing is recorded of {SUITE} on {target}", remedy="plumb premerge, in a checkout")
    kept = json_codec.decode(gzip.decompress(records[-1].read_bytes()), KeptReach)
    return frozenset(kept.reach.tests[TEST])


def chosen(bench: Workbench, name: str, seed: int, *, half: int, mutants: int, without: Collection[str]) -> BugList:
    """A list: a half (0 or 1) of the planted bugs, and so many mutants. `without`: names in other lists."""
    globs = bench.catalog.suites[SUITE].source_globs
    planted = [one for one in mutations.mutations().values() if is_in_reach(one, globs)]
    random.Random(HALVES).shuffle(planted)
    bugs = [
        Bug(name=one.name, kind="planted", target=_first(one.targets), file=one.edits[0].file)
        for one in planted[half::2]
        if one.name not in without
    ]
    functions = {target: entered(bench, target) for target in TARGETS}
    made = [
        one
        for one in mutants_of(bench, SERVER)
        if one.fault in FAULTS and _is_entered(one.file, globs) and one.function in functions[_first(one.targets)]
    ]
    ordered = [one for one in in_sample_order(made, seed) if one.name not in without]
    bugs += [Bug(name=one.name, kind="rule", target=_first(one.targets), file=one.file) for one in ordered[:mutants]]
    return BugList(name=name, seed=seed, bugs=bugs)


def _first(targets: Collection[str]) -> str:
    return next(name for name in TARGETS if name in targets)


class Servers(NamedTuple):
    """The builds of one server."""

    guest: Build
    native: Build


class Builder:
    """Builds bugs, and the release."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.release = bench.open_server(SERVER)
        self.setups = set_up_targets(bench, [bench.catalog.targets[name] for name in (*TARGETS, ORACLE)])
        self._planted: dict[str, Planted] = {**mutations.mutations()}

    def build(self, bug: Bug) -> Servers | State:
        """A bug's servers, or why they are not worth a race."""
        place = self._bench.cache.private(bug.name)
        try:
            # The mutant keeps the release's name, by which ccache recognises the files that have not changed.
            tree = place / self.release.name
            mutations.plant(self._bug(bug), self.release.path, tree)
            opened = self._bench.open_server(str(tree))
            servers = [self.setups[name].build(opened, DEFAULT_OPTIMISATION) for name in (bug.target, ORACLE)]
        except BuildFailedError:
            return "invalid"
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if not _differs(self.setups[bug.target], self.built(bug.target), servers[0]):
            return "equivalent"
        return Servers(*servers)

    def built(self, target: str) -> Build:
        """The release's server."""
        return self.setups[target].build(self.release, DEFAULT_OPTIMISATION)

    def _bug(self, bug: Bug) -> Planted:
        if bug.name not in self._planted:
            self._planted |= {one.name: one for one in mutants_of(self._bench, SERVER)}
        return self._planted[bug.name]


def _differs(setup: TargetSetup, old: Build, new: Build) -> bool:
    """Whether a build has other machine code or data."""
    before, after = build_code.read(old.folder), build_code.read(new.folder)
    assert before is not None, setup.target.name
    assert after is not None, setup.target.name
    change = differences(before, after)
    return bool(change.functions or change.elsewhere)
