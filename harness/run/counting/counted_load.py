"""Sends a workload to a counted guest, and returns what one round of it cost."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

import hiredis

from harness.core.errors import InconclusiveError
from harness.protocol.patient_connection import PatientConnection
from harness.protocol.resp import Client, ServerGoneError
from harness.protocol.workload_requests import WorkloadRequests
from harness.record.instruction_counts import GateError
from harness.run.counting.round_counts import Round, RoundCounts
from harness.run.counting.workload_needs import (
    CHILD_FIELDS,
    CHILD_POLL_SECONDS,
    CHILD_SECONDS,
    FORKS,
    refuse_unknown_commands,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from harness.plan.workloads import BenchWorkload
    from harness.record.instruction_counts import BlockTable, ThreadCounts
    from harness.run.counting.counted_server import CountedGuest

PREPARED_AT_ONCE = 500
"""Requests of `prepare` in one pipeline."""
CONNECTED_AT_ONCE = 100
"""A held server accepts no connections, and its queue of connections is limited."""
SETTLING_TICKS = 330
"""Runs of the server's timer in which used_memory must not change: each rehashes a hundred buckets of a table or more
(dict.c), and no table of a workload has over 32,768."""
SETTLING_ATTEMPTS = 5
SETTLED_BYTES = 64
"""By how much the memory of INFO's own reply may vary; no table is so small."""
IDLE_SECONDS = 6.0
"""The time after which a server has shrunk the buffers of its clients: input after 2 s, output after 5 s (since Redis
7).
"""
TIMER_TURNS = 2
"""The number of wake-ups without a request, for each timer, from which the cost of a timer's run is computed."""


def run_round(guest: CountedGuest, workload: BenchWorkload) -> Round:
    """One round on a server that has just started.

    Raises InconclusiveError when the server ends, hangs or gives an error reply: then there is no figure. Raises
    LacksCommandError when it does not know a command.
    """
    try:
        guest.hold()
        refuse_unknown_commands(workload, guest.ask)
        return _Load(guest, workload).round()
    except hiredis.ReplyError as error:
        raise InconclusiveError(
            f"{workload.name}: the server sent an error reply, so there is no figure", because=str(error)
        ) from error
    except (GateError, ServerGoneError, OSError) as error:
        guest.settle()
        end = guest.detail or guest.evidence.log_tail(1)
        raise InconclusiveError(
            f"{workload.name}: the server did not serve to the end", because=f"{error}; {end}"
        ) from error


class _TimerCost(NamedTuple):
    """The mean of some runs of timers."""

    instructions: float
    blocks: dict[tuple[int, int], float]


def _runs(before: BlockTable, after: BlockTable, timers: Sequence[int]) -> int:
    return sum(after.executions_at(timer) - before.executions_at(timer) for timer in timers)


class _Load:
    def __init__(self, guest: CountedGuest, workload: BenchWorkload) -> None:
        self.guest = guest
        self.workload = workload
        self._requests = WorkloadRequests(workload)

    def round(self) -> Round:
        guest, workload = self.guest, self.workload
        self._warm_up()
        # Some servers fork a child at their start, to test the kernel.
        earlier = {one.pid for one in guest.counts.threads()}
        self._fork()
        # Memory counts where there are no clients, or idle ones.
        memory_before = self._settled_memory()
        with self._connected() as (stack, connections):
            blocks_before, threads_before = guest.blocks(), guest.counts.threads()
            timers = guest.timers()
            timed = self._timed_turns(self._turns(connections, workload.requests, stack), blocks_before, timers)
            threads, blocks = guest.counts.threads(), guest.blocks()
            memory, maps = guest.memory(), guest.maps()
            executed = blocks.since(blocks_before)
            turns = [instructions for instructions, _ in timed]
            if runs := sum(ran for _, ran in timed):
                timer = self._timer_cost(timers, blocks)
                turns = [max(0, instructions - round(ran * timer.instructions)) for instructions, ran in timed]
                executed.subtract({block: round(times * runs) for block, times in timer.blocks.items()})
            if workload.new_connections:
                # A server shrinks the buffers of clients that have been idle for some seconds, by its clock.
                time.sleep(IDLE_SECONDS)
                memory_after = self._settled_memory()
        if not workload.new_connections:
            memory_after = self._settled_memory()
        children = self._end_child(earlier)
        before = {(one.pid, one.thread): one for one in threads_before}
        moved = [(one, before.get((one.pid, one.thread))) for one in threads if not one.forked]
        first = {name: _moved(moved[0], name) for name in ("calls", "writes", "written_bytes", "syncs")}
        counts = RoundCounts(
            requests=workload.requests,
            instructions=sum(turns),
            **first,
            other_instructions=sum(_moved(pair, "instructions") for pair in moved[1:]),
            child_instructions=sum(one.instructions for one in children),
            child_written_bytes=sum(one.written_bytes for one in children),
            child_private_bytes=sum(one.private_bytes for one in children),
            used_memory_before=memory_before,
            used_memory=memory_after,
            resident_bytes=memory.resident_bytes,
            own_bytes=memory.own_bytes,
            turns=turns,
        )
        return Round(counts=counts, blocks=+executed, maps=maps)

    def _warm_up(self) -> None:
        with self._connected() as (stack, connections):
            self._prepare(connections[0])
            for _ in self._turns(connections, self.workload.warm_up, stack):
                pass
        # The first INFO makes tables that stay.
        self.guest.info()
        self._settled_memory()

    def _fork(self) -> None:
        """Make the server fork the workload's child, if it has one, and hold the child until the requests are over."""
        if self.workload.during != "nothing":
            self.guest.counts.hold_children(held=True)
            self.guest.ask(FORKS[self.workload.during])
            self.guest.await_held_child()

    def _timed_turns(self, turns: Iterable[int], before: BlockTable, timers: Sequence[int]) -> list[tuple[int, int]]:
        """The instructions of each wake-up, and how many runs of timers are among them. `before`: the blocks before."""
        found: list[tuple[int, int]] = []
        for instructions in turns:
            after = self.guest.blocks()
            found.append((instructions, _runs(before, after, timers)))
            before = after
        return found

    def _timer_cost(self, timers: Sequence[int], before: BlockTable) -> _TimerCost:
        """The cost of a run of a timer, from wake-ups without a request. Each takes up to a second.

        Raises InconclusiveError if no timer runs in them.
        """
        wake_ups = TIMER_TURNS * len(timers)
        instructions = sum(self.guest.exchange([]) for _ in range(wake_ups))
        after = self.guest.blocks()
        runs = _runs(before, after, timers)
        if not runs:
            raise InconclusiveError(
                f"{self.workload.name}: the cost of the server's timers is unknown",
                because=f"none ran in {wake_ups} wake-ups without a request, although one ran with a request",
            )
        return _TimerCost(instructions / runs, {block: times / runs for block, times in (+after.since(before)).items()})

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[contextlib.ExitStack, list[PatientConnection]]]:
        """The workload's connections, which the server has accepted; they and those that are added end together."""
        with contextlib.ExitStack() as stack:
            connections: list[PatientConnection] = []
            while wanted := min(CONNECTED_AT_ONCE, self.workload.connections - len(connections)):
                several = [self._connect(stack) for _ in range(wanted)]
                for connection in several:
                    connection.ask(Client.pack([("PING",)]), 1)
                self.guest.exchange(several)
                connections += several
            yield stack, connections
        self.guest.settle_connections()

    def _connect(self, stack: contextlib.ExitStack) -> PatientConnection:
        connection = PatientConnection(self.guest.upstream)
        stack.callback(connection.close)
        return connection

    def _prepare(self, connection: PatientConnection) -> None:
        for several in self._requests.prepared(at_once=PREPARED_AT_ONCE):
            connection.ask(Client.pack(several), len(several))
            self.guest.exchange([connection])

    def _turns(
        self, connections: Sequence[PatientConnection], requests: int, stack: contextlib.ExitStack
    ) -> Iterator[int]:
        """Send this many requests, and yield the instructions of each wake-up."""
        workload = self.workload
        for _ in range(requests // (workload.pipeline * workload.connections)):
            asked = [self._connect(stack)] if workload.new_connections else connections
            for connection in asked:
                batch = [self._requests.next() for _ in range(workload.pipeline)]
                connection.ask(Client.pack(batch), len(batch))
            yield self.guest.exchange(asked)

    def _settled_memory(self) -> int:
        """Used_memory once the timer has nothing left to do: it moves keys to larger tables, and resizes tables.

        Raises InconclusiveError if it does not settle.
        """
        seen: list[int] = []
        for _ in range(SETTLING_ATTEMPTS):
            seen.append(int(self.guest.info()["used_memory"]))
            if len(seen) > 1 and abs(seen[-1] - seen[-2]) <= SETTLED_BYTES:
                return seen[-1]
            self.guest.run_timer(SETTLING_TICKS)
        raise InconclusiveError(f"{self.workload.name}: used_memory does not settle", because=f"it was {seen}")

    def _end_child(self, earlier: set[int]) -> list[ThreadCounts]:
        """Release the child, and return its threads when it has ended. `earlier`: the processes that existed before.

        Raises GateError when it does not end, and InconclusiveError when it fails.
        """
        guest = self.guest
        if self.workload.during == "nothing":
            return []
        guest.counts.hold_children(held=False)
        deadline = time.monotonic() + guest.runner.target.whole_deadline_seconds(CHILD_SECONDS)
        while True:
            # The server may have to answer the child, so it gets turns meanwhile.
            state = guest.info()
            children = [one for one in guest.counts.threads() if one.pid not in earlier]
            running, status, _ = CHILD_FIELDS[self.workload.during]
            if state[running] == "0":
                if state[status] != "ok" or not any(one.ended for one in children):
                    raise InconclusiveError(
                        f"{self.workload.name}: the child failed", because=f"{status}:{state[status]}"
                    )
                return children
            if time.monotonic() > deadline:
                raise GateError("the child did not end")
            time.sleep(CHILD_POLL_SECONDS)


def _moved(pair: tuple[ThreadCounts, ThreadCounts | None], name: str) -> int:
    after, before = pair
    return int(getattr(after, name)) - (int(getattr(before, name)) if before else 0)
