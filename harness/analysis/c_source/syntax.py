"""C source as a syntax tree: parsed by tree-sitter, with the declarations and scopes that the tree does not connect.

It knows nothing of operators. Offsets count bytes, because tree-sitter's do.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

import tree_sitter_c
from tree_sitter import Language, Parser, Query, QueryCursor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tree_sitter import Node

C = Language(tree_sitter_c.language())
Captures = dict[str, list["Node"]]


class Replacement(NamedTuple):
    """One replacement: the bytes from `start` to `end`, and the new ones."""

    start: int
    end: int
    text: str


class Variable(NamedTuple):
    """A local variable or a parameter."""

    name: str
    type: str
    """Without qualifiers, one blank between words."""
    declarator: Node
    """The text after the type, without an initial value."""
    declaration: Node
    scope: Node
    """The block, loop or function in which it can be used."""

    @property
    def is_plain(self) -> bool:
        """Whether it is neither a pointer nor an array nor a function."""
        return self.declarator.type == "identifier"

    @property
    def is_parameter(self) -> bool:
        """Whether it is a parameter."""
        return self.declaration.type == "parameter_declaration"


class Macro(NamedTuple):
    """A macro with arguments."""

    parameters: list[str]
    body: str


class Source:
    """A parsed file."""

    def __init__(self, content: bytes, parsed: bytes | None = None) -> None:
        """`parsed` is what the parser reads instead of the content, of the same length."""
        self.content = content
        self.parsed = content if parsed is None else parsed
        self.root = _tree_of(self.parsed)
        self._variables: dict[int, list[Variable]] = {}
        # Cached: several operators request the same data of the same functions.
        self._matches: dict[tuple[str, int, int], list[Captures]] = {}

    def text(self, node: Node) -> str:
        """A node's text. Bytes that are not UTF-8 are kept as lone surrogates."""
        return self.text_between(node.start_byte, node.end_byte)

    def text_between(self, start: int, end: int) -> str:
        """The text between two offsets, likewise."""
        return self.content[start:end].decode("utf-8", "surrogateescape")

    def matches(self, query: str, node: Node | None = None) -> list[Captures]:
        """The captures of every match below a node, or in the file."""
        below = node or self.root
        asked = query, below.start_byte, below.end_byte
        if asked not in self._matches:
            self._matches[asked] = [captures for _, captures in QueryCursor(_query(query)).matches(below)]
        return self._matches[asked]

    def captured(self, query: str, node: Node | None = None) -> list[Node]:
        """The nodes that a query captures as `site`, in the order of the file."""
        return sorted((each["site"][0] for each in self.matches(query, node)), key=lambda each: each.start_byte)

    @functools.cached_property
    def functions(self) -> list[Node]:
        """The definitions of functions."""
        return self.captured("(function_definition) @site")

    def type_of(self, node: Node) -> str:
        """The type of a declaration, parameter, field or cast, without qualifiers; empty if there is none."""
        found = node.child_by_field_name("type")
        return " ".join(self.text(found).split()) if found is not None else ""

    def variables(self, function: Node) -> list[Variable]:
        """The parameters and local variables of a function, in the order of their declarations."""
        if function.start_byte not in self._variables:
            self._variables[function.start_byte] = list(self._find_variables(function))
        return self._variables[function.start_byte]

    def _find_variables(self, function: Node) -> Iterator[Variable]:
        declarations = "[(declaration) (parameter_declaration)] @site"
        for declaration in self.captured(declarations, function):
            scope = enclosing(declaration, _SCOPES)
            if scope is None or (declaration.type == "parameter_declaration" and not _is_own(declaration, function)):
                continue
            for whole in declaration.children_by_field_name("declarator"):
                inner = whole.child_by_field_name("declarator") if whole.type == "init_declarator" else whole
                name = declared(inner)
                if inner is not None and name is not None:
                    kind = self.type_of(declaration)
                    yield Variable(self.text(name), kind, inner, declaration, scope)

    def with_address_taken(self, node: Node | None = None) -> set[str]:
        """The names of variables and fields whose address `&` takes."""
        taken = '(pointer_expression operator: "&" argument: [(identifier) @site (field_expression field: (_) @site)])'
        return {self.text(each) for each in self.captured(taken, node)}

    @functools.cached_property
    def macros(self) -> dict[str, Macro]:
        """The macros with arguments that the file defines, by name."""
        definition = "(preproc_function_def name: (identifier) @name parameters: (_) @parameters value: (_) @body)"
        found = {}
        for each in self.matches(definition):
            parameters = [self.text(child) for child in each["parameters"][0].named_children]
            found[self.text(each["name"][0])] = Macro(parameters, self.text(each["body"][0]))
        return found

    @functools.cached_property
    def scalar_types(self) -> set[str]:
        """The names that the file gives to pointers, numbers and enumerations."""
        found = set()
        for each in self.captured("(type_definition) @site"):
            kind = each.child_by_field_name("type")
            for whole in each.children_by_field_name("declarator"):
                name = declared(whole)
                pointed = whole.type in {"pointer_declarator", "function_declarator"}
                number = whole.type == "type_identifier" and kind is not None and kind.type in _NUMBERS
                if name is not None and (pointed or number):
                    found.add(self.text(name))
        return found


_NUMBERS = ("primitive_type", "sized_type_specifier", "enum_specifier")
_SCOPES = ("compound_statement", "for_statement", "function_definition")


_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|else|elif|endif)\b(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_Span = tuple[int, int]


def with_first_alternatives(content: bytes) -> Source | None:
    """The file parsed with only the first alternative of each conditional group that splits a statement; None if that
    does not help.

    The grammar supports conditional directives only around whole statements. Elsewhere it fails to parse much of the
    function. Each group of directives that leads to an error is tried with its first alternative only.
    """
    parsed, errors = content, _errors_in(_tree_of(content))
    left = _groups(content)
    better = True
    while better:
        better = False
        for group in [each for each in left if _touches(each, errors)]:
            tried = _blanked(parsed, group)
            found = _errors_in(_tree_of(tried))
            if _size(found) < _size(errors):
                parsed, errors, better = tried, found, True
                left.remove(group)
                break
    return None if parsed == content else Source(content, parsed)


def _tree_of(content: bytes) -> Node:
    return Parser(C).parse(content).root_node


def _groups(content: bytes) -> list[list[_Span]]:
    """The directives of each conditional group, from its first to its last, the shortest groups first."""
    open_ones: list[list[_Span]] = []
    found: list[list[_Span]] = []
    for each in _DIRECTIVE.finditer(content):
        if each[1].startswith(b"if"):
            open_ones.append([])
        if open_ones:
            open_ones[-1].append(each.span())
            if each[1] == b"endif":
                found.append(open_ones.pop())
    return sorted(found, key=lambda group: group[-1][1] - group[0][0])


def _errors_in(root: Node) -> list[_Span]:
    """The places that the parser did not understand, the outermost ones."""
    found = []
    left = [root]
    while left:
        node = left.pop()
        if node.type == "ERROR" or node.is_missing:
            found.append((node.start_byte, node.end_byte))
        elif node.has_error:
            left += node.children
    return found


def _touches(group: list[_Span], errors: list[_Span]) -> bool:
    return any(group[0][0] <= end and start <= group[-1][1] for start, end in errors)


def _size(errors: list[_Span]) -> int:
    return sum(max(1, end - start) for start, end in errors)


def _blanked(content: bytes, group: list[_Span]) -> bytes:
    """The content with blanks for a group's directives, and for all alternatives except the first."""
    (start, inner), last = group[0], group[-1][1]
    other = group[1][0]
    return b"".join(
        [
            content[:start],
            _blanks(content[start:inner]),
            content[inner:other],
            _blanks(content[other:last]),
            content[last:],
        ]
    )


def _blanks(text: bytes) -> bytes:
    return re.sub(rb"[^\n]", b" ", text)


def addressing(macros: Mapping[str, Macro]) -> set[str]:
    """The macros that may take the address of an argument, themselves or through others."""
    found: set[str] = set()
    for name, macro in macros.items():
        names = "|".join(map(re.escape, macro.parameters))
        if names and re.search(rf"(?<!&)&(?!&)[\s(]*(?:{names})\b", macro.body):
            found.add(name)
    while True:
        more = {name for name, macro in macros.items() if found & set(re.findall(r"\w+", macro.body))}
        if more <= found:
            return found
        found |= more


def visible(variables: list[Variable], at: Node) -> Iterator[Variable]:
    """The variables that a place can use, without those that an inner declaration of the same name hides."""
    chosen: dict[str, Variable] = {}
    for each in variables:
        if each.declaration.end_byte <= at.start_byte and each.scope.start_byte <= at.start_byte < each.scope.end_byte:
            chosen[each.name] = each
    yield from chosen.values()


def enclosing(node: Node, kinds: tuple[str, ...]) -> Node | None:
    """The nearest node of some kinds around a node; None if there is none."""
    around = node.parent
    while around is not None and around.type not in kinds:
        around = around.parent
    return around


def declared(declarator: Node | None) -> Node | None:
    """The name inside a declarator, whatever pointers and arrays are around it."""
    while declarator is not None and declarator.type not in {"identifier", "field_identifier", "type_identifier"}:
        inner = declarator.child_by_field_name("declarator")
        if inner is None and declarator.type == "parenthesized_declarator":
            inner = declarator.named_children[0]
        declarator = inner
    return declarator


def _is_own(parameter: Node, function: Node) -> bool:
    """Whether a parameter belongs to the function itself, and not to the type of a parameter that is a pointer to a
    function.
    """
    around = enclosing(parameter, ("function_declarator",))
    outer = function.child_by_field_name("declarator")
    while outer is not None and outer.type == "pointer_declarator":
        outer = outer.child_by_field_name("declarator")
    return around is not None and outer is not None and around.id == outer.id


@functools.cache
def _query(text: str) -> Query:
    return Query(C, text)
