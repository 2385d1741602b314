"""Streams worth keeping: those committed beside this file, and those that showed new behaviour in a long run.

A feature is any hashable behaviour of a stream. The corpus keeps every stream that shows a new feature. Features are
edges of the guest's code where the emulator reports them, and shapes of replies elsewhere. A stream's features are kept
with it, so that a later run on the same build knows them without sending the stream again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import UsageError
from harness.protocol.allowed_differences import is_free
from harness.protocol.command_stream import clients_of, read_stream, text_of
from harness.record import corpus_folder

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply

COMMITTED = Path(__file__).with_name("corpus")
MOST_FILES = 2000
FOUND, KEPT = "found-", "kept-"
"""Prefixes of file names: streams that failed, and streams that showed something new."""


class Corpus:
    """Kept streams, in memory and, given a folder, on disk. `build` identifies the build that showed the features."""

    def __init__(self, folder: Path | None, build: str = "") -> None:
        self._folder = folder
        self._build = build
        self._features: set[int] = set()
        self._waiting: list[Path] | None = None
        self.streams: list[Stream] = []
        """The streams from which mutations start."""
        if folder is not None:
            # Streams that showed nothing on this build would take the place of useful ones.
            corpus_folder.minimise(folder, build)
        entries = self._entries()
        self._files = len(entries)
        for entry in entries:
            if (new := self._features_of(entry)) and (stream := _stream_in(entry)) is not None:
                self._features |= set(new)
                self.streams.append(stream)

    def __len__(self) -> int:
        """The number of streams kept."""
        return len(self.streams)

    @property
    def features(self) -> int:
        """The number of different features found."""
        return len(self._features)

    @property
    def not_sent(self) -> tuple[int, int]:
        """The streams still to replay: how many failed in an earlier run, and how many others there are."""
        waiting = self._to_replay()
        failed = sum(path.name.startswith(FOUND) for path in waiting)
        return failed, len(waiting) - failed

    def _to_replay(self) -> list[Path]:
        if self._waiting is None:
            kept = [
                entry for entry in self._entries() if entry.name.startswith(FOUND) or self._features_of(entry) is None
            ]
            self._waiting = [*sorted(COMMITTED.glob("*.stream")), *kept]
        return self._waiting

    def next_old(self, *, alone: bool = False) -> Stream | None:
        """The next stream to replay: committed ones first, then failed ones, then those not yet tried on this build.

        `alone`: committed streams of several clients, which cost more than others, are left for later.
        """
        waiting = self._to_replay()
        for path in [*waiting]:
            committed = read_stream(path) if path.parent != self._folder else None
            if alone and committed is not None and clients_of(committed) > 1:
                continue
            waiting.remove(path)
            if committed is not None:
                return committed
            if (stream := _stream_in(path)) is not None:
                # Recorded before it is sent, so that a stream that ends this run does not also end the next one.
                self._note(path)
                return stream
        return None

    def offer(self, stream: Stream, features: Iterable[Hashable]) -> int:
        """Keep the stream if it shows new features; return their number."""
        new = {_number(feature) for feature in features} - self._features
        if new:
            self._features |= new
            self.streams.append(stream)
            self.save(stream, KEPT, new)
        return len(new)

    def save(self, stream: Stream, prefix: str, new: Iterable[int] = ()) -> None:
        """Write a stream and its new features into the folder, if there is one."""
        content = text_of(stream).encode()
        if self._folder is None or len(content) > corpus_folder.LARGEST_BYTES:
            return
        path = self._folder / f"{prefix}{hashlib.sha256(content).hexdigest()[:16]}.stream"
        if not path.exists():
            if self._files >= MOST_FILES:
                return
            self._files += 1
            corpus_folder.keep(path, content)
        self._note(path, new)

    def _note(self, path: Path, new: Iterable[int] = ()) -> None:
        """Record what a stream showed, in addition to what it has shown before on this build."""
        every = sorted({*new, *(self._features_of(path) or ())})
        failed = path.name.startswith(FOUND)
        corpus_folder.note(path, corpus_folder.EntryFeatures(build=self._build, new=every, failed=failed))

    def _entries(self) -> list[Path]:
        return corpus_folder.entries(self._folder) if self._folder is not None else []

    def _features_of(self, entry: Path) -> list[int] | None:
        """What an entry showed on this build; None if it was not tried there."""
        features = corpus_folder.features_of(entry)
        return features.new if features is not None and features.build == self._build else None


def _stream_in(entry: Path) -> Stream | None:
    """The stream in a kept file; None if the file is damaged, as after a power failure. The server is not at fault."""
    try:
        return read_stream(entry)
    except UsageError:
        return None


def _number(feature: Hashable) -> int:
    """The feature itself if it is a number, otherwise a number for it that is the same in every process."""
    if isinstance(feature, int):
        return feature
    return int.from_bytes(hashlib.blake2b(repr(feature).encode(), digest_size=6).digest())


def shapes(stream: Stream, replies: Sequence[Reply]) -> set[Hashable]:
    """The shapes of the replies to commands: the type, the magnitude of the size, an error's text, but no values. An
    unpredictable reply has no shape, so that the same seed makes the same streams.
    """
    return {
        (command.name, len(command.words).bit_length(), _shape(reply))
        for command, reply in zip(stream, replies, strict=False)
        if not is_free(command)
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
