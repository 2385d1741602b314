"""Mutants: the changes that operators make to a release, each with an identifier, in the order in which a seed samples.

The module reads a tree and writes nothing: `mutations.plant` makes a mutant's tree.
"""

from __future__ import annotations

import collections
import fnmatch
import random
import string
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness.analysis.c_source.syntax import (
    Replacement,
    Source,
    addressing,
    declared,
    enclosing,
    with_first_alternatives,
)
from harness.core.model import Record
from harness.workflows.mutation_testing.generator.transformers.place import Place, ReleaseNames
from harness.workflows.mutation_testing.generator.transformers.registry import TRANSFORMERS
from harness.workflows.mutation_testing.mutations import Edit, Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tree_sitter import Node

    from harness.workflows.mutation_testing.generator.operators import OperatorTable


class Mutant(Record, frozen=True):
    """A release with one change that an operator made."""

    name: str
    """`OPERATOR-FILE-FUNCTION-N`, the same for every run on the same release."""
    operator: str
    fault: Fault
    targets: list[str]
    """The targets on which it must show."""
    file: str
    function: str
    """The function, or the structure, that is changed; empty outside of both."""
    line: int
    before: str
    after: str
    edits: list[Edit]

    @property
    def place(self) -> str:
        """`FILE:LINE`."""
        return f"{self.file}:{self.line}"


def generate(tree: Path, table: OperatorTable) -> list[Mutant]:
    """All mutants of a release, in the order of the operators and files."""
    files = sorted({path for pattern in table.sources for path in tree.glob(pattern) if path.is_file()})
    readings = {path.relative_to(tree).as_posix(): _readings(path.read_bytes()) for path in files}
    sources = [source for each in readings.values() for source in each]
    names = ReleaseNames(
        addressed=frozenset().union(*(source.with_address_taken() for source in sources)),
        addressing=frozenset(addressing({name: each for source in sources for name, each in source.macros.items()})),
        scalar_types=frozenset().union(*(source.scalar_types for source in sources)),
    )
    return [
        mutant
        for operator in table.operators
        for file, each in readings.items()
        if any(fnmatch.fnmatchcase(file, pattern) for pattern in operator.files)
        for mutant in _mutants_of(file, [Place(source, operator, names) for source in each])
    ]


def _readings(content: bytes) -> list[Source]:
    """A file unchanged, and without the directives that prevent the parser from understanding it."""
    plain = with_first_alternatives(content)
    return [Source(content), *([plain] if plain is not None else [])]


def in_sample_order(mutants: Iterable[Mutant], seed: int) -> list[Mutant]:
    """The mutants in an order that a seed decides, of which each beginning is spread over operators and files.

    The operators take turns. Each takes the next of its files in a random order, and a random mutant of that file.
    """
    draw = random.Random(seed)
    strata: dict[str, dict[str, list[Mutant]]] = {}
    for mutant in mutants:
        strata.setdefault(mutant.operator, {}).setdefault(mutant.file, []).append(mutant)
    turns = [collections.deque(_by_turns(files, draw)) for files in strata.values()]
    draw.shuffle(turns)
    ordered = []
    while turns:
        ordered += [turn.popleft() for turn in turns]
        turns = [turn for turn in turns if turn]
    return ordered


def _by_turns(files: dict[str, list[Mutant]], draw: random.Random) -> list[Mutant]:
    """The mutants of one operator, from each file in turn."""
    left = list(files.values())
    draw.shuffle(left)
    for each in left:
        draw.shuffle(each)
    ordered = []
    while left:
        ordered += [each.pop() for each in left]
        left = [each for each in left if each]
    return ordered


def _mutants_of(file: str, places: Sequence[Place]) -> Iterator[Mutant]:
    """The mutants that an operator makes of a file, numbered by function. `places`: the file's readings."""
    operator = places[0].operator
    # A later parse covers more of the file, and finds the function of a change more reliably.
    read_in = {change: place.source for place in places for change in changes_of(place)}
    numbers: collections.Counter[str] = collections.Counter()
    for change, source in sorted(read_in.items(), key=lambda each: each[0]):
        node = source.root.descendant_for_byte_range(change.start, change.end)
        function = _owner(source, node)
        numbers[function] += 1
        edit = edit_of(file, source.content, change)
        if edit is None:
            continue
        yield Mutant(
            name=_identifier(operator.name, file, function, numbers[function]),
            operator=operator.name,
            fault=operator.fault,
            targets=operator.targets,
            file=file,
            function=function,
            line=source.content.count(b"\n", 0, change.start) + 1,
            before=source.content[change.start : change.end].decode(),
            after=change.text.rstrip("\n"),
            edits=[edit],
        )


def changes_of(place: Place) -> Iterator[Replacement]:
    """The changes that an operator makes to a file. Each keeps the number of lines, which assertions contain."""
    if place.operator.transformer:
        for change in TRANSFORMERS[place.operator.transformer](place):
            yield from _sound(place.source, change)
    for rule in place.operator.rules:
        for captures in place.source.matches(rule.query):
            site = captures["site"]
            start, end = min(each.start_byte for each in site), max(each.end_byte for each in site)
            texts = {name: place.source.text(nodes[0]) for name, nodes in captures.items()}
            yield from _sound(
                place.source, Replacement(start, end, string.Template(rule.replacement).substitute(texts))
            )


def _sound(source: Source, change: Replacement) -> Iterator[Replacement]:
    """The change with as many lines as before; nothing if the parser did not understand the place."""
    node = source.root.descendant_for_byte_range(change.start, change.end)
    replaced = source.content[change.start : change.end]
    lost = replaced.count(b"\n") - change.text.count("\n")
    directive = node is not None and (node.type.startswith("preproc_") or enclosing(node, _DIRECTIVES) is not None)
    if (
        node is None
        or node.has_error
        or lost < 0
        or (directive and lost)
        or source.text_between(change.start, change.end) == change.text
        or source.parsed[change.start : change.end] != replaced
    ):
        return
    yield change._replace(text=change.text + "\n" * lost)


_DIRECTIVES = ("preproc_defined", "preproc_def", "preproc_function_def")


def edit_of(file: str, content: bytes, change: Replacement) -> Edit | None:
    """The change as an edit whose anchor is unique in the file: as much around the change as that requires.

    None if the anchor is not UTF-8, which edits are.
    """
    start, end = change.start, change.end
    while start == end or content.count(content[start:end]) != 1:
        # First the whole line, then one more line on each side.
        start = content.rfind(b"\n", 0, max(start - 1, 0)) + 1
        behind = content.find(b"\n", min(end + 1, len(content)))
        end = len(content) if behind < 0 else behind
    try:
        anchor = content[start:end].decode()
        replacement = b"".join([content[start : change.start], change.text.encode(), content[change.end : end]])
        return Edit(file=file, anchor=anchor, replacement=replacement.decode())
    except UnicodeError:
        return None


def _owner(source: Source, node: Node | None) -> str:
    """The function or the structure around a node; empty for neither."""
    while node is not None:
        if node.type == "function_definition":
            name = declared(node.child_by_field_name("declarator"))
            return source.text(name) if name is not None else ""
        named = node.child_by_field_name("name") if node.type == "struct_specifier" else None
        if named is not None and enclosing(node, ("function_definition",)) is None:
            return source.text(named)
        node = node.parent
    return ""


def _identifier(operator: str, file: str, function: str, number: int) -> str:
    path = PurePosixPath(file)
    folders = [name for name in path.parts[:-1] if name not in {"src", "deps"}]
    stem = path.stem if path.suffix == ".c" else path.name.replace(".", "_")
    return "-".join([operator, *folders, stem, function or "file", str(number)])
