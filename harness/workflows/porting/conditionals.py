"""Finds code that only some machines compile, and determines whether this one compiled it. Pure.

The preprocessor's output decides (`-E -dD -dI`), not an evaluation of the conditions: every compiled line appears in
that output. With these options it also contains definitions and inclusions, which therefore count as code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.analysis.compiler_output import place
from harness.isa import registry
from harness.workflows.porting.document import Region

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    Topic = Literal["Solaris", "alignment", "byte order", "machine"]

_TOPICS: list[tuple[Topic, str]] = [
    ("Solaris", r"_*(sun|svr4|SVR4|SunOS|solaris)_*"),
    ("alignment", r"\w*(UNALIGNED|ALIGNED_ACCESS|STRICT_ALIGN)\w*"),
    ("byte order", r"\w*(BYTE_ORDER|LITTLE_ENDIAN|BIG_?ENDIAN)_*"),
    ("machine", rf"_*({registry.MACROS}|LP64|ILP32|SIZEOF_POINTER|SIZEOF_LONG)_*"),
]
"""Topic -> pattern of a whole identifier. The first topic that matches counts."""

_DIRECTIVE = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)$")
_REFUSAL = re.compile(r"\s*#\s*(error|warning)\b")
"""A part that contains only such directives should not be compiled."""
DEEPEST = 200
"""How deep conditionals may be nested, and how many parts a group may have: far more than any server's source."""
_MARKER = re.compile(r'^# (\d{1,9}) "((?:[^"\\]|\\.)*)"')


class _Branch(msgspec.Struct):
    """An open part of a conditional."""

    first: int
    conditions: list[str]
    """The group's conditions so far, this part's own last."""
    negated: bool
    code: list[tuple[int, str]] = msgspec.field(default_factory=list)
    is_guard: bool = False


def passed(output: bytes, folder: str, tree: Path) -> dict[str, set[int]]:
    """File in the tree -> lines that a preprocessor's output contains."""
    found: dict[str, set[int]] = {}
    known: dict[str, set[int] | None] = {}
    here: set[int] | None = None
    number = 0
    # Bytes of a file's name are escaped as by harness.core.untrusted_text.as_utf8.
    for line in output.decode("utf-8", "backslashreplace").split("\n"):
        if line.startswith("# ") and (marker := _MARKER.match(line)):
            number, name = int(marker[1]), marker[2]
            if name not in known:
                file = place(name, folder, tree)
                known[name] = None if file.startswith(("/", "<")) else found.setdefault(file, set())
            here = known[name]
            continue
        if here is not None and line and not line.isspace():
            here.add(number)
        number += 1
    return found


def regions(files: Mapping[str, str], lines: Mapping[str, set[int]]) -> list[Region]:
    """The conditional parts of the preprocessed files; of nested parts, the outermost that was left out.

    `files`: name -> source. `lines`: the merged results of `passed` for these files. Parts without code are excluded,
    because nothing shows whether they were compiled. So are parts inside code that was left out for reasons unrelated
    to the machine, such as support for another allocator.
    """
    return [one for file, source in files.items() if file in lines for one in _regions_of(file, source, lines[file])]


def _regions_of(file: str, source: str, lines: set[int]) -> Iterator[Region]:
    skipped: list[tuple[int, int]] = []
    for branch, last in sorted(_branches(source), key=lambda pair: pair[0].first):
        if branch.is_guard or not any(not _REFUSAL.match(line) for _, line in branch.code):
            continue
        if any(first < branch.first and last <= end for first, end in skipped):
            continue
        compiled = any(number in lines for number, _ in branch.code)
        if not compiled:
            skipped.append((branch.first, last))
        topic = topic_of(branch.conditions)
        if topic:
            yield Region(
                topic=topic,
                file=file,
                first=branch.first + 1,
                last=last - 1,
                condition=_condition(branch),
                compiled=compiled,
                excerpt=" ".join(branch.code[0][1].split()),
            )


def topic_of(conditions: Iterable[str]) -> Topic | None:
    """The topic of conditions; None if they do not concern the machine."""
    words = re.findall(r"[A-Za-z_]\w*", " ".join(conditions))
    return next((topic for topic, pattern in _TOPICS if any(re.fullmatch(pattern, word) for word in words)), None)


def _condition(branch: _Branch) -> str:
    """The part's own condition; for an #else, the first condition that did not hold."""
    first, own = (" ".join(branch.conditions[at].split()) for at in (0, -1))
    if branch.negated:
        return f"else of {first}" + (" …" if len(branch.conditions) > 1 else "")
    return own if len(branch.conditions) == 1 else f"else, {own}"


def _branches(source: str) -> Iterable[tuple[_Branch, int]]:
    """The parts of all conditionals, each with the line of the directive that ends it; line numbers start at 1.

    The rest of a file that exceeds DEEPEST is left out: it would take all memory.
    """
    opened: list[_Branch] = []
    for number, line in _logical_lines(source):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            _add_code(opened, number, line)
            continue
        word, condition = directive[1], directive[2].strip()
        if len(opened) > DEEPEST or any(len(branch.conditions) > DEEPEST for branch in opened):
            return
        if word in _OPENINGS:
            opened.append(_Branch(first=number, conditions=[_OPENINGS[word].format(condition)], negated=False))
            continue
        if not opened:
            continue
        ended = opened.pop()
        yield ended, number
        if word == "elif":
            opened.append(_Branch(first=number, conditions=[*ended.conditions, condition], negated=False))
        elif word == "else":
            opened.append(_Branch(first=number, conditions=ended.conditions, negated=True))


def _add_code(opened: list[_Branch], number: int, line: str) -> None:
    """Add a line to the parts around it, unless it is blank."""
    if not line.strip():
        return
    if opened and not opened[-1].code and _defines(line, _guarded(opened[-1])):
        opened[-1].is_guard = True
    for branch in opened:
        branch.code.append((number, line))


_OPENINGS = {"if": "{}", "ifdef": "defined({})", "ifndef": "!defined({})"}
"""Directive -> the condition that it stands for."""


def _guarded(branch: _Branch) -> str:
    """The macro of an include guard; empty for other conditions."""
    guard = re.fullmatch(r"!defined\(\s*(\w+)\s*\)", branch.conditions[0]) if len(branch.conditions) == 1 else None
    return guard[1] if guard else ""


def _defines(line: str, name: str) -> bool:
    return bool(name) and re.match(rf"\s*#\s*define\s+{name}\b", line) is not None


def _logical_lines(source: str) -> Iterable[tuple[int, str]]:
    """Logical lines with the number of their first line: continuation lines joined, comments blanked."""
    blank = re.sub(
        r'/\*.*?(?:\*/|\Z)|//[^\n]*|"(?:[^"\\\n]|\\.)*"',
        lambda match: match[0] if match[0].startswith('"') else "\n" * match[0].count("\n") or " ",
        source,
        flags=re.DOTALL,
    )
    lines = blank.split("\n")
    at = 0
    while at < len(lines):
        first, parts = at, [lines[at]]
        while parts[-1].rstrip().endswith("\\") and at + 1 < len(lines):
            at += 1
            parts[-1] = parts[-1].rstrip()[:-1]
            parts.append(lines[at].strip())
        yield first + 1, " ".join(parts)
        at += 1
