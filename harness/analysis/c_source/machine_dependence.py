"""Finds the lines of C source whose effect depends on the machine: its byte order, widths, or the sign of a char. Pure.

The same source gives the same values on every machine, except through such a line. Functions without one are
unlikely to be the origin of a value that is wrong on some machines only. They are not excluded: this list of lines is
incomplete, because a syntax tree has no types.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, NamedTuple

from harness.analysis.c_source.syntax import Source, enclosing, with_first_alternatives

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node


class Dependence(enum.Enum):
    """What a line depends on. The values are words for reports."""

    BYTE_ORDER = "converts byte order"
    BYTES = "accesses the bytes of a number"
    WIDTH = "depends on the width of a long"
    SIGN = "depends on the sign of a char"


class DependentLine(NamedTuple):
    """A line, and the first expression there that depends on the machine."""

    dependence: Dependence
    text: str
    """The called function, or the type of a cast."""


_CONVERSIONS = re.compile(
    r"(mem|int)rev\d+(ifbe)?|hton(s|l|ll|u64)|ntoh(s|l|ll|u64)|[bl]e\d+toh|hto[bl]e\d+|(__builtin_|__|_)?bswap_?\d+"
)
_COPIES = re.compile(r"(__builtin_)?mem(cpy|move)")
_ADDRESS = re.compile(r"(\([\w\s*]+\)\s*)?&\s*\w")
"""The address of a variable or a field, with or without a cast."""
_FILLS = re.compile(r"(__builtin_)?memset|bzero")
"""Such a call writes the same byte everywhere."""
_SIZE = re.compile(r"2|4|8|16|.*\bsizeof\b.*", re.DOTALL)
"""The size of a number whose bytes have an order."""
_OF_POINTER = re.compile(r"sizeof\s*\([^()]*\*\s*\)")
_NAMED = re.compile(r"(?:\([\w\s*]+\)\s*)?&\s*(\w+)|sizeof\s*\(?\s*(\w+)\s*\)?")
"""The variable whose address or size is given."""
_NUMBER = re.compile(
    r"u?int(8|16|32|64)_t|(un)?signed|((un)?signed )?(char|short|int|long|long long)( int)?|float|double|s?size_t"
)
_OF_MACHINE_WIDTH = re.compile(
    r"((un)?signed )?long( int)?|s?size_t|u?intptr_t|ptrdiff_t|time_t|off_t|mstime_t|ustime_t"
)
_CHARACTER = "char"
_LENGTH_OF_LONG = re.compile(r"%[-+ #0]*[\d*]*(\.[\d*]+)?[lztj][dioux]")
"""A conversion of printf whose argument is as wide as a register."""


def dependent_lines(content: bytes) -> dict[int, DependentLine]:
    """Line number -> the dependence there; if a line has several, the first in the order of Dependence."""
    source = Source(content)
    if source.root.has_error:
        source = with_first_alternatives(content) or source
    found: dict[int, DependentLine] = {}
    ranks = list(Dependence)
    for node, line in _dependences(source):
        # Debug information has an expression of several lines at any of them.
        for number in range(node.start_point[0] + 1, node.end_point[0] + 2):
            if number not in found or ranks.index(line.dependence) < ranks.index(found[number].dependence):
                found[number] = line
    return found


def _dependences(source: Source) -> Iterator[tuple[Node, DependentLine]]:
    for call in source.captured("(call_expression) @site"):
        function, given = call.child_by_field_name("function"), call.child_by_field_name("arguments")
        if function is None or given is None:
            continue
        name, texts = source.text(function), [source.text(each) for each in given.named_children]
        dependence = _of_call(name, texts)
        if dependence is Dependence.BYTES and _is_of_pointer(source, call, texts):
            continue
        if dependence is not None:
            yield call, DependentLine(dependence, name)
    for cast in source.captured("(cast_expression) @site"):
        dependence = _of_cast(source, cast)
        if dependence is not None:
            yield cast, DependentLine(dependence, source.type_of(cast))


def _of_call(name: str, arguments: list[str]) -> Dependence | None:
    if _CONVERSIONS.fullmatch(name):
        return Dependence.BYTE_ORDER
    if _FILLS.fullmatch(name):
        return None
    if (_COPIES.fullmatch(name) or any(map(_ADDRESS.match, arguments))) and any(map(_SIZE.fullmatch, arguments)):
        return Dependence.BYTES
    if any(one.startswith('"') and _LENGTH_OF_LONG.search(one) for one in arguments):
        return Dependence.WIDTH
    return None


def _is_of_pointer(source: Source, call: Node, arguments: list[str]) -> bool:
    """Whether a call receives the bytes of a pointer, which always have the machine's own order."""
    if any(_OF_POINTER.search(one) for one in arguments):
        return True
    around = enclosing(call, ("function_definition",))
    variables = source.variables(around) if around is not None else []
    pointers = {one.name for one in variables if one.declarator.type == "pointer_declarator"}
    named = (found[1] or found[2] for one in arguments if (found := _NAMED.fullmatch(one)))
    return any(name in pointers for name in named)


def _of_cast(source: Source, cast: Node) -> Dependence | None:
    given, value = cast.child_by_field_name("type"), cast.child_by_field_name("value")
    if given is None or value is None:
        return None
    words = " ".join(source.text(given).replace("const", "").replace("volatile", "").split())
    if words.endswith("*"):
        pointed = words.removesuffix("*").strip()
        is_read = source.text(value).startswith("&") or _is_dereferenced(cast)
        return Dependence.BYTES if _NUMBER.fullmatch(pointed) and is_read else None
    if _OF_MACHINE_WIDTH.fullmatch(words):
        return Dependence.WIDTH
    return Dependence.SIGN if words == _CHARACTER else None


def _is_dereferenced(cast: Node) -> bool:
    """Whether the pointer that a cast makes is read or written through in the same expression."""
    around = cast.parent
    while around is not None and around.type in {"parenthesized_expression", "binary_expression"}:
        around = around.parent
    return around is not None and around.type in {"pointer_expression", "subscript_expression"}
