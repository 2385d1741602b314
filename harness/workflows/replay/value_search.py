"""Finds the first value that differs between a target and the native build, among the arguments and results of
functions.

The shortest commands of the finding are sent to a server of the target, and twice to a native one. gdb records the
arguments and results of the functions that the target executed for these commands, and those of the suspects. If the
values are equal, both builds have the bug: then only the test knows the right value, and this search cannot find it.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from harness.analysis.executed_code import code_lines
from harness.analysis.values.comparison import compare, read_moments
from harness.core.errors import InconclusiveError, UsageError
from harness.protocol.command_stream import clients_of, from_text
from harness.protocol.control_connection import ControlConnection
from harness.protocol.pipeline import ask, ask_all_into
from harness.protocol.resp import Client
from harness.run.recorded_values import RecordedFunction, RecordedGuest
from harness.workflows.replay import shortening
from harness.workflows.replay.replay import Replayer
from harness.workflows.replay.reruns.server import recorded_server
from harness.workflows.target_setup import blocks_plugin, emulated_target, oracle_setup, set_up_target

if TYPE_CHECKING:
    from collections.abc import Sequence

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
"""Of a longer stream, values are recorded only for this many commands at its end. If a test looked at a file, the last
commands wrote it."""
UNCOMPARED_FILES = {"zmalloc.c"}
"""Files of functions whose values are not compared: sizes of memory differ between machines without being wrong."""
_FOREGROUND = {"BGSAVE": b"SAVE"}
"""gdb does not follow child processes. The server therefore does their work itself, with the same functions."""


def first_difference(bench: Workbench, reproducer: Reproducer, suspects: Sequence[Suspect]) -> ValueComparison | None:
    """The first difference between the functions' values; None if all comparable values are equal.

    Raises UsageError for a finding whose commands are unknown, and InconclusiveError if nothing was recorded, or if the
    values are equal and not all were recorded.
    """
    bench = bench.with_timeouts(reproducer.timeout_multiplier).with_toolchain(reproducer.toolchain)
    shortened = _shortened(bench, reproducer)
    if not shortened.stream:
        raise UsageError("no values to compare", where=reproducer.finding, because="its commands are not known")
    stream = _in_the_foreground(shortened.stream)
    last = LAST_UNSHORTENED if shortened.why_not else LAST_COMMANDS
    tree = bench.open_server(reproducer.server, reproducer.settings, packages=True)
    target, native = set_up_target(bench, emulated_target(bench.catalog, reproducer.target)), oracle_setup(bench)
    functions = _functions(bench, shortening.with_commands(shortened.reproducer, stream), suspects)
    with tempfile.TemporaryDirectory(prefix="plumbline-values-") as name:
        recorded, is_cut = [], False
        for number, setup in enumerate((target, native, native)):
            bench.progress.say(f"{reproducer.finding}: values of {len(functions)} functions on {setup.target.name}")
            folder = Path(name) / f"{number}"
            guest = _recorded(setup, tree, reproducer, stream, last, functions, folder)
            recorded.append(read_moments(guest.values))
            is_cut = is_cut or guest.cut.exists()
    for moments, where in zip(recorded, (reproducer.target, "the host"), strict=False):
        if not moments:
            raise InconclusiveError(
                "no values to compare",
                where=reproducer.finding,
                because=f"none of {len(functions)} functions were called on {where}",
            )
    found = compare(*recorded, name=reproducer.target)
    if found is None and is_cut:
        raise InconclusiveError(
            "no value differs among those that were recorded",
            where=reproducer.finding,
            because="the recording reached its time limit before the commands ended",
        )
    return found


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


def _recorded(
    setup: TargetSetup,
    tree: SourceTree,
    reproducer: Reproducer,
    stream: Stream,
    last: int,
    functions: Sequence[RecordedFunction],
    folder: Path,
) -> RecordedGuest:
    """A server whose functions' calls were recorded while it executed the last commands, even if it died of them."""
    folder.mkdir()
    native = setup.target.emulator.runs_here
    allocator = "libc" if native else reproducer.allocator
    build = setup.build(tree, reproducer.optimisation, allocator, tls=reproducer.tls)
    guest = RecordedGuest(
        recorded_server(setup, build, tree, reproducer),
        setup.runner("signal" if native else reproducer.policy),
        folder / "guest",
        functions=functions,
        sockets=folder,
    )
    with guest, contextlib.suppress(OSError), contextlib.ExitStack() as connections:
        seconds = min(guest.deadline_seconds, REPLY_SECONDS)
        clients = [
            connections.enter_context(Client.at_socket(guest.access.path, deadline_seconds=seconds))
            for _ in range(clients_of(stream))
        ]
        control = connections.enter_context(ControlConnection(guest.upstream, deadline_seconds=seconds))
        replies: list[Reply] = []
        # If clients wait for one another, a stream cannot start in the middle.
        before = max(len(stream) - last, 0) if len(clients) == 1 else 0
        ask_all_into(replies, clients, stream[:before], control, deadline_seconds=seconds)
        ask(clients[0], from_text("ECHO begin"))
        ask_all_into(replies, clients, stream[before:], control, deadline_seconds=seconds)
    return guest
