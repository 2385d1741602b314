"""The stages: for each mutant the tests that may notice it, the likeliest first, until one fails.

1. `covering`: the tests of `ci/test --quick` that execute the place.
2. `quick`: all tests of `ci/test --quick`, for what a cache or a constant hides from the first stage.
3. `end_to_end` and `slow`: the tests on real servers that enter the function, a file at a time.

Stages 2 and 3 plant all mutants that are left at once. If every test passes, none of them is noticed. Otherwise the
tests that failed run once more for each half of the mutants, and so on for the halves of a half that fails.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from tools.harness_mutants.executions import Executions, file_of
from tools.harness_mutants.journal import TIME, Entry, Stage, State
from tools.harness_mutants.sample import CRITICAL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from tools.harness_mutants.journal import Journal
    from tools.harness_mutants.operators import Mutant
    from tools.harness_mutants.trial import Checkout, TrialResult

QUICK = ("tests", "--ignore=tests/end_to_end")
"""What `ci/test --quick` gives to pytest."""
MEASURE_SECONDS = 3600.0
PART = 16
"""How many files of tests are recorded at a time."""
FACTOR, START_SECONDS = 8, 60
"""A trial's time limit: so many times what its tests took, and the start of pytest on a busy machine."""


class Stages:
    """The stages of a sample on a commit, until `until` (of time.monotonic)."""

    def __init__(self, checkout: Checkout, journal: Journal, until: float, say: Callable[[str], None]) -> None:
        self._checkout = checkout
        self._journal = journal
        self._until = until
        self._say = say

    def measure_quick(self) -> Executions:
        """What the tests of `ci/test --quick` execute, recorded once for each commit.

        They are recorded in parts. If the time ends before, the tests of the other parts run in the second stage only.
        """
        folders = []
        for files in parts(self._checkout.root):
            folder = self._checkout.state / "quick" / files[0].replace("/", "+")
            if not folder.is_dir() and time.monotonic() < self._until:
                self._say(f"recording what the tests of {files[0]} and {len(files) - 1} further files execute …")
                self._checkout.run(files, seconds=MEASURE_SECONDS, functions=True, lines=True, quick=True, keep=folder)
            if folder.is_dir():
                folders.append(folder)
        return Executions(folders, self._checkout.root)

    def measure(self, file: str, *, slow: bool) -> Executions | None:
        """What a file's tests enter. None if it has no such test."""
        folder = self._checkout.state / ("slow" if slow else "end_to_end") / file.replace("/", "+")
        if not folder.is_dir():
            self._say(f"recording what {file} enters …")
            try:
                self._checkout.run([file], seconds=MEASURE_SECONDS, functions=True, slow=slow, keep=folder)
            except InfrastructureError as error:
                self._say(f"{file}: {error.because.strip()[-200:]}")
                return None
        return Executions([folder], self._checkout.root)

    def covering(self, sample: Sequence[Mutant], executions: Executions) -> None:
        """The first stage."""
        for mutant in sample:
            if time.monotonic() > self._until:
                return
            if self._journal.get(mutant.name, "covering") is None:
                entry = self._covering(mutant, executions)
                self._journal.add(entry)
                self._say(f"{entry.seconds:6.1f} s  {entry.state:9}  {mutant.name}  {entry.by}")

    def _covering(self, mutant: Mutant, executions: Executions) -> Entry:
        tests = executions.tests_of(mutant)
        near = executions.near(mutant, tests)
        began = time.monotonic()
        for chosen in (near, [test for test in tests if test not in set(near)]):
            if chosen and (by := self._kills([mutant], chosen, executions)):
                seconds = round(time.monotonic() - began, 1)
                return Entry(mutant=mutant.name, stage="covering", state="killed", by=by[0], seconds=seconds)
        state: State = "survived" if tests else "uncovered"
        seconds = round(time.monotonic() - began, 1)
        return Entry(mutant=mutant.name, stage="covering", state=state, seconds=seconds)

    def quick(self, sample: Sequence[Mutant], executions: Executions) -> None:
        """The second stage."""
        left = [
            one
            for one in sample
            if (entry := self._journal.get(one.name, "covering")) is not None
            and entry.state != "killed"
            and self._journal.get(one.name, "quick") is None
        ]
        if left:
            every = [test for test in executions.seconds if test not in executions.failing]
            killed = self._together(left, every, executions, files=QUICK)
            for one in left:
                self._end(one, "quick", killed.get(one.name, ""))

    def end_to_end(self, sample: Sequence[Mutant], files: Iterable[str], *, slow: bool) -> None:
        """The third stage, with these files. `slow`: with the tests that `ci/test --all` adds."""
        stage: Stage = "slow" if slow else "end_to_end"
        before: tuple[Stage, ...] = ("covering", "quick", "end_to_end", "slow")
        for file in files:
            left = [one for one in sample if self._journal.get(one.name, "quick") is not None]
            left = [one for one in left if self._journal.killed(one.name, before) is None]
            left = [one for one in left if (e := self._journal.get(one.name, stage)) is None or file not in e.files]
            if not left or time.monotonic() > self._until or (executions := self.measure(file, slow=slow)) is None:
                continue
            entering = {one.name: executions.tests_of(one) for one in left}
            tests = sorted(set[str]().union(*entering.values()))
            self._say(f"{file}: {sum(map(bool, entering.values()))} mutants, {len(tests)} tests")
            entered = [one for one in left if entering[one.name]]
            killed = self._together(entered, tests, executions, slow=slow, entering=entering) if tests else {}
            for one in left:
                self._end(one, stage, killed.get(one.name, ""), file)

    def _end(self, mutant: Mutant, stage: Stage, by: str, file: str = "") -> None:
        files = [file] if file else []
        entry = Entry(mutant=mutant.name, stage=stage, state="killed" if by else "survived", by=by, files=files)
        self._journal.add(entry)
        if by:
            self._say(f"killed  {mutant.name}  {by}")

    def _together(
        self,
        mutants: Sequence[Mutant],
        tests: Sequence[str],
        executions: Executions,
        *,
        files: Sequence[str] = (),
        slow: bool = False,
        entering: Mapping[str, Collection[str]] | None = None,
    ) -> dict[str, str]:
        """The killed among the mutants -> the test that kills each.

        `entering`: mutant -> the tests that may notice it. None: each of them may.
        """
        killed: dict[str, str] = {}
        left = list(mutants)
        while planted := apart(left):
            result = self._run(planted, tests, executions, files=files, slow=slow, first_failure=False)
            failed = [test for test in result.failed if test not in executions.failing]
            # A file that cannot be read, or tests that do not end, name no test to repeat.
            named = [test for test in failed if test in executions.seconds]
            found: dict[str, str] = {}
            if named:
                self._say(f"{len(planted)} together: {len(named)} tests fail")
                found = self._halves(planted, named, executions, slow=slow, entering=entering)
            if found:
                # What they broke hid the others.
                killed |= found
                left = [one for one in left if one.name not in found]
                continue
            if len(failed) > len(named) or result.expired:
                # Tests did not run.
                if len(planted) == 1:
                    killed[planted[0].name] = failed[0] if failed else TIME
                else:
                    half = len(planted) // 2
                    for part in (planted[:half], planted[half:]):
                        killed |= self._together(part, tests, executions, files=files, slow=slow, entering=entering)
            # Nothing else fails, or by chance, or by several mutants at once only.
            done = {one.name for one in planted}
            left = [one for one in left if one.name not in done]
        return killed

    def _halves(
        self,
        mutants: Sequence[Mutant],
        tests: Sequence[str],
        executions: Executions,
        *,
        slow: bool,
        entering: Mapping[str, Collection[str]] | None,
    ) -> dict[str, str]:
        """The killed among mutants that fail one of these tests together -> the test that kills each."""
        found: dict[str, str] = {}
        half = (len(mutants) + 1) // 2
        for part in (mutants[:half], mutants[half:]):
            chosen = [test for test in tests if entering is None or any(test in entering[one.name] for one in part)]
            by = self._kills(part, chosen, executions, slow=slow) if part and chosen else []
            if by and len(part) == 1:
                found[part[0].name] = by[0]
            elif by:
                found |= self._halves(part, chosen, executions, slow=slow, entering=entering)
        return found

    def _kills(
        self, mutants: Sequence[Mutant], tests: Sequence[str], executions: Executions, *, slow: bool = False
    ) -> list[str]:
        """The first of the tests that fails, or the time limit; nothing if all pass."""
        result = self._run(mutants, tests, executions, slow=slow, first_failure=True)
        return (result.failed or ([TIME] if result.expired else []))[:1]

    def _run(
        self,
        mutants: Sequence[Mutant],
        tests: Sequence[str],
        executions: Executions,
        *,
        first_failure: bool,
        slow: bool = False,
        files: Sequence[str] = (),
    ) -> TrialResult:
        seconds = START_SECONDS + FACTOR * sum(executions.seconds.get(test, 0.0) for test in tests)
        return self._checkout.run(
            files or list(dict.fromkeys(map(file_of, tests))),
            seconds=seconds,
            chosen=tests,
            changed=changed_files(self._checkout.root, mutants),
            first_failure=first_failure,
            slow=slow,
        )


def parts(root: Path) -> list[list[str]]:
    """The files of `ci/test --quick`, PART at a time: first those that are named like modules of critical packages."""
    stems = {path.stem for package in CRITICAL for path in (root / "harness" / package).rglob("*.py")}
    paths = [path for path in (root / "tests").rglob("test_*.py") if "end_to_end" not in path.relative_to(root).parts]
    paths.sort(key=lambda path: (path.stem.removeprefix("test_") not in stems, path))
    files = [path.relative_to(root).as_posix() for path in paths]
    return [files[n : n + PART] for n in range(0, len(files), PART)]


def apart(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Those that can be planted together: of two that overlap, or of which one may hide the other, the first.

    A function that ends early executes nothing else of itself.
    """
    kept: list[Mutant] = []
    for one in mutants:
        if not any(one.file == each.file and _hides(one, each) for each in kept):
            kept.append(one)
    return kept


def _hides(one: Mutant, other: Mutant) -> bool:
    """Whether one of two mutants of a file may hide the other."""
    return (one.function == other.function and not one.at_import) or (one.start < other.end and other.start < one.end)


def changed_files(root: Path, mutants: Iterable[Mutant]) -> dict[str, bytes]:
    """File -> its content with the mutants, which do not overlap."""
    changed: dict[str, bytes] = {}
    for one in sorted(mutants, key=lambda one: -one.start):
        changed[one.file] = one.apply(changed.get(one.file) or (root / one.file).read_bytes())
    return changed
