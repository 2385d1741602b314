"""Finds the sites of operators that depend on types and scopes, which a query of the syntax tree alone cannot
determine.

Each transformer yields changes that still compile. It leaves out sites where the change would be another bug than the
operator's: a variable whose address goes elsewhere, for example, is not narrowed.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

from harness.workflows.mutation_testing.generator.syntax import Replacement, Variable, declared, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tree_sitter import Node

    from harness.workflows.mutation_testing.generator.operators import Operator
    from harness.workflows.mutation_testing.generator.syntax import Source


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


_CALL = "(call_expression function: (identifier) @name arguments: (argument_list) @arguments) @site"


def wrong_variable(place: Place) -> Iterator[Replacement]:
    """In the calls of some functions: another variable of the same type instead of the argument."""
    source = place.source
    for function in source.functions:
        variables = source.variables(function)
        for call in source.matches(_CALL, function):
            arguments = call["arguments"][0].named_children
            if source.text(call["name"][0]) not in place.operator.names or len(arguments) != 1:
                continue
            argument = arguments[0]
            inner = argument.child_by_field_name("argument") if argument.type == "pointer_expression" else argument
            if inner is not None and inner.type == "identifier":
                for other in _others(source, variables, inner):
                    yield Replacement(inner.start_byte, inner.end_byte, other.name)
                    break


def renamed_call(place: Place) -> Iterator[Replacement]:
    """The calls of some functions: calls of others instead."""
    for site in place.source.captured("(call_expression function: (identifier) @site)"):
        other = place.operator.types.get(place.source.text(site))
        if other is not None:
            yield Replacement(site.start_byte, site.end_byte, other)


def _others(source: Source, variables: list[Variable], used: Node) -> Iterator[Variable]:
    """The other variables that could replace the use of one."""
    usable = {each.name: each for each in visible(variables, used)}
    own = usable.get(source.text(used))
    if own is None:
        return
    for each in usable.values():
        if (each.type, each.declarator.type) == (own.type, own.declarator.type) and each.name != own.name:
            yield each


def dereference(place: Place) -> Iterator[Replacement]:
    """A scalar that memcpy copies: an assignment through a pointer to it instead."""
    source, sizes = place.source, place.operator.types
    for function in source.functions:
        variables = source.variables(function)
        for call in source.matches(f"(expression_statement {_CALL})", function):
            site, arguments = call["site"][0], call["arguments"][0].named_children
            if source.text(call["name"][0]) not in place.operator.names or len(arguments) != 3:
                continue
            usable = {each.name: each for each in visible(variables, site) if each.is_plain and each.type in sizes}
            for scalar, pointer in ((arguments[0], arguments[1]), (arguments[1], arguments[0])):
                own = usable.get(source.text(scalar).removeprefix("&").strip())
                if not source.text(scalar).startswith("&") or own is None:
                    continue
                if source.text(arguments[2]) not in {f"sizeof({own.name})", f"sizeof({own.type})", sizes[own.type]}:
                    continue
                through = f"*({own.type} *)({source.text(pointer)})"
                sides = (own.name, through) if scalar is arguments[0] else (through, own.name)
                yield Replacement(site.start_byte, site.end_byte, " = ".join(sides))
                break


def narrow(place: Place) -> Iterator[Replacement]:
    """Variables, parameters, fields and casts of wide types: a narrower type instead."""
    source = place.source
    for function in source.functions:
        yield from _narrow_variables(place, function)
    for cast in source.captured("(cast_expression type: (type_descriptor) @site)"):
        if cast.child_by_field_name("declarator") is None:
            yield from _other_type(place, cast)
    for field in source.captured("(field_declaration) @site"):
        declarators = field.children_by_field_name("declarator")
        plain = all(each.type == "field_identifier" for each in declarators)
        if declarators and plain and not {source.text(each) for each in declarators} & place.release.addressed:
            yield from _other_type(place, field)


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
            yield from _other_type(place, each.declaration)
        elif not any(source.text(child) == "const" for child in each.declaration.children):
            # What calls the function passes the whole value, as before a prototype was forgotten.
            behind = body.start_byte + 1
            yield Replacement(behind, behind, f" {each.name} = ({narrower})({each.name});")


def _other_type(place: Place, holder: Node) -> Iterator[Replacement]:
    """The change of the type of a declaration, parameter, field or cast, where the operator has another one for it."""
    kind = holder.child_by_field_name("type")
    other = place.operator.types.get(place.source.type_of(holder))
    if kind is not None and other is not None:
        yield Replacement(kind.start_byte, kind.end_byte, other)


def other_sign(place: Place) -> Iterator[Replacement]:
    """Local variables, pointers, fields and casts: the type of another sign instead. Prototypes remain."""
    source = place.source
    inside = "(compound_statement (declaration) @site)"
    for holder in (
        *source.captured(inside),
        *source.captured("(field_declaration) @site"),
        *source.captured("(cast_expression type: (type_descriptor) @site)"),
    ):
        yield from _other_type(place, holder)


_CONVERSION = re.compile(r"%%|%[-+ #0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(hh|h|ll|l|z|j)?[diouxX]")


def printf_length(place: Place) -> Iterator[Replacement]:
    """The conversions of a format: one of another length instead."""
    source = place.source
    for call in source.matches(_CALL):
        if source.text(call["name"][0]) not in place.operator.names:
            continue
        for argument in call["arguments"][0].named_children:
            strings = argument.named_children if argument.type == "concatenated_string" else [argument]
            for string in (each for each in strings if each.type == "string_literal"):
                # The offsets of matches are bytes, because each byte becomes one character.
                text = source.content[string.start_byte : string.end_byte].decode("latin-1")
                for found in _CONVERSION.finditer(text):
                    if found[1] in place.operator.types:
                        start, end = (string.start_byte + at for at in found.span(1))
                        yield Replacement(start, end, place.operator.types[found[1]])


def packed(place: Place) -> Iterator[Replacement]:
    """Structures, packed where that can show: something has a pointer to one of their fields.

    The compiler knows that a field may be misaligned wherever the code names the structure. It does not behind a
    pointer: one that `&` makes, one to an array or to a structure inside, or one that a macro makes. Arrays of bytes
    may be anywhere.
    """
    source = place.source
    addressed = source.with_address_taken()
    for call in source.matches(_CALL):
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
                yield from _other_type(place, field)


def _already_packed(source: Source) -> Iterator[list[Node]]:
    """The fields of each packed structure."""
    query = "(struct_specifier (attribute_specifier) @attribute body: (field_declaration_list) @body)"
    for each in source.matches(query):
        if "packed" in source.text(each["attribute"][0]):
            yield [child for child in each["body"][0].named_children if child.type == "field_declaration"]


def _is_flexible(field: Node) -> bool:
    declarator = field.child_by_field_name("declarator")
    return declarator is not None and declarator.type == "array_declarator"


def other_size(place: Place) -> Iterator[Replacement]:
    """The size of a type: that of another one instead."""
    for site in place.source.captured("(sizeof_expression type: (type_descriptor) @site)"):
        if site.child_by_field_name("declarator") is None:
            yield from _other_type(place, site)


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


TRANSFORMERS: Mapping[str, Callable[[Place], Iterator[Replacement]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        wrong_variable,
        renamed_call,
        dereference,
        narrow,
        other_sign,
        printf_length,
        packed,
        header_fields_swapped,
        header_field_narrowed,
        other_size,
        halves_swapped,
    )
}
"""Name in operators.toml -> transformer."""
