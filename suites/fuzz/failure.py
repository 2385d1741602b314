"""The failures of a stream: a server that ended, or a reply that differs from the native build's or the model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.protocol import reply_comparison
from harness.protocol.allowed_refusals import release_of
from harness.protocol.command_stream import clients_of
from harness.record import fault_log
from suites.fuzz.model import MODELLED, UNPREDICTED, Model

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest


class Failure(Record, frozen=True):
    """A failure of a stream."""

    index: int
    """The failing command, or the first one without a reply."""
    label: str
    """The command's name, and the kind of failure unless the reply was wrong. It is a part of the finding's name."""
    wrong_command: str
    """The command with the wrong reply; empty if it had no reply."""
    message: str
    sameness: str
    """Equal for two failures that count as the same."""
    stream: Stream
    """The commands that were sent, including those of the checkpoint."""
    natively: bool = False
    """Whether the native build answered in the same way."""


def gone(guest: Guest, known_faults: int, stream: Stream, answered: int, error: OSError) -> Failure:
    """The failure of a guest that died or hangs, identified by its first fault, or by how it ended."""
    if isinstance(error, TimeoutError) and not guest.evidence.has_fault_of(guest.pid, known_faults):
        guest.hung()
    guest.settle()
    records = fault_log.read_faults(guest.evidence.fault_log)[known_faults:]
    faults = [fault for fault in records if fault.event == "fault"]
    place = f"{faults[0].signal} at {faults[0].pc:#x}" if faults else guest.detail
    index = min(answered, len(stream) - 1)
    return Failure(
        index=index,
        label=f"{stream[index].name}-end",
        wrong_command="",
        message=f"{type(error).__name__}: {error}",
        sameness=f"end {place}",
        stream=stream,
    )


def native_gone(stream: Stream, answered: int, error: OSError) -> Failure:
    name = stream[min(answered, len(stream) - 1)].name
    return Failure(
        index=min(answered, len(stream) - 1),
        label=f"{name}-native-end",
        wrong_command="",
        message=f"the native build died of it, the guest did not: {error}",
        sameness=f"native end {name}",
        stream=stream,
    )


def differing(stream: Stream, guest: Guest, replies: list[Reply], native: list[Reply]) -> Failure | None:
    """The first reply of a guest that differs from the native build's."""
    # Most streams end here, without a comparison of single replies.
    if replies == native:
        return None
    release, target = release_of(guest.build.server_binary, guest.version), guest.runner.target
    difference = reply_comparison.first_difference(stream, replies, native, target, release)
    if difference is None:
        return None
    return Failure(
        index=difference.index,
        label=difference.name,
        wrong_command=difference.command[: reply_comparison.SHOWN],
        message=str(difference),
        sameness=f"difference {difference.name}",
        stream=stream,
    )


def mistaken(stream: Stream, replies: list[Reply]) -> Failure | None:
    """The first reply that differs from the model's. The model covers one client, and nothing after SELECT or RESET."""
    if clients_of(stream) > 1 or MODELLED.isdisjoint([one.name for one in stream]):
        return None
    model = Model()
    for index, (one, reply) in enumerate(zip(stream, replies, strict=True)):
        expected = model.answer(one)
        if expected is not UNPREDICTED and expected != reply:
            says = f"the model says {expected!r:.200}; the native build answers as the guest does"
            message = f"{one!s:.200}: got {reply_comparison.shown(reply)}, {says}"
            return Failure(
                index=index,
                label=f"{one.name}-model",
                wrong_command=f"{one!s:.200}",
                message=message,
                sameness=f"model {one.name}",
                stream=stream,
                natively=True,
            )
    return None
