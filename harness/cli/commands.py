"""The commands of `plumb`, in the order and the groups that `plumb --help` shows.

A command's module is imported when the command is used: `plumb --help` imports none of them. The first sentence of a
command's docstring is its summary here, which a test compares.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple

import click


class Entry(NamedTuple):
    """One command."""

    name: str
    place: str
    """`MODULE.FUNCTION` in harness.cli."""
    summary: str
    """One line of at most 60 characters, imperative, without a full stop."""


SECTIONS: dict[str, tuple[Entry, ...]] = {
    "Check a server": (
        Entry("check", "checks.check", "Build a server, run the suites and report findings"),
        Entry("premerge", "own_trees.premerge", "Check your change and report only new findings"),
        Entry("fuzz", "checks.fuzz", "Send random command streams, guided by coverage"),
        Entry("audit", "checks.audit", "List every misaligned access that the suites reach"),
        Entry("campaign", "checks.campaign", "Spread checks over many machines and follow them"),
        Entry("port", "own_trees.port", "Report what a source tree needs to run on a target"),
    ),
    "Run your own programs": (
        Entry("exec", "own_trees.exec_", "Run any command with a target's programs emulated"),
        Entry("deb", "own_trees.deb", "Build a Debian source package for a target and run its tests"),
        Entry("env", "own_trees.env", "Print environment variables for compiling for a target"),
    ),
    "Look at findings": (
        Entry("findings", "judgements.findings", "List the findings of a judged run, one line each"),
        Entry("show", "judgements.show", "Show one finding of a judged run in full"),
        Entry("known", "known_lists.known", "Add to a list of known findings, or show it"),
        Entry("replay", "replays.replay", "Reproduce a finding, or send a command stream"),
        Entry("suspects", "replays.suspects", "Rank the functions behind a wrong result"),
        Entry("explain", "replays.explain", "Show where the values behind a wrong result diverge"),
        Entry("shell", "replays.shell", "Open gdb on a server that runs on a target"),
        Entry("judge", "judgements.judge", "Judge a stored run again and rewrite its report"),
        Entry("report", "judgements.report", "Rewrite a judged run's report, or print one format of it"),
        Entry("join", "judgements.join", "Join judged runs into one judgement"),
        Entry("history", "judgements.history", "Write a static site of many runs, or add runs to one"),
        Entry("schema", "judgements.schema", "Print the JSON schema of findings.json"),
    ),
    "Measure": (
        Entry("bench", "measures.costs.bench", "Measure what enforcement and delayed stores cost"),
        Entry("measure", "measures.server_costs.measure", "Measure and compare what servers cost in workloads"),
        Entry("fixup-cost", "measures.costs.fixup_cost", "Measure what a kernel's alignment fixup costs"),
        Entry("compare-tiers", "measures.costs.compare_tiers", "Compare user-mode emulation with real kernels"),
        Entry("mutate", "measures.planted_bugs.mutate", "Plant known bugs and check that each one is found"),
    ),
    "Set up and maintain": (
        Entry("doctor", "inventory.doctor", "List missing packages and how to install them"),
        Entry("self-test", "inventory.self_test", "Test this installation with the emulators' canaries"),
        Entry("board", "inventory.board", "Check step by step how your machine is reached"),
        Entry("list", "inventory.list_", "List targets, toolchains, servers, suites and more"),
        Entry("plan", "inventory.plan", "List the cells that a check would run"),
        Entry("fetch", "inventory.fetch", "Download the sources of a server and of QEMU"),
        Entry("build", "inventory.build", "Build the emulators and a server"),
        Entry("clean", "inventory.clean", "Show the contents of the cache, or remove some or all"),
        Entry("completion", "inventory.completion_", "Print a completion script for bash, zsh or fish"),
    ),
}

FORMER_NAMES = {"agree": "compare-tiers", "tax": "fixup-cost"}
"""Names of the previous release: `plumb` accepts them with a remark, but does not list them."""

_ENTRIES = {entry.name: entry for section in SECTIONS.values() for entry in section}


class LazyCommands(MutableMapping[str, click.Command]):
    """Name -> command. Listing names is free; a command's module is imported when the command is looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, function = _ENTRIES[name].place.rsplit(".", 1)
            command = getattr(import_module(f"harness.cli.{module}"), function)
            assert isinstance(command, click.Command)
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**_ENTRIES, **self._loaded})

    def __len__(self) -> int:
        return len({**_ENTRIES, **self._loaded})


@contextlib.contextmanager
def _abort_when_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise click.Abort from error


class PlumbGroup(click.Group):
    """The group of all commands, imported one by one as they are used."""

    commands: MutableMapping[str, click.Command]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command at the beginning of the words. A former name stands for the current one."""
        name = FORMER_NAMES.get(args[0])
        if name is None:
            return super().resolve_command(ctx, args)
        if not ctx.resilient_parsing:
            click.echo(f"note: `plumb {args[0]}` is now `plumb {name}`; the next release drops the old name", err=True)
        return super().resolve_command(ctx, [name, *args[1:]])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line. An interruption becomes an Abort, because click prints an empty line for others."""
        with _abort_when_interrupted():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke the command. Interruptions are handled as in `parse_args`."""
        with _abort_when_interrupted():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every group of commands with the same width of the first column."""
        del ctx
        width = max(map(len, _ENTRIES))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(entry.name.ljust(width), entry.summary) for entry in section])
