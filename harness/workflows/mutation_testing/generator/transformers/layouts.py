"""Sites of operators that change the layout of a structure: packed, or packed with other fields."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from harness.analysis.c_source.syntax import Replacement, declared
from harness.workflows.mutation_testing.generator.transformers.place import CALL, with_other_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

    from harness.analysis.c_source.syntax import Source
    from harness.workflows.mutation_testing.generator.transformers.place import Place


def packed(place: Place) -> Iterator[Replacement]:
    """Structures, packed if that can have an effect: something has a pointer to one of their fields.

    The compiler knows that a field may be misaligned wherever the code names the structure. It does not know this of a
    pointer: one that `&` or a macro makes, or one to an inner array or structure. Arrays of bytes need no alignment.
    """
    source = place.source
    addressed = source.with_address_taken()
    for call in source.matches(CALL):
        if source.text(call["name"][0]) in place.release.addressing:
            named = source.captured("(field_expression field: (_) @site)", call["arguments"][0])
            addressed |= {source.text(each) for each in named}
    for each in source.matches("(struct_specifier name: (_) body: (field_declaration_list) @body)"):
        body = each["body"][0]
        fields = [child for child in body.named_children if child.type == "field_declaration"]
        names = {source.text(name) for field in fields if (name := _field_name(field)) is not None}
        if names & addressed or not all(_is_scalar(place, field) for field in fields):
            yield Replacement(body.start_byte, body.end_byte, f"{source.text(body)} __attribute__((packed))")


def _field_name(field: Node) -> Node | None:
    return declared(field.child_by_field_name("declarator"))


def _is_scalar(place: Place, field: Node) -> bool:
    """Whether a field is a pointer, a number or an array of bytes."""
    kind = field.child_by_field_name("type")
    declarators = field.children_by_field_name("declarator")
    arrays = all(each.type == "array_declarator" and _is_of_names(each) for each in declarators)
    if kind is not None and declarators and arrays and place.source.text(kind) in _BYTES:
        return True
    if any(each.type == "pointer_declarator" or _is_function_pointer(each) for each in declarators):
        return len(declarators) == 1
    if kind is None or not declarators or any(each.type != "field_identifier" for each in declarators):
        return False
    own = place.source.text(kind) in place.release.scalar_types or place.source.text(kind) in place.operator.names
    return own or kind.type in {"primitive_type", "sized_type_specifier", "enum_specifier"}


_BYTES = {"char", "signed char", "unsigned char", "int8_t", "uint8_t"}


def _is_of_names(array: Node) -> bool:
    """Whether an array has elements of the declaration's own type, and not pointers to it."""
    inner = array.child_by_field_name("declarator")
    return inner is not None and (
        inner.type == "field_identifier" or (inner.type == "array_declarator" and _is_of_names(inner))
    )


def _is_function_pointer(declarator: Node) -> bool:
    inner = declarator.child_by_field_name("declarator")
    return declarator.type == "function_declarator" and inner is not None and inner.type == "parenthesized_declarator"


def header_fields_swapped(place: Place) -> Iterator[Replacement]:
    """Packed structures: two neighbouring fields of different types change places."""
    source = place.source
    for fields in _already_packed(source):
        for first, second in itertools.pairwise(fields):
            if source.type_of(first) != source.type_of(second) and not _is_flexible(second):
                between = source.text_between(first.end_byte, second.start_byte)
                swapped = source.text(second) + between + source.text(first)
                yield Replacement(first.start_byte, second.end_byte, swapped)


def header_field_narrowed(place: Place) -> Iterator[Replacement]:
    """Packed structures: a field of a smaller type instead."""
    for fields in _already_packed(place.source):
        for field in fields:
            if not _is_flexible(field):
                yield from with_other_type(place, field)


def _already_packed(source: Source) -> Iterator[list[Node]]:
    """The fields of each packed structure."""
    query = "(struct_specifier (attribute_specifier) @attribute body: (field_declaration_list) @body)"
    for each in source.matches(query):
        if "packed" in source.text(each["attribute"][0]):
            yield [child for child in each["body"][0].named_children if child.type == "field_declaration"]


def _is_flexible(field: Node) -> bool:
    declarator = field.child_by_field_name("declarator")
    return declarator is not None and declarator.type == "array_declarator"
