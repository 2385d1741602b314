"""Shell completion: names of the catalog, offered by click's scripts for bash, zsh and fish."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem, get_completion_class

from harness.core.errors import InfrastructureError, PlumblineError
from harness.plan.catalog import Catalog
from harness.plan.name_selection import target_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

SHELLS = ("bash", "zsh", "fish")


def script(command: click.Command, shell: str) -> str:
    """The script for a shell to read once. It calls `plumb` at every Tab, so it never becomes outdated."""
    kind = get_completion_class(shell)
    if kind is None:
        raise InfrastructureError(f"the installed click does not support completion for {shell}")
    return kind(command, {}, "plumb", "_PLUMB_COMPLETE").source()


def targets(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a target, with its title, or a group."""
    catalog = _catalog()
    if catalog is None:
        return []
    groups = target_groups(catalog.targets)
    about = {name: f"group of {len(members)}" for name, members in groups.items()}
    about |= {target.name: target.title for target in catalog.targets.values()}
    return _items(about.items(), incomplete)


def servers(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a release, or a folder if the word looks like a path."""
    if re.match(r"[./~]", incomplete):
        return [CompletionItem(incomplete, type="dir")]
    catalog = _catalog()
    return _items(((server.name, server.note) for server in catalog.servers.values()), incomplete) if catalog else []


def suites(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a suite."""
    catalog = _catalog()
    return _items(((suite.name, suite.title) for suite in catalog.suites.values()), incomplete) if catalog else []


def families(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a family of toolchains."""
    catalog = _catalog()
    return _items(((one.name, one.title) for one in catalog.families.values()), incomplete) if catalog else []


def policies(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a policy."""
    catalog = _catalog()
    return _items(((policy.name, policy.title) for policy in catalog.policies.values()), incomplete) if catalog else []


def workloads(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a workload."""
    catalog = _catalog()
    return _items(((one.name, one.title) for one in catalog.workloads.values()), incomplete) if catalog else []


def _items(about: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    # A shell reads one line per item.
    return [
        CompletionItem(name, help=" ".join(description.split()) or None)
        for name, description in sorted(about)
        if name.startswith(incomplete)
    ]


def _catalog() -> Catalog | None:
    """The catalog; None if it cannot be read, because a completion must not print errors of TOML files."""
    try:
        catalog = Catalog()
        _ = catalog.targets, catalog.servers, catalog.suites, catalog.policies
    except PlumblineError:
        return None
    return catalog
