"""Records what each test waits for: `pytest --times FOLDER`, as ci/test calls it.

`python -m tools.test_times` prints the records. Each process that runs tests writes one file. A line of JSON belongs to
one test, from its first fixture to its last clean-up. Nothing of the product is replaced. A thread looks at the main
thread every 20 ms. The time since the last look during which the main thread used a processor counts as `running`. The
rest counts by what the main thread waits for when it is looked at:

- `build`: a descendant of this process compiles, which means that its current folder is a work folder of the cache.
- `process`: the end, an answer or a lock of another process: subprocess, poll, select, a socket, a file lock.
- `sleep`: time.sleep, or an event with a time limit. The polls of a condition count here, whatever the condition is.
- `queue`: a processor, by the kernel's own count: it could run, but others do. Without that count, this is `other`.
- `other`: everything else, such as the disk and threads of this process that wait for none of these.

If the main thread waits for a thread of this process, what the other threads wait for counts. Waits that are shorter
than 20 ms may count as another class. `own` and `children` are processor times, user and system, from getrusage(2).
Children count when they are reaped. A child that still runs at the end of its test counts for the test that reaps it,
and one that another process adopts does not count.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import re
import resource
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest

from harness.core import json_codec
from harness.core.cache import default_root
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

Wait = Literal["sleep", "process", "build", "queue", "other"]
LOOK_SECONDS = 0.02
BUILD_LOOK_SECONDS = 0.5
"""How often to look for compilers: it reads the status of every process of the machine, which takes milliseconds."""
PLACES = 4
"""The number of places with the longest waits that a record names."""
COLLECTION = "(collection)"
"""The name of the record for the time in which a process imports and collects all tests."""
_SLEEP = re.compile(r"\bsleep\(")
_ANSWER = re.compile(
    r"\b(?:recv\w*|accept|select|poll|wait|waitid|waitpid|read\w*|connect|flock|acquire|getresponse)\("
)
_PROCESS_MODULES = ("subprocess.py", "processor_time.py", "selectors.py", "socket.py", "ssl.py", "filelock")
_THREAD_MODULES = ("threading.py", "queue.py", "concurrent/futures")
_MACHINERY = ("execnet", "tests/support/waits.py")
"""Threads that this module and pytest-xdist start, whose waits mean nothing."""


class WaitingPlace(msgspec.Struct, frozen=True):
    """Where a test waits."""

    wait: Wait
    where: str
    """File, line and function: the innermost of the project's own."""
    seconds: float


class TimedTest(msgspec.Struct, frozen=True):
    """One test's times, in seconds."""

    test: str
    outcome: str
    started: float
    """Since the epoch."""
    real: float
    own: float
    children: float
    running: float
    sleep: float = 0.0
    process: float = 0.0
    build: float = 0.0
    queue: float = 0.0
    other: float = 0.0
    places: list[WaitingPlace] = []
    built: list[str] = []
    """The work folders in which it compiled."""


def _frames() -> dict[int, FrameType]:
    """Thread -> its frame.

    Until Python 3.11.9 a garbage collection within `_current_frames` can stop every thread for ever, because it may let
    another thread run while a lock of the interpreter is held (CPython issue 106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()  # noqa: SLF001 - the only way to the frames of other threads
    finally:
        if collects:
            gc.enable()


class WaitWatch:
    """Looks at one thread, and adds up what it waits for."""

    def __init__(self, watched: threading.Thread, building: Callable[[], list[str]]) -> None:
        assert watched.ident is not None
        self._thread = watched.ident
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._statistics = Path(f"/proc/self/task/{watched.native_id}/schedstat")
        self._building = building
        self._lock = threading.Lock()
        self._begin()
        self._ended = threading.Event()
        self._looks = threading.Thread(target=self._look_on, name="test times", daemon=True)

    def _begin(self) -> None:
        self._now, self._used, self._queued = self._clocks()
        self.running = 0.0
        self.waits: defaultdict[Wait, float] = defaultdict(float)
        self._places: defaultdict[tuple[Wait, str], float] = defaultdict(float)
        self._built: set[str] = set()
        self._building_now: list[str] = []
        self._compilers_seen = self._now
        # What an earlier test has left waiting is not what this one waits for.
        self._earlier = {one.ident for one in threading.enumerate()} - {self._thread}

    def start(self) -> None:
        """Begin to look."""
        self._looks.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._looks.join()

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Count from here to the end of the block, in which the watched thread runs this."""
        with self._lock:
            self._begin()
        yield
        with self._lock:
            # It is here, and waits for nothing. What it waited for since the last look is not known.
            self._add("other", "")

    def _look_on(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            with self._lock:
                self.look()

    def look(self) -> None:
        """Count the time since the last look by what the thread waits for now.

        A thread that has mostly run is left alone: Python 3.11 dies now and then of reading the frames of a thread that
        is about to enter or leave one.
        """
        if time.clock_gettime(self._clock) - self._used > (time.monotonic() - self._now) / 2:
            self._add("other", "")
            return
        frames = _frames()
        if self._thread not in frames:
            return
        mine = {number: frame for number, frame in frames.items() if number not in self._earlier}
        try:
            wait, where = awaited(mine, self._thread)
        except AttributeError:
            # What was a frame is one no more: the thread runs on. The next look counts this time.
            return
        if time.monotonic() - self._compilers_seen >= BUILD_LOOK_SECONDS:
            self._building_now = self._building()
            self._built.update(self._building_now)
            self._compilers_seen = time.monotonic()
        self._add("build" if self._building_now else wait, where)

    def _clocks(self) -> tuple[float, float, float]:
        """Seconds: of real time, of the thread on a processor, and of the thread in the queue for one (proc(5))."""
        queued = 0.0
        with contextlib.suppress(OSError):
            queued = int(self._statistics.read_text("ascii").split()[1]) / 1e9
        return time.monotonic(), time.clock_gettime(self._clock), queued

    def _add(self, wait: Wait, where: str) -> None:
        now, used, queued = self._clocks()
        real = now - self._now
        ran = min(used - self._used, real)
        in_queue = min(queued - self._queued, real - ran)
        self.running += ran
        waited: dict[Wait, float] = {"queue": in_queue, wait: real - ran - in_queue}
        for kind, seconds in waited.items():
            self.waits[kind] += seconds
            self._places[kind, where] += seconds
        self._now, self._used, self._queued = now, used, queued

    def places(self) -> list[WaitingPlace]:
        """Where it waited for longest."""
        longest = sorted(self._places.items(), key=lambda one: -one[1])[:PLACES]
        return [
            WaitingPlace(wait=wait, where=where, seconds=round(seconds, 2))
            for (wait, where), seconds in longest
            if where and seconds >= LOOK_SECONDS
        ]

    @property
    def built(self) -> list[str]:
        """The work folders in which it saw a compiler."""
        return sorted(self._built)


def awaited(frames: dict[int, FrameType], thread: int) -> tuple[Wait, str]:
    """What a thread waits for, and where, from the frames of all threads."""
    frame = frames[thread]
    where = _place(frame)
    wait = _wait_of(frame)
    if wait is not None:
        return wait, where
    others = {_wait_of(one) for number, one in frames.items() if number != thread and not _is_machinery(one)}
    ranked: tuple[Wait, ...] = ("process", "sleep")
    return next((kind for kind in ranked if kind in others), "other"), where


def _wait_of(frame: FrameType) -> Wait | None:
    """What a thread waits for; None if that is another thread of this process."""
    file = frame.f_code.co_filename
    # A frame has no line between two of them.
    line = linecache.getline(file, frame.f_lineno or 0)
    if any(module in file for module in _THREAD_MODULES):
        # An event with a time limit is a poll.
        return "sleep" if _limited(frame) else None
    if _SLEEP.search(line):
        return "sleep"
    if any(module in file for module in _PROCESS_MODULES) or _ANSWER.search(line):
        return "process"
    return "other"


def _limited(frame: FrameType) -> bool:
    return frame.f_code.co_name == "wait" and isinstance(frame.f_locals.get("timeout"), (int, float))


def _is_machinery(frame: FrameType) -> bool:
    # Its callers are not read: it may be running.
    return any(name in frame.f_code.co_filename for name in _MACHINERY)


def _place(frame: FrameType | None) -> str:
    """The innermost frame of the project's own code."""
    own = f"{ROOT}/"
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(own) and "/.venv/" not in file:
            return f"{file.removeprefix(own)}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def compiling() -> list[str]:
    """The work folders of the cache in which descendants of this process work now."""
    work = default_root() / "work"
    found = set()
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, ValueError):
                found.add(Path(child.cwd()).relative_to(work).parts[0])
    return sorted(found)


class WaitRecorder:
    """The pytest plugin that writes the records of one process."""

    def __init__(self, folder: Path, worker: str) -> None:
        """`worker`: its name among the processes that run tests."""
        self._file = folder / f"{worker}.jsonl"
        self._watch = WaitWatch(threading.main_thread(), compiling)
        self._outcomes: set[str] = set()
        self._watch.start()

    def pytest_unconfigure(self) -> None:
        """The last hook."""
        self._watch.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """Imports and collects."""
        with self._recorded(COLLECTION):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Runs one test with its fixtures."""
        with self._recorded(item.nodeid):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of its three phases ended."""
        self._outcomes.add(report.outcome)

    @contextlib.contextmanager
    def _recorded(self, test: str) -> Iterator[None]:
        self._outcomes = set()
        started, clock = time.time(), time.monotonic()
        before = _processor_seconds()
        try:
            with self._watch.measured():
                yield
        finally:
            own, children = (after - first for after, first in zip(_processor_seconds(), before, strict=True))
            times = TimedTest(
                test=test,
                outcome=next((one for one in ("failed", "skipped") if one in self._outcomes), "passed"),
                started=round(started, 2),
                real=round(time.monotonic() - clock, 3),
                own=round(own, 3),
                children=round(children, 3),
                running=round(self._watch.running, 3),
                places=self._watch.places(),
                built=self._watch.built,
                **{wait: round(seconds, 3) for wait, seconds in self._watch.waits.items()},
            )
            with self._file.open("ab") as stream:
                stream.write(json_codec.encode(times) + b"\n")


def _processor_seconds() -> tuple[float, float]:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def read(folder: Path) -> list[TimedTest]:
    """The records of all processes, in folders as well, in order of time."""
    found = [one for file in folder.rglob("*.jsonl") for one in read_file(file)]
    return sorted(found, key=lambda one: one.started)


def read_file(file: Path) -> list[TimedTest]:
    """The records of one process."""
    return [json_codec.decode(line, TimedTest) for line in file.read_bytes().splitlines()]


def record(config: pytest.Config) -> None:
    """Write the records of this process, if the option --times asks for them."""
    named = config.getoption("--times")
    if not named:
        return
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    worker = getattr(config, "workerinput", None)
    if worker is None:
        for old in folder.glob("*.jsonl"):
            old.unlink()
    # With workers, the first process runs no test.
    if worker is not None or not config.getoption("numprocesses", None):
        name = worker["workerid"] if worker is not None else "alone"
        config.pluginmanager.register(WaitRecorder(folder, name), "waits")
