"""A server whose bug of memory order is known shows it under `--memory-order weak`, with the two stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


@pytest.mark.slow(instead="test_program_order.py, on a queue of the guide; test_order_trials.py")
def test_an_emptied_job_of_valkey_8_1_1_is_visible_after_the_end_of_its_queue(tmp_path: Path) -> None:
    """valkey#3797. Chance decides how the server ends: by either assertion, or by a job that is NULL."""
    words = ("--server", "valkey-8.1.1", "--target", "aarch64", "--suite", "order", "--memory-order", "weak")
    finished = run("check", *words, "--fail-fast", "--seed", 1, "--json", "--run", tmp_path / "run")
    assert finished.returncode == ExitCode.FINDINGS
    findings = document(finished)["findings"]
    assert {one["kind"] for one in findings} == {"order"}
    told = [line for one in findings for witness in one["witnesses"] for line in witness["overtakes"]]
    assert any("the store in IOJobQueue_removeJob (src/io_threads.c:11" in line for line in told)
