"""Finds the first value that differs between a target and the native build, among the arguments and results of
functions.

The shortest commands of the finding are sent to a server of the target, and twice to a native one. gdb records the
arguments and results of the functions that the target executed for these commands, and those of the suspects. If the
values are equal, both builds have the bug: then a target on which the test passed takes the place of the native build.

Similar commands whose replies agree show which values differ on these machines without being wrong.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.executed_code import code_lines
from harness.analysis.values.comparison import NATIVELY, compare, usual_differences
from harness.analysis.values.moments import read_moments
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.errors import InconclusiveError, UsageError
from harness.core.target_model import ORACLE
from harness.protocol.command_stream import clients_of, from_text, until_command
from harness.protocol.control_connection import ControlConnection
from harness.protocol.pipeline import ask, ask_all_into
from harness.protocol.resp import Client
from harness.run.recorded_values import RecordedFunction, RecordedGuest
from harness.workflows.replay import shortening
from harness.workflows.replay.covered_streams import similar_streams
from harness.workflows.replay.replay import Replayer
from harness.workflows.replay.reruns.server import recorded_server
from harness.workflows.target_setup import blocks_plugin, emulated_target, set_up_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.analysis.values.moments import Moment
    from harness.core.finding import Suspect, ValueComparison
    from harness.core.model import SourceTree
    from harness.judge.reproducer import Reproducer
    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.workflows.replay.shortening import Shortened
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench

MOST_FUNCTIONS = 400
"""The largest number of functions that are recorded. Each needs a breakpoint."""
REPLY_SECONDS = 60.0
"""How long to wait for a reply. The values recorded until then are compared."""
LAST_COMMANDS, LAST_UNSHORTENED = 10, 3
"""Of a longer stream, values are recorded only for this many commands at its end; for fewer if it is not known after
which command the test failed. If a test looked at a file, the last commands wrote it."""
DEBUGGED = "Og"
"""The optimisation level that is made for debuggers: it keeps calls of functions, and their arguments."""
CONTROLS, CONTROL_TRIES = 2, 12
"""How many streams with agreeing replies are compared at most, and how many are tried. Each try starts two servers."""
PAUSES_SECONDS = (0.0, 1.1)
"""The pauses before each command in the first and in the second run of a build. Values that depend on the time differ
between these runs; the server's clock for keys counts seconds.
"""
COMMON_COMMANDS = from_text(
    """SET text value
APPEND text value
GET text
RPUSH list a b 3
LRANGE list 0 -1
HSET hash field value
HGETALL hash
SADD set a 2
SMEMBERS set
ZADD sorted 1 a
ZRANGE sorted 0 -1 WITHSCORES
CONFIG SET slowlog-log-slower-than 20000
CONFIG GET maxmemory*
KEYS *
DEL text list hash set sorted"""
)
"""Commands that every test relies on. They execute the code that all commands share."""
UNCOMPARED_FILES = {"zmalloc.c"}
"""Files of functions whose values are not compared: sizes of memory differ between machines without being wrong."""
_FOREGROUND = {"BGSAVE": b"SAVE"}
"""gdb does not follow child processes. The server therefore does their work itself, with the same functions."""


def first_difference(
    bench: Workbench, reproducer: Reproducer, suspects: Sequence[Suspect], *, right: Sequence[str] = ()
) -> ValueComparison | None:
    """The first difference between the functions' values; None if all comparable values are equal.

    `right`: targets that do not show the finding. Their values are compared if those of the native build are equal to
    the finding's, because it has the same bug.

    Raises UsageError for a finding whose commands are unknown, and InconclusiveError if nothing was recorded, or if the
    values are equal and not all were recorded.
    """
    bench = bench.with_timeouts(reproducer.timeout_multiplier).with_toolchain(reproducer.toolchain)
    shortened = _shortened(bench, reproducer)
    if not shortened.stream:
        raise UsageError("no values to compare", where=reproducer.finding, because="its commands are not known")
    tree = bench.open_server(reproducer.server, reproducer.settings, packages=True)
    usual, is_cut = None, False
    for variant in _variants(bench, shortened, tree):
        search = _ValueSearch(bench, variant, tree, is_shortest=not shortened.why_not)
        found = search.difference(suspects, right)
        if found is not None and not found.usual:
            return found
        usual, is_cut = usual or found, is_cut or search.is_cut
    if usual is None and is_cut:
        raise InconclusiveError(
            "no value differs among those that were recorded",
            where=reproducer.finding,
            because="the recording reached its time limit before the commands ended",
        )
    return usual


def _variants(bench: Workbench, shortened: Shortened, tree: SourceTree) -> list[Reproducer]:
    """The reproducer with each optimisation level whose build is compared, the best one first.

    A compiler that optimises less leaves more calls and arguments to record. A package cannot be compiled again. A
    build that does not compile or does not show the finding is left out.
    """
    reproducer = shortened.reproducer
    fewer = msgspec.structs.replace(reproducer, optimisation=DEBUGGED)
    if tree.package is not None or reproducer.optimisation == DEBUGGED:
        return [reproducer]
    replayer = Replayer(bench, fewer, server="")
    try:
        replayer.build(fewer)
    except BuildFailedError:
        return [reproducer]
    shows = bool(shortened.why_not) or replayer.replay(fewer, silence_proved=False).outcome == "reproduced"
    return [fewer, reproducer] if shows else [reproducer]


class _ValueSearch:
    """The comparison of values with one build."""

    def __init__(self, bench: Workbench, reproducer: Reproducer, tree: SourceTree, *, is_shortest: bool) -> None:
        """`reproducer`: with its shortest commands, or with all of them unless `is_shortest`."""
        self.is_cut = False
        """Whether a recording reached its time limit."""
        self._bench = bench
        self._reproducer = reproducer
        self._is_shortest = is_shortest
        self._commands = shortening.commands_of(reproducer)
        self._last = LAST_COMMANDS
        if not is_shortest:
            until_failure = until_command(self._commands, reproducer.command)
            self._commands = until_failure or self._commands
            self._last = LAST_COMMANDS if until_failure else LAST_UNSHORTENED
        self._tree = tree
        self._target = set_up_target(bench, emulated_target(bench.catalog, reproducer.target))

    def difference(self, suspects: Sequence[Suspect], right: Sequence[str]) -> ValueComparison | None:
        """The first difference; None if all comparable values are equal. Raises InconclusiveError if none were
        recorded.
        """
        reproducer = self._reproducer
        stream = _in_the_foreground(self._commands)
        functions = _functions(self._bench, shortening.with_commands(reproducer, stream), suspects)
        here, repeated = (self._moments(self._target, stream, functions, pause=pause) for pause in PAUSES_SECONDS)
        controls = [(other, self._moments(self._target, other, functions)) for other in self._controls(stream)]
        usual: ValueComparison | None = None
        for reference in (ORACLE, *right):
            setup = set_up_target(self._bench, self._bench.catalog.targets[reference])
            there, again = (self._moments(setup, stream, functions, pause=pause) for pause in PAUSES_SECONDS)
            silent = reproducer.target if not here else "the host" if reference == ORACLE and not there else ""
            if silent:
                raise InconclusiveError(
                    "no values to compare",
                    where=reproducer.finding,
                    because=f"none of {len(functions)} functions were called on {silent}",
                )
            common, *similar = (
                usual_differences(ours, self._moments(setup, other, functions)) for other, ours in controls
            )
            found = compare(
                here,
                there,
                again,
                name=reproducer.target,
                repeated=repeated,
                reference=NATIVELY if reference == ORACLE else f"on {reference}",
                common=common,
                usual=frozenset().union(*similar),
            )
            if found is not None and not found.usual:
                return found
            usual = usual or found
        return usual

    def _controls(self, stream: Stream) -> Iterator[Stream]:
        """Common commands, and similar ones whose replies agree on both machines: what differs while they run is no
        fault, or does not show.

        The similar ones end with the same command, so that they execute the same functions. Commands that lack the last
        one could have the same wrong value inside the server, and no reply would show it. If the replies say nothing,
        they are the last command alone, and the test's earlier commands.
        """
        *_, final = stream
        yield COMMON_COMMANDS
        if not self._is_shortest:
            yield (msgspec.structs.replace(final, client=0, waits=False),)
            if before := stream[: -self._last]:
                yield before
            return
        replayer = Replayer(self._bench, self._reproducer, server="")
        drawn = similar_streams(self._reproducer, stream)
        same_end = (one for one in drawn if one[-1].name == final.name)
        agreeing = (
            one
            for one in itertools.islice(same_end, CONTROL_TRIES)
            if replayer.replay(shortening.with_commands(self._reproducer, one), silence_proved=False).outcome == "gone"
        )
        yield from itertools.islice(agreeing, CONTROLS)

    def _moments(
        self, setup: TargetSetup, stream: Stream, functions: Sequence[RecordedFunction], *, pause: float = 0.0
    ) -> list[Moment]:
        """What was recorded on a machine while it executed the last commands, even if the server died of them.

        `pause`: seconds before each of them.
        """
        reproducer = self._reproducer
        self._bench.progress.say(f"{reproducer.finding}: values of {len(functions)} functions on {setup.target.name}")
        is_the_target = setup.target.name == reproducer.target
        allocator = reproducer.allocator if is_the_target else "libc"
        build = setup.build(self._tree, reproducer.optimisation, allocator, tls=reproducer.tls)
        with tempfile.TemporaryDirectory(prefix="plumbline-values-") as name:
            folder = Path(name)
            guest = RecordedGuest(
                recorded_server(setup, build, self._tree, reproducer),
                setup.runner(reproducer.policy if is_the_target else "signal"),
                folder / "guest",
                functions=functions,
                sockets=folder,
            )
            with guest, contextlib.suppress(OSError):
                _send(guest, stream, len(stream) if stream is COMMON_COMMANDS else self._last, pause)
            self.is_cut = self.is_cut or guest.cut.exists()
            return read_moments(guest.values)


def _shortened(bench: Workbench, reproducer: Reproducer) -> Shortened:
    """The shortest commands that show the finding, or otherwise another wrong reply.

    A test that compares a server's whole data set names its last request, although an earlier reply may be the wrong
    one.
    """
    shortened = shortening.shorten(bench, reproducer)
    if not shortened.differing:
        return shortened
    return shortening.shorten(bench, msgspec.structs.replace(reproducer, command=shortened.differing))


def _in_the_foreground(stream: Stream) -> Stream:
    return tuple(
        msgspec.structs.replace(one, words=(_FOREGROUND[one.name],)) if one.name in _FOREGROUND else one
        for one in stream
    )


def _functions(bench: Workbench, reproducer: Reproducer, suspects: Sequence[Suspect]) -> list[RecordedFunction]:
    """The suspects, then the functions that the target executes for the commands, unless they are inlined
    everywhere.
    """
    found = {(one.function, PurePosixPath(one.file).name): True for one in suspects}
    replayer = Replayer(bench, reproducer, server="")
    _, executed = replayer.replay_covered(reproducer, blocks_plugin(bench))
    binary = replayer.build(reproducer).server_binary
    lines = code_lines(replayer.setup.toolchain.prefix, binary, sorted(executed))
    for places in lines.values():
        outermost = places[-1]
        found.setdefault((outermost.function, PurePosixPath(outermost.file).name), False)
    some = [
        RecordedFunction(name, file, always)
        for (name, file), always in found.items()
        if file not in UNCOMPARED_FILES or always
    ]
    return some[:MOST_FUNCTIONS]


def _send(guest: RecordedGuest, stream: Stream, last: int, pause: float) -> None:
    """Send the commands, begin the recording before the last ones, and pause before each of these."""
    seconds = min(guest.deadline_seconds, REPLY_SECONDS)
    with contextlib.ExitStack() as connections:
        clients = [
            connections.enter_context(Client.at_socket(guest.access.path, deadline_seconds=seconds))
            for _ in range(clients_of(stream))
        ]
        control = connections.enter_context(ControlConnection(guest.upstream, deadline_seconds=seconds))
        replies: list[Reply] = []
        # If clients wait for one another, a stream can neither start nor pause in the middle.
        is_alone = len(clients) == 1
        before = max(len(stream) - last, 0) if is_alone else 0
        ask_all_into(replies, clients, stream[:before], control, deadline_seconds=seconds)
        ask(clients[0], from_text("ECHO begin"))
        parts = [(one,) for one in stream[before:]] if is_alone else [stream]
        for part in parts:
            time.sleep(pause)
            ask_all_into(replies, clients, part, control, deadline_seconds=seconds)
