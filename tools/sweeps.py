"""Executes every encoding of an instruction set: `python -m tools.sweeps [TARGET...]`, without targets on all of them.

It makes each encoding at every offset under every policy of the target, as tests/end_to_end/emulator/
test_every_encoding.py does with `ci/test --all`, and stores in measurements/sweeps.json what it executed, with a digest
of what harness/isa/encodings prescribes. A test of `ci/test --quick` compares the digest with the tables: what nobody
has executed since it was changed fails there. `python -m tools.generated` makes a table of docs/ENCODINGS.md of it.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

import click

from harness.core import json_codec
from harness.core.model import Record
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.isa import rules
from harness.report.markdown_table import table
from harness.run.sweep import comparison, program
from harness.workflows.target_setup import set_up_targets
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from harness.core.target_model import Policy, Target, Toolchain
    from harness.plan.catalog import Catalog
    from harness.workflows.target_setup import TargetSetup

STORED = ROOT / "measurements" / "sweeps.json"


class Swept(Record, frozen=True):
    """What a target's emulator has executed."""

    encodings: int
    policies: list[str]
    """Under these and no others each encoding did what is prescribed."""
    executions: int
    """Under all policies together."""
    digest: str
    """SHA-256 of what was prescribed."""


def digest(target: Target) -> str:
    """SHA-256 of everything that the table of a target prescribes, in any order, without references to manuals."""
    whole = program.table_of(target)
    assert whole is not None
    prescribed = []
    for one in program.encodings(target):
        places = [whole.place(move, target.endianness) for move in one.moves]
        prescribed.append(json_codec.encode((*one._replace(section="", targets=()), places)))
    return hashlib.sha256(b"\n".join(sorted(prescribed))).hexdigest()


def swept_targets(catalog: Catalog) -> list[str]:
    """The targets under user-mode emulation that have a table, without those that share another's machine."""
    return [
        name
        for name, target in catalog.targets.items()
        if target.emulator.is_qemu_user and not target.variant_of and program.table_of(target) is not None
    ]


def policies_of(catalog: Catalog, target: Target, tools: Toolchain) -> list[str]:
    """The policies that a target's sweep can have."""
    found = [one.name for one in catalog.policies.values() if _can_have(one, target, tools)]
    return [*found, rules.AUDIT]


def _can_have(policy: Policy, target: Target, tools: Toolchain) -> bool:
    # What is linked statically contains the C library, which natural alignment is not demanded of.
    return rules.applies(policy, target) and not (policy.demand == "natural" and tools.is_static)


def sweep(setup: TargetSetup) -> Swept | list[str]:
    """Execute a target's encodings under each of its policies. What disagrees, if something does."""
    bench, target, tools = setup.bench, setup.target, setup.toolchain
    encodings, names = program.encodings(target), policies_of(bench.catalog, target, tools)
    made = program.compile_sweep(bench.cache, target, tools, encodings)
    found = [comparison.sweep(made, setup.runner(name), encodings) for name in names]
    wrong = [f"{name}: {one}" for name, each in zip(names, found, strict=True) for one in each.disagreements]
    if wrong:
        return wrong
    executions = sum(each.executions for each in found)
    return Swept(encodings=len(encodings), policies=names, executions=executions, digest=digest(target))


@cache
def stored() -> dict[str, Swept]:
    """measurements/sweeps.json: target -> what its emulator has executed."""
    return json_codec.decode(STORED.read_bytes(), dict[str, Swept]) if STORED.exists() else {}


def rows() -> list[str]:
    """docs/ENCODINGS.md's table, and the sum."""
    found = stored()
    lines = [
        (f"`{name}`", f"{one.encodings:,}", len(one.policies), f"{one.executions:,}") for name, one in found.items()
    ]
    total = sum(one.executions for one in found.values())
    heads = ["target", "encodings", "policies", "executions"]
    return [*table(heads, lines), "", f"Together these are {total:,} executions."]


@click.command(help=__doc__)
@click.argument("targets", nargs=-1)
def main(targets: tuple[str, ...]) -> None:
    """Execute, and store target by target."""
    process.stop_on_signals()
    bench = Workbench.default()
    every = swept_targets(bench.catalog)
    known = {**stored()}
    failed = False
    chosen = [bench.catalog.targets[name] for name in targets or every]
    # Emulators that are missing are built together.
    for name, setup in set_up_targets(bench, chosen).items():
        result = sweep(setup)
        if isinstance(result, Swept):
            known[name] = result
            STORED.write_bytes(json_codec.pretty({each: known[each] for each in every if each in known}))
            click.echo(f"{name}: {result.executions:,} executions")
        else:
            failed = True
            click.echo("\n".join([f"{name}:", *result[:20]]))
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
