"""Sends a workload to a server of the kernel tier from inside its machine, over the loopback, and counts.

Two programs send, both of the release itself. redis-benchmark draws keys, and has pipelines and many connections.
redis-cli sends any commands, one at a time. A server treats them differently, so only figures of the same program are
comparable.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from harness.core.errors import InconclusiveError
from harness.core.sockets import connect
from harness.protocol.resp import Client, info_fields
from harness.workflows.measure.cost_document import PERCENTILES
from harness.workflows.measure.fixup_cost_run import LOAD, instructions_so_far, run_inside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.plan.workloads import BenchWorkload
    from harness.protocol.workload_requests import WorkloadRequests
    from harness.run.vm.guest import VmGuest
    from harness.run.vm.machine import Machine

MOST_REQUESTS = 2000
"""Requests that are counted: the machine is some twenty times slower than the user-mode emulator."""
INSTRUCTIONS_OF_MS = 1e6
"""Instructions in a millisecond of the machine's time: each takes a nanosecond."""
LARGEST_VALUE_BYTES = 32 * 1024
"""redis-benchmark takes a value from its command line, which the control channel carries in one piece."""
BENCHMARK, CLI = "/srv/benchmark", "/srv/cli"
"""Paths of redis-benchmark and redis-cli in the guest."""
COMMANDS = "/run/commands"
"""The guest's file that redis-cli reads."""

Sender = Literal["benchmark", "cli"]
"""redis-benchmark, redis-cli."""


class RequestCost(NamedTuple):
    """The cost of a request."""

    instructions: float
    """Instructions of all the server's threads, including the kernel's for them."""
    latencies: dict[str, float]
    """As `latencies_in` finds them; empty if another program than redis-benchmark sends."""
    sent_by: Sender


class UnsupportedError(Exception):
    """No program inside the machine can send a workload."""

    def __init__(self, why: str) -> None:
        super().__init__(f"no program on the kernel tier {why}")


def sender_of(workload: BenchWorkload) -> Sender:
    """The program that sends a workload. Raises UnsupportedError for a workload that none of them can send."""
    if workload.new_connections:
        raise UnsupportedError("sends each request on a connection of its own")
    if workload.payload_bytes > LARGEST_VALUE_BYTES:
        raise UnsupportedError(f"sends values of {workload.payload_bytes} bytes")
    words = workload.commands[0]
    drawn = workload.drawn == "evenly" and not any(mark in word for mark in ("{number}", "{floats}") for word in words)
    if drawn and len(workload.commands) == 1:
        return "benchmark"
    if workload.shown_by_request:
        return "cli"
    raise UnsupportedError("sends several commands, or keys in order, in pipelines or on several connections")


def benchmark_words(workload: BenchWorkload, port: int, requests: int) -> list[str]:
    """The command line by which the release's own redis-benchmark sends a workload.

    Its numbers have twelve digits, as those of `WorkloadRequests` have. It draws them uniformly, from its own seed.
    """
    value = "x" * workload.payload_bytes
    words = [word.replace("{key}", "__rand_int__").replace("{value}", value) for word in workload.commands[0]]
    options = {"-p": port, "-c": workload.connections, "-P": workload.pipeline, "-n": requests, "-r": workload.keys}
    return [BENCHMARK, "--csv", *(str(part) for option in options.items() for part in option), *words]


def latencies_in(output: str) -> dict[str, float]:
    """`p50`, `p95` and `p99` from what redis-benchmark prints: instructions of the machine between a request and its
    reply.

    Empty for a release before 6.2, which prints none.
    """
    _, start, rest = output.rpartition('"test",')
    told = next(csv.DictReader(io.StringIO(start + rest)), {})
    names = {f"p{number}": f"p{number}_latency_ms" for number in PERCENTILES}
    return {name: INSTRUCTIONS_OF_MS * float(told[column]) for name, column in names.items() if column in told}


def refuse_error_replies(workload: BenchWorkload, output: str) -> None:
    """Raise InconclusiveError if redis-cli printed an error reply: `--no-raw` quotes every other one."""
    if error := re.search(r"^\(error\) .*", output, re.MULTILINE):
        raise InconclusiveError(
            f"{workload.name}: the server sent an error reply, so there is no figure", because=error[0]
        )


def calls_in(stats: Mapping[str, str], workload: BenchWorkload) -> int:
    """How often the server has executed a workload's commands, by the section `commandstats` of INFO."""
    names = {words[0].lower() for words in workload.commands}
    lines = [stats.get(f"cmdstat_{name}", "calls=0,") for name in names]
    return sum(int(line.removeprefix("calls=").partition(",")[0]) for line in lines)


def refuse_lost_requests(workload: BenchWorkload, sender: Sender, sent: int, executed: int) -> None:
    """Raise InconclusiveError if a server executed fewer or more requests than were sent."""
    if executed != sent:
        raise InconclusiveError(f"{workload.name}: the server executed {executed} requests, where {sender} sent {sent}")


def cli_line(request: Sequence[bytes]) -> bytes:
    """A request as redis-cli reads it from its standard input."""
    return b" ".join(b'"' + _UNSAFE.sub(_escaped, word) + b'"' for word in request) + b"\n"


_UNSAFE = re.compile(rb"[^ !#-\[\]-~]")
"""Bytes that a quoted word cannot contain as they are."""


def _escaped(byte: re.Match[bytes]) -> bytes:
    return b"\\x%02x" % byte[0][0]


class InsideLoad:
    """A workload's requests to one server, sent by programs beside it in its machine."""

    def __init__(self, guest: VmGuest, machine: Machine, workload: BenchWorkload, requests: WorkloadRequests) -> None:
        self.guest = guest
        self.machine = machine
        self.workload = workload
        self._requests = requests

    def cost(self) -> RequestCost:
        """The cost of a request, from the difference between two numbers of requests: a program's own start and
        connection do not count.

        Raises InconclusiveError, InfrastructureError, and hiredis.ReplyError for an error reply to the first request.
        """
        sender = sender_of(self.workload)
        with self._client() as client:
            # Not every redis-benchmark stops at an error reply.
            client.command(*self._requests.next())
        least = self.workload.connections * self.workload.pipeline
        more = max(1, min(self.workload.requests, MOST_REQUESTS) // least) * least
        calls = self._calls()
        # The first run warms up caches.
        self._send(sender, least)
        readings = [instructions_so_far(self.guest, self.machine)]
        for number in (least, least + more):
            output = self._send(sender, number)
            readings.append(instructions_so_far(self.guest, self.machine))
        refuse_lost_requests(self.workload, sender, 3 * least + more, self._calls() - calls)
        few, many = (after - before for before, after in itertools.pairwise(readings))
        return RequestCost((many - few) / more, latencies_in(output) if sender == "benchmark" else {}, sender)

    def _send(self, sender: Sender, number: int) -> str:
        """Send this many requests, and return the program's output. Raises InconclusiveError for an error reply."""
        target = self.guest.runner.target
        if sender == "benchmark":
            return run_inside(self.machine, target, benchmark_words(self.workload, self.guest.port, number))
        self.machine.write(COMMANDS, b"".join(cli_line(self._requests.next()) for _ in range(number)))
        words = [LOAD, "from", COMMANDS, CLI, "-p", str(self.guest.port), "--no-raw"]
        output = run_inside(self.machine, target, words)
        refuse_error_replies(self.workload, output)
        return output

    def _calls(self) -> int:
        """How often the server has executed the workload's commands."""
        with self._client() as client:
            return calls_in(info_fields(client.command("INFO", "commandstats")), self.workload)

    def _client(self) -> Client:
        return Client(connect(self.guest.upstream, deadline_seconds=self.guest.deadline_seconds))
