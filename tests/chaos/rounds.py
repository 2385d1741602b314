"""One round: a fault, a check of a clean server, and a test of whether the check's result is true.

The server is clean, so every finding is false. A PASS is false unless it covers exactly the tests that pass without a
fault.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.cache import Cache
from harness.core.strict_toml import ROOT
from harness.run.cell_spec import read_cell
from tests.chaos import evidence, faults
from tests.end_to_end.support.plumb_runs import PLUMB, processes_of, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

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
        self.draw = random.Random(seed)
        self.cache = folder / "cache"
        self._number = 0
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

    def live(self, name: str) -> Outcome:
        """A fault during a check, after some of its tests."""
        run = self._fresh()
        after = self.draw.randrange(1, LINES)
        with self._started(run, {}) as plumb:
            wait_for(lambda: _lines(run) >= after or plumb.poll() is not None, seconds=SECONDS)
            faults.LIVE[name](plumb, run, self.draw)
        return self._outcome(name, plumb.returncode, run)

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

    def cached(self, what: str, how: str) -> Outcome:
        """A check with one damaged file in the cache: without the network, Plumbline must repair it from the other
        entries.
        """
        path = self.used[what]
        entry = path.parent
        self._give_objects()
        kept = self.folder / "kept"
        shutil.copytree(entry, kept, symlinks=True)
        faults.CACHE[how](path, self.draw)
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

    def changes(self, most: int) -> Iterator[tuple[str, str]]:
        """Change the evidence of a run that passes, and a hundredth as often that of one that fails, whose findings
        take long to judge. Yields each change with what was wrongly believed; empty if nothing was.
        """
        yield from evidence.believed(self._finished(), most - most // 100, self.draw)
        yield from evidence.believed(self._finished(*FAILING), most // 100, self.draw)

    def _give_objects(self) -> None:
        """Provide ccache's objects, so that a new build of a server does not compile for a minute."""
        kept = Cache.default().root / "ccache"
        if kept.is_dir() and not (self.cache / "ccache").exists():
            # Others may remove an object in the meantime.
            with contextlib.suppress(shutil.Error):
                shutil.copytree(kept, self.cache / "ccache")

    def _fresh(self) -> Path:
        self._number += 1
        return self.folder / f"run-{self._number}"

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
                preexec_fn=before,  # noqa: PLW1509 - nothing here has threads
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


def rounds(chaos: Chaos, number: int) -> Iterator[Outcome]:
    """The given number of faults, one of each kind in turn, in an order that the seed determines."""
    kinds: list[Callable[[], Outcome]] = [
        *((lambda name=name: chaos.live(name)) for name in faults.LIVE),
        *((lambda name=name: chaos.surrounded(name)) for name in faults.ENVIRONMENTS),
        *((lambda name=name: chaos.limited(name)) for name in faults.LIMITS),
        *((lambda what=what, how=how: chaos.cached(what, how)) for what in faults.CACHED for how in faults.CACHE),
    ]
    left: list[Callable[[], Outcome]] = []
    for _ in range(number):
        if not left:
            left = list(kinds)
            chaos.draw.shuffle(left)
        yield left.pop()()


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
