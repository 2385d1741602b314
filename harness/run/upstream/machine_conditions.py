"""Finds the condition on the machine under which a test file runs one of its tests.

Some tests are for machines of 64 bits, or for some architectures. Their files say so in an `if`: around the test, or in
its body before the test passes over itself. Whether a condition holds depends on a question that the file asks; the
overlay and the server answer it for the target.

Tcl finds the end of a word in braces by counting braces, those in comments and quotes included. So does this module.
Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.core.target_model import Target

_QUESTIONS: Mapping[str, Callable[[Target], object]] = {
    "uname -m": lambda target: target.machine,
    "arch_bits": lambda target: target.width_bits,
}
"""A question about the machine, as files ask it -> its answer on a target."""


def condition_on_machine(text: str, test: str, target: Target, native: Target, *, began: bool) -> str:
    """The condition that explains why a test runs natively and not on a target; empty if none does.

    `text`: the file. `began`: whether the test began there, and then passed over itself. Only questions count whose
    answers differ. If several tests have the name, each must have such a condition. A name that is put together at run
    time has no place in the file, so nothing explains its absence.
    """
    asked = [question for question, answer in _QUESTIONS.items() if answer(target) != answer(native)]
    words = [re.escape(question) for question in asked]
    words += [rf"\$\{{?{re.escape(name)}\b" for name in _variables(text, asked)] if asked else []
    places = _places(text, test, began=began)
    found = [_first(_conditions_at(text, place), words) for place in places]
    return found[0] if found and all(found) else ""


def _first(conditions: Sequence[str], words: Sequence[str]) -> str:
    """The first condition that has one of the words, which are regular expressions."""
    return next((one for one in conditions if any(re.search(word, one) for word in words)), "")


def _variables(text: str, questions: Sequence[str]) -> set[str]:
    """The names of variables whose values depend on the answers."""
    values = re.findall(r"^\s*set\s+([\w:]+)\s+(.+)$", text, re.MULTILINE)
    found: set[str] = set()
    while True:
        more = {
            name
            for name, value in values
            if any(question in value for question in questions)
            or any(re.search(rf"\$\{{?{re.escape(known)}\b", value) for known in found)
        }
        if more <= found:
            return found
        found |= more


def _places(text: str, test: str, *, began: bool) -> list[int]:
    """Where each test of that name begins; or, if it passed over itself, where each of them does."""
    begins = [one.start() for one in re.finditer(rf'^[ \t]*test[ \t]+[{{"]{re.escape(test)}[}}"]', text, re.MULTILINE)]
    if not began:
        return begins
    bodies = ((begin, re.compile(r"^[ \t]*test\b", re.MULTILINE).search(text, begin + 1)) for begin in begins)
    return [
        begin + skip.start()
        for begin, following in bodies
        for skip in re.finditer(
            r"^[ \t]*skip\b", text[begin : following.start() if following else len(text)], re.MULTILINE
        )
    ]


def _conditions_at(text: str, place: int) -> list[str]:
    """The conditions of the `if` commands around a place, the outermost first."""
    opened: list[tuple[int, int]] = []
    began = 0
    for at, character in _unescaped(text[:place]):
        if character == "{":
            opened.append((began, at))
            began = at + 1
        elif character == "}" and opened:
            began, _ = opened.pop()
        elif character == "\n":
            began = at + 1
    return [condition for begin, end in opened for condition in _conditions_of(text[begin:end])]


def _unescaped(text: str) -> Iterator[tuple[int, str]]:
    """Each character behind which no backslash stands, with its place."""
    escaped = False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            yield at, character


def _conditions_of(command: str) -> list[str]:
    """The conditions in the part of an `if` command that precedes one of its bodies; none in another command."""
    words = _words(command)
    found = []
    for number, (word, braced) in enumerate(words):
        if word in {"if", "elseif"} and not braced and number + 1 < len(words):
            condition, is_one_word = words[number + 1]
            rest = " ".join(each for each, _ in words[number + 1 :])
            found.append(condition.strip() if is_one_word else rest)
    return found


def _words(command: str) -> list[tuple[str, bool]]:
    """The words of a command, and whether each is in braces."""
    found: list[tuple[str, bool]] = []
    depth, begin = 0, 0
    for at, character in [*_unescaped(command), (len(command), " ")]:
        if character == "{":
            if depth == 0 and not command[begin:at].strip():
                begin = at
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0 and command[begin : begin + 1] == "{":
                found.append((command[begin + 1 : at], True))
                begin = at + 1
        elif depth <= 0 and character.isspace():
            if word := command[begin:at].strip():
                found.append((word, False))
            begin = at + 1
    return found
