"""The end of a guest's program is represented by one number."""

from __future__ import annotations

import signal

import pytest

from harness.run.vm.machine import ExitStatus


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (ExitStatus(how="exit", number=0), 0),
        (ExitStatus(how="exit", number=3), 3),
        (ExitStatus(how="signal", number=signal.SIGBUS), -signal.SIGBUS),
    ],
)
def test_a_signal_is_a_negative_number_and_an_exit_status_is_unchanged(status: ExitStatus, code: int) -> None:
    assert status.code == code
