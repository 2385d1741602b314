"""Frames are read however the stream is cut and whatever noise precedes them. A channel reports its peer's errors."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.run.vm.init_channel import (
    LARGEST_PAYLOAD,
    Channel,
    ChannelError,
    ChannelFrame,
    Decoder,
    RefusedError,
    encode,
    fields,
)

if TYPE_CHECKING:
    from pathlib import Path

FRAMES = st.lists(
    st.builds(
        ChannelFrame,
        id=st.integers(0, 2**31),
        word=st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=15),
        payload=st.binary(max_size=200),
    ),
    max_size=5,
)


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 2000), max_size=10))
def test_frames_are_read_as_they_were_written_wherever_the_stream_is_cut(
    frames: list[ChannelFrame], cuts: list[int]
) -> None:
    stream = b"".join(map(encode, frames))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = Decoder()
    got = [frame for start, end in itertools.pairwise(edges) for frame in list(decoder.feed(stream[start:end]))]
    assert got == frames


@pytest.mark.parametrize("noise", [b"\x00\xff", b"Uncompressing Linux...\n", b"\n\n", b"1 TWO 3\n", b"x" * 500 + b"\n"])
def test_noise_before_a_frame_is_dropped(noise: bytes) -> None:
    frame = ChannelFrame(id=0, word="ready", payload=b"")
    assert list(Decoder().feed(noise + encode(frame))) == [frame]


@pytest.mark.parametrize(
    "damaged", [b"0 fa\xff\x00t 3\nabc", b" fault 3\nabc", b"0 fault 3abc\n", b"x" * 64 + b"0 fault 3\nabc", b"\n"]
)
def test_a_damaged_frame_is_an_error_and_is_not_skipped(tmp_path: Path, damaged: bytes) -> None:
    """The frame may have been the record of the only fault."""
    InitDouble(tmp_path / "s", b"0 ready 0\n1 ok 0\n", damaged + b"2 ok 0\n")
    channel = Channel(tmp_path / "s", print, deadline_seconds=5)
    channel.request("ping", deadline_seconds=5)
    with pytest.raises(ChannelError, match="bytes between frames"):
        channel.request("ping", deadline_seconds=5)
    channel.close()


def test_a_field_cannot_contain_its_own_terminator() -> None:
    assert fields("a", 1) == b"a\x001\x00"
    with pytest.raises(ValueError, match="NUL"):
        fields("a\0b")


class InitDouble:
    """The channel's peer, which answers each request as the test specifies."""

    def __init__(self, path: Path, *answers: bytes) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._answers = answers
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, self._listener:
            for answer in self._answers:
                connection.recv(1 << 16)
                connection.sendall(answer)


def test_an_event_is_handled_before_the_reply_that_follows_it(tmp_path: Path) -> None:
    InitDouble(tmp_path / "s", b"0 fault 3\nabc1 ok 2\nhi")
    frames: list[ChannelFrame] = []
    channel = Channel(tmp_path / "s", frames.append, deadline_seconds=5)
    assert channel.request("ping", deadline_seconds=5) == b"hi"
    assert [(one.word, one.payload) for one in frames] == [("fault", b"abc")]
    channel.close()


@pytest.mark.parametrize("answer", [b"", b"2 ok 0\n", b"1 ok 5\nshor"])
def test_an_invalid_answer_is_an_error(answer: bytes, tmp_path: Path) -> None:
    InitDouble(tmp_path / "s", answer)
    channel = Channel(tmp_path / "s", print, deadline_seconds=5)
    with pytest.raises(ChannelError, match="the machine has ended"):
        channel.request("ping", deadline_seconds=5)
    channel.close()


def test_a_refusal_has_a_reason(tmp_path: Path) -> None:
    InitDouble(tmp_path / "s", b"1 error 4\nnope")
    channel = Channel(tmp_path / "s", print, deadline_seconds=5)
    with pytest.raises(RefusedError, match="ping: nope"):
        channel.request("ping", deadline_seconds=5)
    channel.close()


def test_silence_is_an_error_at_the_deadline(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        channel = Channel(tmp_path / "s", print, deadline_seconds=5)
        with pytest.raises(ChannelError, match="no answer within"):
            channel.request("ping", deadline_seconds=0.05)
        channel.close()


def test_a_request_that_is_too_long_for_the_guest_is_refused(tmp_path: Path) -> None:
    InitDouble(tmp_path / "s")
    channel = Channel(tmp_path / "s", print, deadline_seconds=5)
    with pytest.raises(RefusedError, match="too long"):
        channel.request("write", bytes(LARGEST_PAYLOAD + 1), deadline_seconds=5)
    channel.close()


def test_a_deadline_uses_the_guests_own_time(tmp_path: Path) -> None:
    """The guest gets no processor for the first 0.3 s."""
    started = time.monotonic()

    def clock() -> float:
        return max(time.monotonic() - started - 0.3, 0.0)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        channel = Channel(tmp_path / "s", print, deadline_seconds=5, clock=clock)
        with pytest.raises(ChannelError, match="no answer within"):
            channel.request("ping", deadline_seconds=0.1)
        assert 0.4 <= time.monotonic() - started < 60
        channel.close()
