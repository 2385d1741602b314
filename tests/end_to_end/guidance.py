"""Does guidance pay? Edges reached in equal processor time: from the grammar alone, led by replies, led by edges.

`python -m tests.end_to_end.guidance armv5 redis-7.0.15 --seconds 60 --seeds 5`: not a test, because its answer is a
measurement. Time is that of this process and of the guest together, so that a busy machine disturbs it little; each
way pays for telling its edges, the two that do not use them as well. Streams are asked of the guest alone.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psutil  # type: ignore[import-untyped]

from harness.build.sources import source_tree
from harness.protocol import reply_comparison
from harness.protocol.resp import Client
from harness.run.server_process import Guest
from suites.fuzz.attempt import empty
from suites.fuzz.corpus import Corpus, shapes
from suites.fuzz.generate import generate
from suites.fuzz.guide import Guide
from tests.end_to_end import machines

if TYPE_CHECKING:
    from collections.abc import Hashable

    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply

WAYS = ("grammar", "replies", "edges")


class Course:
    """One way with one seed, from nothing to the end of its time."""

    def __init__(self, way: str, seed: int) -> None:
        self.way = way
        self.streams = 0
        self.edges: set[int] = set()
        self.marks: dict[float, int] = {}
        """Processor seconds -> edges reached by then."""
        self._random = random.Random(seed)
        self._corpus = Corpus(None)
        self._guide = Guide(self._random, self._corpus.streams, themes=way == "edges")
        self._defaults: dict[str, Stream] = {}
        self._spent = 0.0

    def run(self, target: str, server: str, folder: Path, seconds: float) -> None:
        """Until its processor time is used up; a guest that dies is replaced."""
        tree = source_tree.open_tree(machines.release(server))
        build, runner = machines.build(tree, target), machines.runner(target)
        number = 0
        while self._spent < seconds:
            number += 1
            # A crash report takes a second under emulation, and is not read.
            options = ["--crash-log-enabled", "no"] if "crash-log-enabled" in tree.abilities.options else []
            with Guest(
                build,
                runner,
                folder / f"{self.way}-{number}",
                sockets=folder,
                version=tree.version,
                options=options,
                coverage=True,
            ) as guest:
                self._until_it_dies(guest, seconds)

    def _until_it_dies(self, guest: Guest, seconds: float) -> None:
        before = self._spent
        started = time.process_time() + _used(guest)
        while self._spent < seconds and guest.alive():
            stream = generate(self._random) if self.way == "grammar" else self._guide.next()
            replies: list[Reply] = []
            try:
                empty(guest, self._defaults)
                with Client.at_socket(guest.socket_path, deadline_seconds=60) as client:
                    reply_comparison.ask_into(replies, client, stream)
            except OSError:
                guest.settle()
            assert guest.edges is not None
            new = guest.edges.new()
            self.edges |= new
            self.streams += 1
            features: set[Hashable] = set(new) if self.way == "edges" else shapes(stream, replies)
            self._guide.learn(self._corpus.offer(stream, features))
            if guest.alive():
                self._spent = before + time.process_time() + _used(guest) - started
                self._mark()

    def _mark(self) -> None:
        at = 2.5
        while at <= self._spent:
            self.marks.setdefault(at, len(self.edges))
            at *= 2


def _used(guest: Guest) -> float:
    """Processor seconds of the emulator process."""
    times = psutil.Process(guest.pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Print a line for each way and seed as it ends, then medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("server")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor seconds for each way and seed")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="which to compare")
    arguments = parser.parse_args()
    reached: dict[str, list[int]] = {way: [] for way in arguments.ways}
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for way in arguments.ways:
            course = Course(way, seed)
            with tempfile.TemporaryDirectory(prefix="plumbline-") as folder:
                course.run(arguments.target, arguments.server, Path(folder), arguments.seconds)
            reached[way].append(len(course.edges))
            numbers = f"{course.streams:>6} streams  {len(course.edges)} edges  {course.marks}"
            click.echo(f"seed {seed}  {way:<8} {numbers}")
    for way, edges in reached.items():
        click.echo(f"median   {way:<8} {statistics.median(edges):.0f} edges")


if __name__ == "__main__":
    main()
