"""Stored runs: evidence in the form of `plumb check`, and its judgement."""

from __future__ import annotations

import datetime
import shlex
from typing import TYPE_CHECKING, Any, Literal

from harness.analysis import source_excerpt
from harness.core import json_codec
from harness.isa.rules import recorded_policies
from harness.judge.conclusion import conclude
from harness.judge.findings import judge
from harness.judge.reproducer import Reproducer, read_reproducer
from harness.judge.verdict import cell_verdicts
from harness.plan.catalog import Catalog
from harness.record import cell_events, event_log, evidence_seal, fault_log, run_folder, run_record, stored_run
from harness.record.transcript import save
from tests.support import fakes
from tests.support.fakes import chunk, fault, target, write

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.errors import ExitCode
    from harness.core.finding import Difference, Finding
    from harness.core.model import StorePair
    from harness.judge.findings import Judgement

BITOP = b"*1\r\n$5\r\nBITOP\r\n"


class StoredRun:
    """Writes a run folder as `plumb check` does, but only its evidence."""

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
        self.timeout_multiplier = 1.0
        self.everywhere: Literal["note", "fail", "off"] = "note"
        self.has_native = False
        """Whether its cells started native servers, too."""
        self.functions: dict[str, int] = {}
        self.left_out: set[tuple[str, str]] = set()
        self.audited: set[tuple[str, str]] = set()
        self.host_runs: dict[tuple[str, str], int] = {}
        """Cell -> how often its failed tests ran on the native build. The events are those of `SUITE/host-N`."""
        self.alone_on_host = 3
        """How many of them ran the failed tests alone. The later ones ran the tests before them, too."""
        self.ordered_runs: dict[tuple[str, str], int] = {}
        """Cell -> how often they ran in the host's memory order. The events are those of `SUITE/ordered-N`."""
        self.delayed_runs: dict[tuple[str, str], list[StorePair | None]] = {}
        """Cell -> the pair of each further run while stores wait. The events are those of `SUITE/delayed-N`."""
        self.memory_order: Literal["usual", "weak"] = "usual"
        self.host_problem = ""
        """Why the native build could not run any of them; empty if it could."""
        self.detectors: dict[str, str] = {}
        self.real_kernels: set[str] = set()
        self.boards: set[str] = set()
        self.policy = "signal"
        self.unemulated: set[str] = set()
        self.events: dict[tuple[str, str], list[cell_events.Event]] = {}
        self.processor_seconds: dict[str, float] = {}
        """Target -> processor seconds of the tests of each of its cells."""
        self.processor: dict[tuple[str, str], cell_events.ProcessorTime] = {}
        """Cell -> its processor time by program."""
        self.blocks: dict[tuple[str, str], tuple[int, ...]] = {}
        """Cell -> the addresses of blocks that its server told."""

    def binary(self, target: str) -> Path:
        """The path of the target's server binary, which exists but is empty."""
        return self.folder / "build" / target / "redis-server"

    def canary(self, target: str, *, outcome: Literal["passed", "failed"] = "passed", message: str = "") -> None:
        """Record one canary's result."""
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
        reply: bytes = b"",
        unit: str = "",
        wrong_line: str = "",
        asserted: str = "",
        difference: Difference | None = None,
        counters: tuple[cell_events.Counters, cell_events.Counters] | None = None,
        fails_natively: bool = False,
    ) -> None:
        """Record one test's result."""
        kept = ""
        if transcript:
            folder = self.cell(target, suite) / guest
            folder.mkdir(parents=True, exist_ok=True)
            kept = f"transcript-{len(list(folder.glob('transcript-*')))}.jsonl"
            replies = [chunk("reply", reply)] if reply else []
            save(folder / kept, [chunk("request", transcript), *replies])
        event = cell_events.TestEvent(
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
            asserted=asserted,
            difference=difference,
            counters_before=counters[0] if counters else None,
            counters_after=counters[1] if counters else None,
            fails_natively=fails_natively,
        )
        self.add(target, suite, event)

    def guest(
        self,
        target: str,
        suite: str,
        name: str,
        *,
        end: Literal["stopped", "signal", "exit", "hang", "start-failed"],
        detail: str = "",
        test: str = "",
        strangers: int = 0,
        pid: int = fakes.PID,
        oracle: bool = False,
    ) -> None:
        """Record how a guest ended."""
        (self.cell(target, suite) / name).mkdir(parents=True, exist_ok=True)
        self.add(
            target,
            suite,
            cell_events.GuestEvent(
                name=name, end=end, detail=detail, test=test, pid=pid, strangers=strangers, oracle=oracle
            ),
        )

    def own_guest(
        self,
        cell: str,
        suite: str,
        target: str,
        *,
        test: str,
        end: Literal["stopped", "signal", "exit"] = "stopped",
        detail: str = "",
        record: fault_log.Fault | None = None,
        options: tuple[str, ...] = (),
        preloads: bool = False,
        transcript: bytes = b"",
    ) -> None:
        """Record a server that one test of a cell started, on the cell's target or another, with at most one fault."""
        peer = "" if target == cell else target
        folder = f"{run_folder.PEERS}/{peer}/guest-9" if peer else "guest-9"
        (self.cell(cell, suite) / folder).mkdir(parents=True, exist_ok=True)
        if record is not None:
            self.fault(cell, suite, folder, record, binary_of=target)
        if transcript:
            save(
                self.cell(cell, suite) / folder / "transcript-0.jsonl",
                [chunk("request", transcript), chunk("reply", b":1\r\n")],
            )
        event = cell_events.GuestEvent(
            name="guest-9",
            end=end,
            detail=detail,
            test=test,
            target=peer,
            own=True,
            unanswered=() if transcript else ("SAVE",),
            transcript="transcript-0.jsonl" if transcript else "",
            options=options,
            preloads=preloads,
            pid=fakes.PID,
        )
        self.add(cell, suite, event)

    def add(self, target: str, suite: str, event: cell_events.Event) -> None:
        """Add a line to a cell's events."""
        self.events.setdefault((target, suite), []).append(event)

    def write_events(self, target: str, suite: str) -> int:
        """Write the cell's event log as its process does. Returns the number of failed tests."""
        path = self.cell(target, suite) / event_log.NAME
        path.unlink(missing_ok=True)
        events = self.events.get((target, suite), [])
        tests = [event for event in events if isinstance(event, cell_events.TestEvent)]
        failed = sum(test.outcome == "failed" for test in tests)
        log = event_log.EventLog(path)
        log.append(cell_events.CollectedEvent(tests=len(tests)))
        for event in events:
            log.append(event)
        log.close(
            tests=len(tests),
            failed=failed,
            processor_seconds=self.processor_seconds.get(target, 0.0),
            processor=self.processor.get((target, suite)),
            blocks=self.blocks.get((target, suite), ()),
        )
        return failed

    def place(self, target: str, function: str, file: str = "src/bitops.c", line: int = 93) -> int:
        """Give a function an address in the target's binary; returns it."""
        lines = self.binary(target).with_name("redis-server.lines")
        known = lines.read_text("utf-8") if lines.is_file() else ""
        # Every target has its own addresses, as real builds do.
        address = 0x1000 + 0x100 * len(known.splitlines()) + 0x10000 * self.targets.index(target)
        write(lines, f"{known}{address:#x} {function} /cache/work/1/tree/{file}:{line}\n")
        write(self.binary(target), "no real binary\n")
        return address

    def fault(self, target: str, suite: str, guest: str, record: fault_log.Fault, *, binary_of: str = "") -> None:
        """Record a line of a guest's fault log, for a fault inside the target's binary."""
        maps = [fault_log.MapRecord(start=0, end=0x100000, offset=0, path=str(self.binary(binary_of or target)))]
        complete = json_codec.decode(
            json_codec.encode({**json_codec.decode(json_codec.encode(record), dict), "maps": maps}), fault_log.Fault
        )
        log = self.cell(target, suite) / guest / "faults.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            stream.write(json_codec.encode(complete) + b"\n")

    def log(self, target: str, suite: str, guest: str, text: bytes) -> tuple[int, int]:
        """Append to a guest's log. Returns the range of offsets: [from, to)."""
        path = self.cell(target, suite) / guest / "log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            start = stream.tell()
            stream.write(text)
        return start, start + len(text)

    def cell(self, target: str, suite: str) -> Path:
        """Create the cell's folder, and return it."""
        folder = self.folder / target / suite
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def problem(
        self, target: str, suite: str, text: str, kind: Literal["", "build", "deadline", "crash", "units", "absent"]
    ) -> None:
        """Record the reason why a cell has no results."""
        self.problems[target, suite] = (text, kind)

    def finish(self) -> Path:
        """Write run.json. The folder can then be judged. Like a new run, it has no excerpts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / source_excerpt.FILE).unlink(missing_ok=True)
        cells = []
        for name in self.targets:
            for suite in self.suites:
                if (name, suite) not in self.left_out:
                    text, kind = self.problems.get((name, suite), ("", ""))
                    failed = self.write_events(name, suite)
                    audited = (name, suite) in self.audited
                    if audited:
                        self.write_events(name, f"{suite}/{run_folder.AUDIT}")
                    host = self._write_again(name, suite, run_folder.HOST, self.host_runs)
                    ordered = self._write_again(name, suite, run_folder.ORDERED, self.ordered_runs)
                    cells.append(
                        run_record.CellRecord(
                            target=name,
                            suite=suite,
                            seconds=1.5,
                            problem=text,
                            problem_kind=kind,
                            status=int(failed > 0),
                            seal=evidence_seal.seal(self.cell(name, suite)),
                            host=host,
                            ordered=ordered,
                            delayed=self._write_delayed(name, suite),
                            audit="done" if audited else "",
                            audit_seal=evidence_seal.seal(self.cell(name, suite) / run_folder.AUDIT) if audited else "",
                        )
                    )
        kinds: dict[Literal["system", "native", "board"], set[str]] = {
            "system": self.real_kernels,
            "native": self.unemulated,
            "board": self.boards,
        }
        machines = {
            name: target(
                name,
                detector=self.detectors.get(name, ""),
                kind=next((kind for kind, names in kinds.items() if name in names), "user"),
            )
            for name in self.targets
        }
        if self.host_runs or self.has_native:
            machines.setdefault("native", target("native", kind="native"))
        run_folder.write_run(
            self.folder,
            run_record.RunRecord(
                server=self.server,
                family="redis",
                policy=self.policy,
                optimisation="O2",
                emulator="pinned",
                seed=1,
                targets=list(self.targets),
                suites=list(self.suites),
                binaries={name: str(self.binary(name)) for name in machines},
                triples=dict.fromkeys(machines, fakes.TRIPLE),
                machines=machines,
                stages={"suites": 1.5},
                cells=cells,
                timeout_multiplier=self.timeout_multiplier,
                everywhere=self.everywhere,
                memory_order=self.memory_order,
                policies=recorded_policies(Catalog().policies, self.policy, machines.values()),
            ),
        )
        return self.folder

    def host_test(self, target: str, suite: str, number: int, name: str, **told: Any) -> None:
        """Record a test's result in the Nth run of a cell's failed tests on the native build. `told`: as for `test`."""
        self.host_runs[target, suite] = max(number, self.host_runs.get((target, suite), 0))
        self.test(target, f"{suite}/{run_folder.HOST}-{number}", name, **told)

    def ordered_test(self, target: str, suite: str, number: int, name: str, **told: Any) -> None:
        """Record a test's result in the Nth run of a cell's failed tests in the host's memory order."""
        self.ordered_runs[target, suite] = max(number, self.ordered_runs.get((target, suite), 0))
        self.test(target, f"{suite}/{run_folder.ORDERED}-{number}", name, **told)

    def delayed_test(self, target: str, suite: str, number: int, name: str, **told: Any) -> None:
        """Record a test's result in the Nth run of a cell's failed tests while stores wait, from 1. `told`: as for
        `test`, and `pair`.
        """
        pairs = self.delayed_runs.setdefault((target, suite), [])
        pairs[number - 1 :] = [told.pop("pair", None)]
        self.test(target, f"{suite}/{run_folder.DELAYED}-{number}", name, **told)

    def stores(self, target: str, suite: str, guest: str, *, stores: int, overtakes: int) -> None:
        """Record how many stores of a guest have waited, and how many of them overtook others."""
        counts = fault_log.StoreCounts(event="order", pid=fakes.PID, stores=stores, overtakes=overtakes, pauses=1)
        self._append(target, suite, guest, counts)

    def overtake(self, target: str, suite: str, guest: str, *, early: int, late: int, reader: int) -> None:
        """Record two stores of a guest that another thread saw in the wrong order, by their addresses in the binary."""
        maps = [fault_log.MapRecord(start=0, end=0x100000, offset=0, path=str(self.binary(target)))]
        one = fault_log.Overtake(
            event="overtake",
            pid=fakes.PID,
            tid=fakes.PID,
            pc=reader,
            early=early,
            late=late,
            early_place=0,
            late_place=8,
            maps=maps,
        )
        self._append(target, suite, guest, one)

    def missed(self, target: str, suite: str, guest: str, *, store: int, load: int) -> None:
        """Record a load of a guest that returned the value from before a store, by their addresses in the binary."""
        maps = [fault_log.MapRecord(start=0, end=0x100000, offset=0, path=str(self.binary(target)))]
        one = fault_log.MissedStore(
            event="missed", pid=fakes.PID, tid=fakes.PID, pc=load, store=store, place=0, maps=maps
        )
        self._append(target, suite, guest, one)

    def _append(
        self,
        target: str,
        suite: str,
        guest: str,
        line: fault_log.Overtake | fault_log.MissedStore | fault_log.StoreCounts,
    ) -> None:
        log = self.cell(target, suite) / guest / fault_log.NAME
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            stream.write(json_codec.encode(line) + b"\n")

    def _write_delayed(self, target: str, suite: str) -> list[run_record.DelayedRun]:
        runs = []
        for number, pair in enumerate(self.delayed_runs.get((target, suite), []), start=1):
            folder = f"{suite}/{run_folder.DELAYED}-{number}"
            self.write_events(target, folder)
            seal, seed = evidence_seal.seal(self.cell(target, folder)), None if pair is None else number
            runs.append(run_record.DelayedRun(problem="", seal=seal, seed=seed, pair=pair))
        return runs

    def _write_again(
        self, target: str, suite: str, kind: str, runs_of: dict[tuple[str, str], int]
    ) -> list[run_record.HostRun]:
        runs = []
        for number in range(1, runs_of.get((target, suite), 0) + 1):
            self.write_events(target, f"{suite}/{kind}-{number}")
            seal = evidence_seal.seal(self.cell(target, suite) / f"{kind}-{number}")
            preceded = kind == run_folder.HOST and number > self.alone_on_host
            runs.append(run_record.HostRun(problem=self.host_problem, seal=seal, preceded=preceded))
        return runs


def reproducer(finding: Finding) -> Reproducer:
    """The reproducer that a finding's command names."""
    return read_reproducer(shlex.split(finding.replay)[-1])


def judged(stored: StoredRun) -> tuple[list[Finding], dict[str, str]]:
    findings, outcomes, _ = judge(stored_run.read(stored.finish()))
    cells = cell_verdicts(outcomes, findings)
    return findings, {f"{cell.target}/{cell.suite}": cell.verdict for cell in cells}


def known_file(tmp_path: Path, *entries: str) -> Path:
    head = "" if entries else "findings = []\n"
    return fakes.write(tmp_path / "known.toml", head + "".join(f"[[findings]]\n{entry}\n" for entry in entries))


def concluded(tmp_path: Path, stored: StoredRun, *entries: str) -> tuple[Judgement, ExitCode]:
    return conclude(stored_run.read(stored.finish()), known_file(tmp_path, *entries), fakes.quiet())


def a_fault(stored: StoredRun, *, target: str = "armv5", function: str = "bitopCommand", number: int = 0) -> None:
    """Record a test of BITOP that ended at a misaligned load."""
    pc = stored.place(target, function)
    stored.fault(target, "bitops", "guest-1", fault(pc=pc))
    stored.test(
        target,
        "bitops",
        "test_bitop",
        outcome="failed",
        message="ServerGoneError: connection closed by the server",
        guest="guest-1",
        faults=(number, number + 1),
        command="BITOP AND c a b",
        transcript=BITOP,
    )
    stored.guest(target, "bitops", "guest-1", end="signal", detail="killed by SIGBUS", test="test_bitop")


def two_machines(tmp_path: Path) -> StoredRun:
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for name in stored.targets:
        stored.canary(name)
        stored.test(name, "bitops", "test_one")
    return stored


ENTRY = """id = "{id}"
server = "redis-3.2.6"
targets = ["armv5"]
reason = "issue 3273"
expires = {expires}
"""


def entry(finding: str, *, days: int = 1) -> str:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return ENTRY.format(id=finding, expires=today + datetime.timedelta(days=days))
