"""`python -m tools.prose`: a linter of the documents' English. It prints one line for each problem and exits with 1.

It rejects phrases that no native writer would use, says what to write instead, and limits the length of a sentence.
CONTRIBUTING.md is the guide for people.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "*/README.md",
    "suites/*/README.md",
    "toolchains/*/README.md",
)
LONGEST_SENTENCE_WORDS = 36

PHRASES = {
    r"do(es)? all the set-?up": "install everything they need",
    r"the same for people": "human-readable reports",
    r"before any suite counts": "every run first verifies …",
    r"blamed on": "reports only new findings",
    r"what the base shows": "the findings of the base",
    r"tells? what (this|the|a) machine lacks": "lists missing packages and how to install them",
    r"forgives? nothing": "guard pages and minimal alignment",
    r"not everything is in": "there are unknown …",
    r"apart by (spaces|commas|tabs)": "space-separated",
    r"(is|are) to be so \w+ that": "must be … enough to …",
    r"what has no end": "open-ended …",
    r"(is|are) to be": "must be",
    r"goes on from there": "continues",
    r"nought": "zero",
    r"mend(s|ed|ing)?": "fix",
    r"for ever": "forever, or indefinitely",
    r"anew": "again",
    r"unasked": "by default",
    r"seldom": "rarely",
    r"moreover": "also",
    r"go(es)? round": "avoid, work around",
    r"turned round": "reversed",
    r"as well as the main thread": "and the main thread",
    r"has not": "does not have",
    r"have not(?! been)": "do not have",
    r"of ours": "our",
    r"of yours": "your",
    r"(needs|asks|wants) to be told": "needs an option",
    r"is told (in|by|with|what|of)": "is reported …",
    r"told apart": "distinguished",
    r"nobody (guards|looks at)": "name what is missing",
    r"comes? upon": "find",
    r"by its source": "according to its source",
    r"in vain": "without result, until the time limit",
    r"(tells?|told) of": "reports, describes",
    r"go(es)? on as": "continues as",
    r"a machine's own": "the machine's",
    r"by turns": "alternately",
    r"whoever": "anyone who …",
}
"""A regular expression for a phrase -> what to write instead. A space stands for any white space."""

_ITEM = r"[-*+] |\d+\. "
_BLOCK = re.compile(rf"^ *(?:{_ITEM})?(?![|#\s]).*\n?(?:^ *(?!{_ITEM}|[|#\s]).*\n?)*", re.MULTILINE)


@dataclass(frozen=True)
class Problem:
    """A place that a reader would stumble over."""

    line: int
    words: str
    advice: str


def problems(text: str) -> Iterator[Problem]:
    """The problems of a page in Markdown, in no particular order."""
    prose = _without_code(text)
    for pattern, advice in PHRASES.items():
        for found in re.finditer(rf"\b{pattern}\b".replace(" ", r"\s+"), prose, re.IGNORECASE):
            yield Problem(_line(prose, found.start()), " ".join(found[0].split()), f"write: {advice}")
    for start, block in _blocks(prose):
        for sentence in re.split(r"(?<=[.?!])\s+", block):
            if (count := len(sentence.split())) > LONGEST_SENTENCE_WORDS:
                yield Problem(
                    _line(prose, start), " ".join(sentence.split()[:6]) + " …", f"a sentence of {count} words: split it"
                )


def _without_code(text: str) -> str:
    """The same lines without what is not prose: code, comments and the addresses of links."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    text = re.sub(r"^( *)```.*?^\1```$", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    text = re.sub(r"(?:(?<=\n\n)|(?<=^))(?: {4,}\S.*\n)+", blank, text)
    text = re.sub(r"`[^`]*`", lambda found: "code" + blank(found), text)
    # A list of values is one word: nobody reads it word by word.
    text = re.sub(r"\bcode(?:,\s+code)+\b", lambda found: "code" + blank(found), text)
    return re.sub(r"\]\([^)\s]*\)", "]", text)


def _blocks(prose: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items of lists and cells of tables, each with where it begins."""
    for found in _BLOCK.finditer(prose):
        yield found.start(), found[0]
    for row in re.finditer(r"^\|.*$", prose, re.MULTILINE):
        for cell in row[0].split("|"):
            yield row.start(), cell


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def pages() -> list[Path]:
    """Every page, written by people or generated from their data."""
    return sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})


def main() -> int:
    """The exit code."""
    count = 0
    for path in pages():
        for found in problems(path.read_text("utf-8")):
            count += 1
            sys.stdout.write(f"{path.relative_to(ROOT)}:{found.line}: {found.words}: {found.advice}\n")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
