"""Streams worth keeping: those committed beside this file, and those with which a long run found new behaviour.

A feature is any hashable behaviour of a stream. The corpus keeps every stream that shows a new feature. Features are
edges of the guest's code where the emulator reports them, and shapes of replies elsewhere.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from harness.protocol.command_stream import read_stream, text_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply

COMMITTED = Path(__file__).with_name("corpus")
LARGEST_BYTES = 1 << 17
"""Size limit of a kept file: streams of long values are not worth their space."""
MOST_FILES = 2000


class Corpus:
    """Kept streams, in memory and, given a folder, on disk."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._features: set[Hashable] = set()
        self._waiting: list[Path] | None = None
        self.streams: list[Stream] = []
        """The streams from which mutations start."""

    def __len__(self) -> int:
        """The number of streams kept."""
        return len(self.streams)

    @property
    def features(self) -> int:
        """The number of different features found."""
        return len(self._features)

    def next_old(self) -> Stream | None:
        """A stream of earlier runs that has not been replayed yet: committed streams first, then failed ones."""
        if self._waiting is None:
            kept = sorted(self._folder.glob("*.stream")) if self._folder is not None else []
            self._waiting = [*sorted(COMMITTED.glob("*.stream")), *kept]
        return read_stream(self._waiting.pop(0)) if self._waiting else None

    def offer(self, stream: Stream, features: Iterable[Hashable]) -> int:
        """Keep the stream if it shows new features; return their number."""
        new = set(features) - self._features
        if new:
            self._features |= new
            self.streams.append(stream)
            self.save(stream, "kept")
        return len(new)

    def save(self, stream: Stream, prefix: str) -> None:
        """Write a stream into the folder, if there is one. The prefix `found` sorts before `kept`."""
        content = text_of(stream).encode()
        if self._folder is None or len(content) > LARGEST_BYTES:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{prefix}-{hashlib.sha256(content).hexdigest()[:16]}.stream"
        if not path.exists() and len(list(self._folder.iterdir())) < MOST_FILES:
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_bytes(content)
            unfinished.rename(path)


def shapes(stream: Stream, replies: Sequence[Reply]) -> set[Hashable]:
    """The shapes of the replies to commands: the kind, the magnitude of the size, an error's text, but no values."""
    return {
        (command.name, len(command.words).bit_length(), _shape(reply))
        for command, reply in zip(stream, replies, strict=False)
    }


def _shape(reply: Reply) -> Hashable:
    if isinstance(reply, Exception):
        return str(reply)[:40]
    if isinstance(reply, int):
        return "integer", (reply < 0), reply.bit_length() // 8
    if isinstance(reply, bytes):
        return reply.decode() if reply in _NAMES else ("bytes", len(reply).bit_length())
    return (type(reply).__name__, len(reply).bit_length()) if isinstance(reply, list | dict) else type(reply).__name__


_NAMES = frozenset(
    {
        b"OK",
        b"QUEUED",
        b"int",
        b"embstr",
        b"raw",
        b"listpack",
        b"ziplist",
        b"quicklist",
        b"intset",
        b"hashtable",
        b"skiplist",
        b"linkedlist",
        b"stream",
    }
)
