"""What the logs of a server say of its own process."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Literal

import pytest

from harness.core import json_codec
from harness.run.servers.server_evidence import ServerEvidence
from harness.run.session.current_test import CurrentTest
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("event", "pid", "since", "expected"),
    [
        ("fault", fakes.PID, 0, True),
        ("fault", fakes.PID, 1, False),
        # A child's fault, and an access that was repaired.
        ("fault", fakes.PID + 1, 0, False),
        ("access", fakes.PID, 0, False),
    ],
)
def test_a_fault_is_the_processs_own_if_it_was_not_repaired(
    tmp_path: Path, event: Literal["fault", "access"], pid: int, since: int, *, expected: bool
) -> None:
    evidence = ServerEvidence(tmp_path, "")
    evidence.fault_log.write_bytes(json_codec.encode(fakes.fault(event=event, pid=pid)) + b"\n")
    assert evidence.has_fault_of(fakes.PID, since) is expected


def test_only_crashes_of_other_processes_are_those_of_children(tmp_path: Path) -> None:
    evidence = ServerEvidence(tmp_path, "")
    assert evidence.crashed_children(fakes.PID) == 0
    ends = {fakes.PID: signal.SIGSEGV, 101: signal.SIGABRT, 102: signal.SIGTERM, 103: 0}
    for number, (pid, ended_by) in enumerate(ends.items()):
        with evidence.fault_log.open("ab") as log:
            log.write(b'{"event":"end","pid":%d,"signal":%d,"status":0}\n' % (pid, ended_by))
        assert evidence.crashed_children(fakes.PID) == (number > 0)


def test_nothing_is_reported_without_a_detector_or_before_the_server_writes(tmp_path: Path) -> None:
    assert ServerEvidence(tmp_path, "asan").reports(0) == []
    (tmp_path / "log").write_bytes(b"==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n")
    assert ServerEvidence(tmp_path, "").reports(0) == []


def test_nothing_of_an_example_is_left_for_the_next_one() -> None:
    current = CurrentTest()
    current.begin("bitops/test_bitops.py::test_count")
    current.label("one")
    current.blocked, current.unit, current.wrong_line, current.doubt = True, "crc64", "1 is 2", "native fails as well"
    current.begin_example()
    whole = CurrentTest(name="bitops/test_bitops.py::test_count", whole_name="bitops/test_bitops.py::test_count")
    assert current == whole
