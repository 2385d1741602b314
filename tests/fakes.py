"""Fakes of the expensive things: server trees, compilers, symbol tools, stored runs. Nothing here asserts."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.console import Console

from harness import events, process
from harness.console import Progress
from harness.emulator import Runner
from harness.load import Catalog
from harness.model import Build, Detector, EmulatorSpec, Endianness, SourceTree, Target, Toolchain
from harness.reproducer import Reproducer, read_reproducer
from harness.transcript import Chunk, save

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from harness.finding import Finding
    from harness.model import AccessClass

Plumb: TypeAlias = "Callable[..., tuple[int, str, str]]"
"""Runs a command line: exit code, standard output, standard error (the fixture `plumb`)."""
DATA = Path(__file__).parent / "data"
SIGBUS, SIGSEGV = 7, 11
ADRALN = 1
"""si_code of a misaligned address."""
LDR = "001093e5"
"""ldr r1, [r3] in ARM state."""


def quiet() -> Progress:
    """Progress that nobody sees."""
    progress = Progress()
    progress.console = Console(file=io.StringIO())
    return progress


def said(progress: Progress) -> str:
    """What a quiet progress was told."""
    assert isinstance(progress.console.file, io.StringIO)
    return progress.console.file.getvalue()


def write(path: Path, text: str, *, mode: int = 0o644) -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return path


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `folder` searched first, by this process and by those it starts."""
    path = f"{folder}:{process.PLAIN_ENVIRONMENT['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setitem(process.PLAIN_ENVIRONMENT, "PATH", path)


def server_tree(path: Path, *, macro: str = "REDIS_VERSION", version: str = "7.0.15") -> Path:
    """The least that is a server's source tree."""
    write(path / "src" / "version.h", f'#define {macro} "{version}"\n#define {macro}_NUM 0x0007000f\n')
    write(path / "src" / "bitops.c", "int bitops;\n")
    return path


def opened(path: Path, *, digest: str = "a" * 64) -> SourceTree:
    """A tree as harness.source would describe it."""
    return SourceTree(name="redis-7.0.15", family="redis", version=(7, 0, 15), path=path, digest=digest)


def target(
    name: str = "armv5",
    *,
    machine: str = "armv5tel",
    slowdown: float = 1,
    detector: Detector = "",
    kind: Literal["user", "system"] = "user",
) -> Target:
    """A small target."""
    return Target(
        name=name,
        title="a machine",
        toolchain="fake",
        machine=machine,
        compiler_flags=["-marm"],
        width_bits=32,
        endianness=Endianness.LITTLE,
        page_size_bytes=4096,
        alignment="strict",
        groups=["required"],
        slowdown=slowdown,
        emulator=EmulatorSpec(kind=kind, qemu="arm", cpu="arm926", detector=detector),
        isa="arm",
        demand={"half": 2, "word": 4, "vfp": 4},
        kernel="linux-arm-2",
    )


def unemulated(on: Target) -> Runner:
    """Programs of a target run as they are: scripts will do."""
    return Runner(target=on, policy=Catalog().policies["signal"], program=None, options=[], records_faults=False)


def build(folder: Path, *, target: str = "armv5", binary: str = "redis-server") -> Build:
    """A server's build in a folder, which need not hold anything."""
    return Build(
        key="key",
        target=target,
        server="redis-7.0.15",
        optimisation="O2",
        folder=folder,
        server_binary=folder / binary,
        command_line=[],
    )


def toolchain(triple: str = "fake") -> Toolchain:
    """A toolchain whose tools are `fake-gcc` and so on."""
    return Toolchain(name="fake", triple=triple, packages=["gcc-fake"], sysroot={"lib": "/usr/fake/lib"})


def fake_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = "fake-gcc 1.0") -> None:
    """`fake-gcc` that knows its version and nothing else."""
    for name in ("gcc", "g++", "ar", "ranlib"):
        write(folder / f"fake-{name}", f"#!/bin/sh\necho '{version}'\n", mode=0o755)
    put_on_path(folder, monkeypatch)


def fake_symbols(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fake-addr2line`: looks addresses up in BINARY.lines, whose lines are `0xADDRESS FUNCTION FILE:LINE`."""
    script = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in -e) binary=$2; shift 2;; -*) shift;; *) break;; esac; done
for address; do
    found=$(grep "^$address " "$binary.lines" 2>/dev/null)
    if [ -n "$found" ]; then set -- $found; printf '%s\\n%s\\n' "$2" "$3"; else printf '??\\n??:0\\n'; fi
done
"""
    write(folder / "fake-addr2line", script, mode=0o755)
    put_on_path(folder, monkeypatch)


def fault(
    *,
    pid: int = 100,
    tid: int = 0,
    number: int = SIGBUS,
    code: int = ADRALN,
    address: int = 0x20001,
    access: Literal["load", "store", ""] = "load",
    handled: bool = False,
    pc: int = 0x1000,
    instruction: str = LDR,
    registers: list[str] | None = None,
    maps: list[events.MapRecord] | None = None,
    event: Literal["fault", "access"] = "fault",
    access_class: AccessClass | Literal[""] = "word",
    access_bytes: int = 4,
    kernel_log: tuple[str, ...] = (),
) -> events.Fault:
    """One record of the emulator's fault log; without `tid` it is the main thread's."""
    return events.Fault(
        event=event,
        pid=pid,
        tid=tid or pid,
        signal=number,
        code=code,
        address=address,
        access=access,
        handled=handled,
        pc=pc,
        instruction=instruction,
        registers=registers if registers is not None else ["00000000"] * 26,
        stack_address=0x7000,
        stack="",
        maps=maps or [],
        access_class=access_class,
        access_bytes=access_bytes,
        kernel_log=kernel_log,
    )


class StoredRun:
    """Writes a run folder as `plumb check` would, evidence only."""

    def __init__(
        self,
        folder: Path,
        *,
        targets: tuple[str, ...] = ("armv5",),
        suites: tuple[str, ...] = ("canary", "bitops"),
        server: str = "redis-3.2.6",
    ) -> None:
        self.folder = folder
        self.targets = targets
        self.suites = suites
        self.server = server
        self.problems: dict[
            tuple[str, str], tuple[str, Literal["", "build", "deadline", "crash", "units", "absent"]]
        ] = {}
        self.functions: dict[str, int] = {}
        self.left_out: set[tuple[str, str]] = set()
        self.detectors: dict[str, Detector] = {}
        self.real_kernels: set[str] = set()

    def binary(self, target: str) -> Path:
        """Where the target's server binary is; it exists, and holds nothing."""
        return self.folder.parent / f"{self.folder.name}-build" / target / "redis-server"

    def canary(self, target: str, *, outcome: Literal["passed", "failed"] = "passed", message: str = "") -> None:
        """One canary's result."""
        self.test(target, "canary", f"canary/test_canary.py::{target}", outcome=outcome, message=message)

    def test(
        self,
        target: str,
        suite: str,
        name: str,
        *,
        outcome: Literal["passed", "failed", "skipped"] = "passed",
        message: str = "",
        guest: str = "",
        faults: tuple[int, int] = (0, 0),
        log: tuple[int, int] = (0, 0),
        command: str = "",
        blocked: bool = False,
        transcript: bytes = b"",
        unit: str = "",
        wrong_line: str = "",
        counters: tuple[events.Counters, events.Counters] | None = None,
    ) -> None:
        """One test's result."""
        kept = ""
        if transcript:
            folder = self.cell(target, suite) / guest
            folder.mkdir(parents=True, exist_ok=True)
            kept = f"transcript-{len(list(folder.glob('transcript-*')))}.jsonl"
            save(folder / kept, [chunk("request", transcript)])
        event = events.TestEvent(
            name=name,
            outcome=outcome,
            seconds=0.1,
            message=message,
            guest=guest,
            fault_from=faults[0],
            fault_to=faults[1],
            log_from=log[0],
            log_to=log[1],
            unanswered=(command,) if command else (),
            blocked=blocked,
            transcript=kept,
            unit=unit,
            wrong_line=wrong_line,
            counters_before=counters[0] if counters else None,
            counters_after=counters[1] if counters else None,
        )
        events.append(self.cell(target, suite) / "events.jsonl", event)

    def guest(
        self,
        target: str,
        suite: str,
        name: str,
        *,
        end: Literal["stopped", "signal", "exit", "hang", "start-failed"],
        detail: str = "",
        test: str = "",
    ) -> None:
        """How a guest ended."""
        (self.cell(target, suite) / name).mkdir(parents=True, exist_ok=True)
        event = events.GuestEvent(name=name, end=end, detail=detail, test=test)
        events.append(self.cell(target, suite) / "events.jsonl", event)

    def own_guest(
        self,
        cell: str,
        suite: str,
        target: str,
        *,
        test: str,
        end: Literal["stopped", "signal", "exit"] = "stopped",
        detail: str = "",
        record: events.Fault | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        """A server that one test of a cell started, on the cell's own target or another, with at most one fault."""
        peer = "" if target == cell else target
        folder = f"{events.PEERS}/{peer}/guest-9" if peer else "guest-9"
        (self.cell(cell, suite) / folder).mkdir(parents=True, exist_ok=True)
        if record is not None:
            self.fault(cell, suite, folder, record, binary_of=target)
        event = events.GuestEvent(
            name="guest-9",
            end=end,
            detail=detail,
            test=test,
            target=peer,
            own=True,
            unanswered=("SAVE",),
            options=options,
        )
        events.append(self.cell(cell, suite) / "events.jsonl", event)

    def place(self, target: str, function: str, file: str = "src/bitops.c", line: int = 93) -> int:
        """Give a function an address in the target's binary; returns it."""
        lines = self.binary(target).with_name("redis-server.lines")
        known = lines.read_text("utf-8") if lines.is_file() else ""
        # Every target has its own addresses, as real builds do.
        address = 0x1000 + 0x100 * len(known.splitlines()) + 0x10000 * self.targets.index(target)
        write(lines, f"{known}{address:#x} {function} /cache/work/1/tree/{file}:{line}\n")
        write(self.binary(target), "no real binary\n")
        return address

    def fault(self, target: str, suite: str, guest: str, record: events.Fault, *, binary_of: str = "") -> None:
        """One line of a guest's fault log, inside the target's binary."""
        from harness import codec

        maps = [events.MapRecord(start=0, end=0x100000, offset=0, path=str(self.binary(binary_of or target)))]
        complete = codec.decode(codec.encode({**codec.decode(codec.encode(record), dict), "maps": maps}), events.Fault)
        log = self.cell(target, suite) / guest / "faults.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            stream.write(codec.encode(complete) + b"\n")

    def log(self, target: str, suite: str, guest: str, text: bytes) -> tuple[int, int]:
        """Add to a guest's log; returns where: [from, to)."""
        path = self.cell(target, suite) / guest / "log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            start = stream.tell()
            stream.write(text)
        return start, start + len(text)

    def cell(self, target: str, suite: str) -> Path:
        """The cell's folder, there."""
        folder = self.folder / target / suite
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def problem(
        self, target: str, suite: str, text: str, kind: Literal["", "build", "deadline", "crash", "units", "absent"]
    ) -> None:
        """Why a cell has no results of its own."""
        self.problems[target, suite] = (text, kind)

    def finish(self) -> Path:
        """Write run.json; the folder is ready to be judged."""
        self.folder.mkdir(parents=True, exist_ok=True)
        cells = []
        for name in self.targets:
            for suite in self.suites:
                if (name, suite) not in self.left_out:
                    text, kind = self.problems.get((name, suite), ("", ""))
                    cells.append(
                        events.CellRecord(target=name, suite=suite, seconds=1.5, problem=text, problem_kind=kind)
                    )
        events.write_run(
            self.folder,
            events.RunRecord(
                server=self.server,
                family="redis",
                policy="signal",
                optimisation="O2",
                emulator="pinned",
                seed=1,
                targets=list(self.targets),
                suites=list(self.suites),
                binaries={name: str(self.binary(name)) for name in self.targets},
                triples=dict.fromkeys(self.targets, "fake"),
                machines={
                    name: target(
                        name,
                        detector=self.detectors.get(name, ""),
                        kind="system" if name in self.real_kernels else "user",
                    )
                    for name in self.targets
                },
                stages={"suites": 1.5},
                cells=cells,
            ),
        )
        return self.folder


def chunk(direction: Literal["request", "reply"], content: bytes, *, connection: int = 1) -> Chunk:
    """Bytes that crossed the recorder."""
    import base64

    return Chunk(connection=connection, direction=direction, data=base64.b64encode(content).decode())


def reproducer(finding: Finding) -> Reproducer:
    """The one that a finding's own command names."""
    return read_reproducer(shlex.split(finding.replay)[-1])
