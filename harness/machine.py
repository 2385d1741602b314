"""A machine of the kernel tier: an emulated computer with a real kernel, and what can be asked of it.

A context manager: whatever happens, the emulator's process group is killed and its sockets removed. It owns no verdict;
what it gathers lies in its folder: `console` (what the kernel writes), `emulator` (what QEMU says), `faults.jsonl` (a
record of every fault of a traced program, as the user tier's emulator writes them, with the host's paths).
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from harness import codec, events, kernel_report, process, toolchain
from harness.channel import LARGEST_PAYLOAD, Channel, ChannelError, fields
from harness.errors import InfrastructureError
from harness.machine_command import control_port, emulator_command, forwarded_ports
from harness.model import Noun
from harness.qmp import Qmp, QmpError, load_state, save_state

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from harness.channel import Frame
    from harness.initramfs import Initramfs
    from harness.kernel import Kernel

BOOT_SECONDS = 30.0
"""Until init is ready, not counting waits for a processor: five times what the slowest machine takes."""
BOOT_ATTEMPTS = 2
"""One boot of some twenty of QEMU's sun4u stands still in its firmware, or where Linux first calls it, for ever."""
SOCKET_SECONDS = 30.0
REQUEST_SECONDS = 30.0
POLL_SECONDS = 0.01
LOOK_AGAIN_SECONDS = 0.5
ALIGNMENT_FILE = "/proc/cpu/alignment"
OUTPUT_FOLDER = "/run"
_PIECE = LARGEST_PAYLOAD // 2


class HungBootError(ChannelError):
    """The machine runs, and init is not ready in time."""


class Ended(Noun, frozen=True):
    """How a guest's program ended."""

    how: Literal["exit", "signal"]
    number: int
    """Exit status, or the signal's number on the host."""


class Ran(Noun, frozen=True):
    """A program that was waited for."""

    pid: int
    end: Ended | None
    """None: the deadline passed, and it was killed."""
    output: bytes


class Machine:
    """One running machine. `folder` keeps its logs, `sockets` (a short path) its sockets.

    `ports` are the guest's TCP ports that are forwarded to loopback; `snapshot` a saved state to go on from, of a
    machine with the same kernel and root file system.
    """

    def __init__(
        self,
        kernel: Kernel,
        initramfs: Initramfs,
        folder: Path,
        *,
        sockets: Path,
        ports: Sequence[int] = (6379,),
        snapshot: Path | None = None,
    ) -> None:
        self.kernel = kernel
        self.initramfs = initramfs
        self.folder = folder
        self._control_port = control_port(kernel.spec.machine)
        self.ports = tuple(ports) if self._control_port is None else (*ports, self._control_port)
        self.snapshot = snapshot
        self.console = folder / "console"
        self.emulator_log = folder / "emulator"
        self.fault_log = folder / "faults.jsonl"
        self.fault_logs: dict[int, Path] = {}
        """A started program's number -> where its faults are recorded, if not in `fault_log`."""
        self.boot_seconds = 0.0
        self._sockets = sockets
        self._socket_folder = sockets
        self._process: subprocess.Popen[bytes] | None = None
        self._qmp: Qmp | None = None
        self._channel: Channel | None = None
        self._forwards: dict[int, int] = {}
        self._ready = False
        self._ends: dict[int, Ended] = {}
        self._outputs = 0

    def __enter__(self) -> Self:
        """Start it, and wait until init answers. Raises InfrastructureError with the console's last lines."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._socket_folder = Path(tempfile.mkdtemp(dir=self._sockets))
        started = time.monotonic()
        try:
            self._start()
            self._go_on(self.snapshot) if self.snapshot else self._boot_patiently()
            self.request("clock", fields(int(time.time())))
        except (ChannelError, QmpError) as error:
            problem = self._problem(str(error))
            self.__exit__()
            raise problem from error
        except BaseException:
            self.__exit__()
            raise
        self.boot_seconds = time.monotonic() - started
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the emulator, leave nothing behind but the folder."""
        self._stop()
        shutil.rmtree(self._socket_folder, ignore_errors=True)

    # What can be asked of it. All of these raise InfrastructureError when the machine does not answer.

    def request(self, verb: str, payload: bytes = b"", *, deadline_seconds: float = REQUEST_SECONDS) -> bytes:
        """One request of init's (toolchains/kernels/init/init.c lists them). Raises RefusedError where init cannot."""
        assert self._channel is not None
        try:
            return self._channel.request(verb, payload, deadline_seconds=deadline_seconds)
        except ChannelError as error:
            raise self._problem(str(error)) from error

    @property
    def emulator_pid(self) -> int:
        """Number of the emulator's process on this machine."""
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        """Whether the emulator still runs."""
        return self._process is not None and self._process.poll() is None

    def endpoint(self, port: int) -> tuple[str, int]:
        """Where on the host's loopback a forwarded port of the guest is."""
        assert self._qmp is not None
        if not self._forwards:
            self._forwards = forwarded_ports(self._qmp.monitor("info usernet"))
        return "127.0.0.1", self._forwards[port]

    def set_alignment(self, mode: int) -> None:
        """Write the kernel's alignment mode: 1 warn, 2 fixup, 4 signal, or sums (ARM only)."""
        self.write(ALIGNMENT_FILE, f"{mode}\n".encode())

    def alignment(self) -> str:
        """The kernel's alignment counters and mode, as it prints them (ARM only)."""
        return self.read(ALIGNMENT_FILE).decode()

    def counters(self) -> events.Counters:
        """The same, read (ARM only)."""
        return kernel_report.read_counters(self.alignment())

    def kernel_log(self) -> str:
        """What the kernel has logged since the last time."""
        return self.request("log").decode("utf-8", "replace")

    def processes(self) -> list[str]:
        """Lines `PID PARENT STATE NAME`, without the kernel's own threads."""
        return self.request("processes").decode("utf-8", "replace").splitlines()

    def read(self, path: str) -> bytes:
        """A file's content."""
        content = b""
        while piece := self.request("read", fields(path, len(content))):
            content += piece
            if len(piece) < LARGEST_PAYLOAD:
                break
        return content

    def write(self, path: str, content: bytes) -> None:
        """Make a file, executable, or overwrite one."""
        how = "truncate"
        for at in range(0, max(len(content), 1), _PIECE):
            self.request("write", fields(path, how) + content[at : at + _PIECE])
            how = "append"

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str = "/tmp",  # noqa: S108 - the guest's, which nobody shares
        output: str = "/dev/null",
        traced: bool = True,
    ) -> int:
        """Start a program in a session of its own; its number. Only faults of traced ones are recorded."""
        variables = process.PLAIN_ENVIRONMENT if environment is None else environment
        words = [*command, *[f"{name}={value}" for name, value in variables.items()]]
        return int(self.request("start", fields(int(traced), folder, output, len(command), *words)))

    def end(self, pid: int) -> Ended | None:
        """How a started program ended; None while it runs. What it did before is in `faults.jsonl` when this tells."""
        self.request("ping")
        return self._ends.get(pid)

    def wait(self, pid: int, *, deadline_seconds: float) -> Ended | None:
        """The same, after waiting for it until the deadline."""
        assert self._channel is not None
        try:
            self._channel.wait_for(lambda: pid in self._ends, f"program {pid}", deadline_seconds=deadline_seconds)
        except ChannelError:
            return self.end(pid)
        return self._ends[pid]

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a program and all in its session's first group."""
        self.request("signal", fields(-pid, number))

    def run(
        self,
        command: Sequence[str],
        *,
        deadline_seconds: float,
        environment: Mapping[str, str] | None = None,
        traced: bool = True,
    ) -> Ran:
        """Run a program to its end, or to the deadline, and return what it wrote."""
        self._outputs += 1
        output = f"{OUTPUT_FOLDER}/output-{self._outputs}"
        pid = self.start(command, output=output, environment=environment, traced=traced)
        end = self.wait(pid, deadline_seconds=deadline_seconds)
        if end is None:
            self.kill(pid)
            self.wait(pid, deadline_seconds=REQUEST_SECONDS)
        return Ran(pid=pid, end=end, output=self.read(output))

    def save(self, path: Path) -> None:
        """Write the machine's state to a file, and leave the machine stopped."""
        assert self._qmp is not None
        try:
            save_state(self._qmp, path)
        except QmpError as error:
            raise self._problem(f"its state cannot be saved: {error}") from error

    # How it is started.

    def _start(self) -> None:
        machine = self.kernel.spec.machine
        if shutil.which(machine.emulator) is None:
            raise InfrastructureError(
                f"no {machine.emulator} on this machine", remedy=toolchain.install_command(machine.packages)
            )
        with self.emulator_log.open("wb") as log:
            self._process = process.start(
                emulator_command(
                    self.kernel, self.initramfs, self._socket_folder, self.ports, resumed=self.snapshot is not None
                ),
                output=log,
                folder=self.folder,
            )
        deadline = time.monotonic() + SOCKET_SECONDS
        while not (self._socket_folder / "qmp").exists():
            if not self.alive() or time.monotonic() > deadline:
                raise self._problem("it has made no control socket")
            time.sleep(POLL_SECONDS)
        self._qmp = Qmp(self._socket_folder / "qmp", deadline_seconds=SOCKET_SECONDS)
        if self._control_port is None:
            # Nothing of the guest has run yet, so that no event of it can be missed.
            self._connect(self._socket_folder / "control")

    def _stop(self) -> None:
        if self._process is not None:
            process.kill_group(self._process)
        if self._channel is not None:
            self._channel.close()
        if self._qmp is not None:
            self._qmp.__exit__()

    def _connect(self, place: Path | tuple[str, int]) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = Channel(place, self._on_event, deadline_seconds=SOCKET_SECONDS)

    def _boot_patiently(self) -> None:
        """Boot, and once more if it hangs: what the console said until then is kept beside it."""
        for attempt in range(1, BOOT_ATTEMPTS):
            try:
                self._boot()
            except HungBootError:
                self._stop()
                self.console.rename(self.folder / f"console-hung-{attempt}")
                self._channel, self._qmp, self._forwards = None, None, {}
                # Else the next one's sockets would seem to be there before they are.
                for path in self._socket_folder.iterdir():
                    path.unlink()
                self._start()
            else:
                return
        self._boot()

    def _boot(self) -> None:
        assert self._qmp is not None
        assert self._process is not None
        self._qmp.execute("cont")
        started = time.monotonic()
        while not self._ready:
            took = time.monotonic() - started - process.waited_seconds(self._process.pid)
            # Not every machine can be reset, so that a panic may leave it standing.
            if self._panicked():
                raise ChannelError("boot: a panic")
            if took > BOOT_SECONDS:
                raise HungBootError(f"boot: not ready within {BOOT_SECONDS:.0f} s")
            if self._control_port is not None:
                # The emulator accepts for a guest that is not there yet, and then hangs up, or forgets.
                self._connect(self.endpoint(self._control_port))
            assert self._channel is not None
            with contextlib.suppress(ChannelError):
                self._channel.wait_for(lambda: self._ready, "boot", deadline_seconds=LOOK_AGAIN_SECONDS)
            if not self.alive():
                raise ChannelError("boot: the emulator has ended")
        for name, value in self.kernel.spec.machine.settings.items():
            self.write(f"/proc/sys/{name}", f"{value}\n".encode())

    def _panicked(self) -> str:
        return next((line for line in _lines(self.console) if "Kernel panic" in line), "")

    def _go_on(self, saved: Path) -> None:
        assert self._qmp is not None
        load_state(self._qmp, saved)
        self._qmp.execute("cont")

    def _on_event(self, frame: Frame) -> None:
        if frame.word == "ready":
            self._ready = True
        elif frame.word == "ended":
            pid, how, number = frame.payload.decode().split()
            self._ends[int(pid)] = codec.convert({"how": how, "number": int(number)}, Ended)
        elif frame.word == "fault":
            fault = codec.decode(frame.payload, events.Fault)
            with self.fault_logs.get(fault.session, self.fault_log).open("ab") as stream:
                stream.write(codec.encode(with_host_paths(fault, self.initramfs.places)) + b"\n")

    def _problem(self, detail: str) -> InfrastructureError:
        """What went wrong, with what the machine said last."""
        said = [line for path in (self.emulator_log, self.console) for line in _lines(path)[-8:]]
        code = None if self._process is None else self._process.poll()
        what = "its kernel panicked" if self._panicked() else detail
        return InfrastructureError(
            f"the machine {self.kernel.spec.name} failed: {what}",
            where=str(self.folder),
            because="\n".join([*([f"the emulator ended with status {code}"] if code is not None else []), *said]),
            remedy="read the log; plumb clean, and the kernel is built again",
            log=str(self.console),
        )


def with_host_paths(fault: events.Fault, places: Mapping[str, Path]) -> events.Fault:
    """A record with the files that were mapped as the host knows them, for symbols."""
    replace = msgspec.structs.replace
    maps = [replace(one, path=str(places.get(one.path, one.path))) for one in fault.maps]
    return replace(fault, maps=maps)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
