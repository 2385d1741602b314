"""Sites of operators that change a call: another function, another argument, another format, or no call of memcpy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.analysis.c_source.syntax import Replacement, Variable, visible
from harness.workflows.mutation_testing.generator.transformers.place import CALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

    from harness.analysis.c_source.syntax import Source
    from harness.workflows.mutation_testing.generator.transformers.place import Place


def wrong_variable(place: Place) -> Iterator[Replacement]:
    """In the calls of some functions: another variable of the same type instead of the argument."""
    source = place.source
    for function in source.functions:
        variables = source.variables(function)
        for call in source.matches(CALL, function):
            arguments = call["arguments"][0].named_children
            if source.text(call["name"][0]) not in place.operator.names or len(arguments) != 1:
                continue
            argument = arguments[0]
            inner = argument.child_by_field_name("argument") if argument.type == "pointer_expression" else argument
            if inner is not None and inner.type == "identifier":
                for other in _others(source, variables, inner):
                    yield Replacement(inner.start_byte, inner.end_byte, other.name)
                    break


def _others(source: Source, variables: list[Variable], used: Node) -> Iterator[Variable]:
    """The other variables that could replace the use of one."""
    usable = {each.name: each for each in visible(variables, used)}
    own = usable.get(source.text(used))
    if own is None:
        return
    for each in usable.values():
        if (each.type, each.declarator.type) == (own.type, own.declarator.type) and each.name != own.name:
            yield each


def renamed_call(place: Place) -> Iterator[Replacement]:
    """The calls of some functions: calls of others instead."""
    for site in place.source.captured("(call_expression function: (identifier) @site)"):
        other = place.operator.types.get(place.source.text(site))
        if other is not None:
            yield Replacement(site.start_byte, site.end_byte, other)


def dereference(place: Place) -> Iterator[Replacement]:
    """A scalar that memcpy copies: an assignment through a pointer to it instead."""
    source, sizes = place.source, place.operator.types
    for function in source.functions:
        variables = source.variables(function)
        for call in source.matches(f"(expression_statement {CALL})", function):
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


_CONVERSION = re.compile(r"%%|%[-+ #0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(hh|h|ll|l|z|j)?[diouxX]")


def printf_length(place: Place) -> Iterator[Replacement]:
    """The conversions of a format: one of another length instead."""
    source = place.source
    for call in source.matches(CALL):
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
