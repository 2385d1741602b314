"""A server that runs on a board already: cells ask it, and nothing there can be started, stopped or looked at."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, NoReturn, Self

import pytest

from harness.core.errors import InfrastructureError
from harness.core.sockets import connect
from harness.protocol.resp import Client
from harness.record.transcript import last_request, unanswered
from harness.run.boards.reached_machine import Tunnel
from harness.run.boards.remote_shell import number_in
from harness.run.server_process import POLL_SECONDS, START_SECONDS, RemoteGuest
from harness.run.servers.endings import ServerEnd
from harness.run.servers.probes import identity

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.sockets import Address
    from harness.run.boards.board_image import BoardImage
    from harness.run.servers.server_spec import ServerSpec


SHOWN_REQUESTS = 3
"""The number of requests named when a connection is lost: the first ones without a reply."""


class RunningServer:
    """The server of a cell that runs already, in the place of a machine that starts servers."""

    def __init__(self, image: BoardImage) -> None:
        self.image = image

    def machine(self) -> Self:
        """Itself: it is there already."""
        return self

    def run(self, command: Sequence[str], **_: object) -> NoReturn:
        """Raise InfrastructureError: no program can be run there."""
        raise InfrastructureError(
            "no program can be run on the board, so nothing proves what it does with misaligned accesses",
            where=self.image.file,
            because=f"it has no `start`, with which {command[0]} would run",
            remedy="name `start`; wrong results are findings without it",
        )

    def counters(self) -> None:
        """Nothing tells what its kernel counts."""

    def refuse_ended(self) -> None:
        """Its guest finds out when its connection ends."""

    def close(self) -> None:
        """It goes on."""


class RunningGuest(RemoteGuest):
    """One way to the server that runs already. It is never known how that server ends: only the connection does."""

    def __init__(self, spec: ServerSpec, runner: Runner, folder: Path, *, host: RunningServer, sockets: Path) -> None:
        super().__init__(spec, runner, folder, sockets=sockets)
        self.host = host
        self._tunnel: Tunnel | None = None
        self._watch: socket.socket | None = None
        """A connection on which nothing is sent: it ends with the server, or the way to it."""

    @property
    def host_pid(self) -> int:
        """Number of this process: the server's needs no processor here."""
        return os.getpid()

    @property
    def left(self) -> tuple[str, ...]:
        """Nothing."""
        return ()

    @property
    def upstream(self) -> Address:
        """The address here that leads to it."""
        assert self._tunnel is not None
        return self._tunnel.address

    def _start(self) -> None:
        """Connect to it, and delete its keys. Raises InfrastructureError if it is not of the release.

        Skips the test if the cell's servers have options.
        """
        if self.spec.options:
            pytest.skip(f"the server runs already, without {' '.join(self.spec.options)}")
        image = self.host.image
        self.evidence.log.touch()
        self._tunnel = Tunnel(image, here=self.socket_path, there="")
        deadline = time.monotonic() + self.runner.target.deadline_seconds(START_SECONDS)
        while not (told := identity(self.upstream, deadline_seconds=self.probe_seconds)):
            self._tunnel.refuse_ended()
            if time.monotonic() > deadline:
                raise self._lost("nothing answers INFO there")
            time.sleep(POLL_SECONDS)
        version, wanted = told["version"].decode("utf-8", "replace"), ".".join(map(str, self.version))
        if version != wanted:
            raise InfrastructureError(
                "the board's server is of another release",
                where=image.file,
                because=f"it is {version or 'unnamed'}, and the run is for {wanted}",
                remedy="--server names the release that runs there",
            )
        self._pid = number_in(told.get("process_id", b"").decode("utf-8", "replace")) or os.getpid()
        self._watch = connect(self.upstream, deadline_seconds=self.deadline_seconds)
        with Client(connect(self.upstream, deadline_seconds=self.deadline_seconds)) as client:
            client.command("FLUSHALL")
        self.start_recording()

    def poll(self) -> None:
        """None: it runs. Raises InfrastructureError with the last request when the connection has ended."""
        assert self._tunnel is not None
        assert self._watch is not None
        self._tunnel.refuse_ended()
        if select.select([self._watch], [], [], 0)[0]:
            raise self._lost("its connection ended")

    def refuse_silence(self) -> NoReturn:
        """Raise InfrastructureError: whether it hangs, or the way to it does, is not known."""
        raise self._lost("it does not answer")

    def _lost(self, because: str) -> InfrastructureError:
        chunks = self.access.recorder.chunks() if self.access.recorder is not None else []
        # A server writes the replies of a pipeline together, so its end may be due to any of these.
        last = "; ".join(unanswered(chunks)[:SHOWN_REQUESTS]) or last_request(chunks)
        return InfrastructureError(
            "the server that runs on the board was lost",
            where=self.host.image.file,
            because=f"{because}; the last requests: {last}" if last else because,
            remedy="look at its log there; `start` in the file lets Plumbline see how it ends",
        )

    def terminate(self) -> None:
        """It goes on."""

    def kill(self) -> None:
        """It goes on."""

    def _stop(self) -> None:
        self.ended = ServerEnd("stopped")

    def send_signal(self, number: int) -> None:
        """Skip the test: no signal reaches it."""
        pytest.skip(f"a server that runs already cannot be sent signal {number}")

    def is_suspended(self) -> bool:
        """Nothing suspends it."""
        return False

    def read(self, name: str) -> bytes:
        """Skip the test: its files are out of reach."""
        pytest.skip(f"{name} of a server that runs already cannot be read")

    def __exit__(self, *_: object) -> None:
        """End the connections. The server goes on."""
        try:
            super().__exit__()
        finally:
            if self._watch is not None:
                with contextlib.suppress(OSError):
                    self._watch.close()
            if self._tunnel is not None:
                self._tunnel.close()
