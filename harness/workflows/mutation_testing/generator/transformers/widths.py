"""Sites of operators that change the width, the sign or the byte order of a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.c_source.syntax import Replacement
from harness.workflows.mutation_testing.generator.transformers.place import with_other_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

    from harness.analysis.c_source.syntax import Source
    from harness.workflows.mutation_testing.generator.transformers.place import Place


def narrow(place: Place) -> Iterator[Replacement]:
    """Variables, parameters, fields and casts of wide types: a narrower type instead."""
    source = place.source
    for function in source.functions:
        yield from _narrow_variables(place, function)
    for cast in source.captured("(cast_expression type: (type_descriptor) @site)"):
        if cast.child_by_field_name("declarator") is None:
            yield from with_other_type(place, cast)
    for field in source.captured("(field_declaration) @site"):
        declarators = field.children_by_field_name("declarator")
        plain = all(each.type == "field_identifier" for each in declarators)
        if declarators and plain and not {source.text(each) for each in declarators} & place.release.addressed:
            yield from with_other_type(place, field)


def _narrow_variables(place: Place, function: Node) -> Iterator[Replacement]:
    source = place.source
    body = function.child_by_field_name("body")
    variables = source.variables(function)
    taken = source.with_address_taken(function)
    # A declaration of several variables is narrowed for all of them.
    unsuited = {each.declaration.start_byte for each in variables if not each.is_plain or each.name in taken}
    done: set[int] = set()
    for each in variables:
        start = each.declaration.start_byte
        narrower = place.operator.types.get(each.type)
        if narrower is None or start in unsuited or start in done or body is None:
            continue
        done.add(start)
        if not each.is_parameter:
            yield from with_other_type(place, each.declaration)
        elif not any(source.text(child) == "const" for child in each.declaration.children):
            # Callers still pass the whole value, as if their prototype were out of date.
            behind = body.start_byte + 1
            yield Replacement(behind, behind, f" {each.name} = ({narrower})({each.name});")


def other_sign(place: Place) -> Iterator[Replacement]:
    """Local variables, pointers, fields and casts: the type of another sign instead. Prototypes remain."""
    source = place.source
    inside = "(compound_statement (declaration) @site)"
    for holder in (
        *source.captured(inside),
        *source.captured("(field_declaration) @site"),
        *source.captured("(cast_expression type: (type_descriptor) @site)"),
    ):
        yield from with_other_type(place, holder)


def other_size(place: Place) -> Iterator[Replacement]:
    """The size of a type: that of another one instead."""
    for site in place.source.captured("(sizeof_expression type: (type_descriptor) @site)"):
        if site.child_by_field_name("declarator") is None:
            yield from with_other_type(place, site)


def halves_swapped(place: Place) -> Iterator[Replacement]:
    """Values that 64-bit variables receive: their halves are swapped, but only on big-endian machines."""
    source = place.source
    for function in source.functions:
        variables = source.variables(function)
        wide = {each.name for each in variables if each.is_plain and each.type in place.operator.types}
        for each in source.matches("(init_declarator declarator: (identifier) @name value: (_) @site)", function):
            declaration = each["site"][0].parent
            declaration = declaration.parent if declaration is not None else None
            static = declaration is not None and any(source.text(child) == "static" for child in declaration.children)
            if not static and source.text(each["name"][0]) in wide:
                yield _swapped(source, each["site"][0])
        assigned = '(assignment_expression left: (identifier) @name operator: "=" right: (_) @site)'
        for each in source.matches(assigned, function):
            if source.text(each["name"][0]) in wide:
                yield _swapped(source, each["site"][0])


def _swapped(source: Source, value: Node) -> Replacement:
    big = "__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__"
    text = (
        f"__extension__ ({{ unsigned long long halves_ = (unsigned long long)({source.text(value)}); "
        f"{big} ? halves_ << 32 | halves_ >> 32 : halves_; }})"
    )
    return Replacement(value.start_byte, value.end_byte, text)
