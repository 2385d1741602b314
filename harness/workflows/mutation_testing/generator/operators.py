"""Operators: the rules that make mutants, as data. The module reads operators.toml and changes no source."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.core.digests import key_of, sha256_of
from harness.core.model import Record
from harness.core.strict_toml import read_toml
from harness.workflows.mutation_testing.mutations import Fault  # noqa: TC001 - msgspec reads the annotations

FILE = Path(__file__).with_name("operators.toml")
TRANSFORMER_FOLDER = FILE.with_name("transformers")
"""The folder of the transformers' modules."""


class Rule(Record, frozen=True):
    """A pattern of the syntax tree, and the text that replaces what it matches."""

    query: str
    """A tree-sitter query. Everything between the first and the last node captured as `site` is replaced."""
    replacement: str
    """The new text, in which `$NAME` is the text captured as NAME."""


class Operator(Record, frozen=True):
    """A rule that makes mutants."""

    name: str
    """The first part of its mutants' identifiers."""
    title: str
    """The bug that it imitates."""
    fault: Fault
    targets: list[str]
    """The targets on which the bug must show. A mutant with the release's object code on all of them is equivalent."""
    rules: list[Rule] = msgspec.field(default_factory=list)
    """Patterns, if the syntax tree alone determines a site."""
    transformer: str = ""
    """The transformer that finds sites by types and scopes: its name in transformers/registry.py."""
    types: dict[str, str] = msgspec.field(default_factory=dict)
    """What the transformer replaces, and the replacement: types, functions, or lengths of a printf format. For scalars
    that are copied, their size in bytes.
    """
    names: list[str] = msgspec.field(default_factory=list)
    """The functions to whose calls the transformer applies."""
    files: tuple[str, ...] = ("*.c", "*.h")
    """Globs of the files, where a star also matches slashes."""


class OperatorTable(Record, frozen=True):
    """harness/workflows/mutation_testing/generator/operators.toml."""

    sources: list[str]
    """Globs of the release's files that are changed."""
    operators: list[Operator]


def read_operators(path: Path = FILE) -> OperatorTable:
    """The table. Raises UsageError when it is not valid."""
    return read_toml(path, OperatorTable)


def operators_digest(path: Path = FILE, transformers: Path = TRANSFORMER_FOLDER) -> str:
    """Identifies the operators that made a mutant: those of a file, and the modules of a folder of transformers."""
    modules = key_of(f"{each.name}: {sha256_of(each)}" for each in sorted(transformers.glob("*.py")))
    return f"{sha256_of(path)[:12]}-{modules[:12]}"
