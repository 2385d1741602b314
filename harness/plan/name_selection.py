"""Selects names of a catalog by name, glob or group. One that is unknown is an error with the near ones."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from harness.core.errors import NothingSelectedError, UsageError
from harness.core.strict_toml import near_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.target_model import Target

LISTS = {
    "target": "targets",
    "toolchain": "toolchains",
    "server": "servers",
    "suite": "suites",
    "policy": "policies",
    "workload": "workloads",
}
"""Kind of name -> the word by which `plumb list` lists them."""


def select(
    kind: str, patterns: Sequence[str], names: Iterable[str], groups: dict[str, list[str]] | None = None
) -> list[str]:
    """Names that match any glob or group, in catalog order, once each.

    Raises UsageError for a plain word that names nothing, NothingSelectedError for a glob that matches nothing, and
    without patterns.
    """
    known = list(names)
    chosen: set[str] = set()
    for pattern in patterns:
        matched = (groups or {}).get(pattern) or fnmatch.filter(known, pattern)
        if not matched and not re.search(r"[*?\[]", pattern):
            choices = [*known, *(groups or {})]
            require_known(kind, pattern, choices, f"--{kind}")
        if not matched:
            # Other patterns may match, but a user who names this one would believe that it was checked.
            raise NothingSelectedError(f"no {kind} matches {pattern}", where=f"--{kind}", remedy=_all_of(kind, known))
        chosen.update(matched)
    if not chosen:
        raise NothingSelectedError(f"no {kind} is named", where=f"--{kind}", remedy=_all_of(kind, known))
    return [name for name in known if name in chosen]


def target_groups(targets: dict[str, Target]) -> dict[str, list[str]]:
    """Group name -> target names; `all` is every one."""
    groups: dict[str, list[str]] = {"all": list(targets)}
    for target in targets.values():
        for group in target.groups:
            groups.setdefault(group, []).append(target.name)
    return groups


def require_known(kind: str, name: str, names: Iterable[str], where: str) -> None:
    """Raise UsageError, with the near names, for one that is not known."""
    known = list(names)
    if name not in known:
        near = near_names(name, known)
        parts = [f"did you mean '{near[0]}'?"] if near else []
        parts += [f"Also near: {', '.join(near[1:])}."] if near[1:] else []
        parts.append(f"All: {_all_of(kind, known)}" if near else _all_of(kind, known))
        raise UsageError(f"unknown {kind} '{name}'", where=where, remedy=" ".join(parts))


def _all_of(kind: str, names: Iterable[str]) -> str:
    """The command that lists all names of a kind; the names, if there is no such command."""
    return f"plumb list {LISTS[kind]}" if kind in LISTS else ", ".join(names)
