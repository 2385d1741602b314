"""The input of a transformer, with the query and the change of a type that several of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harness.analysis.c_source.syntax import Replacement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

    from harness.analysis.c_source.syntax import Source
    from harness.workflows.mutation_testing.generator.operators import Operator


class ReleaseNames(NamedTuple):
    """Facts from all files of the release on which the meaning of a file depends."""

    addressed: frozenset[str]
    """The names whose address any file takes."""
    addressing: frozenset[str]
    """The macros that may take the address of an argument."""
    scalar_types: frozenset[str]
    """The types of pointers, numbers and enumerations that have their own names."""


class Place(NamedTuple):
    """The input of a transformer."""

    source: Source
    operator: Operator
    release: ReleaseNames


CALL = "(call_expression function: (identifier) @name arguments: (argument_list) @arguments) @site"
"""The query of a call."""


def with_other_type(place: Place, holder: Node) -> Iterator[Replacement]:
    """The change of the type of a declaration, parameter, field or cast, if the operator has another type for it."""
    kind = holder.child_by_field_name("type")
    other = place.operator.types.get(place.source.type_of(holder))
    if kind is not None and other is not None:
        yield Replacement(kind.start_byte, kind.end_byte, other)
