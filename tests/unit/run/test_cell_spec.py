"""A missing feature of a machine ends a cell with a reason, and does not count as a test's failure."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.initramfs import Initramfs
from harness.build.kernel import Kernel
from harness.build.unit_drivers import Units
from harness.core import json_codec
from harness.core.errors import ExitCode, InfrastructureError
from harness.core.model import Abilities
from harness.core.processes import environment, process
from harness.core.sockets import connect
from harness.core.strict_toml import ROOT
from harness.core.target_model import ORACLE
from harness.core.wanted_tests import fits
from harness.plan.catalog import Catalog
from harness.record import cell_events, event_log
from harness.record.executed_blocks import cell_reach
from harness.record.executed_blocks.block_map import Function, ProgramCode
from harness.record.transcript import load, requests
from harness.run.cell_spec import ExecutionSpec, PeerServer, write_cell
from harness.run.extra_servers import new_guest, server_of
from harness.run.server_process import KILL_SECONDS, STOP_SECONDS, Guest, StartError
from harness.run.servers.server_spec import ServerSpec
from harness.run.session.cell_session import CellSession
from harness.run.vm.guest import VirtualMachine, VmGuest
from harness.run.vm.machine import ExitStatus, Machine
from harness.run.vm.vm_image import VmImage
from harness.workflows import cell_process
from harness.workflows.cell_process import cell_problem, cell_server, pytest_command
from tests.support import cells, fakes
from tests.support.survivors import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.run.cell_spec import CellSpec

pytestmark = pytest.mark.costly


def cell_on_a_machine_without_emulator(folder: Path, suite: str) -> CellSpec:
    catalog = Catalog()
    spec = catalog.kernels["versatile"]
    absent = msgspec.structs.replace(spec.machine, emulator="qemu-system-absent")
    kernel = Kernel(
        spec=msgspec.structs.replace(spec, machine=absent), key="", image=folder / "image", device_tree=None, seconds=0
    )
    archive = Initramfs(key="", archive=folder / "archive", places={})
    return msgspec.structs.replace(
        cells.spec_of(suite, folder, fakes.unemulated(catalog.targets["armv5-kernel"])),
        build=fakes.build(folder),
        canary=folder / "canary",
        machine=VmImage(kernel=kernel, initramfs=archive, snapshot=None, mode=4),
    )


@pytest.mark.parametrize("suite", ["canary", "bitops"])
def test_a_machine_that_does_not_start_ends_the_cell_with_its_message(suite: str, tmp_path: Path) -> None:
    write_cell(tmp_path / "cell.json", cell_on_a_machine_without_emulator(tmp_path, suite))
    result = process.run(pytest_command([suite], tmp_path / "cell.json"), deadline_seconds=60)
    assert result.code == ExitCode.INFRASTRUCTURE, result.text
    problem = cell_problem(result, tmp_path)
    assert problem.startswith("qemu-system-absent is not installed\n")
    assert "qemu-system-arm" in problem
    # The first test that needed the machine was the last one, and it has no record.
    recorded = event_log.read_events(tmp_path / "events.jsonl")
    assert [one for one in recorded if isinstance(one, cell_events.TestEvent)] == []
    assert not re.search("failed|INTERNALERROR", result.text), result.text


def test_a_suite_runs_the_tests_of_others_before_its_own(tmp_path: Path) -> None:
    words = [str(word) for word in pytest_command(["bitops", "sds"], tmp_path / "cell.json")]
    assert words.index(str(ROOT / "suites" / "bitops")) + 1 == words.index(str(ROOT / "suites" / "sds"))


def collected(spec: CellSpec) -> list[str]:
    """The names of a cell's tests in Python."""
    write_cell(spec.folder / "cell.json", spec)
    command = [*pytest_command([*spec.tests_of, spec.suite], spec.folder / "cell.json"), "--collect-only"]
    found = process.run(command, deadline_seconds=120, folder=ROOT, environment=environment.for_cell()).text
    return re.findall(r"^suites/(\S+\.py::.*)$", found, re.MULTILINE)


def test_a_suite_runs_only_the_tests_of_others_that_it_names(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(
        cells.spec_of("limits", tmp_path, fakes.unemulated(Catalog().targets["armv5"])),
        tests_of=("width",),
        only=("width/test_width.py::*[[]settings]", "limits/test_info.py::*"),
    )
    assert collected(spec) == [
        "width/test_width.py::test_answers_do_not_depend_on_the_width_of_the_machine[settings]",
        "limits/test_info.py::test_what_is_counted_is_the_same",
        "limits/test_info.py::test_what_tracking_and_sanitising_count_is_the_same",
        "limits/test_info.py::test_the_average_time_to_live_is_told",
        "limits/test_info.py::test_clients_tell_what_they_listen_to_and_what_they_queue",
    ]


@pytest.mark.parametrize("name", [name for name, suite in Catalog().suites.items() if suite.only])
def test_each_test_name_that_a_suite_lists_exists(name: str, tmp_path: Path) -> None:
    """Otherwise a test that is renamed in its own suite would silently be lost here."""
    suite = Catalog().suites[name]
    targets = Catalog().targets
    peers = {ORACLE: PeerServer(runner=fakes.unemulated(targets[ORACLE]), build=fakes.build(tmp_path))}
    spec = cells.spec_of(name, tmp_path, fakes.unemulated(targets["armv5"]))
    names = collected(msgspec.structs.replace(spec, tests_of=suite.tests_of, peers=peers))
    idle = [glob for glob in suite.only if not any(fnmatch.fnmatchcase(test, glob) for test in names)]
    assert not idle, f"no test has the name {idle}; the existing names are {names}"


def test_servers_start_with_the_suites_settings_that_they_know_and_the_oracle_without_them(tmp_path: Path) -> None:
    runner = fakes.unemulated(Catalog().targets["armv5"])
    build = msgspec.structs.replace(fakes.build(tmp_path), abilities=Abilities(options=("io-threads", "maxmemory")))
    spec = msgspec.structs.replace(
        cells.spec_of("bitops", tmp_path, runner),
        build=build,
        peers={ORACLE: PeerServer(runner=runner, build=build)},
        settings={"io-threads": "2", "of-another-release": "yes"},
    )
    more = ["--databases", "16"]
    assert new_guest(spec, None, tmp_path, server_of(spec, options=more)).options == ["--io-threads", "2", *more]
    assert new_guest(spec, None, tmp_path, server_of(spec, ORACLE, options=more), target=ORACLE).options == more


@pytest.mark.parametrize("option", ["--unixsocket", "--dir"])
def test_a_server_whose_folder_vanishes_while_it_starts_is_not_blamed(option: str, tmp_path: Path) -> None:
    """Regression: it said that it cannot bind its socket, and ended: a finding of every target."""
    lost = "$2" if option == "--dir" else "${2%/*}"
    script = f'while [ "$1" != {option} ]; do shift; done\nrm -r "{lost}"\nexit 1\n'
    fakes.write(tmp_path / "redis-server", f"#!/bin/sh\n{script}", mode=0o755)
    spec = cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"]))
    sockets = tmp_path / "s"
    sockets.mkdir()
    spec = msgspec.structs.replace(spec, build=fakes.build(tmp_path), sockets=sockets)
    guest = new_guest(spec, None, tmp_path / "guest-1", server_of(spec))
    with pytest.raises(InfrastructureError, match="a folder of guest-1 is gone"):
        guest.__enter__()
    assert guest.ended is not None
    assert guest.ended.how == "stopped", "an exit by itself at its start is a finding"


ANSWERING = """#!{python} -SI
import shutil, socket, sys
place = sys.argv[sys.argv.index("--unixsocket") + 1]
listener = socket.socket(socket.AF_UNIX)
listener.bind(place)
listener.listen()
connected = []
while True:
    connected.append(listener.accept()[0])
    connected[-1].recv(100)
    shutil.rmtree(place.rpartition("/")[0], ignore_errors=True)
    connected[-1].sendall(b"+PONG\\r\\n")
"""


def test_a_folder_that_vanishes_before_clients_can_connect_is_no_failure_of_a_test(tmp_path: Path) -> None:
    """Regression: the first test failed with FileNotFoundError, which was a wrong result."""
    fakes.write(tmp_path / "redis-server", ANSWERING.format(python=fakes.PYTHON), mode=0o755)
    spec = cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"]))
    sockets = tmp_path / "s"
    sockets.mkdir()
    spec = msgspec.structs.replace(spec, build=fakes.build(tmp_path), sockets=sockets)
    with pytest.raises(InfrastructureError, match="a folder of guest-1 is gone"):
        new_guest(spec, None, tmp_path / "guest-1", server_of(spec)).__enter__()


def test_a_missing_folder_for_sockets_ends_the_cell_with_a_reason(tmp_path: Path) -> None:
    spec = cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"]))
    spec = msgspec.structs.replace(spec, build=fakes.build(tmp_path), sockets=tmp_path / "gone")
    write_cell(tmp_path / "cell.json", spec)
    result = process.run(pytest_command(["bitops"], tmp_path / "cell.json"), deadline_seconds=60)
    assert result.code == ExitCode.INFRASTRUCTURE, result.text
    assert cell_problem(result, tmp_path).startswith(f"the folder for sockets is gone ({tmp_path / 'gone'})\n")
    assert "INTERNALERROR" not in result.text


@pytest.mark.parametrize(
    ("wanted", "test", "fit"),
    [
        ([], "bitops/test_bitops.py::test_count", True),
        (["count"], "bitops/test_bitops.py::test_count", True),
        (["bitops/*count"], "bitops/test_bitops.py::test_count", True),
        (["count*"], "bitops/test_bitops.py::test_count", False),
        (["pos", "count"], "bitops/test_bitops.py::test_count", True),
        (["Count"], "bitops/test_bitops.py::test_count", False),
        (["test_name[GET]"], "hashing/test_commands.py::test_name[GET]", True),
        (["fuzz/test_streams.py::test_streams[SETBIT-end]"], "fuzz/test_streams.py::test_streams", True),
        (["fuzz/test_streams.py::test_streams_too[SETBIT-end]"], "fuzz/test_streams.py::test_streams", False),
        (["test_streams[SETBIT-end]"], "fuzz/test_streams.py::test_streams", False),
        (["hashing/test_commands.py::test_name[SET]"], "hashing/test_commands.py::test_name[GET]", False),
    ],
)
def test_a_test_is_selected_by_a_part_of_its_name_a_glob_or_an_example(
    wanted: list[str], test: str, *, fit: bool
) -> None:
    assert fits(test, wanted) == fit


def test_omitted_tests_do_not_run(tmp_path: Path) -> None:
    left_out = "bitops/test_bitops.py::test_bitop_not_agrees_with_the_model"
    for without in ([], [left_out]):
        folder = tmp_path / str(len(without))
        folder.mkdir()
        spec = msgspec.structs.replace(cell_on_a_machine_without_emulator(folder, "bitops"), without=without)
        write_cell(folder / "cell.json", spec)
        command = [*pytest_command(["bitops"], folder / "cell.json"), "--collect-only"]
        collected = process.run(command, deadline_seconds=60).text
        assert (f"suites/{left_out}" in collected) == (not without), collected


def test_a_suite_is_compiled_once_for_the_cells_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    write_cell(tmp_path / "cell.json", cell_on_a_machine_without_emulator(tmp_path, "bitops"))
    command = [*pytest_command(["bitops"], tmp_path / "cell.json"), "--collect-only"]
    written = []
    with cell_server() as server:
        for _ in range(2):
            result = process.run(command, deadline_seconds=60, environment=environment.for_cell(), spawn=server.spawn)
            assert (result.code, "test_bitops.py::" in result.text) == (0, True), result.text
            (compiled,) = tmp_path.rglob("test_bitops*.pyc")
            written.append(compiled.stat().st_mtime_ns)
    assert written[0] == written[1]
    assert not compiled.parent.exists()


def test_a_process_that_ends_silently_is_reported_with_its_last_line(tmp_path: Path) -> None:
    result = process.run(["sh", "-c", "echo gone; exit 7"], deadline_seconds=10)
    assert cell_problem(result, tmp_path) == "its test process ended with status 7: gone"


def test_a_full_disk_of_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the cell's problem was `EOFError: marshal data too short`."""
    result = process.run(["sh", "-c", "echo EOFError; exit 4"], deadline_seconds=10)
    monkeypatch.setattr(cell_process, "LEAST_ROOM_BYTES", 1 << 62)
    assert cell_problem(result, tmp_path) == f"the disk with temporary files is full ({tempfile.gettempdir()})"


def test_a_guest_that_never_started_removes_no_files_of_others(tmp_path: Path) -> None:
    cell = cell_on_a_machine_without_emulator(tmp_path, "bitops")
    assert cell.build is not None
    spec = ServerSpec(build=cell.build, version=cell.version)
    Guest(spec, cell.runner, tmp_path / "guest-1", sockets=tmp_path).__exit__()
    assert tmp_path.is_dir()


@pytest.mark.parametrize(
    ("script", "may_refuse", "end"),
    [("exit 1", True, "stopped"), ("exit 1", False, "start-failed"), ("kill -SEGV $$", True, "start-failed")],
)
def test_a_server_that_may_refuse_to_start_has_stopped_if_it_exited(
    tmp_path: Path, script: str, *, may_refuse: bool, end: str
) -> None:
    build = fakes.build(tmp_path)
    fakes.write(build.server_binary, f"#!/bin/sh\n{script}\n", mode=0o755)
    spec, runner = ServerSpec(build=build, version=(7, 0, 15)), fakes.unemulated(fakes.target())
    guest = Guest(spec, runner, tmp_path / "guest-1", sockets=tmp_path)
    with pytest.raises(StartError) as failed:
        guest.__enter__()
    guest.failed_to_start(failed.value, may_refuse=may_refuse)
    assert guest.ended is not None
    assert guest.ended.how == end


@pytest.mark.parametrize(
    ("script", "status", "end"), [("exit 0", 0, "stopped"), ("exit 3", 3, "exit"), ("kill -SEGV $$", -11, "signal")]
)
def test_a_server_that_was_asked_to_end_has_stopped_if_it_ended_normally(
    tmp_path: Path, script: str, status: int, end: str
) -> None:
    build = fakes.build(tmp_path)
    fakes.write(build.server_binary, f"#!/bin/sh\n{script}\n", mode=0o755)
    spec, runner = ServerSpec(build=build, version=(7, 0, 15)), fakes.unemulated(fakes.target())
    guest = Guest(spec, runner, tmp_path / "guest-1", sockets=tmp_path)
    guest.folder.mkdir()
    guest.launch()
    assert guest.await_end() == status
    assert not guest.alive()
    guest.__exit__()
    assert guest.ended is not None
    assert guest.ended.how == end


@pytest.mark.parametrize(
    ("script", "reason"),
    [("kill -STOP $$", cell_events.STOPPED), ("sleep 60", cell_events.NO_PONG), ("kill -KILL $$", "killed by SIGKILL")],
)
def test_a_native_build_kept_from_starting_makes_a_failed_test_no_finding(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run.server_process.START_SECONDS", 1.0)
    fakes.write(tmp_path / "redis-server", f"#!/bin/sh\n{script}\n", mode=0o755)
    native = PeerServer(
        runner=fakes.unemulated(Catalog().targets["native"]), build=fakes.build(tmp_path, target="native")
    )
    spec = cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"]))
    session = CellSession(msgspec.structs.replace(spec, peers={"native": native}))
    session.collected(1)
    session.begin("bitops/test_it")
    with pytest.raises(StartError, match=reason) as refused:
        session.servers.oracle()
    session.end("failed", str(refused.value), 1.0)
    session.close()
    (recorded,) = [
        one for one in event_log.read_events(tmp_path / event_log.NAME) if isinstance(one, cell_events.TestEvent)
    ]
    assert recorded.doubt == f"the native build, which gives the expected replies, did not start: {reason}"


def test_a_server_that_does_not_start_costs_the_last_test_as_little_as_the_second(tmp_path: Path) -> None:
    """Regression: the exception was raised again with a longer traceback, which pytest reads: 541 tests took 46 s."""
    build = fakes.build(tmp_path)
    fakes.write(build.server_binary, "#!/bin/sh\nexit 1\n", mode=0o755)
    spec = cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"]))
    session = CellSession(msgspec.structs.replace(spec, build=build))
    depths = []
    for _ in range(4):
        with pytest.raises(StartError) as failed:
            session.servers.guest()
        depths.append(len(failed.traceback))
    session.servers.kill()
    assert depths[1] == depths[2] == depths[3]
    assert len(list(tmp_path.glob("guest-*"))) == 1


def test_a_test_whose_server_could_not_be_launched_is_recorded_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Guest) -> None:
        raise ValueError("a bug of the launch")

    monkeypatch.setattr(Guest, "launch", fail)
    spec = cells.spec_of("bitops", tmp_path, fakes.unemulated(Catalog().targets["armv5"]))
    session = CellSession(msgspec.structs.replace(spec, build=fakes.build(tmp_path)))
    session.collected(1)
    session.begin("bitops/test_it")
    with pytest.raises(ValueError, match="launch") as failed:
        session.servers.guest()
    session.end("failed", str(failed.value), 1.0)
    session.close()
    (recorded,) = [
        one for one in event_log.read_events(tmp_path / event_log.NAME) if isinstance(one, cell_events.TestEvent)
    ]
    assert (recorded.outcome, recorded.message) == ("failed", "a bug of the launch")


@pytest.mark.parametrize(
    ("tells", "cut_short", "names", "doubt"),
    [
        (True, "", ["fuzz/test_it[GET]"], ""),
        (False, "", ["fuzz/test_it[GET]", "fuzz/test_it"], ""),
        (True, "it ended after 10 failed examples", ["fuzz/test_it[GET]", "fuzz/test_it"], "it ended after 10"),
    ],
    ids=["its-examples-failed", "something-else-failed", "it-was-cut-short"],
)
def test_a_failed_example_hides_no_other_failure(
    *, tells: bool, cut_short: str, names: list[str], doubt: str, tmp_path: Path
) -> None:
    """Regression: a failure after that of an example was lost, and the example's known finding made the cell XFAIL."""
    session = CellSession(cells.spec_of("fuzz", tmp_path, fakes.unemulated(Catalog().targets["armv5"])))
    session.collected(1)
    session.begin("fuzz/test_it")
    session.begin_example()
    session.end_example("GET", "GET k: guest b'', native b'v'", 0.1)
    session.current.examples_tell, session.current.cut_short = tells, cut_short
    session.end("failed", "a server keeps its keys", 1.0)
    session.close()
    events = event_log.read_events(tmp_path / event_log.NAME)
    recorded = [one for one in events if isinstance(one, cell_events.TestEvent)]
    assert [one.name for one in recorded] == names
    assert recorded[-1].doubt.startswith(doubt)
    assert bool(recorded[-1].doubt) == bool(doubt)


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CellSession]:
    """A cell in which a test has begun. Its server and its native build answer every request."""
    folder = tmp_path_factory.mktemp("s")
    build = fakes.build(folder)
    fakes.write(build.server_binary, fakes.answering_server(), mode=0o755)
    runner = fakes.unemulated(fakes.target())
    peers = {ORACLE: PeerServer(runner=runner, build=build)}
    spec = msgspec.structs.replace(cells.spec_of("fuzz", folder, runner), build=build, peers=peers)
    session = CellSession(spec)
    session.collected(1)
    session.begin("fuzz/test_it")
    yield session
    session.servers.kill()


def recorded_by(session: CellSession) -> tuple[list[cell_events.TestEvent], list[cell_events.GuestEvent]]:
    session.close()
    events = event_log.read_events(session.cell.folder / event_log.NAME)
    tests = [one for one in events if isinstance(one, cell_events.TestEvent)]
    return tests, [one for one in events if isinstance(one, cell_events.GuestEvent)]


def add_fault(guest: Guest) -> None:
    with guest.evidence.fault_log.open("ab") as log:
        log.write(b'{"event":"fault"}\n')


def test_a_fault_before_an_example_does_not_belong_to_it(served: CellSession) -> None:
    guest = served.servers.guest()
    add_fault(guest)
    served.begin_example()
    served.end_example("GET", "GET k: guest b'', native b'v'", 0.1)
    (example,), _ = recorded_by(served)
    assert (example.fault_from, example.fault_to) == (1, 1)


@pytest.mark.parametrize("faults", [True, False])
def test_a_test_that_passed_keeps_its_requests_if_its_server_had_a_fault(served: CellSession, *, faults: bool) -> None:
    guest = served.servers.guest()
    if faults:
        add_fault(guest)
    served.end("passed", "", 0.1)
    (test,), _ = recorded_by(served)
    assert (bool(test.transcript), test.fault_to) == (faults, int(faults))


@pytest.mark.parametrize("dies", [True, False])
def test_the_end_of_a_native_build_is_recorded_if_it_ended_by_itself(served: CellSession, *, dies: bool) -> None:
    oracle = served.servers.oracle()
    if dies:
        os.kill(oracle.first_pid, signal.SIGABRT)
        assert eventually(lambda: not oracle.alive())
    _, ends = recorded_by(served)
    assert [(one.end, one.oracle) for one in ends] == ([("signal", True)] if dies else [])


@pytest.mark.parametrize(("may_refuse", "end"), [(True, "stopped"), (False, "start-failed")])
def test_the_end_of_a_tests_own_server_that_does_not_start_is_recorded(
    served: CellSession, *, may_refuse: bool, end: str
) -> None:
    assert served.cell.build is not None
    fakes.write(served.cell.build.server_binary, "#!/bin/sh\nexit 1\n", mode=0o755)
    with pytest.raises(StartError):
        served.servers.start_guest(may_refuse=may_refuse)
    served.end("passed", "", 0.1)
    _, ends = recorded_by(served)
    assert [(one.end, one.own) for one in ends] == [(end, True)]


def test_an_example_keeps_only_its_own_requests(served: CellSession) -> None:
    guest = served.servers.guest()
    for word in ("first", "second"):
        served.begin_example()
        with guest.client() as client:
            assert client.command("PING", word) == b"PONG"
        served.end_example(word, "guest b'', native b'v'", 0.1)
    examples, _ = recorded_by(served)
    kept = [requests(load(served.cell.folder / guest.name / one.transcript)) for one in examples]
    assert kept == [["PING first"], ["PING second"]]


def test_servers_outside_the_evidence_may_run_at_the_same_time_and_leave_nothing(served: CellSession) -> None:
    with served.servers.scratch() as one, served.servers.scratch() as other:
        assert one.folder != other.folder
        for guest in (one, other):
            with guest.client() as client:
                assert client.command("PING") == b"PONG"
    assert not one.folder.exists()
    assert not other.folder.exists()
    assert recorded_by(served) == ([], [])


def test_a_suspended_server_answers_only_when_it_is_let_go(served: CellSession) -> None:
    guest = served.servers.guest()
    with guest.client() as client:
        with guest.suspended():
            assert guest.is_suspended()
        assert client.command("PING") == b"PONG"
    assert not guest.is_suspended()


def test_a_unit_whose_execution_was_not_recorded_is_a_problem_of_the_cells_record(tmp_path: Path) -> None:
    """Otherwise a later check would omit the unit, as one that an edit does not reach. Here nothing loads a plugin."""
    program = fakes.write(tmp_path / "units", "#!/bin/sh\n", mode=0o755)
    code = ProgramCode(base=0, begin=0, end=64, step=4, functions=[Function(start=0, size=64, names=["main"])])
    (tmp_path / "code").write_bytes(json_codec.encode(code))
    spec = msgspec.structs.replace(
        cells.spec_of("units", tmp_path, fakes.unemulated(fakes.target())),
        units=Units(program=program, absent={}, broken={}, names=("sds",)),
        execution=ExecutionSpec(
            plugin=tmp_path / "blocks.so", programs={str(program): tmp_path / "code"}, kept="functions"
        ),
    )
    session = CellSession(spec)
    session.collected(1)
    session.begin("units/test_it")
    session.run_unit("sds")
    session.end("passed", "", 0.1)
    session.close()
    noted = cell_reach.read(tmp_path)
    assert noted is not None
    assert noted.problem == "a program executed nothing"


SPINNING_SERVER = fakes.answering_server().replace(
    "connection.recv(64)\n", "received = connection.recv(64)\n            while b'SET' in received: pass\n"
)


def test_a_server_of_one_test_that_hangs_is_ended_at_once_and_later_replies_have_less_time(
    served: CellSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was told to end, and given minutes to do so."""
    monkeypatch.setattr("harness.run.extra_servers.PROBE_SECONDS", 0.5)
    assert served.cell.build is not None
    fakes.write(served.cell.build.server_binary, SPINNING_SERVER, mode=0o755)
    guest, other = (served.servers.start_guest() for _ in range(2))
    usual = guest.deadline_seconds
    with guest.client(deadline_seconds=0.5) as client, pytest.raises(TimeoutError) as late:
        client.command("SET", "k", "v")
    began = time.monotonic()
    served.end("failed", f"TimeoutError: {late.value}", 0.5)
    assert time.monotonic() - began < STOP_SECONDS / 2
    _, ends = recorded_by(served)
    assert {one.name: one.end for one in ends} == {guest.name: "hang", other.name: "stopped"}
    served.current.begin("fuzz/another")
    assert served.servers.late_reply() is not None
    assert guest.deadline_seconds < usual


def test_a_hang_at_a_request_that_nothing_recorded_counts_too(served: CellSession) -> None:
    """Regression: the fuzzer waited for each server of a tree whose SET hangs."""
    assert served.cell.build is not None
    fakes.write(served.cell.build.server_binary, SPINNING_SERVER, mode=0o755)
    guest = served.servers.guest()
    usual = guest.deadline_seconds
    with connect(guest.upstream, deadline_seconds=5) as connection:
        connection.sendall(b"SET k v\r\n")
        served.end("failed", "TimeoutError: timed out", 0.1)
    assert guest.ended is not None
    assert guest.ended.how == "hang"
    served.current.begin("fuzz/another")
    assert guest.deadline_seconds < usual


SLOW_SERVER = fakes.answering_server("while time.process_time() < 1.0: pass")
BUSY = 6
"""Number of programs that compete for the same processor."""


def test_a_server_that_waits_for_a_busy_processor_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: on a busy machine, a healthy server did not answer in time, which was reported as a finding."""
    start_seconds = 1.5
    monkeypatch.setattr("harness.run.server_process.START_SECONDS", start_seconds)
    build = fakes.build(tmp_path)
    fakes.write(build.server_binary, SLOW_SERVER, mode=0o755)
    spec, runner = ServerSpec(build=build, version=(7, 0, 15)), fakes.unemulated(fakes.target())
    guest = Guest(spec, runner, tmp_path / "guest-1", sockets=tmp_path)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(BUSY)]
    try:
        before = time.monotonic()
        with guest:
            assert time.monotonic() - before > start_seconds, "the server did not have to wait for a processor"
            assert guest.alive()
    finally:
        os.sched_setaffinity(0, allowed)
        for one in busy:
            one.kill()
            one.wait()


class SilentMachine(Machine):
    """A machine in which a server starts but never answers. Its emulator is another process."""

    emulator: subprocess.Popen[bytes]

    @property
    def emulator_pid(self) -> int:
        """The number of that process."""
        return self.emulator.pid

    def alive(self) -> bool:
        """Report that the machine runs."""
        return True

    def start(self, *_: object, **__: object) -> int:
        """Start a server whose number is also that of a host process."""
        return os.getpid()

    def refuse_silence(self) -> None:
        """Do nothing: the machine's kernel answers, so the server is to blame."""

    def endpoint(self, port: int) -> tuple[str, int]:
        """An address at which no process listens."""
        del port
        return "127.0.0.1", 9

    def request(self, *_: object, **__: object) -> bytes:
        """Return an empty answer."""
        return b""

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """End the server."""
        self._ends[pid] = ExitStatus(how="signal", number=number)


@pytest.mark.parametrize(("stopped", "detail"), [(False, cell_events.NO_PONG), (True, cell_events.STOPPED)])
def test_a_servers_processor_time_in_a_machine_is_that_of_the_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stopped: bool, detail: str
) -> None:
    """Regression: the server's number belongs to another process here, whose waits extended the server's deadline
    forever.
    """
    monkeypatch.setattr("harness.run.server_process.START_SECONDS", 0.05)
    waited = {os.getpid(): itertools.count(0, 1000)}
    monkeypatch.setattr(
        "harness.core.processes.scheduling.waited_seconds", lambda pid: next(waited.get(pid, itertools.repeat(7.0)))
    )
    cell = cell_on_a_machine_without_emulator(tmp_path, "bitops")
    assert cell.machine is not None
    host = VirtualMachine(cell.machine, tmp_path, sockets=tmp_path)
    machine = host._machine = SilentMachine(cell.machine, tmp_path / "machine", sockets=tmp_path)  # noqa: SLF001
    guest = VmGuest(server_of(cell), cell.runner, tmp_path / "guest-1", host=host)
    with subprocess.Popen(["sleep", "60"]) as machine.emulator:
        try:
            if stopped:
                machine.emulator.send_signal(signal.SIGSTOP)
            with pytest.raises(StartError) as refused:
                guest.__enter__()
        finally:
            machine.emulator.kill()
    assert (refused.value.end, refused.value.detail) == ("hang", detail)


class LingeringMachine(SilentMachine):
    """A machine in which a killed server ends a moment later."""

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """End the server soon."""
        threading.Timer(0.1, super().kill, (pid, number)).start()


class DeafMachine(SilentMachine):
    """A machine that ends no server."""

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("machine", "seconds"), [(LingeringMachine, KILL_SECONDS), (DeafMachine, 0.1)])
def test_a_kill_in_a_machine_returns_when_the_server_has_ended_or_its_time_is_over(
    machine: type[SilentMachine], seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's log is read next, and its port is given to the next one."""
    monkeypatch.setattr("harness.run.server_process.KILL_SECONDS", seconds)
    cell = cell_on_a_machine_without_emulator(tmp_path, "bitops")
    assert cell.machine is not None
    host = VirtualMachine(cell.machine, tmp_path, sockets=tmp_path)
    host._machine = machine(cell.machine, tmp_path / "machine", sockets=tmp_path)  # noqa: SLF001
    guest = VmGuest(server_of(cell), cell.runner, tmp_path / "guest-1", host=host)
    guest.folder.mkdir()
    guest.launch()
    began = time.monotonic()
    guest.kill()
    assert guest.alive() == (machine is DeafMachine)
    assert time.monotonic() - began < KILL_SECONDS / 2


COUNTS = cell_events.Counters(user=3, skipped=0, half=1, word=2, dword=0, multi=0)


class CountingMachine(SilentMachine):
    """A machine whose kernel counts misaligned accesses."""

    def counters(self) -> cell_events.Counters | None:
        """Some counts."""
        return COUNTS


def test_the_first_test_of_a_machine_has_counts_from_before_its_server_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what the kernel repaired in that test would not be seen."""
    monkeypatch.setattr("harness.run.server_process.START_SECONDS", 0.05)
    session = CellSession(cell_on_a_machine_without_emulator(tmp_path, "bitops"))
    host = session.servers.host
    assert isinstance(host, VirtualMachine)
    session.collected(1)
    session.begin("bitops/test_it")
    machine = host._machine = CountingMachine(host.image, tmp_path / "machine", sockets=tmp_path)  # noqa: SLF001
    with subprocess.Popen(["sleep", "60"]) as machine.emulator:
        try:
            with pytest.raises(StartError) as failed:
                session.servers.guest()
        finally:
            machine.emulator.kill()
        session.end("failed", str(failed.value), 1.0)
    session.log.close(tests=1, failed=1)
    (recorded,) = [
        one for one in event_log.read_events(tmp_path / event_log.NAME) if isinstance(one, cell_events.TestEvent)
    ]
    assert recorded.counters_before == recorded.counters_after == COUNTS


def test_a_guest_counts_the_faults_of_a_log_that_has_grown(tmp_path: Path) -> None:
    build = fakes.build(tmp_path)
    spec, runner = ServerSpec(build=build, version=(7, 0, 15)), fakes.unemulated(fakes.target())
    guest = Guest(spec, runner, tmp_path / "guest-1", sockets=tmp_path)
    assert guest.evidence.faults() == 0
    guest.folder.mkdir()
    for count in (1, 2):
        with guest.evidence.fault_log.open("ab") as log:
            log.write(b'{"event":"fault"}\n{"event":"count"}\n')
        assert [guest.evidence.faults(), guest.evidence.faults()] == [count, count]
