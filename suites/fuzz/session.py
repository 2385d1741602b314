"""Runs one test's examples within its limits; shrinks every new failure and stores its evidence."""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.model import Record
from harness.protocol.command_stream import clients_of, text_of, wire
from harness.protocol.stream_shrinker import Shrinker
from harness.record import run_folder
from harness.record.cell_events import NO_PONG
from harness.run.server_process import StartError
from suites.fuzz.acceptance import Acceptance
from suites.fuzz.attempt import attempt
from suites.fuzz.corpus import FOUND, Corpus, shapes
from suites.fuzz.grammar import of_release
from suites.fuzz.guide import Guide
from suites.fuzz.survival import DIED, KEYS, shout, taken

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest
    from harness.run.session.cell_session import CellSession
    from suites.fuzz.emptying import Emptying
    from suites.fuzz.failure import Failure

STREAMS = {"quick": 180, "kernel": 20, "full": 1500, "thorough": 1_000_000}
SECONDS = {"quick": 120.0, "kernel": 300.0, "full": 420.0, "thorough": 600.0}
"""A test's limits by tier: the number of streams, and the time."""
SHRINK_SECONDS, SHRINK_TRIES = 45.0, 200
SHRUNK = {"quick": 3, "kernel": 0, "full": 6, "thorough": 20}
"""The number of different failures to shrink; 0 in the kernel tier, because a machine there has one port and starts
servers slowly.
"""
FAILURES = {"quick": 10, "kernel": 3, "full": 40, "thorough": 300}
"""Number of failing streams after which a test ends: repeats of a crash show nothing new, and each costs a start."""

HANGS = 2
"""Number of servers that hang when they load a file after which a test ends: each costs the whole time of a start."""

REPORT_SECONDS = 1.0
"""Time between two progress reports: a report for each example took an eighth of the client's time."""

EXTRA = 60
"""Number of examples beyond a test's limits while the native build accepts too little damaged input."""


class Shrinking(Record, frozen=True):
    """How a failure was shrunk: a line of streams/shrinking.jsonl."""

    label: str
    commands_before: int
    commands_after: int
    tries: int
    seconds: float


class FuzzSession:
    """The examples of one test.

    `share` is the test's part of the cell's time, `cost` the number of streams that one of its examples is worth. A
    session that `learns` keeps streams in the cell's corpus. `damages`: the kinds of damaged input of which the native
    build must accept some.
    """

    def __init__(
        self,
        run: CellSession,
        emptying: Emptying,
        *,
        name: str,
        share: float,
        cost: int = 1,
        learns: bool = False,
        damages: Iterable[str] = (),
    ) -> None:
        self.run = run
        self._emptying = emptying
        emptying.forget()
        self.cell = run.cell
        self.random = random.Random(f"{self.cell.seed}/{name}")
        tier, limit = self.cell.tier, self.cell.limit_seconds
        self._started = time.monotonic()
        self._reported = 0.0
        self._end = self._started + (SECONDS[tier] if limit is None else limit) * share
        most = self.cell.limit_count or (STREAMS[tier] if limit is None else STREAMS["thorough"])
        self._most = max(2, round(most / cost))
        self.streams = self.commands = self.failures = self._hangs = 0
        self.found: dict[str, str] = {}
        """Identity of a failure -> the message of its first occurrence."""
        self.acceptance = Acceptance(damages)
        self._learns = learns
        build = self.cell.build.key if self.cell.build is not None else ""
        self.corpus = Corpus(self.cell.corpus if learns else None, f"{build} {self._features}")
        known = of_release(self.cell.abilities)
        self.guide = Guide(self.random, self.corpus.streams, themes=self.cell.coverage, known=known)

    @property
    def _features(self) -> str:
        """The kind of feature that shows new behaviour."""
        return "edges" if self.cell.coverage else "shapes of replies"

    def more(self) -> bool:
        """Whether the limits allow another example. Occasionally records the progress.

        While the native build has accepted too little damaged input, the limits allow a few more examples.
        """
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self._report()
        if self.has_enough_failures:
            return False
        if not self.streams:
            # Reading a large corpus may take all of the available time.
            return True
        if self.streams < self._most and time.monotonic() < self._end:
            return True
        return bool(self.acceptance.lacking) and self.streams < self._most + EXTRA

    @property
    def has_enough_failures(self) -> bool:
        """Whether further failures would show nothing new."""
        return self.failures >= FAILURES[self.cell.tier] or self._hangs >= HANGS

    def next_stream(self) -> Stream:
        """The next stream of a session that learns: an earlier one, or one that the guide makes."""
        return self.corpus.next_old(alone=self.guide.opens_alone) or self.guide.next()

    def example(self, stream: Stream) -> list[Reply]:
        """Run one stream and return its replies. Shrink a failure of a new kind, and record both streams' evidence."""
        self.run.begin_example()
        started = time.monotonic()
        guest, oracle = self.run.servers.guest(), self.run.servers.oracle()
        failure, replies = attempt(guest, oracle, stream, self._emptying, checkpoint=True)
        self.commands += len(stream)
        new = 0
        if failure is None:
            # Without edges, the replies must show whether the guest did something new.
            new = self.corpus.offer(stream, guest.edges.new() if guest.edges else shapes(stream, replies))
        self.guide.learn(new)
        if not self._count(failure.sameness if failure else "", failure.message if failure else "") or failure is None:
            self._record(failure, started)
            return replies
        if self.run.servers.doubt():
            # Shrinking would start a new native build, which would hide that the old one was killed.
            self._record(failure, started)
            return replies
        small = self._shrunk(failure) if len(self.found) <= SHRUNK[self.cell.tier] else failure
        self._record(msgspec.structs.replace(failure, label=small.label), started)
        if small is not failure:
            self._record_again(small)
        self._save(small.label, small.stream)
        return replies

    def noise(self, content: bytes) -> None:
        """Send bytes that need not be valid protocol; the guest must survive."""
        self.run.begin_example()
        started = time.monotonic()
        guest = self.run.servers.guest()
        self._emptying.empty(guest)
        failure = shout(guest, content)
        if self._count(failure.sameness if failure else "", failure.message if failure else ""):
            self._save("noise", content)
        self.run.end_example("noise", failure.message if failure else "", time.monotonic() - started)

    def start_up(self, files: dict[str, bytes], options: list[str], *, sound: bool = False) -> bool:
        """Start a guest with files. It may refuse them or load them as the native build does; no signal may end it.

        It must load files that are `sound`. Returns whether the native build has loaded at least one key.
        """
        self.run.begin_example()
        started = time.monotonic()
        guest_result = taken(lambda: self.run.servers.start_guest(files=files, options=options, may_refuse=True))
        native_result = taken(
            lambda: self.run.servers.start_guest(target="native", files=files, options=options, may_refuse=True)
        )
        name = next(iter(files))
        self._hangs += guest_result.startswith(DIED) and guest_result.endswith(NO_PONG)
        same = guest_result == native_result and not guest_result.startswith(DIED)
        message = "" if same else f"{name}: guest {guest_result:.200}, native {native_result:.200}"
        has_keys = KEYS.match(native_result) is not None
        if sound and not message and not has_keys:
            message = f"{name}: both servers refuse an undamaged file: {native_result:.200}"
        # A sound file does not count as an example, because examples are damaged.
        if message or not sound:
            self._count(message, message)
        if not message:
            self.run.servers.start_guest.dismiss()
        self.run.end_example(name, message, time.monotonic() - started)
        return has_keys

    def conclude(self) -> None:
        """Fail the test if an example failed; otherwise report the number of examples."""
        seconds = time.monotonic() - self._started
        self.run.current.note = f"{self.streams} examples, {self.commands} commands in {seconds:.1f} s"
        if self.acceptance.tried:
            self.run.current.note += f", {self.acceptance}"
        if self._learns:
            self._note_unsent_streams()
        self._report()
        if self.failures:
            self.run.current.examples_tell = True
            if self.has_enough_failures:
                self.run.current.cut_short = (
                    f"it ended after {self.failures} failed examples, and did not run the others"
                )
            first = "; ".join(list(self.found.values())[:3])
            pytest.fail(f"{self.failures} of {self.run.current.note} failed: {first}", pytrace=False)
        if not self.streams:
            pytest.fail("no example was run", pytrace=False)
        if self.acceptance.lacking:
            pytest.fail(
                f"the native build accepted too few damaged inputs to test anything: {self.acceptance}", pytrace=False
            )

    def _note_unsent_streams(self) -> None:
        """Note the earlier streams that were not sent. Without them, the test does not repeat earlier failures."""
        failed, others = self.corpus.not_sent
        if others:
            self.run.current.note += f", earlier streams not sent: {others}"
        if failed:
            self.run.current.cut_short = (
                f"streams that failed in earlier runs and were not sent again: {failed} "
                "(a larger --time or --count sends them)"
            )

    def reset_oracle(self) -> None:
        """The native build, emptied and reset to its default settings."""
        self._emptying.empty(self.run.servers.oracle())

    def _count(self, sameness: str, message: str) -> bool:
        """Record one more example, failed if there is a message. Returns whether it failed in a new way."""
        self.streams += 1
        self.failures += bool(message)
        new = bool(message) and sameness not in self.found
        if new:
            self.found[sameness] = message
        return new

    def _shrunk(self, failure: Failure) -> Failure:
        """The same failure with fewer commands. Only the later run of the short stream stores evidence."""
        latest = failure
        began = time.monotonic()
        with contextlib.ExitStack() as scratches:
            scratch: Guest | None = None

            def fails(candidate: Stream) -> bool:
                nonlocal latest, scratch
                try:
                    if scratch is None or not scratch.alive():
                        scratches.close()
                        scratch = scratches.enter_context(self.run.servers.scratch())
                    repeated, _ = attempt(
                        scratch, self.run.servers.oracle(), candidate, self._emptying, checkpoint=False
                    )
                except (StartError, OSError):
                    scratch = None
                    return False
                if repeated is None or repeated.sameness != failure.sameness:
                    return False
                latest = repeated
                return True

            slow = tuple(msgspec.structs.replace(one, waits=True) for one in failure.stream)
            stream, index = failure.stream, len(failure.stream) - 1
            if fails(slow):
                # Send one command at a time: the first one without a reply is the culprit.
                stream, index = slow, latest.index
            shrinker = Shrinker(fails, seconds=SHRINK_SECONDS, tries=SHRINK_TRIES)
            shrinker.shrink(stream, index)
        self._tell(
            Shrinking(
                label=latest.label,
                commands_before=len(failure.stream),
                commands_after=len(latest.stream),
                tries=shrinker.tries + 1,
                seconds=round(time.monotonic() - began, 2),
            )
        )
        # In one write no command receives a reply, but the last of the few remaining commands is the culprit.
        deadly = latest.stream[-1].name
        return latest if latest.wrong_command else msgspec.structs.replace(latest, label=f"{deadly}-end")

    def _tell(self, shrinking: Shrinking) -> None:
        with (self._streams() / "shrinking.jsonl").open("ab") as file:
            file.write(json_codec.encode(shrinking) + b"\n")

    def _streams(self) -> Path:
        folder = self.cell.folder / "streams"
        folder.mkdir(exist_ok=True)
        return folder

    def _record(self, failure: Failure | None, started: float) -> None:
        seconds = time.monotonic() - started
        if failure is None:
            self.run.end_example("", "", seconds)
        else:
            self.run.end_example(
                failure.label,
                failure.message,
                seconds,
                wrong_command=failure.wrong_command,
                fails_natively=failure.natively,
            )

    def _record_again(self, small: Failure) -> None:
        """Run the short stream on a guest whose evidence is kept: its transcript is the finding's reproducer."""
        with contextlib.suppress(StartError):
            guest = self.run.servers.guest()
            self.run.begin_example()
            started = time.monotonic()
            again, _ = attempt(guest, self.run.servers.oracle(), small.stream, self._emptying, checkpoint=False)
            self._record(msgspec.structs.replace(again, label=small.label) if again else None, started)

    def _save(self, label: str, content: Stream | bytes) -> None:
        """Write the stream beside the evidence, as a client's bytes and as text, for later runs."""
        folder = self._streams()
        saved = {path.stem for pattern in ("*.resp", "*.stream") for path in folder.glob(pattern)}
        name = f"{len(saved) + 1}-{label}"
        if isinstance(content, bytes):
            (folder / f"{name}.resp").write_bytes(content)
            return
        if clients_of(content) == 1:
            (folder / f"{name}.resp").write_bytes(wire(content))
        (folder / f"{name}.stream").write_text(text_of(content), "utf-8")
        self.corpus.save(content, FOUND)

    def _report(self) -> None:
        kept = f", {self.corpus.features} {self._features}, {len(self.corpus)} streams kept" if len(self.corpus) else ""
        text = f"{self.streams} examples, {self.commands} commands{kept}, {self.failures} failed"
        write_whole(self.cell.folder / run_folder.PROGRESS, text.encode())
        self._reported = time.monotonic()
