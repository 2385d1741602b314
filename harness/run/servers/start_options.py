"""Options that every guest of a release and a target has, whatever a suite adds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from harness.isa import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import PurePath

    from harness.core.model import Abilities, Build
    from harness.core.target_model import Target


def options_to_start(target: Target, abilities: Abilities) -> list[str]:
    """Options without which a server would refuse to start on a target, because a self-test misinterprets the
    emulator.
    """
    ignored = registry.of_isa(target.isa).ignored_warnings
    return ["--ignore-warnings", *ignored] if ignored and "ignore-warnings" in abilities.options else []


def debug_arguments(build: Build) -> list[str]:
    """Options that enable DEBUG, with whose digests and reloads suites inspect servers. It is off since Redis 7.0."""
    return ["--enable-debug-command", "yes"] if "enable-debug-command" in build.abilities.options else []


def module_arguments(modules: Iterable[PurePath]) -> list[str]:
    """Options by which a server loads the parts that its makefile builds separately."""
    return [word for module in modules for word in ("--loadmodule", str(module))]


def crash_arguments(build: Build) -> list[str]:
    """Options by which a server that crashes does not test the machine's memory, which it does since Redis 6.2."""
    return ["--crash-memcheck-enabled", "no"] if "crash-memcheck-enabled" in build.abilities.options else []


def with_own_options(arguments: Sequence[str], own: Sequence[str]) -> list[str]:
    """A server's command line: the options of every server, then those of this one, which may override them."""
    # A configuration file, which a sentinel requires, is the program's first word.
    file = [word for word in own[:1] if not word.startswith("-")]
    return [*file, *arguments, *own[len(file) :]]


def monitors_for_threads(version: tuple[int, ...], options: Sequence[str]) -> int:
    """How many clients must hear every command so that a server's I/O threads serve one that is alone.

    Until release 8 of both families, the threads sleep unless at least twice as many clients as there are threads wait
    for a reply at a time (stopThreadedIOIfNeeded). No server says so.
    """
    counts = [int(value) for name, value in itertools.pairwise(options) if name == "--io-threads"]
    # The last one applies: a test's own options follow those of its suite.
    return 2 * counts[-1] - 1 if counts and version < (8,) else 0
