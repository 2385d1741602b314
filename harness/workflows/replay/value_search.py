"""Finds the first value that differs between a target and the native build, among those of functions under suspicion.

The shortest commands of the finding are sent to a server of the target, and twice to a native one. gdb records the
arguments and results of the functions. Where both machines have the same values, the bug is in both: then only the test
knows what is right, and nothing here shows it.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from harness.analysis.values.comparison import compare, read_moments
from harness.core.errors import InconclusiveError, UsageError
from harness.judge.reproducer import files_of
from harness.protocol.command_stream import clients_of, from_text
from harness.protocol.control_connection import ControlConnection
from harness.protocol.reply_comparison import ask, ask_all_into
from harness.protocol.resp import Client
from harness.run.recorded_values import RecordedGuest
from harness.workflows.replay import shortening
from harness.workflows.replay.rerun import sent_stream
from harness.workflows.target_setup import emulated_target, oracle_setup, set_up_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.analysis.values.comparison import Moment
    from harness.core.finding import Suspect, ValueComparison
    from harness.core.model import SourceTree
    from harness.judge.reproducer import Reproducer
    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench


def first_difference(bench: Workbench, reproducer: Reproducer, suspects: Sequence[Suspect]) -> ValueComparison | None:
    """Where the values of the suspects part; None where all that can be compared are equal.

    Raises UsageError for a finding whose commands are not known, and InconclusiveError where nothing was recorded.
    """
    bench = bench.with_toolchain(reproducer.toolchain)
    shortened = shortening.shorten(bench, reproducer)
    stream = shortened.stream or _commands(reproducer)
    if not stream:
        raise UsageError("no values to compare", where=reproducer.finding, because="its commands are not known")
    tree = bench.open_server(reproducer.server, reproducer.settings, packages=True)
    functions = [(one.function, PurePosixPath(one.file).name) for one in suspects]
    target, native = set_up_target(bench, emulated_target(bench.catalog, reproducer.target)), oracle_setup(bench)
    with tempfile.TemporaryDirectory(prefix="plumbline-values-") as name:
        recorded = [
            _recorded(setup, tree, reproducer, stream, functions, Path(name) / f"{number}")
            for number, setup in enumerate((target, native, native))
        ]
    for moments, where in zip(recorded, (reproducer.target, "this machine"), strict=False):
        if not moments:
            raise InconclusiveError(
                "no values to compare",
                where=reproducer.finding,
                because=f"none of {', '.join(one for one, _ in functions)} was called on {where}",
            )
    return compare(*recorded, name=reproducer.target)


def _commands(reproducer: Reproducer) -> Stream:
    if reproducer.again is not None:
        return tuple(from_text("\n".join(reproducer.again.requests)))
    return sent_stream(reproducer.chunks)


def _recorded(
    setup: TargetSetup,
    tree: SourceTree,
    reproducer: Reproducer,
    stream: Stream,
    functions: Sequence[tuple[str, str]],
    folder: Path,
) -> list[Moment]:
    """What the functions did while a server served the commands, however that ended."""
    folder.mkdir()
    native = setup.target.emulator.runs_here
    guest = RecordedGuest(
        setup.build(tree, reproducer.optimisation, "libc" if native else reproducer.allocator, tls=reproducer.tls),
        setup.runner("signal" if native else reproducer.policy),
        folder / "guest",
        functions=functions,
        sockets=folder,
        version=tree.version,
        options=reproducer.options,
        files=files_of(reproducer),
        io=reproducer.io,
    )
    with guest, contextlib.suppress(OSError), contextlib.ExitStack() as connections:
        seconds = guest.deadline_seconds
        clients = [
            connections.enter_context(Client.at_socket(guest.recorded_path, deadline_seconds=seconds))
            for _ in range(clients_of(stream))
        ]
        control = connections.enter_context(ControlConnection(guest.upstream, deadline_seconds=seconds))
        ask(clients[0], from_text("ECHO begin"))
        replies: list[Reply] = []
        ask_all_into(replies, clients, stream, control, deadline_seconds=seconds)
    return read_moments(guest.values)
