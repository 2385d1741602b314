"""The control channel to a guest's init: frames over a byte stream, numbered requests, and events between them.

A frame is a line `ID WORD LENGTH` and LENGTH bytes (toolchains/kernels/init/channel.c). The reader drops what precedes
the first frame, because a serial line may start with noise. Between later frames there is nothing: other bytes are
those of a damaged frame, which may have been a fault.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.sockets import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harness.core.sockets import Address

LARGEST_PAYLOAD = 64 * 1024
"""Limit of a request, and of the answer to one `read`; init.h has it too."""
LONGEST_HEADER = 64
_HEADER = re.compile(rb"(\d{1,10}) ([a-z]{1,15}) (\d{1,9})$")


class ChannelFrame(Record, frozen=True):
    """One message."""

    id: int
    """The request's number; 0 for an event."""
    word: str
    """A verb; or `ok`, `error`; or an event's name."""
    payload: bytes


class ChannelError(Exception):
    """The guest does not answer, or has died."""


class RefusedError(Exception):
    """The guest refused a request: there is no such file or process."""


def encode(frame: ChannelFrame) -> bytes:
    """The bytes of a frame."""
    return b"%d %s %d\n%s" % (frame.id, frame.word.encode(), len(frame.payload), frame.payload)


def fields(*values: str | int) -> bytes:
    """Values as the fields of a payload. Raises ValueError for a text that contains a NUL."""
    texts = [str(value) for value in values]
    if any("\0" in text for text in texts):
        raise ValueError("a field cannot hold a NUL")
    return b"".join(text.encode("utf-8", "surrogateescape") + b"\0" for text in texts)


class Decoder:
    """Turns bytes into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._begun = False
        """Whether there has been a frame."""

    def feed(self, data: bytes) -> Iterator[ChannelFrame]:
        """The frames that these bytes complete. Raises ValueError for bytes that belong to no frame."""
        self._bytes += data
        while (end := self._bytes.find(b"\n")) >= 0:
            header = _HEADER.search(self._bytes[max(0, end - LONGEST_HEADER) : end])
            if self._begun and (header is None or end > LONGEST_HEADER or header.start() > 0):
                raise ValueError(f"bytes between frames: {bytes(self._bytes[:LONGEST_HEADER])!r}")
            if header is None:
                del self._bytes[: end + 1]
                continue
            length = int(header[3])
            if len(self._bytes) < end + 1 + length:
                return
            frame = ChannelFrame(
                id=int(header[1]), word=header[2].decode(), payload=bytes(self._bytes[end + 1 : end + 1 + length])
            )
            del self._bytes[: end + 1 + length]
            self._begun = True
            yield frame


class Channel:
    """A connected channel to a Unix socket or an address.

    A thread of its own reads, and passes events to `on_event` before the replies that follow them. `clock`, in seconds,
    measures the deadlines: it may stand still while the guest waits for a processor of the host.
    """

    def __init__(
        self,
        place: Address,
        on_event: Callable[[ChannelFrame], None],
        *,
        deadline_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            self._socket = connect(place, deadline_seconds=deadline_seconds)
        except OSError as error:
            raise InfrastructureError("the guest's control channel cannot be opened", because=str(error)) from error
        self._socket.settimeout(None)
        self._on_event = on_event
        self._clock = clock
        self._news = threading.Condition()
        self._replies: dict[int, ChannelFrame] = {}
        self._problem = ""
        self._last = 0
        self._sending = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="control channel", daemon=True)
        self._reader.start()

    @property
    def closed(self) -> bool:
        """Whether nothing more can come, because the other end has closed it or wrote what cannot be read."""
        return bool(self._problem)

    def close(self) -> None:
        """Close the channel; threads that wait for a reply get a ChannelError."""
        # The other end may have closed first.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()

    def request(self, verb: str, payload: bytes = b"", *, deadline_seconds: float) -> bytes:
        """The guest's answer. Raises RefusedError for an error, ChannelError when no answer comes in time."""
        if len(payload) > LARGEST_PAYLOAD:
            raise RefusedError(f"{verb}: a request of {len(payload)} bytes is too long")
        with self._sending:
            self._last += 1
            number = self._last
            try:
                self._socket.sendall(encode(ChannelFrame(id=number, word=verb, payload=payload)))
            except OSError as error:
                # The reader may find out later.
                self._problem = self._problem or str(error)
                raise ChannelError(f"{verb}: {error}") from error
        self.wait_for(lambda: number in self._replies, verb, deadline_seconds=deadline_seconds)
        reply = self._replies.pop(number)
        if reply.word != "ok":
            raise RefusedError(f"{verb}: {reply.payload.decode('utf-8', 'replace')}")
        return reply.payload

    def wait_for(self, condition: Callable[[], object], what: str, *, deadline_seconds: float) -> None:
        """Wait until a condition that frames can change becomes true. Raises ChannelError at the deadline."""
        deadline = self._clock() + deadline_seconds
        with self._news:
            while not condition():
                if self._problem:
                    raise ChannelError(f"{what}: {self._problem}")
                if not self._news.wait(deadline - self._clock()) and self._clock() >= deadline:
                    raise ChannelError(f"{what}: no answer within {deadline_seconds:.0f} s")

    def _read(self) -> None:
        decoder = Decoder()
        try:
            while data := self._socket.recv(1 << 16):
                self._take(decoder.feed(data))
            problem = "the machine has ended"
        except OSError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - every waiting thread receives the error
            problem = f"an event cannot be read: {error}"
        with self._news:
            self._problem = problem
            self._news.notify_all()

    def _take(self, frames: Iterable[ChannelFrame]) -> None:
        for frame in frames:
            if frame.id == 0:
                self._on_event(frame)
            with self._news:
                if frame.id:
                    self._replies[frame.id] = frame
                self._news.notify_all()
