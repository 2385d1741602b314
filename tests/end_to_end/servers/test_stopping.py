"""How a server ends on request, and whose end a failed test reports. The servers run natively, for a few seconds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.build.sources import source_tree
from harness.record import cell_events, event_log
from harness.record.cell_events import SENT, GuestEvent
from harness.run.cell_spec import CellSpec, PeerServer
from tests.end_to_end.support import machines
from tests.end_to_end.support.written_suites import run_written

if TYPE_CHECKING:
    from harness.core.processes import process

pytestmark = pytest.mark.end_to_end

SERVER, VERSION = "redis-7.0.15", (7, 0, 15)
BEGINS = """
import signal
import time
import pytest
from harness.protocol.resp import Client

def asleep(server, seconds):
    client = server.client()
    client.command("PING")
    # The signal interrupts the first DEBUG SLEEP.
    client.send(client.pack([("DEBUG", "SLEEP", 1000), ("DEBUG", "SLEEP", seconds)]))
    time.sleep(0.2)
    client.close()
"""


def run_cell(
    folder: Path, suite: str, *, timeout_multiplier: float = 1.0, slowdown: float = 1.0, **more: Any
) -> tuple[process.Result, list[cell_events.TestEvent], list[GuestEvent]]:
    """Run a suite's text on the native build, whose oracle is the same build."""
    home = folder / "cell"
    home.mkdir()
    runner = machines.runner("native")
    target = msgspec.structs.replace(runner.target, timeout_multiplier=timeout_multiplier, slowdown=slowdown)
    build = machines.build(source_tree.open_tree(machines.release(SERVER)), "native")
    with tempfile.TemporaryDirectory(prefix="plumbline-") as sockets:
        spec: dict[str, Any] = {"canary": None, "seed": 1, "tier": "quick", "version": VERSION}
        cell = CellSpec(
            suite="persistence",
            folder=home,
            shared=Path(sockets),
            sockets=Path(sockets),
            runner=msgspec.structs.replace(runner, target=target),
            build=build,
            peers={"native": PeerServer(runner=runner, build=build)},
            **spec,
            **more,
        )
        result = run_written(BEGINS + suite, folder / "test_ends.py", cell, deadline_seconds=120)
    events = event_log.read_events(home / event_log.NAME)
    tests = [event for event in events if isinstance(event, cell_events.TestEvent)]
    return result, tests, [event for event in events if isinstance(event, GuestEvent)]


def test_a_server_that_hangs_on_a_request_to_stop_has_not_stopped(tmp_path: Path) -> None:
    """Tests a server that tests share, and a server that a test started for itself."""
    suite = """
def test_own(start_guest):
    asleep(start_guest(), 1000)

def test_shared(guest):
    asleep(guest, 1000)
"""
    result, _, (own, shared) = run_cell(tmp_path, suite, timeout_multiplier=0.1)
    assert result.code == 0, result.text
    late = "it did not end within 2 s of the order to stop"
    assert (own.end, own.detail, own.stopping) == ("hang", late, True)
    assert (shared.end, shared.detail, shared.stopping) == ("hang", late, True)


def test_a_server_of_a_test_that_runs_again_has_less_time_to_stop(tmp_path: Path) -> None:
    """One that has lost a job while stores waited waits for it, and the next run waits for that server."""
    suite = "\ndef test_own(start_guest):\n    asleep(start_guest(), 1000)\n"
    result, _, (own,) = run_cell(tmp_path, suite, patience_seconds=1)
    assert result.code == 0, result.text
    assert (own.end, own.detail) == ("hang", "it did not end within 1 s of the order to stop")


def test_a_server_that_hangs_after_it_has_removed_its_socket_has_not_stopped(tmp_path: Path) -> None:
    """The last steps of a shutdown wait for the server's threads."""
    suite = """
def test_own(start_guest):
    guest = start_guest()
    asleep(guest, 1000)
    guest.socket_path.unlink()
"""
    result, _, (own,) = run_cell(tmp_path, suite, patience_seconds=1)
    assert result.code == 0, result.text
    assert (own.end, own.stopping) == ("hang", True)


def test_a_dismissed_server_that_ends_badly_is_recorded(tmp_path: Path) -> None:
    """A test dismisses servers that ended by themselves, together with the others that it started."""
    # The server has no handler for SIGTRAP, and never raises it. That for SIGABRT tests the memory, whose regions
    # may be gone by then.
    suite = """
def test_hangs(start_guest):
    asleep(start_guest(), 1000)
    start_guest.dismiss()

def test_dies(start_guest):
    guest = start_guest()
    guest.send_signal(signal.SIGTRAP)
    while guest.alive():
        time.sleep(0.1)
    start_guest.dismiss()

def test_exits(start_guest):
    guest = start_guest()
    with guest.client() as client:
        client.send(client.pack([("SHUTDOWN", "NOSAVE")]))
        assert guest.await_end() == 0
    start_guest()
    start_guest.dismiss()
"""
    result, _, guests = run_cell(tmp_path, suite, timeout_multiplier=0.1)
    assert result.code == 0, result.text
    ends = [(guest.end, guest.test.rpartition("::")[2], guest.detail) for guest in guests]
    assert ends == [
        ("hang", "test_hangs", "it did not end within 2 s of the order to stop"),
        ("signal", "test_dies", f"killed by SIGTRAP{SENT}"),
    ]


def test_a_server_that_stops_slowly_has_stopped(tmp_path: Path) -> None:
    result, _, (guest,) = run_cell(tmp_path, "\ndef test_shared(guest):\n    asleep(guest, 4)\n")
    assert result.code == 0, result.text
    assert (guest.end, guest.detail) == ("stopped", "")


def test_a_server_stopped_from_outside_does_not_count_as_hanging(tmp_path: Path) -> None:
    suite = """
def test_shared(guest):
    guest.send_signal(signal.SIGSTOP)
"""
    _, _, (guest,) = run_cell(tmp_path, suite, timeout_multiplier=0.1)
    assert (guest.end, guest.detail) == ("hang", cell_events.STOPPED)


def test_a_guest_does_not_count_as_hanging_because_its_native_build_was_silent(tmp_path: Path) -> None:
    suite = """
def test_a_late_native_build(guest, oracle):
    assert guest.name == "guest-1"
    client = oracle.client(deadline_seconds=0.5)
    oracle.send_signal(signal.SIGSTOP)
    try:
        client.command("PING")
    finally:
        oracle.send_signal(signal.SIGABRT)
        oracle.send_signal(signal.SIGCONT)

def test_the_guest_goes_on(guest):
    assert guest.name == "guest-1"
"""
    result, (late, after), guests = run_cell(tmp_path, suite)
    assert (late.outcome, after.outcome) == ("failed", "passed"), result.text
    assert "timed out" in late.message, late.message
    ends = {event.name: (event.end, event.oracle, event.test) for event in guests}
    assert ends == {"guest-2": ("signal", True, late.name), "guest-1": ("stopped", False, "")}


def test_a_test_does_not_wait_for_a_living_guest_when_its_native_build_has_died(tmp_path: Path) -> None:
    suite = """
def test_a_dead_native_build(guest, oracle):
    client = oracle.client()
    oracle.send_signal(signal.SIGABRT)
    # It may reply to requests that were sent before the signal reached it.
    until = time.monotonic() + 50
    while time.monotonic() < until:
        client.command("PING")
"""
    result, (test,), _ = run_cell(tmp_path, suite, slowdown=60)
    assert test.outcome == "failed", result.text
    assert "closed by" in test.message or "reset by" in test.message, test.message
    assert result.seconds < 60, "the test waited for the guest although the native build had died"


def test_a_state_that_two_tests_awaited_in_vain_blocks_the_others_and_a_dead_server_none(tmp_path: Path) -> None:
    suite = """
from suites._shared import link

link.PATIENCE_SECONDS = 2.0

@pytest.mark.parametrize("role", ["primary", "replica", "third"])
def test_in_vain(guest, role):
    link.await_that(lambda: False, [guest], "a link")

def test_it_comes_about(guest):
    link.await_that(lambda: True, [guest], "a link")

def test_a_server_dies(guest, start_guest):
    one = start_guest()
    one.send_signal(signal.SIGKILL)
    link.await_that(lambda: False, [guest, one], "a link")

def test_expects_no_link(guest):
    try:
        link.await_that(lambda: False, [guest], "a link")
    except TimeoutError:
        pass
"""
    result, tests, _ = run_cell(tmp_path, suite)
    by_name = {test.name.partition("::test_")[2]: test for test in tests}
    assert {name: (test.outcome, len(test.blockers)) for name, test in by_name.items()} == {
        "in_vain[primary]": ("failed", 0),
        "in_vain[replica]": ("failed", 0),
        "in_vain[third]": ("failed", 2),
        "it_comes_about": ("passed", 0),
        "a_server_dies": ("failed", 0),
        "expects_no_link": ("failed", 2),
    }, result.text
    third = by_name["in_vain[third]"]
    assert third.seconds < by_name["in_vain[replica]"].seconds / 2
    assert third.doubt.startswith("timed out waiting for a link, for which ")
    assert all(not test.doubt for test in tests if not test.blockers)
    assert "ended while waiting for a link" in by_name["a_server_dies"].message


def test_a_server_tells_where_its_allocator_puts_blocks(tmp_path: Path) -> None:
    suite = """
from harness.judge.misaligned_blocks import misalignment_of
from harness.run.servers.probes import VALUES, addresses_of_values

def test_blocks(guest):
    with guest.client() as client:
        addresses = addresses_of_values(client)
    assert len(set(addresses)) == VALUES
    assert misalignment_of(addresses) == (0, 1)
"""
    result, tests, _ = run_cell(tmp_path, suite)
    assert [test.outcome for test in tests] == ["passed"], result.text


def test_a_server_counts_on_from_its_earlier_clients(tmp_path: Path) -> None:
    suite = """
def test_number(guest):
    with guest.client() as client:
        pytest.fail(str(client.command("CLIENT", "ID")), pytrace=False)
"""
    numbers = []
    for earlier in (0, 5):
        folder = tmp_path / str(earlier)
        folder.mkdir()
        _, (test,), _ = run_cell(folder, suite, earlier_clients=earlier)
        numbers.append(int(test.message.split()[-1]))
    assert numbers[1] - numbers[0] == 5
