"""Determines which programs failed as what ran them expected: `grep` that finds nothing, a test of wrong arguments.

A status counts if each process above the program passed a failure on, up to the command. One that succeeded took the
status as expected, unless it is a test driver that succeeds whatever its test did. These write what they think of the
test to a file. A shell that ends at the first failure (`set -e`) minded its last program alone.
"""

from __future__ import annotations

import enum
import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import ABSENT_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.record.program_launch import ProgramLaunch
    from harness.run.programs.program_callers import Caller

LATER_MS = 1000
"""How much later than a driver's end a file is not its own."""
MOST_BYTES = 1 << 24
"""How long a file may be that is read."""


class Opinion(enum.Enum):
    """What the processes above a program that failed made of it."""

    FAILED = "it made the command fail, or nothing is known"
    SURVIVED = "a shell went on after it that another failure ended: it may count failures, or have expected it"
    EXPECTED = "one of them succeeded all the same, or reports a test that went as expected"


def opinion(process: int, caller: int, callers: Mapping[int, Caller], program: ProgramLaunch) -> Opinion:
    """The opinion on a program that failed. `process`, `caller`: its number, and that of what made it, 0 if they are
    not recorded.
    """
    words: Sequence[str] = program.words
    while (one := callers.get(caller)) is not None:
        for is_driver, told in _DRIVERS:
            if is_driver(one.words):
                as_expected = told(one, words, program)
                if as_expected is not None:
                    return Opinion.EXPECTED if as_expected else Opinion.FAILED
        if one.has_succeeded and _PYTEST_WORKER not in one.words:
            return Opinion.EXPECTED
        if one.last != process and _ended_at_its_last(one, callers):
            return Opinion.SURVIVED
        process, caller, words = caller, one.caller, one.words
    return Opinion.FAILED


def _ended_at_its_last(shell: Caller, callers: Mapping[int, Caller]) -> bool:
    """Whether a shell ended because its last program failed, as one does after `set -e`."""
    if shell.how != "exited" or not shell.last or shell.last_status != shell.number:
        return False
    if not shell.words or Path(shell.words[0]).name not in _SHELLS:
        return False
    options = list(itertools.takewhile(lambda word: word.startswith("-"), shell.words[1:]))
    if any(re.fullmatch(r"-[a-z]*e[a-z]*", word) for word in options):
        return True
    if any("c" in word for word in options) or len(shell.words) <= len(options) + 1:
        return False
    # It may have changed its folder, and what made it has not.
    folders = (shell.folder, callers[shell.caller].folder if shell.caller in callers else "")
    script = shell.words[len(options) + 1]
    text = next((found for folder in folders if (found := _content(Path(folder or "/") / script))), "")
    return bool(_ENDS_AT_FAILURE.search(text)) and not _GOES_ON.search(text)


_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "ash"})
_ENDS_AT_FAILURE = re.compile(r"\A#!.*\s-[a-z]*e[a-z]*$|^\s*set\s+-[a-z]*e", re.MULTILINE)
_GOES_ON = re.compile(r"\bset\s+\+[a-z]*e")


def _options(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


def _is_automake(words: Sequence[str]) -> bool:
    return _TRS in _options(words)


def _of_automake(driver: Caller, words: Sequence[str], program: ProgramLaunch) -> bool | None:
    """What a driver of Automake's interface says of its test (the manual, "API for Custom Test Drivers").

    It succeeds whatever the test does, so that without its file nothing was expected.
    """
    del words, program
    options = _options(driver.words)
    named = options[options.index(_TRS) + 1 :][:1]
    text = _written(driver, named[0]) if named else ""
    results = re.findall(r"^:test-result:\s*(\w+)", text, re.MULTILINE)
    return bool(results) and _BAD.isdisjoint(results)


_TRS = "--trs-file"
_BAD = frozenset({"FAIL", "ERROR", "XPASS"})


def _is_ctest(words: Sequence[str]) -> bool:
    return bool(words) and Path(words[0]).name == "ctest"


def _of_ctest(driver: Caller, words: Sequence[str], program: ProgramLaunch) -> bool | None:
    """What CTest's logs say of the tests with this command line: one has the command lines, the other what failed."""
    del program
    command = "Command: " + " ".join(f'"{word}"' for word in words)
    log, failed = (_written(driver, f"Testing/Temporary/{name}") for name in ("LastTest.log", "LastTestsFailed.log"))
    names = {line.partition(":")[2] for line in failed.splitlines()}
    run = re.findall(r"^\d+/\d+ Test: (.*)\n(.*)$", log, re.MULTILINE)
    return _agreed(name not in names for name, line in run if line == command) if names else None


def _is_meson(words: Sequence[str]) -> bool:
    return "test" in words and any(Path(word).name in {"meson", "meson.py"} for word in words[:2])


def _of_meson(driver: Caller, words: Sequence[str], program: ProgramLaunch) -> bool | None:
    """What Meson's log says of the tests with this command line."""
    del program
    return _agreed(
        test.get("result") in {"OK", "EXPECTEDFAIL", "SKIP"}
        for test in _documents(_written(driver, "meson-logs/testlog.json"))
        if test.get("command") == list(words)
    )


def _is_pytest(words: Sequence[str]) -> bool:
    modules = itertools.pairwise(words)
    return ("-m", "pytest") in modules or any(Path(word).name in {"pytest", "py.test"} for word in words[:2])


def _of_pytest(driver: Caller, words: Sequence[str], program: ProgramLaunch) -> bool | None:
    """What pytest's cache says of the test that ran a program, which has its name in its environment.

    Nothing if a fixture ran it, on which other tests may depend, or if pytest did not end as it does after failed
    tests. At such an end it writes the list of all tests, so that a new one shows that the list of failures is new,
    though pytest-xdist leaves it empty.
    """
    del words
    current = program.environment.get("PYTEST_CURRENT_TEST") or ""
    test = current.removesuffix(" (call)")
    if test == current or (driver.how, driver.number) != ("exited", _PYTEST_FAILED):
        return None
    for folder in _pytest_folders(driver):
        is_new = bool(_written(driver, f"{folder}/{_PYTEST_CACHE}/nodeids", from_ms=program.began_ms))
        failed = _failures(_written(driver, f"{folder}/{_PYTEST_CACHE}/lastfailed"))
        if is_new and failed and _content(folder / test.partition("::")[0]):
            return test not in failed
    return None


_PYTEST_CACHE = ".pytest_cache/v/cache"
_PYTEST_FAILED = 1
"""The exit status of pytest after tests of which some failed."""
_PYTEST_WORKER = "import sys;exec(eval(sys.stdin.readline()))"
"""An argument of the processes that run the tests for pytest-xdist. They succeed, whatever the tests do."""


def _pytest_folders(driver: Caller) -> Iterator[Path]:
    """Where pytest's cache may be: in the folder of its configuration, which is that of a test or one above it."""
    named = [Path(driver.folder) / word.partition("::")[0] for word in driver.words[1:] if not word.startswith("-")]
    yield from dict.fromkeys(above for one in (Path(driver.folder), *named) for above in (one, *one.parents))


def _failures(text: str) -> frozenset[str]:
    """The names of tests in pytest's list of failures; none of a text that is no such list."""
    try:
        found = json.loads(text)
    except ValueError:
        return frozenset()
    return frozenset(found) if isinstance(found, dict) else frozenset()


def _documents(text: str) -> Iterator[dict[str, object]]:
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def _agreed(answers: Iterator[bool]) -> bool | None:
    """Whether all tests went as expected; None without one."""
    known = list(answers)
    return all(known) if known else None


def _written(driver: Caller, name: str, *, from_ms: int = 0) -> str:
    """The content of a file of a driver, relative to its folder; empty if it is gone, or if another one wrote it.

    `from_ms`: the earliest time at which the driver may have written it, in milliseconds since 1970.
    """
    path = Path(driver.folder) / name
    try:
        written_ms = path.stat().st_mtime_ns // 1_000_000
        is_own = driver.how and driver.folder and from_ms <= written_ms <= driver.ended_ms + LATER_MS
    except ABSENT_FILE:
        return ""
    return _content(path) if is_own else ""


def _content(path: Path) -> str:
    """The text of a file; empty if it is gone, or too long for a report or a script."""
    try:
        return path.read_text("utf-8", "replace") if path.is_file() and path.stat().st_size <= MOST_BYTES else ""
    except OSError:
        return ""


_DRIVERS: tuple[
    tuple[Callable[[Sequence[str]], bool], Callable[[Caller, Sequence[str], ProgramLaunch], bool | None]], ...
] = (
    (_is_automake, _of_automake),
    (_is_ctest, _of_ctest),
    (_is_meson, _of_meson),
    (_is_pytest, _of_pytest),
)
