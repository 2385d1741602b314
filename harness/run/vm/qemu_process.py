"""The life of an emulated computer: its emulator is started, booted or resumed, watched, and ended.

harness.run.vm.machine sends the requests to its init; this module owns the emulator's process, its sockets and its
console.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.core.errors import InfrastructureError
from harness.core.processes import process, scheduling
from harness.core.processes.temporary_folder import refuse_long
from harness.record import fault_log
from harness.run.vm.init_channel import Channel, ChannelError
from harness.run.vm.network_watch import CLOSED_PORT, NetworkWatch, answers, silence
from harness.run.vm.qemu_command import control_port, emulator_command, forwarded_ports
from harness.run.vm.qmp import Qmp, QmpError, load_state, save_state

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence

    from harness.run.vm.init_channel import ChannelFrame
    from harness.run.vm.vm_image import VmImage

BOOT_SECONDS = 30.0
"""Time limit until init is ready, without waits for a processor: five times the boot time of the slowest machine."""
BOOT_ATTEMPTS = 2
"""Occasionally QEMU's sun4u hangs forever in its firmware, or where Linux first calls the firmware."""
SOCKET_SECONDS = 30.0
MIGRATION_SECONDS = 120.0
"""Time limit for the machine's state to be saved or loaded."""
CLOSING_SECONDS = 2.0
"""How long an emulator whose channel is closed may take to end."""
POLL_SECONDS = 0.01
LOOK_AGAIN_SECONDS = 0.5


class HungBootError(ChannelError):
    """The machine runs, but init was not ready in time."""


class QemuProcess:
    """One emulator. `folder` receives the files `console` and `emulator`, `sockets` (a short path) its sockets.

    `ports` are forwarded to loopback; `on_event` receives init's events in the channel's own thread.
    """

    def __init__(
        self,
        image: VmImage,
        folder: Path,
        on_event: Callable[[ChannelFrame], None],
        *,
        sockets: Path,
        ports: Sequence[int],
    ) -> None:
        self.image = image
        self.folder = folder
        self.console = folder / "console"
        self.emulator_log = folder / "emulator"
        self._control_port = control_port(image.kernel.spec.machine)
        self._ports = (*ports, *([] if self._control_port is None else [self._control_port]), CLOSED_PORT)
        self._on_event = on_event
        self._sockets = sockets
        self._socket_folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._qmp: Qmp | None = None
        self._channel: Channel | None = None
        self._forwards: dict[int, int] = {}
        self._ready = False
        self._watch: NetworkWatch | None = None
        self._ended_because = ""
        """Why this program has ended the emulator; empty if it has not."""

    @property
    def channel(self) -> Channel:
        """The channel to its init."""
        assert self._channel is not None
        return self._channel

    @property
    def pid(self) -> int:
        """Number of the emulator's process on the host."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the emulator and wait until init is ready. Raises InfrastructureError with the console's last lines."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
            self._go_on(self.image.snapshot) if self.image.snapshot else self._boot_patiently()
        except (ChannelError, QmpError) as error:
            raise self.problem(str(error)) from error

    def watch_network(self) -> None:
        """From now on, end the emulator when the guest's network does not answer; `problem` then says so."""
        self._watch = NetworkWatch(self.endpoint(CLOSED_PORT), self.pid, self._end_silent)

    def stop_watching(self) -> None:
        """End the watch, if there is one."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def refuse_silence(self) -> None:
        """Raise InfrastructureError, and end the emulator, if the guest's network does not answer."""
        if not answers(self.endpoint(CLOSED_PORT), self.pid, given_up=lambda: not self.alive()):
            self._end_silent()
        if not self.alive():
            raise self.problem("the emulator has ended")

    def _end_silent(self) -> None:
        self._ended_because = silence()
        assert self._process is not None
        process.kill_group(self._process)

    def stop(self) -> None:
        """Kill the emulator, and leave nothing but the folder."""
        self.stop_watching()
        if self._process is not None:
            process.kill_group(self._process)
        if self._channel is not None:
            self._channel.close()
        if self._qmp is not None:
            self._qmp.__exit__()
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def alive(self) -> bool:
        """Whether the emulator still runs."""
        return self._process is not None and self._process.poll() is None

    def endpoint(self, port: int) -> tuple[str, int]:
        """The address on the host's loopback of a forwarded guest port."""
        assert self._qmp is not None
        if not self._forwards:
            self._forwards = forwarded_ports(self._qmp.monitor("info usernet"))
        return "127.0.0.1", self._forwards[port]

    def save(self, path: Path) -> None:
        """Write its state to a file, and leave it stopped. Raises InfrastructureError."""
        assert self._qmp is not None
        self.stop_watching()
        try:
            save_state(self._qmp, path, deadline_seconds=self.image.deadline_seconds(MIGRATION_SECONDS))
        except QmpError as error:
            raise self.problem(f"its state cannot be saved: {error}") from error

    def problem(self, detail: str) -> InfrastructureError:
        """An error with the last output of the emulator and the console."""
        tail = [line for path in (self.emulator_log, self.console) for line in _lines(path)[-8:]]
        what, remedy = detail, "run again; if it happens again, read the log"
        code = self._exit_status()
        if self._panicked():
            what = "its kernel panicked"
        elif self._ended_because:
            what, remedy = self._ended_because, "run again, with fewer --jobs"
        elif code is not None:
            what = f"{fault_log.signal_name(-code)} ended its emulator" if code < 0 else "its emulator has ended"
            if -code == signal.SIGKILL:
                remedy = "run again; with fewer --jobs, if `dmesg` says that memory was short"
        return InfrastructureError(
            f"the machine {self.image.kernel.spec.name} failed: {what}",
            where=str(self.folder),
            because="\n".join([*([f"the emulator ended with status {code}"] if code is not None else []), *tail]),
            remedy=remedy,
            log=str(self.console),
        )

    def _exit_status(self) -> int | None:
        """The emulator's status, negative for a signal; None while it runs. Its channel closes before it has one."""
        if self._process is None:
            return None
        if self._channel is not None and self._channel.closed:
            process.ends_within(self._process, CLOSING_SECONDS)
        return self._process.poll()

    def _start(self) -> None:
        machine = self.image.kernel.spec.machine
        if shutil.which(machine.emulator) is None:
            raise InfrastructureError(
                f"{machine.emulator} is not installed", remedy=toolchain.install_command(machine.packages)
            )
        folder = Path(tempfile.mkdtemp(dir=self._sockets))
        self._socket_folder = folder
        refuse_long(folder / "control")
        command = emulator_command(self.image, folder, self._ports)
        with self.emulator_log.open("wb") as log:
            self._process = process.start(command, output=log, folder=self.folder)
        socket_seconds = self.image.deadline_seconds(SOCKET_SECONDS)
        deadline = time.monotonic() + socket_seconds
        while not (folder / "qmp").exists():
            if not self.alive() or time.monotonic() > deadline:
                raise self.problem("it has made no control socket")
            time.sleep(POLL_SECONDS)
        self._qmp = Qmp(folder / "qmp", deadline_seconds=socket_seconds)
        if self._control_port is None:
            # The guest has not run yet, so that no event can be missed.
            self._connect(folder / "control")

    def _connect(self, place: Path | tuple[str, int]) -> None:
        if self._channel is not None:
            self._channel.close()
        pid = self.pid
        deadline = self.image.deadline_seconds(SOCKET_SECONDS)
        self._channel = Channel(
            place, self._take, deadline_seconds=deadline, clock=lambda: scheduling.usable_clock(pid)
        )

    def _take(self, frame: ChannelFrame) -> None:
        if frame.word == "ready":
            self._ready = True
        self._on_event(frame)

    def _boot_patiently(self) -> None:
        """Boot, and boot again after a hang; the console of the failed attempt is kept beside the new one."""
        for attempt in range(1, BOOT_ATTEMPTS):
            try:
                self._boot()
            except HungBootError:
                self.stop()
                self.console.rename(self.folder / f"console-hung-{attempt}")
                self._channel, self._qmp, self._forwards = None, None, {}
                self._start()
            else:
                return
        self._boot()

    def _boot(self) -> None:
        assert self._qmp is not None
        self._qmp.execute("cont")
        deadline = self.image.deadline_seconds(BOOT_SECONDS)
        started = scheduling.usable_clock(self.pid)
        while not self._ready:
            took = scheduling.usable_clock(self.pid) - started
            # Not every machine can be reset: a panic may leave it hanging.
            if self._panicked():
                raise ChannelError("boot: a panic")
            if took > deadline:
                raise HungBootError(f"boot: not ready within {deadline:.0f} s")
            if self._control_port is not None:
                # The emulator accepts connections before the guest is ready, and then closes or forgets them.
                self._connect(self.endpoint(self._control_port))
            with contextlib.suppress(ChannelError):
                self.channel.wait_for(lambda: self._ready, "boot", deadline_seconds=LOOK_AGAIN_SECONDS)
            if not self.alive():
                raise ChannelError("boot: the emulator has ended")

    def _go_on(self, saved: Path) -> None:
        assert self._qmp is not None
        load_state(self._qmp, saved, deadline_seconds=self.image.deadline_seconds(MIGRATION_SECONDS))
        self._qmp.execute("cont")

    def _panicked(self) -> bool:
        return any("Kernel panic" in line for line in _lines(self.console))


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
