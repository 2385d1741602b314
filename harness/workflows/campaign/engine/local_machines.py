"""A cluster on this host alone: a scheduler and workers, each a process that is started again when it ends.

They listen on the loopback interface, with keys made for this campaign: other users of the machine can reach the port,
and anyone who can connect to a scheduler can run programs as its user.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from harness.core import json_codec
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.processes.timeouts import if_slow
from harness.core.strict_toml import ROOT
from harness.workflows.campaign.engine.cluster import Cluster, make_keys
from harness.workflows.campaign.engine.engine_process import EngineSettings

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

READY_SECONDS = 60.0
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 1.0
"""The least time between two starts of one process."""


class EngineProcess:
    """One process of the engine, with its log."""

    def __init__(self, folder: Path, settings: EngineSettings, *, name: str, checkout: Path = ROOT) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._checkout = checkout
        self._file = folder / f"{name}.json"
        self._file.write_bytes(json_codec.pretty(settings))
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self.starts = 0

    @property
    def pid(self) -> int:
        """The process number; 0 while there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def ensure_running(self) -> bool:
        """Start the process if it does not run. Returns whether it was started."""
        if self.pid or time.monotonic() - self._started < AGAIN_SECONDS:
            return False
        self.stop()
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "harness.workflows.campaign.engine.engine_process",
            self._file,
        ]
        with self.log.open("ab") as output:
            self._process = process.start(command, output=output, folder=self._checkout, environment=dict(os.environ))
        self._started = time.monotonic()
        self.starts += 1
        return True

    def attend(self, show: Callable[[bytes], object]) -> NoReturn:
        """Keep the process running until a signal arrives, and show new lines of its log."""
        with self.log.open("a+b") as log:
            log.seek(0)
            while True:
                process.refuse_after_stop()
                self.ensure_running()
                show(log.read())
                time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """End the process and its descendants."""
        if self._process is not None:
            process.kill_group(self._process, grace_seconds=0 if self._process.poll() is not None else 5)
            self._process = None


class LocalMachines:
    """The scheduler and the workers. Use it in `with`; the caller must call `restart_ended` regularly."""

    def __init__(
        self, folder: Path, workers: int, *, store: str = "", timeout_multiplier: float = 1.0, **settings: Any
    ) -> None:
        """`folder`: a private one. `timeout_multiplier`: how many times longer than usual the scheduler may take to
        start. `settings`: further fields of EngineSettings, which tests set.
        """
        self._folder = folder
        self._timeout_multiplier = timeout_multiplier
        make_keys(folder / "keys")
        self.cluster = Cluster(
            address=f"tls://127.0.0.1:{_free_port()}", keys=folder / "keys", store=store, local=workers
        )
        common = EngineSettings(role="worker", cluster=self.cluster, **settings)
        self.scheduler = EngineProcess(folder, msgspec.structs.replace(common, role="scheduler"), name="scheduler")
        self.workers = [
            EngineProcess(folder, msgspec.structs.replace(common, name=f"local-{number}"), name=f"local-{number}")
            for number in range(1, workers + 1)
        ]

    def replace(self, number: int, *, checkout: Path = ROOT, **settings: Any) -> None:
        """Give a worker other settings, or another checkout of Plumbline, before it is started."""
        name = self.workers[number].name
        common = EngineSettings(role="worker", cluster=self.cluster, name=name, **settings)
        self.workers[number] = EngineProcess(self._folder, common, name=name, checkout=checkout)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + READY_SECONDS * self._timeout_multiplier
        self.scheduler.ensure_running()
        while b"scheduler at" not in self.scheduler.log.read_bytes():
            late = time.monotonic() > deadline
            if late or not self.scheduler.pid:
                said = self.scheduler.log.read_text("utf-8", "replace").strip()
                self.close()
                raise InfrastructureError(
                    "the engine's scheduler does not start",
                    because=said[-2000:],
                    remedy=if_slow(self._timeout_multiplier) if late else "",
                )
            time.sleep(0.05)
        self.restart_ended()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def restart_ended(self) -> list[str]:
        """Restart ended processes. Returns their names."""
        return [one.name for one in (self.scheduler, *self.workers) if one.ensure_running()]

    def close(self) -> None:
        """End everything."""
        for one in (*self.workers, self.scheduler):
            one.stop()


def _free_port() -> int:
    """A port of the loopback interface that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
