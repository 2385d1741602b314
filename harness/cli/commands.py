"""The commands of the command line, each the thin end of a module that does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cli import checks, inventory, judgements, measures

if TYPE_CHECKING:
    import click

COMMANDS: tuple[click.Command, ...] = (
    inventory.doctor,
    inventory.list_,
    inventory.plan,
    inventory.fetch,
    inventory.build,
    inventory.clean,
    inventory.completion_,
    checks.check,
    checks.audit,
    checks.fuzz,
    checks.premerge,
    checks.port,
    judgements.replay,
    judgements.shell,
    judgements.judge,
    judgements.report,
    judgements.join,
    judgements.schema,
    measures.bench,
    measures.agree,
    measures.tax,
    measures.mutate,
)
"""All of them."""
