"""What the shell offers behind Tab: names of the catalog, by click's own scripts for bash, zsh and fish."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem, get_completion_class

from harness.core.errors import InfrastructureError, PlumblineError
from harness.plan.catalog import Catalog, target_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

SHELLS = ("bash", "zsh", "fish")


def script(command: click.Command, shell: str) -> str:
    """What the shell must read once: it asks `plumb` itself at every Tab, so that it never goes stale."""
    kind = get_completion_class(shell)
    if kind is None:
        raise InfrastructureError(f"this click has no completion for {shell}")
    return kind(command, {}, "plumb", "_PLUMB_COMPLETE").source()


def targets(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Targets with their titles, and groups."""
    catalog = _catalog()
    if catalog is None:
        return []
    groups = target_groups(catalog.targets)
    about = {name: f"group of {len(members)}" for name, members in groups.items()}
    about |= {target.name: target.title for target in catalog.targets.values()}
    return _items(about.items(), incomplete)


def servers(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Releases by name, or folders, when what is typed looks like a path."""
    if re.match(r"[./~]", incomplete):
        return [CompletionItem(incomplete, type="dir")]
    catalog = _catalog()
    return _items(((one.name, one.note) for one in catalog.servers.values()), incomplete) if catalog else []


def suites(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suites."""
    catalog = _catalog()
    return _items(((one.name, one.title) for one in catalog.suites.values()), incomplete) if catalog else []


def policies(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Policies."""
    catalog = _catalog()
    return _items(((one.name, one.title) for one in catalog.policies.values()), incomplete) if catalog else []


def _items(about: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    # A shell reads one line an item.
    return [
        CompletionItem(name, help=" ".join(told.split()) or None)
        for name, told in sorted(about)
        if name.startswith(incomplete)
    ]


def _catalog() -> Catalog | None:
    """None for one that cannot be read: a shell at its prompt is no place for an error of a TOML file."""
    try:
        catalog = Catalog()
        _ = catalog.targets, catalog.servers, catalog.suites, catalog.policies
    except PlumblineError:
        return None
    return catalog
