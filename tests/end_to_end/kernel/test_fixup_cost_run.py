"""The cost of a real kernel's fixups: every fixup is counted, and the figures are the same on every boot."""

from __future__ import annotations

import pytest

from harness.core import json_codec
from harness.core.errors import ExitCode
from harness.workflows.measure.fixup_cost import FixupCost
from harness.workflows.measure.fixup_cost_run import COUNT, ROUNDS
from tests.end_to_end.support.plumb_runs import run

pytestmark = pytest.mark.end_to_end


def measured(target: str, server: str) -> FixupCost:
    finished = run("fixup-cost", "--target", target, "--server", server, "--json")
    assert finished.returncode == ExitCode.PASS, finished.stderr
    return json_codec.decode(finished.stdout.encode(), FixupCost)


@pytest.mark.slow(
    instead=(
        "tests/unit/workflows/test_fixup_cost_run.py; test_a_real_kernel_does_what_the_model_prescribes, for "
        "repaired accesses"
    )
)
def test_armv5s_fixups_are_counted_are_costly_and_are_the_same_on_every_boot() -> None:
    first, second = measured("armv5-kernel", "redis-3.2.6"), measured("armv5-kernel", "redis-3.2.6")
    assert {one.access_class for one in first.accesses} == {"half", "word", "dword", "multi"}
    for one in first.accesses:
        assert (one.repairer, one.fixups) == ("kernel", COUNT * (ROUNDS + 1)), one.access
        assert one.aligned in {2, 3}, one.access
        assert one.times_aligned > 20, one.access
        assert one.aligned < one.copied < one.misaligned, one.access
    assert first.accesses == second.accesses
    bitop, again = (row for tax in (first, second) for row in tax.servers if row.workload == "BITOP")
    # The server reads two operands and writes one result, each of 200 bytes, word by word.
    assert bitop.fixups is not None
    assert bitop.fixups["word"] >= 1000 * 3 * 200 // 4
    assert bitop.fixups == again.fixups
    assert bitop.share > 0.5
    # The number of runs of the server's own timer varies a little.
    assert bitop.instructions == pytest.approx(again.instructions, rel=0.03)
