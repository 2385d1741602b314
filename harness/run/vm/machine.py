"""A machine of the kernel tier: an emulated computer with a real kernel, and the requests that its init serves.

A context manager: on every exit, the emulator's process group is killed and its sockets are removed. It judges nothing;
its folder holds the evidence: `console` (the kernel's output), `emulator` (QEMU's output) and `faults.jsonl` (a record
of every fault of a traced program, in the format of the user tier's emulator, with the host's paths).
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from harness.core import json_codec
from harness.core.model import Record
from harness.core.processes import process
from harness.record import cell_events, fault_log, kernel_faults
from harness.run.vm.init_channel import LARGEST_PAYLOAD, ChannelError, RefusedError, fields
from harness.run.vm.qemu_process import QemuProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.core.errors import InfrastructureError
    from harness.run.vm.init_channel import ChannelFrame
    from harness.run.vm.vm_image import VmImage

REQUEST_SECONDS = 30.0
COUNTING_FILE = "/proc/cpu/alignment"
"""The one alignment file that counts what the kernel does."""
OUTPUT_FOLDER = "/run"
STOPPED_STATES = frozenset("tT")
"""States of a stopped process (proc(5)): t where init traces it, T where it does not."""
_PIECE = LARGEST_PAYLOAD // 2


class ExitStatus(Record, frozen=True):
    """How a guest's program ended."""

    how: Literal["exit", "signal"]
    number: int
    """Exit status, or the signal's number on the host."""

    @property
    def code(self) -> int:
        """The same as one number, in subprocess's convention: a signal is negative."""
        return -self.number if self.how == "signal" else self.number


class ProcessResult(Record, frozen=True):
    """A program that has ended, or was killed at its deadline."""

    pid: int
    end: ExitStatus | None
    """None if the deadline passed and the program was killed."""
    output: bytes


class Machine:
    """One running machine. `folder` keeps its logs, `sockets` (a short path) its sockets.

    `ports` are the guest's TCP ports that are forwarded to loopback. The caller must set the alignment mode of its
    image.
    """

    def __init__(self, image: VmImage, folder: Path, *, sockets: Path, ports: Sequence[int] = (6379,)) -> None:
        self.image = image
        self.kernel = image.kernel
        self.folder = folder
        self._request_seconds = image.deadline_seconds(REQUEST_SECONDS)
        self._fault_log = folder / "faults.jsonl"
        self._fault_logs: dict[int, Path] = {}
        """Number of a started program -> where its faults are recorded, if not in `fault_log`."""
        self._computer = QemuProcess(image, folder, self._on_event, sockets=sockets, ports=ports)
        self.console = self._computer.console
        self._ends: dict[int, ExitStatus] = {}
        self._outputs = 0
        # Instructions that are counted may not depend on this computer's time, and no interrupt is lost where they are:
        # one thread then serves the timers and the processor.
        self._pulse_seconds = 0.0 if image.counted else self.kernel.spec.machine.pulse_seconds
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        """Start the machine and wait until init answers. Raises InfrastructureError with the console's last lines."""
        try:
            self._computer.start()
            if self.image.snapshot is None:
                for name, value in self.kernel.spec.machine.settings.items():
                    self.write(f"/proc/sys/{name}", f"{value}\n".encode())
            self.request("clock", fields(int(time.time())))
            if self._pulse_seconds:
                threading.Thread(target=self._pulse, name="pulse", daemon=True).start()
            if not self.image.counted:
                # The watch would cause work that is counted.
                self._computer.watch_network()
        except BaseException:
            self._computer.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the emulator, and leave nothing but the folder."""
        self._ended.set()
        self._computer.stop()

    # Requests. All of these raise InfrastructureError when the machine does not answer.

    def request(self, verb: str, payload: bytes = b"", *, deadline_seconds: float | None = None) -> bytes:
        """Send one request to init (toolchains/kernels/init/init.c lists them). Raises RefusedError if init cannot
        serve it.
        """
        try:
            deadline = deadline_seconds or self._request_seconds
            return self._computer.channel.request(verb, payload, deadline_seconds=deadline)
        except ChannelError as error:
            raise self._computer.problem(str(error)) from error

    @property
    def fault_log(self) -> Path:
        """The log for the faults of programs without a log of their own."""
        return self._fault_log

    @property
    def emulator_pid(self) -> int:
        """Number of the emulator's process on the host."""
        return self._computer.pid

    def alive(self) -> bool:
        """Whether the emulator still runs."""
        return self._computer.alive()

    def problem(self) -> InfrastructureError:
        """Why a machine has ended by itself."""
        return self._computer.problem("the emulator has ended")

    def refuse_silence(self) -> None:
        """Raise InfrastructureError if the guest's network does not answer: what its servers do is then unknown."""
        self._computer.refuse_silence()

    def endpoint(self, port: int) -> tuple[str, int]:
        """The address on the host's loopback of a forwarded guest port."""
        return self._computer.endpoint(port)

    def set_alignment(self, mode: int) -> None:
        """Write the kernel's alignment mode: 1 warn, 2 fixup, 4 signal, or sums on ARM; 0 fixup, 1 signal, 2 show on
        MIPS.
        """
        self.write(self.kernel.spec.alignment_file, f"{mode}\n".encode())

    def alignment(self) -> str:
        """The kernel's alignment file: its mode, and on ARM its counters."""
        return self.read(self.kernel.spec.alignment_file).decode()

    def counters(self) -> cell_events.Counters | None:
        """The kernel's alignment counters as a record; None if the kernel has none."""
        if self.kernel.spec.alignment_file != COUNTING_FILE:
            return None
        return kernel_faults.read_counters(self.alignment())

    def kernel_log(self) -> str:
        """The kernel's log since the last call."""
        return self.request("log").decode("utf-8", "replace")

    def processes(self) -> list[str]:
        """Lines `PID PARENT STATE NAME`, without the kernel's own threads."""
        return self.request("processes").decode("utf-8", "replace").splitlines()

    def is_stopped(self, pid: int) -> bool:
        """Whether a signal has stopped a process."""
        states = [line.split()[2] for line in self.processes() if line.startswith(f"{pid} ")]
        return any(state in STOPPED_STATES for state in states)

    def read(self, path: str) -> bytes:
        """A file's content."""
        content = b""
        while piece := self.request("read", fields(path, len(content))):
            content += piece
            if len(piece) < LARGEST_PAYLOAD:
                break
        return content

    def write(self, path: str, content: bytes) -> None:
        """Create or overwrite a file, executable."""
        how = "truncate"
        for at in range(0, max(len(content), 1), _PIECE):
            self.request("write", fields(path, how) + content[at : at + _PIECE])
            how = "append"

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str = "/tmp",  # noqa: S108 - a folder of the guest, not of the host
        output: str = "/dev/null",
        traced: bool = True,
        fault_log: Path | None = None,
    ) -> int:
        """Start a program in a session of its own, and return its number.

        Only the faults of traced programs are recorded: in `fault_log`, which from then on also takes the faults of
        programs without a log of their own.
        """
        if fault_log is not None:
            # The program may fault before its number is known here.
            self._fault_log = fault_log
        variables = process.PLAIN_ENVIRONMENT if environment is None else environment
        words = [*command, *[f"{name}={value}" for name, value in variables.items()]]
        pid = int(self.request("start", fields(int(traced), folder, output, len(command), *words)))
        if fault_log is not None:
            self._fault_logs[pid] = fault_log
        return pid

    def forget(self, pid: int) -> None:
        """Forget the fault log of a program that has ended: the kernel will reuse its number."""
        self._fault_logs.pop(pid, None)

    def end(self, pid: int) -> ExitStatus | None:
        """How a started program ended; None while it runs. By then `faults.jsonl` contains all its faults."""
        self.request("ping")
        return self._ends.get(pid)

    def wait(self, pid: int, *, deadline_seconds: float) -> ExitStatus | None:
        """Wait until the deadline, and return the same."""
        try:
            self._computer.channel.wait_for(
                lambda: pid in self._ends, f"program {pid}", deadline_seconds=deadline_seconds
            )
        except ChannelError:
            return self.end(pid)
        return self._ends[pid]

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a program and to its session's first process group."""
        self.request("signal", fields(-pid, number))

    def send_signal(self, pid: int, number: int) -> None:
        """Send a signal to one process, whether `start` started it or not."""
        self.request("signal", fields(pid, number))

    def run(
        self,
        command: Sequence[str],
        *,
        deadline_seconds: float,
        environment: Mapping[str, str] | None = None,
        traced: bool = True,
        fault_log: Path | None = None,
    ) -> ProcessResult:
        """Run a program, as `start` does, to its end or to the deadline, and return its output."""
        self._outputs += 1
        output = f"{OUTPUT_FOLDER}/output-{self._outputs}"
        pid = self.start(command, output=output, environment=environment, traced=traced, fault_log=fault_log)
        end = self.wait(pid, deadline_seconds=deadline_seconds)
        if end is None:
            with contextlib.suppress(RefusedError):
                # It may have ended just now.
                self.kill(pid)
            self.wait(pid, deadline_seconds=self._request_seconds)
        written = self.read(output)
        self.forget(pid)
        return ProcessResult(pid=pid, end=end, output=written)

    def save(self, path: Path) -> None:
        """Write the machine's state to a file, and leave the machine stopped."""
        self._computer.save(path)

    def _pulse(self) -> None:
        """Interrupt the machine at regular intervals. A machine that does not answer is reported by the callers that
        need more from it.
        """
        channel = self._computer.channel
        while not self._ended.wait(self._pulse_seconds):
            with contextlib.suppress(ChannelError, RefusedError):
                channel.request("ping", deadline_seconds=self._request_seconds)

    def _on_event(self, frame: ChannelFrame) -> None:
        if frame.word == "ended":
            pid, how, number = frame.payload.decode().split()
            self._ends[int(pid)] = json_codec.convert({"how": how, "number": int(number)}, ExitStatus)
        elif frame.word == "fault":
            fault = json_codec.decode(frame.payload, fault_log.Fault)
            self._log(fault.session, with_host_paths(fault, self.image.initramfs.places))
        elif frame.word == "died":
            session, process_number, ended_by = map(int, frame.payload.decode().split())
            self._log(session, fault_log.ProcessEnd(event="end", pid=process_number, signal=ended_by, status=0))

    def _log(self, session: int, record: Record) -> None:
        """Add a record to the fault log of the program whose session it is."""
        with self._fault_logs.get(session, self._fault_log).open("ab") as stream:
            stream.write(json_codec.encode(record) + b"\n")


def with_host_paths(fault: fault_log.Fault, places: Mapping[str, Path]) -> fault_log.Fault:
    """A record whose mapped files have the host's paths, for symbols."""
    replace = msgspec.structs.replace
    maps = [replace(one, path=str(places.get(one.path, one.path))) for one in fault.maps]
    return replace(fault, maps=maps)
