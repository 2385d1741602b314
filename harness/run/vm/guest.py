"""A guest of the kernel tier: a server running on a real kernel, inside an emulated machine.

Tests use it as any other guest. The machine outlives its servers: one boot serves a cell as long as the machine runs.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.run.server_process import RemoteGuest
from harness.run.servers.server_evidence import FetchedEvidence
from harness.run.vm.init_channel import RefusedError
from harness.run.vm.machine import Machine

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.core.sockets import Address
    from harness.record.cell_events import Counters
    from harness.run.servers.server_spec import ServerSpec
    from harness.run.vm.vm_image import VmImage

SERVER = "/srv/server"
CANARY = "/srv/canary"
"""Paths of programs in the guest."""
PORTS = (6379, 6380, 6381, 6382)
"""Forwarded ports, and thus the number of servers that a machine can run at once."""


def module_place(module: Path) -> PurePosixPath:
    """The path in the guest of a module that the server loads when it starts."""
    return PurePosixPath(SERVER).with_name(module.name)


class VirtualMachine:
    """The machine of a cell: started on first use, and again after it has died."""

    def __init__(self, image: VmImage, folder: Path, *, sockets: Path) -> None:
        self.image = image
        self.folder = folder
        self.sockets = sockets
        self._machine: Machine | None = None
        self._started = 0
        self._free_ports = list(PORTS)

    def machine(self) -> Machine:
        """The running machine, with its alignment mode set. Raises InfrastructureError if it does not start."""
        if self._machine is not None and self._machine.alive():
            return self._machine
        self.close()
        self._started += 1
        made = Machine(self.image, self.folder / f"machine-{self._started}", sockets=self.sockets, ports=PORTS)
        self._machine = made.__enter__()
        if self.image.mode is not None:
            made.set_alignment(self.image.mode)
        return made

    def counters(self) -> Counters | None:
        """The kernel's counters so far; None if the kernel has none, or the machine does not run yet."""
        if self._machine is None or self.image.mode is None:
            return None
        return self._machine.counters()

    def refuse_ended(self) -> None:
        """Raise InfrastructureError if the machine has ended by itself: its servers ended with it."""
        if self._machine is not None and not self._machine.alive():
            raise self._machine.problem()

    def take_port(self) -> int:
        """Reserve a port of the machine for one more server. Raises InfrastructureError when all are taken."""
        if not self._free_ports:
            raise InfrastructureError(f"a machine can run only {len(PORTS)} servers at a time", where=str(self.folder))
        return self._free_ports.pop(0)

    def give_back(self, port: int) -> None:
        """Release the port of a server that has ended."""
        self._free_ports.insert(0, port)

    def close(self) -> None:
        """Switch the machine off."""
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.__exit__()


class VmGuest(RemoteGuest):
    """One server in a machine. After its end, `folder` holds its log and its faults."""

    def __init__(self, spec: ServerSpec, runner: Runner, folder: Path, *, host: VirtualMachine) -> None:
        super().__init__(spec, runner, folder, sockets=host.sockets)
        self.evidence = FetchedEvidence(
            folder,
            runner.target.emulator.detector,
            await_faults=self._await_faults,
            fetch_log=self._fetch_log,
        )
        self.host = host
        self._machine: Machine | None = None
        self._port = 0

    @property
    def host_pid(self) -> int:
        """Number of the emulator's process."""
        assert self._machine is not None
        return self._machine.emulator_pid

    @property
    def left(self) -> tuple[str, ...]:
        """No file is certain to remain: the log is inside the machine, which may have died."""
        return ()

    @property
    def port(self) -> int:
        """The port on which the server listens inside its machine; 0 before its launch."""
        return self._port

    @property
    def upstream(self) -> Address:
        """The forwarded port on loopback."""
        assert self._machine is not None
        return self._machine.endpoint(self._port)

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs.

        Raises InfrastructureError when the machine does not answer: the state of the server is then unknown.
        """
        assert self._machine is not None
        end = self._machine.end(self._pid)
        if end is None:
            return None
        self._fetch_log()
        return end.code

    def terminate(self) -> None:
        """Tell the server and all processes that it started to end, by SIGTERM."""
        assert self._machine is not None
        with contextlib.suppress(RefusedError):
            self._machine.kill(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        """End the server; the machine keeps running."""
        assert self._machine is not None
        with contextlib.suppress(RefusedError, InfrastructureError):
            self._machine.kill(self._pid)
            self._await_kill(self.poll)

    def refuse_silence(self) -> None:
        """Raise InfrastructureError if the machine's network does not answer: it explains the server's silence."""
        assert self._machine is not None
        self._machine.refuse_silence()

    def send_signal(self, number: int) -> None:
        """Send a signal to the server's process in the machine. Nothing happens if it has ended."""
        assert self._machine is not None
        with contextlib.suppress(RefusedError):
            self._machine.send_signal(self._pid, number)

    def is_suspended(self) -> bool:
        """Whether SIGSTOP has stopped the server. Its machine continues to run."""
        assert self._machine is not None
        return self._machine.is_stopped(self._pid)

    def read(self, name: str) -> bytes:
        """A file of its working folder."""
        assert self._machine is not None
        return self._machine.read(f"{self._work_folder}/{name}")

    def launch(self) -> None:
        """Start the server in the machine, traced."""
        machine = self.host.machine()
        self._machine = machine
        self._port = self.host.take_port()
        for name, content in self.spec.files.items():
            machine.write(f"{self._work_folder}/{name}", content)
        command = [SERVER, *self.arguments()]
        self._pid = machine.start(
            command, folder=self._work_folder, output=self._inside, fault_log=self.evidence.fault_log
        )

    def arguments(self) -> list[str]:
        """The server's command line. It listens on every address of the machine, which only loopback leads to."""
        arguments = ["--port", str(self._port), "--bind", "0.0.0.0", "--save", ""]  # noqa: S104
        arguments += ["--dir", self._work_folder]
        if "protected-mode" in self.build.abilities.options:
            arguments += ["--protected-mode", "no"]
        return self._with_options(arguments, map(module_place, self.build.modules))

    def __exit__(self, *_: object) -> None:
        """Stop the server and keep its log."""
        super().__exit__()
        self._fetch_log()
        if self._port:
            self.host.give_back(self._port)
            self._port = 0
        if self._machine is not None:
            self._machine.forget(self._pid)

    @property
    def _work_folder(self) -> str:
        return f"/tmp/{self.name}"  # noqa: S108 - a folder of the guest, not of the host

    @property
    def _inside(self) -> str:
        return f"/run/{self.name}.log"

    def _await_faults(self) -> None:
        """Return when the machine has sent the faults that it recorded, which it does before it answers."""
        if self._machine is not None:
            self._machine.request("ping")

    def _fetch_log(self) -> None:
        if self._machine is not None and self._pid:
            with contextlib.suppress(RefusedError, InfrastructureError):
                self.evidence.log.write_bytes(self._machine.read(self._inside))
