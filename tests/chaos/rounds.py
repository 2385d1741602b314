"""One round: a fault, a check of a clean server, and a test of whether the check's result is true.

The server is clean, so every finding is false. A PASS is false unless it covers exactly the tests that pass without a
fault.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from harness.core.cache import Cache
from harness.core.strict_toml import ROOT
from harness.run.cell_spec import read_cell
from tests.chaos import evidence, faults
from tests.end_to_end.support.plumb_runs import PLUMB, processes_of, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

_Kind = TypeVar("_Kind")

SERVER = "redis-7.0.15"
WORDS = ("--target", "armv5", "--suite", "bitops", "--test", "getbit", "--test", "bitpos", "--seed", "1", "--offline")
FAILING = ("redis-3.2.6", "--target", "armv5", "--suite", "bitops", "--test", "bitop", "--seed", "1", "--offline")
"""A check with findings."""
SECONDS = 600.0
LINES = 14
"""Number of event lines that the cell always writes. The fault is injected after one of them."""
GONE_SECONDS = 20.0
NEEDED = ("abilities", "archives", "builds", "canaries", "emulators", "guest-roots", "sources")
"""The kinds of cache entries that a check uses."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a round."""

    fault: str
    code: int
    verdict: str
    lies: tuple[str, ...]
    """The wrong results: a false PASS, a false finding, an orphan; empty if the check withstood the fault."""


Counts = dict[str, tuple[str, int, int, int]]
"""`TARGET/SUITE` -> verdict, passed, failed, skipped."""


class Chaos:
    """Rounds in a folder, with a cache that faults may damage."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.cache = folder / "cache"
        self._clock = self._library_of_clock()
        self._number = itertools.count(1)
        shared = Cache.default().root
        for kind in NEEDED:
            chosen = [path for path in (shared / kind).glob("*") if _is_needed(kind, path.name)]
            (self.cache / kind).mkdir(parents=True, exist_ok=True)
            for path in chosen:
                into = self.cache / kind / path.name
                shutil.copytree(path, into, symlinks=True) if path.is_dir() else shutil.copy2(path, into)
        # A check without a fault shows the normal result.
        run = self._finished()
        self.usual = counts(self._document(run))
        assert {verdict for verdict, *_ in self.usual.values()} == {"PASS"}, self.usual
        cell, canary = (read_cell(run / "armv5" / suite / "cell.json") for suite in ("bitops", "canary"))
        oracle = cell.peers["native"].build
        assert cell.build
        assert oracle
        assert canary.canary
        assert cell.runner.program
        self.used = {
            "server": cell.build.server_binary,
            "oracle": oracle.server_binary,
            "emulator": cell.runner.program,
            "canary": canary.canary,
        }
        """The files of the cache that a check reads."""

    def live(self, name: str, draw: random.Random) -> Outcome:
        """A fault during a check, after some of its tests."""
        run = self._fresh()
        after = draw.randrange(1, LINES)
        faults.clock_of(run).write_bytes(bytes(8))
        with self._started(run, self._clock_for(run) if name == "clock set" else {}) as plumb:
            wait_for(lambda: _lines(run) >= after or plumb.poll() is not None, seconds=SECONDS)
            faults.LIVE[name](plumb, run, draw)
        if name == faults.READ_ONLY:
            faults.allow_writing(run)
        return self._outcome(name, plumb.returncode, run)

    def _clock_for(self, run: Path) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._clock), "CHAOS_CLOCK": str(faults.clock_of(run))}

    def _library_of_clock(self) -> Path:
        """Compile the library that lets a check see another time of day."""
        made = self.folder / "clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, faults.CLOCK], check=True)
        return made

    def surrounded(self, name: str) -> Outcome:
        """A check in an environment that could change its result."""
        run = self._fresh()
        with self._started(run, faults.ENVIRONMENTS[name]) as plumb:
            pass
        return self._outcome(name, plumb.returncode, run)

    def limited(self, name: str) -> Outcome:
        """A check whose process has a limit."""
        run = self._fresh()
        with self._started(run, {}, before=faults.LIMITS[name]) as plumb:
            pass
        return self._outcome(name, plumb.returncode, run)

    def cached(self, what: str, how: str, draw: random.Random) -> Outcome:
        """A check with one damaged file in the cache: without the network, Plumbline must repair it from the other
        entries.
        """
        path = self.used[what]
        entry = path.parent
        self._give_objects()
        kept = self.folder / "kept"
        shutil.copytree(entry, kept, symlinks=True)
        faults.CACHE[how](path, draw)
        run = self._fresh()
        try:
            with self._started(run, {}) as plumb:
                pass
            return self._outcome(f"{what} {how}", plumb.returncode, run)
        finally:
            if not entry.is_dir():
                # The entry could not be repaired, so it is restored for the next round.
                shutil.copytree(kept, entry, symlinks=True)
                seal = Cache.default().root / entry.parent.name / f"{entry.name}.seal"
                shutil.copy2(seal, entry.with_name(f"{entry.name}.seal"))
            shutil.rmtree(kept)

    def damaged_entries(self) -> list[str]:
        """The cache entries that do not match their seals after all rounds."""
        return Cache(self.cache).damage(read_again=True)

    def changes(self, most: int, *, made: int = 0) -> Iterator[tuple[str, str]]:
        """Change the evidence of a run that passes, and a hundredth as often that of one that fails, whose findings
        take long to judge. Yields each change with what was wrongly believed; empty if nothing was.

        `made`: how many of these changes an earlier sitting made.
        """
        of_failing = most // 100
        of_passing = most - of_failing
        if made < of_passing:
            yield from evidence.believed(self._finished(), range(made, of_passing), self.seed)
        begin = max(made - of_passing, 0)
        yield from evidence.believed(self._finished(*FAILING), range(begin, of_failing), self.seed)

    def _give_objects(self) -> None:
        """Provide ccache's objects, so that a new build of a server does not compile for a minute."""
        kept = Cache.default().root / "ccache"
        if kept.is_dir() and not (self.cache / "ccache").exists():
            # Others may remove an object in the meantime.
            with contextlib.suppress(shutil.Error):
                shutil.copytree(kept, self.cache / "ccache")

    def _fresh(self) -> Path:
        # No name is the beginning of another: processes are found by them.
        return self.folder / f"run-{next(self._number):05}"

    @contextlib.contextmanager
    def _started(
        self,
        run: Path,
        more: Mapping[str, str],
        *,
        before: Callable[[], None] | None = None,
        words: tuple[str, ...] = (SERVER, *WORDS),
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A running check, whose output goes to a file."""
        with (
            _output(run).open("wb") as out,
            _output(run).with_suffix(".err").open("wb") as err,
            subprocess.Popen(
                [*PLUMB, "check", "--server", *words, "--json", "--run", str(run)],
                cwd=ROOT,
                env={**os.environ, "PLUMBLINE_CACHE": str(self.cache), **more},
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=before,  # noqa: PLW1509 - only rounds that run alone have one
            ) as plumb,
        ):
            yield plumb
            plumb.wait(SECONDS)

    def _finished(self, *words: str) -> Path:
        """The run folder of a check without a fault. `words`: what it checks in place of the clean server."""
        run = self._fresh()
        with self._started(run, {}, words=words or (SERVER, *WORDS)):
            pass
        return run

    @staticmethod
    def _document(run: Path) -> dict[str, Any]:
        try:
            read: dict[str, Any] = json.loads(_output(run).read_bytes())
        except json.JSONDecodeError:
            return {}
        return read

    def _outcome(self, fault: str, code: int, run: Path) -> Outcome:
        read = self._document(run)
        has_document = bool(read)
        lies = []
        if code == 0 and has_document and counts(read) != self.usual:
            lies.append(f"false PASS: {counts(read)} instead of {self.usual}")
        if code == 0 and not has_document and fault != "closed standard output":
            lies.append("exit 0 without a document")
        if code == 1 or read.get("findings"):
            lies.append(f"false findings: {[one['id'] for one in read.get('findings', [])]}")
        if code == 3:
            lies.append("a bug in Plumbline")
        gone = wait_for(lambda: not processes_of(run), seconds=GONE_SECONDS)
        if gone is not True:
            lies.append(f"orphans: {processes_of(run)}")
        if not lies:
            shutil.rmtree(run, ignore_errors=True)
        return Outcome(fault=fault, code=code, verdict=str(read.get("verdict", "")), lies=tuple(lies))


def counts(document: dict[str, Any]) -> Counts:
    """The verdict and the numbers of tests of each cell of a judgement."""
    return {
        f"{cell['target']}/{cell['suite']}": (cell["verdict"], cell["passed"], cell["failed"], cell["skipped"])
        for cell in document.get("cells", [])
    }


def live_rounds(chaos: Chaos, numbers: Iterable[int], *, jobs: int = 1) -> Iterator[tuple[int, Outcome]]:
    """Faults in running checks, by the numbers of the rounds: each kind in turn, in an order that the seed determines.

    `jobs`: how many checks to run at a time. Most of a round whose server is stopped is waiting.
    """

    def of(number: int) -> tuple[int, Outcome]:
        return number, chaos.live(in_turn(list(faults.LIVE), chaos.seed, number), _draw(chaos.seed, "live", number))

    pool = ThreadPoolExecutor(jobs)
    try:
        for ended in as_completed([pool.submit(of, number) for number in numbers]):
            yield ended.result()
    finally:
        pool.shutdown(cancel_futures=True)


def other_rounds(chaos: Chaos, numbers: Iterable[int]) -> Iterator[tuple[int, Outcome]]:
    """Likewise, with faults before a check: its environment, its limits, and damage to the cache."""
    kinds: list[Callable[[random.Random], Outcome]] = [
        *((lambda _, name=name: chaos.surrounded(name)) for name in faults.ENVIRONMENTS),
        *((lambda _, name=name: chaos.limited(name)) for name in faults.LIMITS),
        *(
            (lambda draw, what=what, how=how: chaos.cached(what, how, draw))
            for what in faults.CACHED
            for how in faults.CACHE
        ),
    ]
    for number in numbers:
        yield number, in_turn(kinds, chaos.seed, number)(_draw(chaos.seed, "other", number))


def in_turn(kinds: list[_Kind], seed: int, number: int) -> _Kind:
    """The kind of a round. Each group of as many rounds as there are kinds has all of them."""
    order = list(kinds)
    _draw(seed, "order", number // len(kinds)).shuffle(order)
    return order[number % len(kinds)]


def _draw(seed: int, what: str, number: int) -> random.Random:
    return random.Random(f"{seed} {what} {number}")


def _output(run: Path) -> Path:
    return run.with_suffix(".json")


def _lines(run: Path) -> int:
    path = run / faults.CELL / "events.jsonl"
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def _is_needed(kind: str, name: str) -> bool:
    servers = (SERVER, FAILING[0])
    if kind in {"builds", "abilities"}:
        return name.startswith(tuple(f"{server}-{target}" for server in servers for target in ("armv5", "native")))
    if kind == "emulators":
        return name.endswith(("-arm", "-arm.seal"))
    if kind == "canaries":
        return name.startswith(("armv5", "native"))
    return kind == "guest-roots" or name.startswith(servers)
