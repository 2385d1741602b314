"""Checks each way to a board that a run needs, and says what to change where one does not work. No server is built.

A program that a board always has, `sh`, stands for the server.
"""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.core.errors import InfrastructureError
from harness.core.sockets import connect
from harness.run.boards import board_probe
from harness.run.boards.reached_machine import ReachedMachine, Tunnel
from harness.run.boards.remote_process import RemoteProcess
from harness.run.servers.probes import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.core.sockets import Address
    from harness.core.target_model import Target
    from harness.run.boards.board_image import BoardImage

WORDS = ("two  spaces", "a'quote", 'a"quote', "$HOME", "")
"""Words that arrive only if nobody splits or expands them."""
CONTENT = bytes(range(256)) * 300
"""The content of a file that is copied there and back: every byte, and more than a pipe holds."""
END_SECONDS = 20.0
TUNNEL_SECONDS = 20.0
POLL_SECONDS = 0.05


class BoardStep(NamedTuple):
    """One step of a check."""

    name: str
    works: bool
    detail: str
    """What was seen."""
    remedy: str = ""
    """What to change; empty if it works."""


def check(image: BoardImage, target: Target, compile_probe: Callable[[], Path]) -> Iterator[BoardStep]:
    """Each step as soon as it has ended. After a step that all others need, there are no more if it fails.

    `compile_probe` compiles the probe here, for the target.
    """
    if image.board.runs_already:
        yield _server(image)
        return
    host = ReachedMachine(image)
    login = _login(host)
    yield login
    if not login.works:
        return
    words = _words(host)
    yield words
    if not words.works:
        return
    try:
        try:
            folder = host.machine().folder
        except InfrastructureError as error:
            yield BoardStep("folder", works=False, detail=_said(error), remedy="name a folder in `folder`")
            return
        yield BoardStep("folder", works=True, detail=f"{folder}, removed at the end")
        with tempfile.TemporaryDirectory() as logs:
            for step in (_start, _signal, _hang_up):
                yield step(host, Path(logs))
            yield _files(host)
            yield _probe(host, target, compile_probe)
            if image.board.program:
                yield _program(host)
            yield _reach(host, Path(logs))
    finally:
        host.close()


def _server(image: BoardImage) -> BoardStep:
    """Whether a server that runs already answers."""
    remedy = "`reach` must make the server {here} or {port here} of this machine, or `address` name its HOST:PORT"
    with tempfile.TemporaryDirectory() as folder:
        tunnel = Tunnel(image, here=Path(folder) / "s", there="")
        try:
            deadline = time.monotonic() + TUNNEL_SECONDS
            while not (told := identity(tunnel.address)):
                tunnel.refuse_ended()
                if time.monotonic() > deadline:
                    return BoardStep("server", works=False, detail="nothing answers INFO there", remedy=remedy)
                time.sleep(POLL_SECONDS)
        except InfrastructureError as error:
            return BoardStep("server", works=False, detail=_said(error), remedy=remedy)
        finally:
            tunnel.close()
    said = (f"{name} {told.get(name, b'').decode('utf-8', 'replace')}" for name in ("version", "os", "arch_bits"))
    return BoardStep("server", works=True, detail=", ".join(said))


def _step(name: str, *, works: bool, detail: str, remedy: str) -> BoardStep:
    """A step, with its remedy if it does not work."""
    return BoardStep(name, works=works, detail=detail, remedy="" if works else remedy)


def _said(error: InfrastructureError) -> str:
    return "; ".join(error.because.splitlines()) or error.what


def _login(host: ReachedMachine) -> BoardStep:
    try:
        told = host.shell.run("uname", "-a")
    except InfrastructureError as error:
        remedy = "make the words of `start` run a command there without a question: ssh needs a key, and a known host"
        return BoardStep("login", works=False, detail=_said(error), remedy=remedy)
    return BoardStep("login", works=True, detail=told.output.decode("utf-8", "replace").strip()[:200])


def _words(host: ReachedMachine) -> BoardStep:
    told = host.shell.run("printf", "<%s>", *WORDS).output.decode("utf-8", "replace")
    due = "".join(f"<{word}>" for word in WORDS)
    other = "exact" if host.image.board.words == "shell" else "shell"
    remedy = f'words = "{other}"; and nothing that the login shell starts may write to its output'
    right = told == due
    detail = "arrive as they are" if right else f"arrive as {told[:200]}"
    return _step("words", works=right, detail=detail, remedy=remedy)


def _supervised(host: ReachedMachine, logs: Path, script: str) -> RemoteProcess:
    """A script that runs there as a server does."""
    return RemoteProcess(host.shell, ["sh", "-c", script], folder=host.folder, log=logs / "log", said=logs / "said")


def _await(started: RemoteProcess) -> int | None:
    deadline = time.monotonic() + END_SECONDS
    while (code := started.poll()) is None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return code


def _start(host: ReachedMachine, logs: Path) -> BoardStep:
    remedy = "standard input and both outputs must pass through `start`: docker exec needs -i, ssh no -n and no -t"
    started = _supervised(host, logs, "echo from the board; exit 3")
    try:
        code = _await(started)
    except InfrastructureError as error:
        return BoardStep("start", works=False, detail=_said(error), remedy=remedy)
    finally:
        started.close()
    output = (logs / "log").read_text("utf-8", "replace").strip()
    works = code == 3 and output == "from the board"
    detail = "a program's output and status arrive" if works else f"status {code} and output {output[:200]!r}"
    return _step("start", works=works, detail=detail, remedy=remedy)


def _signal(host: ReachedMachine, logs: Path) -> BoardStep:
    """Whether an end by SIGBUS is seen as that, and a program can be stopped and asked for its state."""
    started = _supervised(host, logs, "kill -s STOP $$; kill -s BUS $$; exit 0")
    remedy = "its `sh` must report a signal as 128 + its number, and `ps -o s= -p NUMBER` or /proc a state"
    try:
        deadline = time.monotonic() + END_SECONDS
        while (state := started.state()) != "T" and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        started.send_signal(signal.SIGCONT)
        code = _await(started)
    except InfrastructureError as error:
        return BoardStep("signal", works=False, detail=_said(error), remedy=remedy)
    finally:
        started.close()
    works = state == "T" and code == -signal.SIGBUS
    detail = "an end by SIGBUS is seen as such" if works else f"the state was {state or 'unknown'}, the status {code}"
    return _step("signal", works=works, detail=detail, remedy=remedy)


def _hang_up(host: ReachedMachine, logs: Path) -> BoardStep:
    """Whether a program ends there when the connection does."""
    started = _supervised(host, logs, "sleep 600; exit 0")
    remedy = "end of input must pass through `start`; otherwise servers remain there when a run is killed"
    try:
        number = started.pid()
        started.close()
        deadline = time.monotonic() + END_SECONDS
        while (lives := host.shell.run("kill", "-s", "0", str(number)).code == 0) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    except InfrastructureError as error:
        return BoardStep("end", works=False, detail=_said(error), remedy=remedy)
    finally:
        started.close()
    detail = "a program goes on after its connection has ended" if lives else "programs end with their connection"
    return _step("end", works=not lives, detail=detail, remedy=remedy)


def _files(host: ReachedMachine) -> BoardStep:
    board = host.image.board
    way = "by `put` and `get`" if board.put or board.get else "through `start`"
    place = f"{host.folder}/file"
    remedy = "name the commands in `put` and `get`, as with scp"
    try:
        host.shell.put(CONTENT, place)
        back = host.shell.get(place)
    except InfrastructureError as error:
        return BoardStep("files", works=False, detail=_said(error), remedy=remedy)
    except OSError as error:
        return BoardStep("files", works=False, detail=str(error), remedy=remedy)
    works = back == CONTENT
    detail = (
        f"a file arrives, and comes back, {way}" if works else f"{len(CONTENT)} bytes came back as {len(back)} others"
    )
    return _step("files", works=works, detail=detail, remedy=remedy)


def _probe(host: ReachedMachine, target: Target, compile_probe: Callable[[], Path]) -> BoardStep:
    """Whether the machine is the target: a program tells. Linux runs one of ours; other systems compile it."""
    remedy = "`target` must name what the machine is (plumb list targets); a program needs its C library there, too"
    facts = program = None
    why = []
    try:
        if host.shell.run("uname", "-s").output.strip() == b"Linux":
            program = compile_probe()
    except InfrastructureError as error:
        why.append(_said(error))
    try:
        facts = board_probe.probe(host, program) if program else board_probe.probe_with_its_compiler(host)
    except InfrastructureError as error:
        why.append(_said(error))
    if facts is None:
        tried = program is not None
        said = "; ".join(why)
        return _step("probe", works=not tried, detail=said if tried else f"not tried: {said}", remedy=remedy)
    wrong = board_probe.contradictions(facts, target)
    told = [facts.machine, facts.processor, facts.kernel, f"char is {facts.char}", facts.libc]
    told.append(f"an int at an odd address: {facts.odd_load}")
    return _step("probe", works=not wrong, detail="; ".join([*wrong, *filter(None, told)]), remedy=remedy)


def _program(host: ReachedMachine) -> BoardStep:
    board = host.image.board
    told = host.shell.run(*board.under, board.program, "--version", quiet=False)
    text = told.output.decode("utf-8", "replace").strip()[:200]
    works = told.code == 0 and " v=" in text
    remedy = "`program` must be the path there of redis-server or valkey-server"
    return _step("program", works=works, detail=text or f"status {told.code}", remedy=remedy)


def _reach(host: ReachedMachine, logs: Path) -> BoardStep:
    """Whether a way to a server there opens. No program there listens, so only the way is tried."""
    if not host.image.board.reach:
        return BoardStep(
            "reach", works=True, detail="not tried: without `reach`, the machine must have this host's files"
        )
    tunnel = Tunnel(host.image, here=logs / "s", there=f"{host.folder}/s")
    remedy = "`reach` must make the socket {there} of the machine the socket {here} of this one, as ssh -N -L does"
    try:
        deadline = time.monotonic() + TUNNEL_SECONDS
        while not _accepts(tunnel.address):
            tunnel.refuse_ended()
            if time.monotonic() > deadline:
                return BoardStep("reach", works=False, detail="nothing listens here", remedy=remedy)
            time.sleep(POLL_SECONDS)
        tunnel.refuse_ended()
    except InfrastructureError as error:
        return BoardStep("reach", works=False, detail=_said(error), remedy=remedy)
    finally:
        tunnel.close()
    return BoardStep(
        "reach", works=True, detail="a way to servers opens; the first server shows whether it leads to them"
    )


def _accepts(address: Address) -> bool:
    try:
        connect(address, deadline_seconds=1).close()
    except OSError:
        return False
    return True
