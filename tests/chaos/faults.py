"""The faults: damage to a running check, to its environment, or to a cache before the check begins.

Each fault is one function. A fault of a running check gets the check's process and run folder, and is called when the
cell has recorded some of its tests. All draw from a seeded generator, so that a round can be repeated.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import psutil  # type: ignore[import-untyped]

from harness.record import evidence_seal
from tests.chaos.evidence import CONTENT
from tests.end_to_end.support.plumb_runs import processes_of, wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

CELL = "armv5/bitops"

LiveFault: TypeAlias = "Callable[[subprocess.Popen[bytes], Path, random.Random], None]"


def _send(victims: list[psutil.Process], number: signal.Signals) -> None:
    for victim in victims:
        with contextlib.suppress(psutil.Error):
            victim.send_signal(number)


def _guests(run: Path) -> list[psutil.Process]:
    return processes_of(run, named="qemu-")


def _oracles(run: Path) -> list[psutil.Process]:
    return processes_of(run / CELL / "peers")


def _cells(run: Path) -> list[psutil.Process]:
    return [one for one in processes_of(run / CELL / "cell.json") if "pytest" in " ".join(_words(one))]


def _helpers(plumb: subprocess.Popen[bytes], name: str) -> list[psutil.Process]:
    try:
        below = psutil.Process(plumb.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [one for one in below if name in " ".join(_words(one))]


def _words(one: psutil.Process) -> list[str]:
    """A process's command line; empty if it has ended meanwhile."""
    try:
        return list(one.cmdline())
    except psutil.Error:
        return []


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.write_bytes(change(path.read_bytes()))


def _logs(run: Path) -> list[Path]:
    return sorted((run / CELL).glob("guest-*/faults.jsonl"))


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


CLOCK = Path(__file__).with_name("clock.c")
STEPS = (-(10**9), -86_400, -3600, 3600, 86_400, 10**9)
"""By how many seconds the clock is set."""
SEALED_SECONDS = 120.0


def _change_sealed(plumb: subprocess.Popen[bytes], run: Path, draw: random.Random) -> None:
    """Change a file of evidence when the cell is sealed, and before it is judged."""
    seal = run / CELL / evidence_seal.NAME
    wait_for(lambda: seal.is_file() or plumb.poll() is not None, seconds=SEALED_SECONDS)
    plumb.send_signal(signal.SIGSTOP)
    try:
        evidence = [path for path in evidence_seal.evidence_files(seal.parent) if path.is_file()]
        contents = [path.read_bytes() for path in evidence]
        if evidence:
            at = draw.randrange(len(evidence))
            evidence[at].write_bytes(CONTENT[draw.choice(list(CONTENT))](contents[at], contents, draw))
    finally:
        plumb.send_signal(signal.SIGCONT)


ENDING = (
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGINT,
    signal.SIGSEGV,
    signal.SIGSYS,
    signal.SIGTERM,
    signal.SIGTRAP,
    signal.SIGUSR1,
)
"""Signals that end a server, or make it end."""

LIVE: dict[str, LiveFault] = {
    "guest killed": lambda _, run, __: _send(_guests(run), signal.SIGKILL),
    "guest stopped": lambda _, run, __: _send(_guests(run), signal.SIGSTOP),
    "guest told to quit": lambda _, run, __: _send(_guests(run), signal.SIGQUIT),
    "oracle at a limit": lambda _, run, __: _send(_oracles(run), signal.SIGXCPU),
    "guest ended by another signal": lambda _, run, draw: _send(_guests(run), draw.choice(ENDING)),
    "oracle ended by another signal": lambda _, run, draw: _send(_oracles(run), draw.choice(ENDING)),
    "oracle killed": lambda _, run, __: _send(_oracles(run), signal.SIGKILL),
    "oracle stopped": lambda _, run, __: _send(_oracles(run), signal.SIGSTOP),
    "cell's process killed": lambda _, run, __: _send(_cells(run), signal.SIGKILL),
    "cell's process told to end": lambda _, run, __: _send(_cells(run), signal.SIGTERM),
    "watchdog killed": lambda plumb, _, __: _send(_helpers(plumb, "watchdog.py"), signal.SIGKILL),
    "plumb killed": lambda plumb, _, __: plumb.send_signal(signal.SIGKILL),
    "plumb interrupted": lambda plumb, _, __: plumb.send_signal(signal.SIGINT),
    "plumb told to end": lambda plumb, _, __: plumb.send_signal(signal.SIGTERM),
    "plumb told to quit": lambda plumb, _, __: plumb.send_signal(signal.SIGQUIT),
    "events removed": lambda _, run, __: _remove([run / CELL / "events.jsonl"]),
    "events cut": lambda _, run, draw: _rewrite(
        run / CELL / "events.jsonl", lambda content: content[: draw.randrange(len(content) + 1)]
    ),
    "a line of events lost": lambda _, run, draw: _rewrite(
        run / CELL / "events.jsonl", lambda content: _without_a_line(content, draw)
    ),
    "fault log removed": lambda _, run, __: _remove(_logs(run)),
    "fault log's ledger removed": lambda _, run, __: _remove(sorted((run / CELL).glob("guest-*/*.counts"))),
    "noise in the fault log": lambda _, run, draw: _add_noise(run, draw),
    "guest's folder removed": lambda _, run, __: _remove_folders(run),
    "cell's folder removed": lambda _, run, __: shutil.rmtree(run / CELL, ignore_errors=True),
    "folder of sockets removed": lambda _, run, draw: _remove_sockets(run, draw),
    "evidence changed between seal and judgement": _change_sealed,
    "clock set": lambda _, run, draw: _set_clock(run, draw.choice(STEPS)),
}
"""Faults of a running check."""
READ_ONLY = "run folder read-only"
if os.geteuid() == 0:
    LIVE[READ_ONLY] = lambda _, run, __: _forbid_writing(run)


def _add_noise(run: Path, draw: random.Random) -> None:
    for log in _logs(run):
        _rewrite(log, lambda content: content + draw.randbytes(20))


def _remove_folders(run: Path) -> None:
    for log in (run / CELL).glob("guest-*/log"):
        shutil.rmtree(log.parent, ignore_errors=True)


def clock_of(run: Path) -> Path:
    """The file that says how many seconds the clock of a check is ahead."""
    return run.with_name(f"{run.name}.clock")


def _set_clock(run: Path, seconds: int) -> None:
    clock_of(run).write_bytes(seconds.to_bytes(8, "little", signed=True))


def _remove_sockets(run: Path, draw: random.Random) -> None:
    """As a cleaner of /tmp does. The folder of one server, of a cell, or of the whole check."""
    for guest in _guests(run):
        words = _words(guest)
        if "--unixsocket" in words:
            socket = Path(words[words.index("--unixsocket") + 1])
            own = [folder for folder in socket.parents if any(part.startswith("plumb-") for part in folder.parts)]
            shutil.rmtree(draw.choice(own), ignore_errors=True)


def _forbid_writing(run: Path) -> None:
    """Make a folder read-only for everybody, as a file system with errors. `allow_writing` ends that."""
    read_only = False
    while not read_only:
        subprocess.run(["mount", "--bind", run, run], check=True)
        read_only = subprocess.run(["mount", "-o", "remount,bind,ro", run], check=False).returncode == 0
        if not read_only:
            # A file in it was opened for writing between the two.
            allow_writing(run)


def allow_writing(run: Path) -> None:
    """Undo `_forbid_writing`."""
    subprocess.run(["umount", "--lazy", run], check=True)


def _without_a_line(content: bytes, draw: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    lost = draw.randrange(len(lines) or 1)
    return b"".join(lines[:lost] + lines[lost + 1 :])


def _limit(what: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (value, value))


ENVIRONMENTS: dict[str, dict[str, str]] = {
    "PYTEST_ADDOPTS deselects": {"PYTEST_ADDOPTS": "-k nothing_has_this_name"},
    "PYTEST_ADDOPTS ends early": {"PYTEST_ADDOPTS": "--maxfail=1 --exitfirst"},
    "assertions off": {"PYTHONOPTIMIZE": "2"},
    "no temporary folder": {"TMPDIR": "/nonexistent/folder"},
    "a temporary folder too deep": {"TMPDIR": "/tmp/" + "d" * 120},  # noqa: S108 - it does not exist
    "compiler's flags": {"CFLAGS": "-O0 -fno-such-flag", "MAKEFLAGS": "-n"},
    "another emulator's policy": {"QEMU_ALIGNMENT": "demand=none", "QEMU_FAULT_LOG": "/dev/null"},
    "another language": {"LC_ALL": "tr_TR.UTF-8", "LANG": "C", "PYTHONIOENCODING": "ascii"},
}
"""Environments in which a check begins. Plumbline may refuse them; otherwise they must not change the result."""

LIMITS: dict[str, Callable[[], None]] = {
    "few descriptors": _limit(resource.RLIMIT_NOFILE, 40),
    "small files": _limit(resource.RLIMIT_FSIZE, 20_000),
    "small files, later": _limit(resource.RLIMIT_FSIZE, 120_000),
    "closed standard output": lambda: os.close(1),
}
"""Limits of a check's process."""


def _half(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def _flip(path: Path, draw: random.Random) -> None:
    """Flip one bit, and restore the modification time."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _swap(path: Path) -> None:
    """Another program in the file's place, with its time and mode."""
    status = path.stat()
    shutil.copyfile("/bin/true", path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace(path: Path, make: Callable[[], None]) -> None:
    path.unlink()
    make()


CACHE: dict[str, Callable[[Path, random.Random], None]] = {
    "cut short": _half,
    "emptied": lambda path, _: os.truncate(path, 0),
    "gone": lambda path, _: path.unlink(),
    "one bit flipped": _flip,
    "of another program": lambda path, _: _swap(path),
    "a link": lambda path, _: _replace(path, lambda: path.symlink_to("/bin/true")),
    "a folder": lambda path, _: _replace(path, path.mkdir),
}
"""Damage to a file of the cache before a check."""

CACHED = ("server", "oracle", "emulator", "canary")
"""The damaged files."""
