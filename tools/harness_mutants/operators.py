"""Mutants of Python source, made by rule: each changes one place, by exact positions of the syntax tree.

Left alone are annotations, docstrings, assertions, decorators, the arguments of class statements, what only type
checkers read, and all text: no test should depend on wording. What static typing alone would reject is not made.

No library does this. mutmut's operators are not public, and it wraps each function in another, which tests of the
harness see: some read sources, names and stacks. cosmic-ray's operators come with a database, a web client and ten
further packages, and its positions are those of another parser.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "<module>"
"""The function of a place outside all functions, as Python names its code."""


class Mutant(NamedTuple):
    """A change of one place in a file."""

    file: str
    """Relative to the checkout, with slashes."""
    function: str
    """The function or class that encloses the place, by its qualified name."""
    at_import: bool
    """Whether the place executes when the module is imported, and never again."""
    operator: str
    number: int
    """Among the places of this operator in this function, from 1."""
    line: int
    last_line: int
    """The first and last line of the statement's part that executes with the place."""
    start: int
    end: int
    """The place, in bytes of the file."""
    before: str
    after: str

    @property
    def name(self) -> str:
        """The identity, which edits elsewhere in the file do not change."""
        return f"{self.file}::{self.function}::{self.operator}-{self.number}"

    @property
    def package(self) -> str:
        """The package of the harness that holds the file."""
        return self.file.split("/")[1]

    def apply(self, source: bytes) -> bytes:
        """The changed file."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file, in the order of their places. A few do not compile (`compiles`)."""
    tree = ast.parse(source)
    finder = _Finder(source)
    finder.block(tree.body, MODULE)
    numbers: Counter[tuple[str, str]] = Counter()
    found = []
    for place in sorted(set(finder.places), key=lambda one: (one.start, one.end, one.operator)):
        numbers[place.function, place.operator] += 1
        before = source[place.start : place.end].decode()
        found.append(
            Mutant(
                file=file,
                function=place.function,
                at_import=place.at_import,
                operator=place.operator,
                number=numbers[place.function, place.operator],
                line=place.line,
                last_line=place.last_line,
                start=place.start,
                end=place.end,
                before=before,
                after=place.after,
            )
        )
    return found


def mutants_in(root: Path) -> list[Mutant]:
    """Every mutant of the harness in a checkout."""
    return [
        mutant
        for path in sorted((root / "harness").rglob("*.py"))
        for mutant in mutants_of(path.relative_to(root).as_posix(), path.read_bytes())
    ]


class _Place(NamedTuple):
    start: int
    end: int
    operator: str
    after: str
    function: str
    at_import: bool
    line: int
    last_line: int


_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: (r"is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: (r"in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
"""Operator -> its pattern in the source, and what replaces it."""
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
_OPPOSITES = {"any": "all", "all": "any", "min": "max", "max": "min"}
_EMPTY = {"list": "[]", "dict": "{}", "set": "set()", "str": '""', "bytes": 'b""', "int": "0"}
"""Annotated result -> one of the same type that says nothing."""


class _Finder:
    """Walks a module and collects the places."""

    def __init__(self, source: bytes) -> None:
        self.places: list[_Place] = []
        self._functions = 0
        """How many functions enclose the current place."""
        self._source = source
        lengths = (len(line) for line in source.splitlines(keepends=True))
        self._starts = [0, *itertools.accumulate(lengths)]

    def block(self, statements: list[ast.stmt], function: str, returns: ast.expr | None = None) -> None:
        """The statements of a block: those of a module, a class, a function or a branch."""
        for statement in statements:
            self._statement(statement, function, returns)

    def _statement(self, node: ast.stmt, function: str, returns: ast.expr | None) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, function)
            case ast.ClassDef():
                self.block(node.body, _inside(function, node.name))
            case ast.Assert() | ast.Import() | ast.ImportFrom():
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                self.block(node.orelse, function, returns)
            case ast.AnnAssign():
                if node.value is not None:
                    self._expression(node.value, function)
            case ast.Expr(value=ast.Constant()):
                pass
            case _:
                self._effect(node, function)
                if isinstance(node, ast.Return) and node.value is not None and returns is not None:
                    self._result(node.value, function, returns)
                self._parts(node, function, returns)

    def _parts(self, node: ast.AST, function: str, returns: ast.expr | None) -> None:
        """The expressions and blocks of a statement."""
        if isinstance(node, ast.If | ast.While):
            self._negated(node.test, function)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child, function, returns)
            elif isinstance(child, ast.expr):
                self._expression(child, function)
            elif not isinstance(child, ast.pattern):
                self._parts(child, function, returns)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, outer: str) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self._expression(default, outer)
        self._functions += 1
        self.block(node.body, _inside(outer, node.name), node.returns)
        self._functions -= 1

    def _effect(self, node: ast.stmt, function: str) -> None:
        """A statement without its effect."""
        match node:
            case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign() | ast.Delete():
                self._add(node, "no effect", "pass", function)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
                self._add(node, "no effect", "pass", function)
            case ast.Continue():
                self._add(node, "end of loop", "break", function)
            case ast.Break():
                self._add(node, "end of loop", "continue", function)
            case _:
                pass

    def _result(self, value: ast.expr, function: str, returns: ast.expr) -> None:
        if isinstance(returns, ast.Name) and returns.id == "bool":
            self._negated(value, function)
            return
        kind = returns.value if isinstance(returns, ast.Subscript) else returns
        if isinstance(kind, ast.Name) and (empty := _EMPTY.get(kind.id)) and self._text(value) != empty:
            self._add(value, "empty result", empty, function)

    def _expression(self, node: ast.expr, function: str) -> None:
        if isinstance(node, ast.JoinedStr):
            # Wording, and positions that Python 3.11 does not tell.
            return
        if isinstance(node, ast.Lambda):
            self._functions += 1
            self._expression(node.body, function)
            self._functions -= 1
            return
        self._operators(node, function)
        for child in ast.iter_child_nodes(node):
            self._inner(child, function)

    def _operators(self, node: ast.expr, function: str) -> None:
        match node:
            case ast.Compare():
                self._between(node.left, node.comparators[0], *_COMPARISONS[type(node.ops[0])], "comparison", function)
            case ast.BoolOp():
                pattern, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in itertools.pairwise(node.values):
                    self._between(left, right, pattern, after, "and or", function)
            case ast.BinOp():
                if type(node.op) in _ARITHMETIC and not _is_text(node.left) and not _is_text(node.right):
                    self._between(node.left, node.right, *_ARITHMETIC[type(node.op)], "arithmetic", function)
            case ast.UnaryOp(op=ast.Not()):
                self._add(node, "condition", f"({self._text(node.operand)})", function)
            case ast.IfExp():
                self._negated(node.test, function)
            case ast.Constant():
                self._constant(node, function)
            case ast.Call(func=ast.Name(id=name)) if name in _OPPOSITES:
                self._add(node.func, "opposite function", _OPPOSITES[name], function)
            case _:
                pass

    def _inner(self, node: ast.AST, function: str) -> None:
        if isinstance(node, ast.expr):
            self._expression(node, function)
            return
        if isinstance(node, ast.comprehension):
            for condition in node.ifs:
                self._negated(condition, function)
        for child in ast.iter_child_nodes(node):
            self._inner(child, function)

    def _constant(self, node: ast.Constant, function: str) -> None:
        if isinstance(node.value, bool):
            self._add(node, "constant", str(not node.value), function)
        elif isinstance(node.value, int):
            self._add(node, "constant", str(node.value + 1), function)

    def _negated(self, node: ast.expr, function: str) -> None:
        if not isinstance(node, ast.UnaryOp | ast.Constant):
            self._add(node, "condition", f"(not ({self._text(node)}))", function)

    def _between(self, left: ast.expr, right: ast.expr, pattern: str, after: str, operator: str, function: str) -> None:
        """Replace an operator between two operands, where nothing but parentheses and comments stand."""
        start, end = self._span(left)[1], self._span(right)[0]
        word = rf"\b{pattern}\b" if pattern[-1].isalpha() else pattern
        # A comment may contain the operator, too.
        if found := re.search(word, re.sub(r"#.*", lambda one: " " * len(one[0]), self._source[start:end].decode())):
            at = len(self._source[start:end].decode()[: found.start()].encode())
            self._place(start + at, start + at + len(found[0].encode()), operator, after, function, left, right)

    def _add(self, node: ast.stmt | ast.expr, operator: str, after: str, function: str) -> None:
        self._place(*self._span(node), operator, after, function, node, node)

    def _place(
        self,
        start: int,
        end: int,
        operator: str,
        after: str,
        function: str,
        first: ast.stmt | ast.expr,
        last: ast.stmt | ast.expr,
    ) -> None:
        lines = (first.lineno, last.end_lineno or last.lineno)
        self.places.append(_Place(start, end, operator, after, function, self._functions == 0, *lines))

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[end_line - 1] + end_column

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()


def _inside(function: str, name: str) -> str:
    """The qualified name of what stands inside."""
    return name if function == MODULE else f"{function}.{name}"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def compiles(source: bytes) -> bool:
    """Whether Python accepts a changed file: a `break` may stand outside a loop, or a literal may be none any more."""
    try:
        compile(source, "<mutant>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
