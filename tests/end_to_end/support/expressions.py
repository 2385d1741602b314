"""GitHub's expressions, as far as our workflows use them (docs.github.com, "Evaluate expressions in workflows").

What is not known here is an error, and not an empty string as with GitHub: a test is to notice a word that is misspelt.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:'((?:[^']|'')*)'|(\d+(?:\.\d+)?)|([A-Za-z_][\w-]*)|(==|!=|&&|\|\||[!().,\[\]]))")
_EMBEDDED = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_LITERALS = {"true": True, "false": False, "null": None}


class ExpressionError(Exception):
    """The text is not an expression, or names something that does not exist."""


def expand(text: str, contexts: dict[str, Any], functions: dict[str, Callable[..., Any]] | None = None) -> Any:
    """A value of a workflow file: a text with expressions, or a single expression, whose value keeps its type."""
    whole = _EMBEDDED.fullmatch(text.strip())
    if whole and whole[1].count("${{") == 0:
        return evaluate(whole[1], contexts, functions)
    return _EMBEDDED.sub(lambda found: text_of(evaluate(found[1], contexts, functions)), text)


def evaluate(text: str, contexts: dict[str, Any], functions: dict[str, Callable[..., Any]] | None = None) -> Any:
    """An expression's value."""
    reader = _Reader(text, contexts, {**_FUNCTIONS, **(functions or {})})
    value = reader.either()
    if reader.tokens:
        raise ExpressionError(f"'{text.strip()}' continues after its end: {reader.tokens[0]}")
    return value


def text_of(value: Any) -> str:
    """A value as text, in GitHub's form."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        raise ExpressionError(f"{type(value).__name__} written as text")
    return str(value)


def is_true(value: Any) -> bool:
    """Whether GitHub treats a value as true in a condition. Objects are true, and so is any text that is not empty."""
    return isinstance(value, (dict, list)) or bool(value)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    if type(left) is type(right):
        return bool(left == right)
    return _number(left) == _number(right)


def _number(value: Any) -> float:
    if value is None or value == "":
        return 0.0
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fromjson": json.loads,
    # GitHub compares without regard to case.
    "startswith": lambda text, prefix: text_of(text).casefold().startswith(text_of(prefix).casefold()),
    "join": lambda parts, separator=",": separator.join(map(text_of, parts)),
    "format": lambda text, *values: re.sub(r"\{(\d+)\}", lambda found: text_of(values[int(found[1])]), text),
}


class _Reader:
    """Reads and evaluates from left to right."""

    def __init__(self, text: str, contexts: dict[str, Any], functions: dict[str, Callable[..., Any]]) -> None:
        self.contexts = contexts
        self.functions = functions
        self.tokens: list[tuple[str, Any]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ExpressionError(f"'{text.strip()}' cannot be read from '{text[at:]}'")
            at = found.end()
            quoted, number, name, sign = found.groups()
            if quoted is not None:
                self.tokens.append(("value", quoted.replace("''", "'")))
            elif number is not None:
                self.tokens.append(("value", float(number) if "." in number else int(number)))
            else:
                self.tokens.append(("name", name) if name else ("sign", sign))

    def accept(self, sign: str) -> bool:
        if self.tokens and self.tokens[0] == ("sign", sign):
            self.tokens.pop(0)
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            raise ExpressionError(f"'{sign}' expected before {self.tokens[:1]}")

    def either(self) -> Any:
        value = self.both()
        while self.accept("||"):
            other = self.both()
            value = value if is_true(value) else other
        return value

    def both(self) -> Any:
        values = [self.equal()]
        while self.accept("&&"):
            values.append(self.equal())
        return next((one for one in values if not is_true(one)), values[-1])

    def equal(self) -> Any:
        value = self.single()
        while self.tokens and self.tokens[0] in {("sign", "=="), ("sign", "!=")}:
            _, sign = self.tokens.pop(0)
            value = _same(value, self.single()) == (sign == "==")
        return value

    def single(self) -> Any:
        if self.accept("!"):
            return not is_true(self.single())
        if self.accept("("):
            value = self.either()
            self.expect(")")
        else:
            if not self.tokens or self.tokens[0][0] == "sign":
                raise ExpressionError(f"a value expected before {self.tokens[:1]}")
            kind, word = self.tokens.pop(0)
            value = word if kind == "value" else self.named(word)
        return self.properties(value)

    def named(self, name: str) -> Any:
        if self.accept("("):
            arguments = []
            while not self.accept(")"):
                arguments.append(self.either())
                self.accept(",")
            if name.lower() not in self.functions:
                raise ExpressionError(f"no function {name}")
            return self.functions[name.lower()](*arguments)
        if name in _LITERALS:
            return _LITERALS[name]
        if name not in self.contexts:
            raise ExpressionError(f"no context {name}; there are {', '.join(self.contexts)}")
        return self.contexts[name]

    def properties(self, value: Any) -> Any:
        while self.tokens and self.tokens[0] in {("sign", "."), ("sign", "[")}:
            if self.accept("."):
                key = self.tokens.pop(0)[1]
            else:
                self.expect("[")
                key = self.either()
                self.expect("]")
            value = self.looked_up(value, key)
        return value

    @staticmethod
    def looked_up(value: Any, key: Any) -> Any:
        if isinstance(value, Strict) and key not in value:
            raise ExpressionError(f"no {key}; there are {', '.join(value)}")
        if isinstance(value, list) and isinstance(key, int):
            return value[key]
        return value.get(key) if isinstance(value, dict) else None


class Strict(dict[str, Any]):
    """A context that declares all of its names, such as inputs, steps or needed jobs. Any other name is an error."""
