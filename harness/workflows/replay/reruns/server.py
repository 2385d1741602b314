"""Runs a reproducer's server once more, and observes what happens. `named_observation` adds the names of functions."""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.analysis.crash_reports.assertion_log import asserted
from harness.analysis.crash_reports.reported_fault import reported_fault
from harness.core.byte_diff import described
from harness.core.processes import process_tree
from harness.judge.reproducer import files_of
from harness.protocol import allowed_differences, pipeline, reply_comparison
from harness.protocol.allowed_refusals import release_of
from harness.protocol.command_stream import clients_of, from_text
from harness.protocol.control_connection import ControlConnection
from harness.protocol.resp import Client
from harness.record import fault_log, transcript
from harness.record.cell_events import NO_PONG
from harness.run.boards.board_guest import BoardGuest
from harness.run.server_process import POLL_SECONDS, StartError
from harness.run.servers.probes import answers_ping
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.replay.recorded_requests import comparable_stream, recorded_replies
from harness.workflows.replay.recurrence import STREAM, WRONG_RESULT, Observation
from harness.workflows.replay.reruns.replayed_run import ReplayedRun, crashed_children, cut_short, why_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.core.finding import Reproduction
    from harness.core.model import Build, SourceTree
    from harness.judge.reproducer import Reproducer
    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest
    from harness.workflows.target_setup import TargetSetup


ZOMBIE = "Z"
"""The state of a process that has ended and that its parent has not waited for (proc(5))."""
DIFFERS, AGAIN = "differs: ", "again: "
"""Prefixes of the lines that report a wrong reply, or wrong bytes."""


def recorded_server(setup: TargetSetup, build: Build, tree: SourceTree, reproducer: Reproducer) -> ServerSpec:
    """A build of a tree for a target, started as the server of the finding was."""
    return ServerSpec(
        build=build,
        version=tree.version,
        options=tuple(_with_modules(setup, tree, reproducer.options)),
        files=files_of(reproducer),
        io=reproducer.io,
    )


def _with_modules(setup: TargetSetup, tree: SourceTree, options: Sequence[str]) -> Iterator[str]:
    """The options, with the suites' own modules compiled for this target and tree. The recorded paths are those of the
    finding's build.
    """
    suites = setup.bench.catalog.suites.values()
    sources = {Path(suite.module).stem: suite.path / suite.module for suite in suites if suite.module}
    for before, word in itertools.pairwise(["", *options]):
        source = sources.get(Path(word).stem) if before == "--loadmodule" else None
        yield str(setup.module(source, tree)) if source is not None else word


def run_server(
    guest: Guest, reproducer: Reproducer, oracle: Callable[[], Guest], bare: Callable[[], Guest]
) -> ReplayedRun:
    """Send the recorded requests to a fresh guest.

    `oracle` makes a guest of the native build, `bare` one of the same build without the reproducer's files.
    """
    stream = comparable_stream(reproducer)
    try:
        with guest:
            observation = _observed(guest, reproducer, oracle, stream)
            ended_at_once = (
                bool(observation.undelivered)
                or guest.evidence.has_fault_of(guest.pid, 0)
                or asserted(guest.evidence.log.read_bytes())
            )
            if ended_at_once and not observation.hung:
                guest.settle()
            if not guest.alive():
                observation = msgspec.structs.replace(observation, end=guest.detail, detail=guest.detail, hung=False)
            elif not observation.hung and not _answers(guest):
                observation = msgspec.structs.replace(observation, end="it no longer answers clients", hung=True)
            elif not observation.undelivered and _may_be_of_a_child(reproducer) and _has_children(guest):
                why = "a child process of the server still ran when the replay ended"
                observation = msgspec.structs.replace(observation, end=why, undelivered=why)
        if guest.ended is not None and guest.ended.stopping:
            hung = guest.ended.how == "hang"
            observation = msgspec.structs.replace(observation, end=guest.detail, detail=guest.detail, hung=hung)
    except StartError as error:
        hung = error.detail == NO_PONG
        refuses = bool(guest.spec.files) and guest.ended is not None and guest.ended.how == "exit" and _starts(bare())
        detail = "" if hung else error.detail
        observation = Observation(end=str(error), started=False, hung=hung, detail=detail, refuses_files=refuses)
    evidence = guest.evidence
    log = evidence.log.read_bytes() if evidence.log.is_file() else b""
    detector = guest.runner.target.emulator.detector
    lost = cut_short(evidence.fault_log, log, detector=detector)
    recorded = fault_log.read(evidence.fault_log)
    children = crashed_children(recorded, {guest.first_pid})
    killed = f"\na child process was killed by {', '.join(sorted(children))}" if children else ""
    return ReplayedRun(
        observation=msgspec.structs.replace(
            observation,
            end=observation.end + killed,
            cut=lost or why_from_outside(observation.detail),
            children=children,
        ),
        faults=recorded.faults or _reported(guest, log),
        reports=evidence.reports(0),
        assertion=asserted(log),
    )


def _reported(guest: Guest, log: bytes) -> list[fault_log.Fault]:
    """The fault that a server on a board reports of itself: nothing there records it."""
    if not isinstance(guest, BoardGuest) or guest.host.image.board.program:
        return []
    fault = reported_fault(log, guest.pid, str(guest.build.server_binary), guest.runner.target.emulator.qemu)
    return [fault] if fault is not None else []


def _observed(guest: Guest, reproducer: Reproducer, oracle: Callable[[], Guest], stream: Stream) -> Observation:
    """Send the requests in the way that fits the finding."""
    fine = Observation(end="it answered every request and is still running")
    if reproducer.again is not None:
        return _asked_again(guest, reproducer, reproducer.again)
    if stream:
        return _asked_both(guest, oracle, stream, recorded_replies(reproducer))
    if not transcript.has_whole_request(reproducer.chunks):
        why = "the reproducer has no whole request: nothing was sent"
        return msgspec.structs.replace(fine, end=why, undelivered=why)
    undelivered = transcript.send_again(guest.access.path, reproducer.chunks, reply_seconds=guest.deadline_seconds)
    reason = "its requests cannot be compared with the native build's, reply by reply: plumb check --test can tell"
    uncompared = reason if reproducer.kind == WRONG_RESULT else ""
    return msgspec.structs.replace(fine, end=undelivered or fine.end, undelivered=undelivered, uncompared=uncompared)


def _asked_again(guest: Guest, reproducer: Reproducer, again: Reproduction) -> Observation:
    """Whether a file that the server writes, or its last reply, has the wrong bytes again."""
    try:
        with Client.at_socket(guest.access.path, deadline_seconds=guest.deadline_seconds) as client:
            replies = pipeline.ask(client, from_text("\n".join(again.requests)))
        refused = isinstance(replies[-1], Exception) or not (again.file or isinstance(replies[-1], bytes))
        content = guest.read(again.file) if again.file and not refused else replies[-1]
    except OSError as error:
        why = f"not all of its requests were answered: {error}"
        return Observation(end=why, undelivered=why)
    if refused:
        # Without the reply, or the file that the request writes, there are no bytes to look at.
        why = f"its last request had another answer, {replies[-1]!r:.200}"
        return Observation(end=why, undelivered=why)
    came = isinstance(content, bytes) and bytes.fromhex(again.wrong) in content
    difference = f"\n{AGAIN}{described(reproducer.difference)}" if came and reproducer.difference is not None else ""
    return Observation(end=f"it answered every request and is still running{difference}", came=came)


def _asked_both(guest: Guest, oracle: Callable[[], Guest], stream: Stream, recorded: list[Reply]) -> Observation:
    """The first command to which the guest and its native build reply differently.

    If there is none, whether the guest gave the recorded replies: the native build may have the same bug.
    """
    answers: list[list[Reply]] = []
    release = release_of(guest.build.server_binary, guest.version)
    try:
        with oracle() as native:
            for server in (native, guest):
                answers.append([])
                # Both begin empty, or with the finding's files.
                _ask_into(answers[-1], server, stream)
    except StartError as error:
        return Observation(end=(why := f"the native build does not start: {error.detail}"), uncompared=why)
    except OSError as error:
        who = "the native build" if len(answers) == 1 else "it"
        why = f"{who} answered {len(answers[-1]) if answers else 0} of {len(stream)} requests: {error}"
        if len(answers) == 1:
            return Observation(end=why, uncompared=why)
        found = reply_comparison.first_difference(stream, answers[1], answers[0], guest.runner.target, release)
        hung = isinstance(error, TimeoutError)
        return _with(Observation(end=why, undelivered=why, hung=hung), found)
    found = reply_comparison.first_difference(stream, answers[1], answers[0], guest.runner.target, release)
    free = tuple(allowed_differences.uncompared(stream))
    end = "it answered every request and is still running"
    if found is not None:
        end += f"\n{DIFFERS}{found}"
    elif free:
        end += f"\nnot compared, because two correct servers may answer differently: {', '.join(free)}"
    same = _as_recorded(stream, answers[1], recorded, guest) if found is None else ""
    if same == "now":
        end += "\nits replies and the native build's are those of the failed test"
    return _with(Observation(end=end, free=free, as_recorded=same), found)


def _as_recorded(
    stream: Stream, answers: list[Reply], recorded: list[Reply], guest: Guest
) -> Literal["", "now", "once"]:
    """Whether the replies are the recorded ones, apart from times."""
    if len(recorded) != len(stream):
        return ""
    release = release_of(guest.build.server_binary, guest.version)
    target = guest.runner.target
    if reply_comparison.first_difference(stream, answers, recorded, target, release) is None:
        return "now"
    later = reply_comparison.first_difference(stream, answers, recorded, target, release, slack=YEARS)
    return "once" if later is None else ""


YEARS = 500_000
"""How much a time in a reply may differ, because the recording may be old; in units of ten minutes."""


def _ask_into(replies: list[Reply], server: Guest, stream: Stream) -> None:
    seconds = server.deadline_seconds
    with contextlib.ExitStack() as connections:
        clients = [
            connections.enter_context(Client.at_socket(server.access.path, deadline_seconds=seconds))
            for _ in range(clients_of(stream))
        ]
        pipeline.ask(clients[0], reply_comparison.STEADY)
        control = connections.enter_context(ControlConnection(server.upstream, deadline_seconds=seconds))
        pipeline.ask_all_into(replies, clients, stream, control, deadline_seconds=seconds)


def _with(observation: Observation, found: reply_comparison.ReplyDifference | None) -> Observation:
    """The observation with the first reply that differs, if one does."""
    return (
        msgspec.structs.replace(observation, difference=str(found), differing=found.name)
        if found is not None
        else observation
    )


def _answers(guest: Guest) -> bool:
    """Whether the guest still answers a new client before a reply's deadline."""
    deadline = time.monotonic() + guest.deadline_seconds
    patience = guest.probe_seconds
    while not (served := answers_ping(guest.upstream, deadline_seconds=patience)) and time.monotonic() < deadline:
        if not guest.alive():
            break
        time.sleep(POLL_SECONDS)
    return served or not guest.alive()


def _may_be_of_a_child(reproducer: Reproducer) -> bool:
    """Whether a child process of the server, such as one that saves, may show the finding."""
    return reproducer.kind != WRONG_RESULT or reproducer.detector == STREAM


def _has_children(guest: Guest) -> bool:
    """Whether the server still has child processes after a reply's deadline: their end is awaited until then."""
    deadline = time.monotonic() + guest.deadline_seconds
    while children := [
        one for one in process_tree.below(guest.host_pid, process_tree.processes()) if one.state != ZOMBIE
    ]:
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_SECONDS)
    return bool(children)


def _starts(guest: Guest) -> bool:
    with contextlib.suppress(StartError), guest:
        return True
    return False
