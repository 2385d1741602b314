"""What an end-to-end test needs to run programs of its own on a target: emulator, toolchain, cache."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from harness.build.qemu_user import Emulators, Runner
from harness.build.server_build import Builder
from harness.build.sources.archives import Fetcher
from harness.core.cache import Cache, key_of, sha256_of
from harness.isa.rules import policy_for
from harness.plan.catalog import Catalog
from tests import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.model import Build, SourceTree

REQUIRED = [target.name for target in Catalog().targets.values() if "required" in target.groups]
OTHERS = ["mips", "hppa", "powerpc", "riscv64", "s390x"]
"""Those of the other targets for which the emulator was changed: `ci/test --all` runs them. Each of the rest costs a
compiler of 150 MB and a minute of building, and its canary suite proves it whenever it is used."""
KERNELS = ["versatile", "sun4u"]
"""The machines with a real kernel that `ci/test` runs; `ci/test --all` runs every one."""


def beyond(*values: object) -> Any:
    """A test's parameters that only `ci/test --all` has the time for."""
    return pytest.param(*values, marks=pytest.mark.slow)


TESTED = [*REQUIRED, *(beyond(name) for name in OTHERS)]
"""What tests run under user-mode emulation."""


@cache
def emulators_for(group: tuple[str, ...]) -> tuple[Emulators, dict[str, Path]]:
    """The emulators of several targets, built together if they are not in the cache."""
    store, progress = Cache.default(), fakes.quiet()
    emulators = Emulators(store, Fetcher(store, progress), progress)
    return emulators, emulators.prepare([Catalog().targets[name].emulator for name in group])


def runner(target: str, policy: str = "signal") -> Runner:
    """The pinned emulator for a target; built if it is not in the cache."""
    emulators, programs = emulators_for(tuple(OTHERS if target in OTHERS else REQUIRED))
    catalog = Catalog()
    found = catalog.targets[target]
    return emulators.runner(found, catalog.toolchain_of(found), policy_for(catalog.policies, policy, found), programs)


def build(tree: SourceTree, target: str) -> Build:
    """A server compiled for a target, kept in the cache like any other."""
    found = Catalog().targets[target]
    return Builder(Cache.default(), fakes.quiet()).build(tree, found, Catalog().toolchain_of(found), "O2")


def key_of_file(source: Path, *more: str) -> str:
    """What a program compiled from one file is kept by."""
    return key_of([sha256_of(source), *more])


def release(name: str) -> Path:
    """A release's source tree; fetched if it is not in the cache."""
    return Fetcher(Cache.default(), fakes.quiet()).server(Catalog().servers[name]).path
