"""Fakes of the expensive things: server trees, compilers, symbol tools. Nothing here asserts."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.console import Console

from harness.build.emulators.runner import Runner
from harness.build.workshop.build_plan import BuildPlan
from harness.core.model import Build, SourceTree
from harness.core.processes import process
from harness.core.progress import Progress
from harness.core.target_model import EmulatorSpec, Endianness, Target, Toolchain
from harness.plan.catalog import Catalog
from harness.plan.request import Request
from harness.record import fault_log
from harness.record.transcript import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from harness.build.sources.openssl import OpenSsl
    from harness.core.model import Allocator
    from harness.core.target_model import AccessClass
    from harness.plan.plan import Plan

Plumb: TypeAlias = "Callable[..., tuple[int, str, str]]"
"""Runs a command line: exit code, standard output, standard error (the fixture `plumb`)."""
DATA = Path(__file__).parent / "data"
TRIPLE = "arm-linux-gnueabi"
"""The triple of a toolchain in the catalog. A stored run may name only such tools."""
SIGILL, SIGBUS, SIGSEGV = 4, 7, 11
ADRALN = 1
"""si_code of a misaligned address."""
LDR = "001093e5"
"""ldr r1, [r3] in ARM state."""
PYTHON = Path(sys.executable).resolve()
"""Behind `#!`, for programs that need the standard library alone. No environment's own Python can stand there: the
kernel splits the path at spaces, and cuts long ones.
"""


def quiet() -> Progress:
    """Progress without output."""
    return Progress(Console(file=io.StringIO(), width=200))


def printed(progress: Progress) -> str:
    """The messages that a quiet progress received."""
    assert isinstance(progress.console.file, io.StringIO)
    return progress.console.file.getvalue()


def answering_server(first: str = "pass") -> str:
    """A program that first executes a statement, which may use `time`, and then answers PING on the socket of
    `--unixsocket`.
    """
    return f"""#!{PYTHON} -SI
import socket, sys, time
{first}
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[sys.argv.index("--unixsocket") + 1])
    listening.listen()
    while True:
        with listening.accept()[0] as connection:
            # Closing a socket with unread bytes resets the connection, and the answer is lost.
            connection.recv(64)
            connection.sendall(b"+PONG\\r\\n")
"""


def write(path: Path, text: str, *, mode: int = 0o644) -> Path:
    """Write a file, and create its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return path


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put `folder` first on the path of this process and of those that it starts."""
    path = f"{folder}:{process.PLAIN_ENVIRONMENT['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setitem(process.PLAIN_ENVIRONMENT, "PATH", path)


def server_tree(path: Path, *, macro: str = "REDIS_VERSION", version: str = "7.0.15") -> Path:
    """A minimal source tree of a server."""
    write(path / "src" / "version.h", f'#define {macro} "{version}"\n#define {macro}_NUM 0x0007000f\n')
    write(path / "src" / "bitops.c", "int bitops;\n")
    return path


def opened(path: Path, *, digest: str = "a" * 64) -> SourceTree:
    """A tree, as harness.build.sources.source_tree describes it."""
    return SourceTree(name="redis-7.0.15", family="redis", version=(7, 0, 15), path=path, digest=digest)


def target(
    name: str = "armv5",
    *,
    machine: str = "armv5tel",
    slowdown: float = 1,
    detector: str = "",
    kind: Literal["user", "system", "native", "board"] = "user",
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
    """Runs the programs of a target without an emulator. They may be scripts."""
    return Runner(target=on, policy=Catalog().policies["signal"], program=None, options=[], records_faults=False)


def build_plan(
    tree: SourceTree, target: Target, *, allocator: Allocator = "libc", tls: OpenSsl | None = None
) -> BuildPlan:
    """How a tree is compiled with the fake toolchain."""
    return BuildPlan(tree=tree, target=target, tools=toolchain(), optimisation="O2", allocator=allocator, tls=tls)


def build(folder: Path, *, target: str = "armv5", binary: str = "redis-server") -> Build:
    """A server's build in a folder, which may be empty."""
    return Build(
        key="key",
        target=target,
        server="redis-7.0.15",
        optimisation="O2",
        folder=folder,
        server_binary=folder / binary,
        command_line=[],
    )


def quick_request(plan: Plan, *, server: str, known: Path, run: Path) -> Request:
    """A request for the quick tier with the defaults of `plumb check`, and a fixed seed."""
    return Request(
        plan=plan,
        server=server,
        tier="quick",
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        jobs=2,
        seed=1,
        install=False,
        known=known,
        run=run,
    )


def toolchain(triple: str = "fake") -> Toolchain:
    """A toolchain whose tools are `fake-gcc` and so on."""
    return Toolchain(name="fake", triple=triple, packages=["gcc-fake"], sysroot={"lib": "/usr/fake/lib"})


def fake_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = "fake-gcc 1.0") -> None:
    """A `fake-gcc` that only prints its version."""
    for name in ("gcc", "g++", "ar", "ranlib"):
        write(folder / f"fake-{name}", f"#!/bin/sh\necho '{version}'\n", mode=0o755)
    put_on_path(folder, monkeypatch)


def fake_symbols(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `fake-addr2line`, also under the name of a toolchain in the catalog. It reads BINARY.lines, whose lines are
    `0xADDRESS FUNCTION FILE:LINE`.
    """
    script = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in -e) binary=$2; shift 2;; -*) shift;; *) break;; esac; done
for address; do
    found=$(grep "^$address " "$binary.lines" 2>/dev/null)
    if [ -n "$found" ]; then set -- $found; printf '%s\\n%s\\n' "$2" "$3"; else printf '??\\n??:0\\n'; fi
done
"""
    for triple in ("fake", TRIPLE):
        write(folder / f"{triple}-addr2line", script, mode=0o755)
    put_on_path(folder, monkeypatch)


PID = 100
"""The number of a guest's first process, unless a test chooses another."""


def fault(
    *,
    pid: int = PID,
    tid: int = 0,
    number: int = SIGBUS,
    code: int = ADRALN,
    address: int = 0x20001,
    access: Literal["load", "store", ""] = "load",
    handled: bool = False,
    pc: int = 0x1000,
    instruction: str = LDR,
    registers: list[str] | None = None,
    maps: list[fault_log.MapRecord] | None = None,
    event: Literal["fault", "access"] = "fault",
    access_class: AccessClass | Literal[""] = "word",
    access_bytes: int = 4,
    kernel_log: tuple[str, ...] = (),
) -> fault_log.Fault:
    """One record of the emulator's fault log. Without `tid` it belongs to the main thread."""
    return fault_log.Fault(
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


def chunk(direction: Literal["request", "reply"], content: bytes, *, connection: int = 1) -> Chunk:
    """Bytes that passed through the recorder."""
    import base64

    return Chunk(connection=connection, direction=direction, data=base64.b64encode(content).decode())
