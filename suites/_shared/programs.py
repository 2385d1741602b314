"""Runs a program of the release on the target and natively, and compares the outputs."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from harness.analysis.symbols import Symbols
from harness.build.emulators.package_root import runner_of
from harness.core.byte_diff import DifferenceError, excerpt, parted
from harness.core.errors import InfrastructureError
from harness.core.finding import Difference, place_in_file
from harness.core.processes import process
from harness.core.target_model import ORACLE
from harness.record import fault_log
from harness.record.cell_events import SENT, names_another_sender
from harness.run.servers.endings import EndedByAnotherError, sender_of_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.processes.process import Result
    from harness.run.cell_spec import CellSpec
    from harness.run.server_process import Guest

ADDRESS_OPTIONS = {"-s", "-h", "-p"}
SECONDS = 30.0
"""Time limit of a program that runs natively."""
POLL_SECONDS = 0.1


def address(server: Guest) -> list[str]:
    """The options that give a server's address to the client and the benchmark."""
    place = server.upstream
    return ["-h", place[0], "-p", str(place[1])] if isinstance(place, tuple) else ["-s", str(place)]


class Programs:
    """The programs of a release, by the part of their names after the family's: `cli`, `benchmark`, `check-aof`."""

    def __init__(
        self, cell: CellSpec, family: str, folder: Path, *, plugin_for: Callable[[Path], str] = lambda _: ""
    ) -> None:
        """`plugin_for`: the emulator's plugin option for a program of the target, or an empty string."""
        self.cell = cell
        self._plugin_for = plugin_for
        self.target = cell.runner.target.name
        self._family = family
        self._folder = folder
        self._runs = 0

    def run(
        self,
        name: str,
        *words: str,
        sent: bytes | None = None,
        target: str = "",
        meanwhile: Callable[[], None] | None = None,
        seconds: float = SECONDS,
    ) -> Result:
        """Run a program on the cell's target, or on another one, with `sent` as its standard input.

        The program runs in the test's folder. `meanwhile` is called repeatedly until the program ends. `seconds`: the
        time limit of a native run, which is longer under emulation. Waits for a busy processor do not count. Raises
        AssertionError if the program does not end in time, if a signal ends it, or at a fault, whose location the
        message names; EndedByAnotherError if another process sent the signal, or may have sent it to a native program;
        InfrastructureError if the record of its faults is damaged.
        """
        cell, target = self.cell, target or self.target
        runner = cell.runner if target == self.target else cell.peers[target].runner
        program = cell.programs[target] / f"{self._family}-{name}"
        plugin = self._plugin_for(program) if target == self.target else ""
        return self._run(program, words, runner, plugin, sent=sent, meanwhile=meanwhile, seconds=seconds)

    def run_server_as(self, tool: str, *words: str, sent: bytes | None = None, seconds: float = SECONDS) -> Result:
        """Run the cell's server under a tool's name. Since 4.0 it then acts as that tool. Raises as `run` does."""
        build = self.cell.build
        assert build is not None
        # The emulator records the code of the file that the link names.
        program = self._folder / f"{self._family}-{tool}"
        program.symlink_to(build.server_binary)
        plugin = self._plugin_for(build.server_binary)
        return self._run(program, words, runner_of(build, self.cell.runner), plugin, sent=sent, seconds=seconds)

    def _run(
        self,
        program: Path,
        words: Sequence[str],
        runner: Runner,
        plugin: str,
        *,
        sent: bytes | None = None,
        meanwhile: Callable[[], None] | None = None,
        seconds: float,
    ) -> Result:
        self._runs += 1
        log = self._folder / f"faults-{self._runs}.jsonl"
        fault_log.open_ledger(log)
        command = runner.command(program, words, log, plugin=plugin)
        if sent is not None:
            (self._folder / "sent").write_bytes(sent)
            command = ["sh", "-c", 'exec "$0" "$@" < sent', *command]
        result = process.run(
            command,
            deadline_seconds=runner.target.deadline_seconds(seconds),
            usable=True,
            folder=self._folder,
            environment={**process.PLAIN_ENVIRONMENT, "HOME": str(self._folder), **runner.environment},
            watch=meanwhile,
            watch_seconds=POLL_SECONDS,
        )
        said = result.text[-200:]
        recorded = fault_log.read(log)
        faults = recorded.faults
        if faults and runner.target.name == self.target:
            machine = runner.target.emulator.qemu
            frame = Symbols(self.cell.triple, str(program)).backtrace(faults[0], machine)[0]
            place = f"{frame.function} ({place_in_file(frame.file, frame.line)})"
            raise AssertionError(f"{program.name} {' '.join(words)}: signal {faults[0].signal} in {place}: {said}")
        # A signal ends a program that does not end by itself, so this check comes first.
        assert not result.expired, f"{program.name} {' '.join(words)} did not end: {said}"
        ended = self._how_it_ended(result, runner, {fault.signal for fault in faults})
        if names_another_sender(ended):
            raise EndedByAnotherError(f"{program.name} was {ended}")
        assert 0 <= result.code < 128, f"{program.name} {' '.join(words)} was ended by a signal: {said}"
        if recorded.damage:
            # The log is in the test's own folder, which no judgement reads.
            why = "; ".join(recorded.damage)
            raise InfrastructureError("the faults of a program cannot be read", where=program.name, because=why)
        return result

    def _how_it_ended(self, result: Result, runner: Runner, raised: set[int]) -> str:
        """How a program ended. `raised`: the signals that its instructions raised, where an emulator records them."""
        recorded = raised if runner.records_faults else None
        emulated = not runner.target.emulator.runs_here
        ended = sender_of_end(result.code, b"", 0, faults=recorded, emulated=emulated)
        # Nothing shows who ended a native program, and it is not what the cell is about.
        native = ended.how == "signal" and runner.target.name == ORACLE and self.target != ORACLE
        return f"{ended.detail.removesuffix(SENT)}{SENT}" if native else ended.detail

    def offers(self, name: str, option: str) -> bool:
        """Whether a program's own help, natively, lists an option."""
        text = self.run(name, "--help", target=ORACLE).text
        return re.search(rf"^\s*{re.escape(option)}(\s|$)", text, re.MULTILINE) is not None

    def same(
        self,
        name: str,
        *words: str,
        sent: bytes | None = None,
        shown: Callable[[bytes], bytes] = bytes,
        before: Callable[[], object] = lambda: None,
    ) -> bytes:
        """The output of a program on the target. Output and exit status must equal those of a native run.

        `shown` removes from the output what differs from run to run. `before` is called before each of the two runs.
        """
        before()
        native = self.run(name, *words, sent=sent, target=ORACLE)
        before()
        own = self.run(name, *words, sent=sent)
        ours, theirs = shown(own.output), shown(native.output)
        # A finding's text must be the same in every run, so it contains no address.
        before_each = ["", *words]
        named = [word for word, last in zip(words, before_each, strict=False) if not {word, last} & ADDRESS_OPTIONS]
        what = " ".join([f"{self._family}-{name}", *(word for word in named if "/" not in word)])[:200]
        if ours != theirs:
            at = parted(theirs, ours)
            difference = Difference(
                where="the output",
                record=f"output of {what:.100}",
                writer=self.target,
                reader=ORACLE,
                offset=at,
                expected=excerpt(theirs, at),
                actual=excerpt(ours, at),
            )
            around = slice(max(0, at - 40), at + 40)
            message = f"{what} prints {ours[around]!r} at byte {at}, natively {theirs[around]!r}"
            raise DifferenceError(message, difference)
        assert own.code == native.code, f"{what} ends with status {own.code}, natively {native.code}"
        return own.output

    def file(self, name: str, content: bytes) -> Path:
        """A file in the folder where the programs run."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def fresh(self, name: str, content: dict[str, bytes]) -> Path:
        """A folder there that contains only these files."""
        shutil.rmtree(self._folder / name, ignore_errors=True)
        for part, text in content.items():
            self.file(f"{name}/{part}", text)
        return self._folder / name
