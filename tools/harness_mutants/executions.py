"""Which tests execute a place, from what a trial of the unchanged commit recorded."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache, cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from coverage import CoverageData

from harness.core import json_codec
from tools.harness_mutants.observer import ENTERED
from tools.harness_mutants.pytest_plugin import ENDS, LINES
from tools.harness_mutants.trial import End

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tools.harness_mutants.operators import Mutant

NEAR_FILES, NEAR_TESTS = 4, 300
"""The first tests of a mutant: at most so many, of so many files."""


class Executions:
    """The records of trials, one in each of `folders`, of the checkout at `root`."""

    def __init__(self, folders: Sequence[Path], root: Path) -> None:
        self._folders = folders
        self._root = root
        lines = (line for folder in folders for line in (folder / ENDS).read_bytes().splitlines())
        entries = [json_codec.decode(line, End) for line in lines]
        self.failing = {end.test for end in entries if end.outcome == "failed"}
        """The tests that fail without a mutant, which tell nothing."""
        self.seconds = {end.test: end.seconds for end in entries if end.when == "teardown"}
        """Test -> how long it takes."""

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that execute the place, those that take the shortest first.

        Of a process that a test starts, the function is known, and not the line. What executes when a module is
        imported belongs to all tests that execute something of this module, or of one that imports it.
        """
        if mutant.at_import:
            files = [mutant.file, *_importers(self._root).get(mutant.file, ())]
            found = set[str]().union(*(self._of_file(file) for file in files))
        else:
            lines = self._lines(mutant.file)
            found = set[str]().union(*(lines.get(n, ()) for n in range(mutant.line, mutant.last_line + 1)))
            found |= self._entered.get((mutant.file, mutant.function), set())
        return sorted(self._expanded(found) - self.failing, key=lambda test: (self.seconds.get(test, 0.0), test))

    def near(self, mutant: Mutant, tests: Iterable[str]) -> list[str]:
        """Those that most likely notice: of the file that is named like the mutant's, and those with most tests."""
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in tests:
            by_file[file_of(test)].append(test)
        stem = PurePosixPath(mutant.file).stem
        first = sorted(by_file, key=lambda file: (stem not in PurePosixPath(file).stem, -len(by_file[file]), file))
        return [test for file in first[:NEAR_FILES] for test in by_file[file]][:NEAR_TESTS]

    def _expanded(self, contexts: Iterable[str]) -> set[str]:
        """Tests: what a fixture executed for a file counts for each of its tests."""
        found = set()
        for context in contexts:
            found |= {context} if "::" in context else self._by_file.get(context, set())
        return found

    @cached_property
    def _by_file(self) -> dict[str, set[str]]:
        tests: dict[str, set[str]] = defaultdict(set)
        for test in self.seconds:
            tests[file_of(test)].add(test)
        return tests

    @cached_property
    def _entered(self) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for path in (path for folder in self._folders for path in (folder / ENTERED).iterdir()):
            for line in path.read_text("utf-8").splitlines():
                test, file, name = line.split("\t")
                # A comprehension or a lambda belongs to its function.
                parts = name.replace(".<locals>", "").split(".")
                found[file, ".".join(part for part in parts if not part.startswith("<"))].add(test)
        return found

    @cached_property
    def _coverage(self) -> list[CoverageData]:
        found = [CoverageData(str(path)) for folder in self._folders if (path := folder / LINES).exists()]
        for one in found:
            one.read()
        return found

    @cache  # noqa: B019 - one object lives as long as the program
    def _lines(self, file: str) -> dict[int, set[str]]:
        merged: dict[int, set[str]] = defaultdict(set)
        for data in self._coverage:
            for line, tests in data.contexts_by_lineno(str(self._root / file)).items():
                merged[line].update(tests)
        return merged

    @cache  # noqa: B019
    def _of_file(self, file: str) -> set[str]:
        entered = (tests for (each, _), tests in self._entered.items() if each == file)
        return set[str]().union(*self._lines(file).values(), *entered)


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


@cache
def _importers(root: Path) -> dict[str, set[str]]:
    """Module -> the modules of the harness that import it, each by its path."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (root / "harness").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("harness"):
                names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
                for name in names:
                    found[f"{name.replace('.', '/')}.py"].add(path.relative_to(root).as_posix())
    return found
