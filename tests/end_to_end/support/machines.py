"""Emulators, toolchains and the cache, for end-to-end tests that run their own programs on a target."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from harness.build import toolchain
from harness.build.emulators.qemu_source import pinned_qemu, unpacked_source
from harness.core.cache import Cache
from harness.core.digests import key_of, sha256_of
from harness.core.processes import process
from harness.plan.catalog import Catalog
from harness.workflows.target_setup import TargetSetup, set_up_targets
from harness.workflows.workbench import Workbench
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.model import Build, SourceTree
    from harness.core.target_model import Toolchain

CATALOG = Catalog()
"""The catalog of all tests. Reading its files takes 50 ms each time."""
REQUIRED = [target.name for target in CATALOG.targets.values() if "required" in target.groups]
OTHERS = [
    "mips",
    "hppa",
    "powerpc",
    "riscv64",
    "s390x",
    "alpha",
    "m68k",
    "mips64",
    "mips64el",
    "mipsel",
    "powerpc64",
    "powerpc64le",
    "loongarch64",
]
"""The other strict or big-endian targets, which `ci/test --all` runs. Each needs a compiler of 150 MB and a minute of
building."""
STATIC = ["armeb", "aarch64_be"]
"""Targets on which tests make only the canary's accesses and every encoding. Clang compiles their programs, and links
them statically. Other tests' programs need shared C libraries or GCC's options."""
COMPILE_SECONDS = 600
"""The time limit of a compilation. For a target's first program, Zig also compiles its C library."""
KERNELS = ["versatile"]
"""The machines with a real kernel that `ci/test` runs; `ci/test --all` runs every one."""


def beyond(*values: object) -> Any:
    """A test's parameters that only `ci/test --all` runs, because they take too long."""
    return pytest.param(*values, marks=pytest.mark.slow)


SAMPLE = ["armv5", "aarch64", "sparc64"]
"""Required targets that differ in kind, which `ci/test` runs: 32 bits and strict; 64 bits, with most accesses allowed;
64 bits, strict and big-endian."""


def sampled(*names: str) -> list[Any]:
    """Targets, of which `ci/test` runs the sample."""
    return [name if name in SAMPLE else beyond(name) for name in names]


TESTED = sampled(*REQUIRED, *OTHERS)
"""The targets that tests run under user-mode emulation."""
MISALIGNING = sampled(*REQUIRED, *(name for name in OTHERS if name != "m68k"))
"""The targets among them that have misaligned data. The 68040 is excluded, because it accepts any address."""


def quiet_workbench() -> Workbench:
    """The user's cache, without progress on standard error."""
    return Workbench(catalog=CATALOG, cache=Cache.default(), progress=fakes.quiet())


@cache
def set_up(group: tuple[str, ...]) -> dict[str, TargetSetup]:
    """Several targets, whose emulators are built together if they are not in the cache."""
    bench = quiet_workbench()
    return set_up_targets(bench, [bench.catalog.targets[name] for name in group])


def runner(target: str, policy: str = "signal") -> Runner:
    """The pinned emulator for a target; built if it is not in the cache."""
    together = next((group for group in (OTHERS, REQUIRED) if target in group), [target])
    return set_up(tuple(together))[target].runner(policy)


@cache
def toolchain_of(target: str) -> Toolchain:
    """How to compile for a target; the compiler of a family is fetched if it is not in the cache."""
    return quiet_workbench().toolchain_of(CATALOG.targets[target])


def build(tree: SourceTree, target: str) -> Build:
    """A server compiled for a target, kept in the cache like any other."""
    return set_up((target,))[target].build(tree, "O2")


def key_of_file(source: Path, *more: str) -> str:
    """The cache key of a program that is compiled from one file."""
    return key_of([sha256_of(source), *more])


def release(name: str) -> Path:
    """A release's source tree; fetched if it is not in the cache."""
    return quiet_workbench().open_server(name).path


@cache
def emulators_source() -> Path:
    """The pinned emulator's source tree. Reading all of it again to verify it takes 3 s."""
    return unpacked_source(quiet_workbench().fetcher, pinned_qemu())


def compiled(target: str, source: Path, folder: Path) -> Path:
    """A test's C program, compiled for a target in the same way as servers."""
    found = CATALOG.targets[target]
    made = folder / source.stem
    flags = [*toolchain.compiler_flags(found, "O2"), "-Wall", "-Werror"]
    compiler = toolchain.tool(toolchain_of(target), "gcc")
    result = process.run([compiler, str(source), *flags, "-o", str(made)], deadline_seconds=COMPILE_SECONDS)
    assert result.code == 0, result.text
    return made
