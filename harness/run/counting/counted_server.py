"""A guest whose instructions are counted, and which is held whenever it would wait, so that counts repeat."""

from __future__ import annotations

import contextlib
import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import unwind
from harness.analysis.function_symbols import function_symbols
from harness.build.emulators.runner import with_root
from harness.build.instruction_counter import GUEST_BASE, GUEST_BYTES, counted
from harness.core.errors import InconclusiveError
from harness.core.model import Record
from harness.protocol.patient_connection import PatientConnection
from harness.protocol.resp import Client, info_fields
from harness.record.fault_log import MapRecord
from harness.record.instruction_counts import GateError, InstructionCounts
from harness.run.server_process import POLL_SECONDS, Guest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.build.emulators.runner import Runner
    from harness.core.model import Build
    from harness.protocol.resp import Argument, Reply
    from harness.record.instruction_counts import BlockTable
    from harness.run.servers.server_spec import ServerSpec

CALM_HZ, FASTEST_HZ = "1", "500"
"""Runs of the server's timer in a second: while something is counted, and at most (CONFIG_MAX_HZ)."""
CALM = ("--hz", CALM_HZ)
"""The timer runs once a second of the host's time, so that few requests share their wake-up with it."""
REHASHING = "activerehashing"
"""The option by which the timer moves keys to larger tables, each time for a millisecond of the clock. While requests
are counted, only they move keys: the timer's share would depend on when it runs, and would not be constant.
"""
TIMERS = ("serverCron", "clientsTimeProc")
"""The functions that timers call: the first in every release (server.c; redis.c before 3.2), the other since Valkey
8.1."""
_TIMER = re.compile(rf"({'|'.join(TIMERS)})(?:\.(?:lto_priv|constprop|isra)(?:\.\d+)?)*")
"""Their names, with suffixes that link-time optimisation appends. The pieces `.cold` and `.part` are excluded: not
every run enters them.
"""
SEED, SEED_BYTES = 1, 4096
STEADY_TIMER = "dynamic-hz"
"""The option that speeds up the timer for many clients."""
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ (\d+) *(.*)")
_AMOUNT = re.compile(r"(\w+): +(\d+) kB")


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """The counter, and its settings for a target."""

    program: Path
    numbers: dict[str, list[int]]


class GuestMemory(Record, frozen=True):
    """Sizes of the pages of the guest's address space that are in memory, without the emulator's own pages."""

    resident_bytes: int
    own_bytes: int
    """The size of those that the guest has written to, and therefore shares with no other process. How many processes
    share the other pages (PSS) depends on what else runs on the host.
    """


class CountedGuest(Guest):
    """One server under the counter. It runs freely until `hold`."""

    def __init__(
        self,
        spec: ServerSpec,
        runner: Runner,
        folder: Path,
        *,
        counter: Counter,
        sockets: Path,
    ) -> None:
        steady = msgspec.structs.replace(spec, options=[*self.steadying(spec.build), *spec.options])
        super().__init__(steady, runner, folder, sockets=sockets)
        self._counter = counter
        self._counts: InstructionCounts | None = None

    def steadying(self, build: Build) -> list[str]:
        """Options that make counts repeat."""
        steady = [f"--{STEADY_TIMER}", "no"] if STEADY_TIMER in build.abilities.options else []
        return [*CALM, f"--{REHASHING}", "no", *steady]

    @property
    def counts(self) -> InstructionCounts:
        """Its counts; they exist from its start to its end."""
        assert self._counts is not None
        return self._counts

    def launch(self) -> None:
        """Start the server process under the counter."""
        self._counts = InstructionCounts(self.folder)
        self.runner = _with_fixed_seed(self.runner, self.folder / "root")
        self.runner = counted(self.runner, self._counter.program, self._counter.numbers, self._counts.arguments)
        super().launch()

    def __exit__(self, *details: object) -> None:
        """Stop the server."""
        if self._counts is not None:
            # A held server would not notice the request to stop.
            self._counts.hold(held=False)
            self._counts.hold_children(held=False)
            self._counts.go_on()
        super().__exit__(*details)
        if self._counts is not None:
            self._counts.close()

    def hold(self) -> None:
        """Hold the server from its next wait for events on. Raises GateError if it ended."""
        self.counts.hold(held=True)
        # A request wakes it, but it may be held before it sees the request: `exchange` gives it further turns.
        with self._asking("PING") as connection:
            self._await()
            self.exchange([connection])

    def exchange(self, connections: Sequence[PatientConnection]) -> int:
        """Give the held server turns until these connections have all their replies; returns the instructions that its
        first thread took.

        Raises GateError or ServerGoneError if it ended, and hiredis.ReplyError for an error reply.
        """
        before = self.counts.main_instructions
        while True:
            for connection in connections:
                connection.send()
            self.counts.go_on()
            self._await()
            for connection in connections:
                connection.receive()
            if all(connection.done for connection in connections):
                return self.counts.main_instructions - before

    def settle_connections(self) -> None:
        """Let the held server see connections that were closed, so that it does not while something is counted."""
        self.exchange([])

    def run_timer(self, ticks: int) -> None:
        """Let the timer of the held server run this many times, at FASTEST_HZ, and move keys to larger tables.

        Raises as `exchange` does.
        """
        self._set_timer(FASTEST_HZ, rehashing="yes")
        for _ in range(ticks):
            self.exchange([])
        self._set_timer(CALM_HZ, rehashing="no")

    def _set_timer(self, hz: str, *, rehashing: str) -> None:
        for option, value in (("hz", hz), (REHASHING, rehashing)):
            self.ask("CONFIG", "SET", option, value)

    def ask(self, *words: Argument) -> Reply:
        """A request on its own connection, to a held server. Raises as `exchange` does.

        The connection is closed when this returns: a server resizes the buffers of an open one at times that depend on
        the clock.
        """
        with self._asking(*words) as connection:
            self.exchange([connection])
            return connection.replies[0]

    def info(self) -> dict[str, str]:
        """INFO's fields, from a held server. Raises as `exchange` does."""
        return info_fields(self.ask("INFO"))

    def blocks(self) -> BlockTable:
        """The executions of every translated block, of a held server. Raises GateError."""
        return self.counts.blocks(self.alive, deadline_seconds=self.deadline_seconds)

    def timers(self) -> list[int]:
        """The guest addresses of the functions that the server's timers call. Raises InconclusiveError if the held
        server has not called `serverCron`, or has no symbol for it.
        """
        binary, maps = self.build.server_binary.resolve(), self.maps()
        symbols = function_symbols(str(binary)).found
        starts = {symbol.start: match[1] for symbol in symbols if (match := _TIMER.fullmatch(symbol.name))}
        found: dict[int, str] = {}
        for address, _ in self.blocks().executions():
            place = unwind.locate(maps, address)
            if place and place[1] in starts and Path(place[0].path).resolve() == binary:
                found[address] = starts[place[1]]
        if TIMERS[0] not in found.values():
            raise InconclusiveError(
                "no record shows which requests the server's timer ran with",
                where=str(binary),
                because=f"no function {TIMERS[0]} was executed" if starts else f"no symbol {TIMERS[0]}",
            )
        return list(found)

    def await_held_child(self) -> None:
        """Wait until a child that the held server has forked is held, too. Raises GateError."""
        deadline = time.monotonic() + self.deadline_seconds
        while not self.counts.held_children:
            if time.monotonic() > deadline:
                raise GateError("the server forked no child")
            time.sleep(POLL_SECONDS)

    def memory(self) -> GuestMemory:
        """The guest's memory now. Raises OSError when it has ended."""
        totals = {"Rss": 0, "Private_Dirty": 0}
        inside = False
        with open(f"/proc/{self.pid}/smaps", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - not a file
            for line in lines:
                if found := _MAPPING.match(line):
                    inside = _in_guest(int(found[1], 16), int(found[2], 16))
                elif inside and (amount := _AMOUNT.match(line)) and amount[1] in totals:
                    totals[amount[1]] += int(amount[2]) * 1024
        return GuestMemory(resident_bytes=totals["Rss"], own_bytes=totals["Private_Dirty"])

    def maps(self) -> list[MapRecord]:
        """The files that the guest has mapped, at the guest's addresses. Raises OSError when it has ended."""
        with open(f"/proc/{self.pid}/maps", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - not a file
            found = [match for line in lines if (match := _MAPPING.match(line.rstrip("\n"))) and match[5] != "0"]
        places = [(int(one[1], 16), int(one[2], 16), int(one[4], 16), one[6]) for one in found]
        return [
            MapRecord(start=start - GUEST_BASE, end=end - GUEST_BASE, offset=offset, path=path)
            for start, end, offset, path in places
            if _in_guest(start, end)
        ]

    @contextlib.contextmanager
    def _asking(self, *words: Argument) -> Iterator[PatientConnection]:
        connection = PatientConnection(self.upstream)
        try:
            connection.ask(Client.pack([words]), 1)
            yield connection
        finally:
            connection.close()
        self.settle_connections()

    def _await(self) -> None:
        self.counts.await_held(self.alive, deadline_seconds=self.deadline_seconds)


def _with_fixed_seed(runner: Runner, root: Path) -> Runner:
    """The runner with a root folder in which /dev/urandom always contains the same bytes, so hashes always have the
    same seed.

    Another seed puts keys into other chains, which moves a count by up to two percent.
    """
    (root / "dev").mkdir(parents=True)
    (root / "dev" / "urandom").write_bytes(random.Random(SEED).randbytes(SEED_BYTES))
    for inside in runner.root.iterdir():
        (root / inside.name).symlink_to(inside.resolve())
    return with_root(runner, root)


def _in_guest(start: int, end: int) -> bool:
    return start >= GUEST_BASE and end <= GUEST_BASE + GUEST_BYTES
