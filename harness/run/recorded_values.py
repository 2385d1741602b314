"""A server under the control of gdb, which writes the arguments and return values of some functions.

On a target gdb talks to the emulator's stub; it starts a native server itself. The recording begins with the first ECHO
that the server receives. Children that it forks are left alone.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from harness.build.emulators.runner import with_stub
from harness.core.errors import InconclusiveError, InfrastructureError
from harness.core.processes import process
from harness.core.processes.capped_log import last_lines
from harness.core.strict_toml import ROOT
from harness.run.gdb_stub import await_stub
from harness.run.server_process import Guest, StartError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.run.servers.server_spec import ServerSpec

RECORDER = ROOT / "toolchains" / "function_values" / "record.py"
DEBUGGER = "gdb-multiarch"
TRIGGER = "echoCommand"
"""The function that executes ECHO, in every release."""
COMMAND = "processCommand"
"""The function that executes any command."""
SLOWER = 10
"""How many times longer a server may take under gdb."""
MOST_CALLS = 50
"""The limit for the recorded calls of one function. Each call stops the server twice."""
RECORD_SECONDS = 180.0
"""How long values are recorded. After that the server runs on without stops."""
LAST_LINES = 5
"""How many lines of gdb's log a message shows if a server does not start."""


class RecordedFunction(NamedTuple):
    """A function to examine."""

    name: str
    file: str
    """Without folders; empty if the name alone says enough."""
    always: bool = True
    """Whether its calls also count while the server executes no command, as when a timer calls it."""


class RecordedGuest(Guest):
    """One server under gdb. Its values are in `values` when it has ended, and the file `cut` is there if it was still
    busy after RECORD_SECONDS.
    """

    def __init__(
        self,
        spec: ServerSpec,
        runner: Runner,
        folder: Path,
        *,
        functions: Sequence[RecordedFunction],
        sockets: Path,
    ) -> None:
        patient = msgspec.structs.replace(runner.target, slowdown=runner.target.slowdown * SLOWER)
        runner = msgspec.structs.replace(runner, target=patient)
        super().__init__(spec, runner, folder, sockets=sockets)
        self.values = folder / "values.jsonl"
        self.cut = folder / "values.cut"
        self._functions = functions
        self._debugger: subprocess.Popen[bytes] | None = None
        self._debugger_log = folder / "gdb.log"

    def launch(self) -> None:
        """Start the server under gdb. Raises InfrastructureError if there is no gdb that supports the target."""
        if shutil.which(DEBUGGER) is None:
            raise InfrastructureError(
                f"{DEBUGGER} is not installed", because="it reads the values", remedy="plumb doctor --install"
            )
        commands = ["set confirm off", f"file {self.build.server_binary}"]
        if self.runner.target.emulator.runs_here:
            self._start_natively(commands)
            return
        stub = self.folder / "stub"
        self.runner = with_stub(self.runner, stub)
        super().launch()
        await_stub(self, stub, deadline_seconds=self.deadline_seconds)
        self._debugger = self._debug(
            [*commands, f"set sysroot {self.runner.root}", f"target remote {stub}"], "continue"
        )

    def __enter__(self) -> Self:
        """Start it. Raises InconclusiveError with gdb's last lines if the server does not start under gdb."""
        try:
            return super().__enter__()
        except StartError as error:
            raise InconclusiveError(
                "no values to compare",
                where=f"{self.runner.target.name}, under {DEBUGGER}",
                because="\n".join([str(error), error.log, last_lines(self._debugger_log, LAST_LINES)]),
            ) from error

    def __exit__(self, *details: object) -> None:
        """Kill the server, and gdb with it. Under gdb it might take minutes to end in good order, and its end says
        nothing.
        """
        if self.started():
            self.kill()
        super().__exit__(*details)
        if self._debugger is not None:
            process.kill_group(self._debugger)

    def _start_natively(self, commands: list[str]) -> None:
        self.lay_files()
        words = " ".join(f"'{word}'" for word in self.arguments())
        self.evidence.log.touch()
        start = [
            *commands,
            "set startup-with-shell on",
            f"set cwd {self.folder}",
            f"set args {words} > {self.evidence.log} 2>&1",
        ]
        self._process = self._debug(start, "run")

    def _debug(self, commands: list[str], start: str) -> subprocess.Popen[bytes]:
        plan = {
            "functions": self._functions,
            "output": str(self.values),
            "cut": str(self.cut),
            "seconds": self.runner.target.host_deadline_seconds(RECORD_SECONDS),
            "trigger": TRIGGER,
            "command": COMMAND,
            "start": start,
            "most": MOST_CALLS,
        }
        script = self.folder / "commands.gdb"
        script.write_text(
            "\n".join([*commands, f"source {RECORDER}", f"python record(json.loads({json.dumps(plan)!r}))", ""]),
            "utf-8",
        )
        environment = {**process.PLAIN_ENVIRONMENT, **self.runner.environment}
        with self._debugger_log.open("wb") as log:
            return process.start(
                [DEBUGGER, "-nx", "-batch", "-x", str(script)],
                output=log,
                folder=self.folder,
                environment=environment,
            )
