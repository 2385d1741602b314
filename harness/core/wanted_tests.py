"""Which tests the words of `--test` mean: a part of a test's name each, or a glob of it, or one of its examples."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SEPARATOR = "::"
"""Between a file's name and a test's, in the names of a release's own tests."""


def fits(test: str, wanted: Sequence[str]) -> bool:
    """Whether a test is selected: one of the words is part of its name, matches it as a glob, or names an example of
    it, `TEST[LABEL]`, as findings do. No words select every test.
    """
    return not wanted or any(
        word in test or fnmatch.fnmatchcase(test, word) or word.startswith(f"{test}[") for word in wanted
    )


def is_selected(item: str, words: Sequence[str]) -> bool:
    """Whether words select `FILE::TEST`: by a part or a glob of the file, and of the test after `::`; none: everything.

    A word without a slash before any `::` may be a part or a glob of the whole.
    """
    file, _, test = item.partition(SEPARATOR)
    if not words:
        return True

    def means(word: str) -> bool:
        place, _, name = word.partition(SEPARATOR)
        if "/" not in place:
            return fits(item, [word])
        return fits(file, [place]) and fits(test, [name])

    return any(map(means, words))


def is_wanted(name: str, upstreams: str, words: Sequence[str]) -> bool:
    """Whether words select a test. `upstreams`: the release's own test that it runs, or empty."""
    return is_selected(upstreams, words) if upstreams else fits(name, words)
