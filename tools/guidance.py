"""`python -m tools.guidance TARGET SERVER`: how many edges guidance reaches, against the grammar alone.

It compares three ways in equal processor time: the grammar alone, guidance by replies, and guidance by edges. Time is
that of this process and of the guest together, so a busy machine hardly disturbs it. Every way pays for recording
edges, although two do not use them. Only the guest receives the streams. docs/explanation.md has the results.
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

from harness.protocol import pipeline
from harness.protocol.resp import Client
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.target_setup import set_up_targets
from harness.workflows.workbench import Workbench
from suites.fuzz.corpus import Corpus, shapes
from suites.fuzz.emptying import Emptying
from suites.fuzz.generate import generate
from suites.fuzz.guide import Guide

if TYPE_CHECKING:
    from collections.abc import Hashable

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
        self._emptying = Emptying()
        self._spent = 0.0

    def run(self, target: str, server: str, folder: Path, seconds: float) -> None:
        """Until its processor time is used up; a guest that dies is replaced."""
        bench = Workbench.default()
        tree = bench.open_server(server)
        setup = set_up_targets(bench, [bench.catalog.targets[target]])[target]
        build, runner = setup.build(tree, "O2"), setup.runner("signal")
        number = 0
        while self._spent < seconds:
            number += 1
            # A crash report takes a second under emulation, and is not read.
            options = ["--crash-log-enabled", "no"] if "crash-log-enabled" in tree.abilities.options else []
            with Guest(
                ServerSpec(build=build, version=tree.version, options=options, coverage=True),
                runner,
                folder / f"{self.way}-{number}",
                sockets=folder,
            ) as guest:
                self._until_it_dies(guest, seconds)

    def _until_it_dies(self, guest: Guest, seconds: float) -> None:
        before = self._spent
        started = time.process_time() + _used(guest)
        while self._spent < seconds and guest.alive():
            stream = generate(self._random) if self.way == "grammar" else self._guide.next()
            replies: list[Reply] = []
            try:
                self._emptying.empty(guest)
                with Client.at_socket(guest.socket_path, deadline_seconds=60) as client:
                    pipeline.ask_into(replies, client, stream)
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
