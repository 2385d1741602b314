"""The comparison of two servers' figures: differences beyond noise, the limit, changed functions, and the exit code."""

from __future__ import annotations

import msgspec
import pytest

from harness.core.errors import ExitCode
from harness.workflows.measure.cost_comparison import differences, exit_code
from harness.workflows.measure.cost_document import NoFigure
from harness.workflows.measure.server_cost_tables import summary
from tests.unit.workflows.test_server_cost import cost, measured, on_kernel


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((7_600, 7_620), "same"),
        ((7_630, 7_650), "same"),
        ((7_800, 7_810), "dearer"),
        ((8_200, 8_210), "beyond the limit"),
        ((7_000, 7_010), "cheaper"),
    ],
)
def test_a_difference_counts_beyond_noise_and_fails_beyond_the_limit(ours: tuple[int, int], verdict: str) -> None:
    (found, *_) = differences(cost(*ours, name="ours"), cost(7_610, 7_625), 0.03)
    assert (found.figure, found.verdict) == ("instructions", verdict)
    # An unchanged function is not named, and no function is named if nothing differs.
    assert set(found.functions) == (set() if verdict == "same" else {"getCommand"})


def test_a_difference_names_the_contribution_of_each_function() -> None:
    (found, *_) = differences(cost(8_200, 8_200, name="ours"), cost(7_600, 7_600), 0.03)
    assert found.change == pytest.approx(600 / 7_600)
    assert found.functions == {"getCommand": 600}
    assert "get on armv5: getCommand +600 instructions a request" in summary(measured([found]))


def test_memory_and_bytes_on_disk_have_the_same_limit() -> None:
    found = differences(
        cost(7_600, 7_600, name="ours", written_bytes=10_700), cost(7_600, 7_600, written_bytes=10_000), 0.03
    )
    assert {one.figure: one.verdict for one in found} == {
        "instructions": "same",
        "used_memory": "same",
        "written_bytes": "beyond the limit",
        "allocations": "same",
    }


def test_servers_on_a_kernel_have_the_same_limit() -> None:
    def verdicts(*ours: float, **changed: object) -> dict[str, str]:
        found = differences(on_kernel(*ours, name="ours", **changed), on_kernel(20_000, 20_100), 0.03)
        assert [one.functions for one in found] == [{}, {}]
        return {one.figure: one.verdict for one in found}

    assert verdicts(20_050, 20_150) == {"instructions": "same", "used_memory": "same"}
    assert verdicts(20_500, 20_550) == {"instructions": "dearer", "used_memory": "same"}
    assert verdicts(21_000, 21_050)["instructions"] == "beyond the limit"
    assert verdicts(20_000, 20_100, used_memory=1_100_000)["used_memory"] == "beyond the limit"


def test_the_exit_code_distinguishes_a_finding_from_a_missing_figure() -> None:
    dear = differences(cost(8_200, 8_200, name="ours"), cost(7_600, 7_600), 0.03)
    same = differences(cost(7_600, 7_600, name="ours"), cost(7_600, 7_600), 0.03)
    missing = NoFigure(server="ours", target="armv5", workload="x", reason="it died")
    lacking = NoFigure(server="ours", target="armv5", workload="x", reason="no XADD", inapplicable=True)
    assert exit_code(measured(same)) is ExitCode.PASS
    assert exit_code(measured(same, [lacking])) is ExitCode.PASS
    assert exit_code(measured(same, [missing])) is ExitCode.INCONCLUSIVE
    assert exit_code(measured(dear, [missing])) is ExitCode.FINDINGS
    assert "no figure: x on armv5, ours: it died" in summary(measured(same, [missing]))


def test_without_a_measurement_or_comparison_nothing_has_passed() -> None:
    lacking = NoFigure(server="ours", target="armv5", workload="x", reason="no XADD", inapplicable=True)
    uncompared = measured([], [lacking])
    assert exit_code(uncompared) is ExitCode.INCONCLUSIVE
    alone = msgspec.structs.replace(uncompared, against="")
    assert exit_code(alone) is ExitCode.PASS
    assert exit_code(msgspec.structs.replace(alone, costs=[])) is ExitCode.INCONCLUSIVE
