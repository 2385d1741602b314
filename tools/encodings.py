"""Which encodings of accesses programs contain: `python -m tools.encodings [--toolchain NAME] RELEASE...` counts them.

It disassembles the releases, compiled for every target whose accesses it can read, and the C and compiler libraries,
and stores how often each encoding occurs and whether the canary program makes it (measurements/encodings.json). `python
-m tools.generated` makes docs/ENCODINGS.md of that.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.analysis import encodings
from harness.build.toolchain import tool
from harness.build.workshop.build_plan import BuildPlan
from harness.core import json_codec
from harness.core.errors import PlumblineError
from harness.core.model import Record
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.core.target_model import DEFAULT_FAMILY
from harness.isa import access_table, registry
from harness.plan.catalog import Catalog
from harness.report.markdown_table import table
from harness.run import canary
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from harness.core.cache import Cache
    from harness.core.target_model import Target, Toolchain
    from harness.isa.architecture import AccessNotation

STORED = ROOT / "measurements" / "encodings.json"
LIBRARIES = ["libc.a", "libm.a", "libgcc.a", "libgcc_eh.a"]
"""Libraries of which programs take parts. What the shared ones contain is the same; only here are there symbols that
tell instructions from the constants between them."""


class Census(Record, frozen=True):
    """The encodings of a target."""

    made: list[str]
    """Those that its canary program makes."""
    programs: dict[str, dict[str, int]]
    """Release, with its compiler, or library -> encoding -> how often it occurs."""


def counted(target: Target, tools: Toolchain, program: Path) -> Counter[str]:
    """How often each encoding occurs in a program or an archive."""
    return encodings.encodings(*_read(target, tools, program))


def made(target: Target, tools: Toolchain, cache: Cache) -> set[str]:
    """The encodings of the accesses that the target's canary program makes."""
    return encodings.labelled(*_read(target, tools, canary.compile_canary(cache, target, tools)), canary.LABEL)


def _read(target: Target, tools: Toolchain, program: Path) -> tuple[str, AccessNotation]:
    """A program's listing, and the notation that it is in. Raises InfrastructureError without the target's objdump."""
    notation = registry.of_isa(target.isa).notation
    assert notation is not None, f"nobody knows how objdump writes accesses on {target.name}"
    return encodings.listing(tool(tools, "objdump"), program), notation


def libraries(target: Target, tools: Toolchain) -> dict[str, Path]:
    """The libraries that the target's programs are linked with; none if programs contain what they use of them."""
    if tools.is_static:
        return {}
    compiler = [tool(tools, "gcc"), *target.compiler_flags]
    found = {
        name: process.run([*compiler, f"-print-file-name={name}"], deadline_seconds=60).text.strip()
        for name in LIBRARIES
    }
    return {name: Path(path) for name, path in found.items()}


def exemption(target: Target, encoding: str) -> str:
    """Why no access of the target's canary has to make an encoding; empty if one has to."""
    exempt = access_table.of_target(target).exempt
    return next((one.because for one in exempt if re.fullmatch(one.encodings, encoding)), "")


def unproved(target: Target, made: Collection[str], occurring: Iterable[str]) -> list[str]:
    """The encodings that nothing proves: no access of the canary makes them, and none is exempt from that."""
    return sorted(one for one in occurring if one not in made and not exemption(target, one))


def readable() -> list[str]:
    """The targets whose accesses can be read from their disassembly. Of variants nothing is counted."""
    targets = [one for one in _catalog().targets.values() if one.emulator.is_qemu_user and not one.variant_of]
    return [one.name for one in targets if registry.of_isa(one.isa).notation is not None]


def measured(name: str, family: str, releases: Iterable[str], before: Census) -> Census:
    """A target's census with some releases counted again, and without those that do not compile for it."""
    bench = Workbench.default()
    target = bench.catalog.targets[name]
    tools = bench.toolchain_of(target)
    programs = {**before.programs}
    if family == DEFAULT_FAMILY:
        programs |= {name: dict(counted(target, tools, path)) for name, path in libraries(target, tools).items()}
    other = bench.with_toolchain(family)
    for release in releases if name in other.catalog.targets else ():
        there = other.catalog.targets[name]
        label = release if family == DEFAULT_FAMILY else f"{release} ({family})"
        try:
            built = other.builder.build(
                BuildPlan(
                    tree=other.open_server(release), target=there, tools=other.toolchain_of(there), optimisation="O2"
                )
            )
        except PlumblineError as error:
            click.echo(f"{label} for {name}: {error}", err=True)
            programs.pop(label, None)
        else:
            programs[label] = dict(counted(target, tools, built.server_binary))
    return Census(made=sorted(made(target, tools, bench.cache)), programs=programs)


@cache
def stored() -> dict[str, Census]:
    """measurements/encodings.json: target -> its census."""
    return json_codec.decode(STORED.read_bytes(), dict[str, Census]) if STORED.exists() else {}


@cache
def _catalog() -> Catalog:
    """The catalog of all rows. Reading its files takes 50 ms each time."""
    return Catalog()


def stored_isas() -> list[str]:
    """The instruction sets of which something is stored."""
    return sorted({_catalog().targets[name].isa for name in stored()})


def summary_rows() -> list[str]:
    """How many encodings each target's programs contain, and how many of them are proved."""
    rows = []
    for name, census in stored().items():
        total = _total(census.programs)
        exempt = [one for one in total if one not in census.made and exemption(_catalog().targets[name], one)]
        accesses = f"{sum(total.values()):,}"
        programs = ", ".join(sorted(census.programs))
        numbers = (accesses, len(total), len(total) - len(exempt), len(exempt), len(census.made))
        rows.append((f"`{name}`", programs, *numbers))
    headings = ["target", "programs", "accesses", "encodings", "made by a canary", "exempt", "the canary makes"]
    return table(headings, rows, numbers_from=2)


def isa_rows(isa: str) -> list[str]:
    """How often each encoding of an instruction set occurs in its targets' programs, and which are exempt."""
    targets = [_catalog().targets[name] for name in stored() if _catalog().targets[name].isa == isa]
    totals = {target.name: _total(stored()[target.name].programs) for target in targets}
    every = sum(totals.values(), Counter[str]())
    exempt: dict[str, list[str]] = {}
    rows = []
    for encoding, _ in every.most_common():
        reasons = {
            exemption(target, encoding)
            for target in targets
            if encoding in totals[target.name] and encoding not in stored()[target.name].made
        }
        if reasons:
            exempt.setdefault(" ".join(sorted(reasons)), []).append(encoding)
        else:
            rows.append((f"`{encoding}`", *(totals[target.name][encoding] or "" for target in targets)))
    lines = table(["encoding", *(f"`{target.name}`" for target in targets)], rows, numbers_from=1)
    if exempt:
        lines += ["", "No canary makes these:", ""]
        lines += [f"- {because}\n  {', '.join(f'`{one}`' for one in found)}" for because, found in exempt.items()]
    return lines


def _total(programs: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    return sum((Counter(found) for found in programs.values()), Counter[str]())


@click.command()
@click.argument("releases", nargs=-1)
@click.option("--toolchain", "family", default=DEFAULT_FAMILY, help="A family of toolchains that compiles.")
@click.option("--target", "targets", multiple=True, help="Only this target; may be given several times.")
def main(releases: tuple[str, ...], family: str, targets: tuple[str, ...]) -> None:
    """Count, and store."""
    found = dict(stored())
    for name in targets or readable():
        found[name] = measured(name, family, releases, found.get(name, Census(made=[], programs={})))
        missing = unproved(_catalog().targets[name], found[name].made, _total(found[name].programs))
        click.echo(f"{name}: {len(missing)} encodings that nothing proves {missing}")
    ordered = {name: found[name] for name in readable() if name in found}
    STORED.write_bytes(json_codec.pretty(ordered))


if __name__ == "__main__":
    main()
