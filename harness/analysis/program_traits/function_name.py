"""Shortens the names that a demangler gives functions of C++, Rust and D, so that they fit ids and lines.

It also gives the form of a name in an id.
"""

from __future__ import annotations

import re

_OPERATOR = re.compile(
    r"\boperator\s*(\(\)|\[\]|<=>|->\*?|<<=?|>>=?|[-+*/%^&|~!=<>,]=?|&&|\|\||\+\+|--|\"\"|new\b|delete\b)"
)
_PLACES = {"(anonymous namespace)": "anonymous"}
_HIDDEN = "\x00"


def short_name(function: str) -> str:
    """A demangled name without arguments of functions and templates, and without the type of the result.

    `ns::Table::insert` of `bool ns::Table<int, std::less<int> >::insert<int>(int const&) const`. Overloads share a
    name, and so do instances of a template: the line tells them apart. A name of C stays as it is.
    """
    if not any(character in function for character in "(<{ "):
        return function
    text = function
    for phrase, word in _PLACES.items():
        text = text.replace(phrase, word)
    operators: list[str] = []

    def hidden(found: re.Match[str]) -> str:
        operators.append(f"operator{found[1] if not found[1].isalpha() else f' {found[1]}'}")
        return _HIDDEN

    text = re.sub(r" ?\[clone [^]]*\]", "", _OPERATOR.sub(hidden, text))
    text = _without_brackets(text).strip()
    # What precedes the name is the type of its result.
    named = re.split(r"\s+(?!const\b|volatile\b|&|$)", re.sub(r"\s+(const|volatile|&&?|noexcept)\b.*$", "", text))[-1]
    for operator in operators:
        named = named.replace(_HIDDEN, operator, 1)
    return re.sub(r"(::)+", "::", named).strip(" :") or function


_SIGNS = {"()": "-call", "[]": "-index", "<": "-lt", ">": "-gt", "=": "-eq", "*": "-star", "/": "-slash", " ": "-"}
_SIGNS |= {"%": "-percent", "^": "-caret", "&": "-and", "|": "-or", "!": "-not", ",": "-comma", '"': "-quote"}


def name_in_id(function: str) -> str:
    """A name without signs that a shell interprets: `Table::operator-lt-lt` of `Table::operator<<`.

    Names of C stay as they are, and so does `??`.
    """
    return re.sub(r"\(\)|\[\]|[^\w:.?@+~$-]", lambda found: _SIGNS.get(found[0], "_"), function)


def _without_brackets(text: str) -> str:
    """The text without everything in brackets of any kind; a lambda is called `lambda`."""
    kept, depth = [], 0
    for at, character in enumerate(text):
        if character in "(<{":
            if not depth and text.startswith("{lambda", at):
                kept.append("lambda")
            depth += 1
        elif character in ")>}" and depth:
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)
