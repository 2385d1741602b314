"""The arithmetic of costs: ratios of each round, quartiles, the cost of a report, goals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.strict_toml import ROOT
from harness.workflows.measure.overhead import (
    AUDITED,
    COVERED,
    DELAYED,
    ENFORCED,
    GOALS,
    MEMORY_GOAL_MIB,
    Costs,
    Memory,
    price_of,
    ratio_of,
    text_of,
)

rates = st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=9)


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_the_medians() -> None:
    # The machine was slow in the second and third rounds, for both sides.
    one = ratio_of("armv5", "GET", 8, ENFORCED, [96, 48, 10], [100, 50, 10])
    assert (one.ratio, one.per_second, one.unchecked_per_second) == (0.96, 48, 50)


def test_quartiles_show_the_noise() -> None:
    one = ratio_of("armv5", "GET", 1, AUDITED, [80, 90, 100, 110, 120], [100] * 5)
    assert (one.lower_quartile, one.ratio, one.upper_quartile) == (0.9, 1.0, 1.1)


def test_one_round_has_no_spread() -> None:
    one = ratio_of("armv5", "GET", 1, AUDITED, [90], [100])
    assert (one.lower_quartile, one.ratio, one.upper_quartile) == (0.9, 0.9, 0.9)


@given(rates)
def test_the_median_is_between_the_quartiles(pairs: list[tuple[float, float]]) -> None:
    one = ratio_of("armv5", "SET", 8, ENFORCED, [a for a, _ in pairs], [b for _, b in pairs])
    assert one.lower_quartile <= one.ratio <= one.upper_quartile


def test_sides_with_different_rounds_are_not_compared() -> None:
    with pytest.raises(ValueError, match="argument"):
        ratio_of("armv5", "SET", 8, ENFORCED, [1, 2], [1])


def test_the_cost_of_a_report_is_a_requests_additional_time_divided_by_its_accesses() -> None:
    # Requests of 1 ms and 0.5 ms: 500 µs more, for 1000 accesses.
    price = price_of("armv5", "redis", [1000], [2000], accesses_per_request=1000, over_mebibytes=0.26)
    assert (price.microseconds_per_access, price.ratio, price.over_unchecked_mebibytes) == (0.5, 0.5, 0.3)


def test_a_target_that_reports_nothing_has_no_cost() -> None:
    price = price_of("aarch64", "redis", [1000], [1010], accesses_per_request=0, over_mebibytes=0)
    assert price.microseconds_per_access == 0


def test_the_text_shows_the_distance_to_every_goal() -> None:
    costs = Costs(
        server="redis-7.0.15",
        rounds=1,
        processors=2,
        load_before=0.5,
        load_after=1.5,
        throughput=[
            ratio_of("armv5", "GET", 8, ENFORCED, [97], [100]),
            ratio_of("armv5", "GET", 8, AUDITED, [70], [100]),
            ratio_of("armv5", "GET", 1, AUDITED, [60, 79, 99], [100] * 3),
        ],
        memory=[
            Memory(target="armv5", policy=AUDITED, mebibytes=50, over_unchecked_mebibytes=33.5, goal_mebibytes=32.0)
        ],
        reports=[price_of("armv5", "redis-3.2.6", [1000], [2000], accesses_per_request=100, over_mebibytes=0.2)],
    )
    text = text_of(costs)
    for expected in (
        "0.970  0.970–0.970  0.95 met by 0.020",
        "0.80 missed by 0.100\n",
        "0.80 missed by 0.010, within the noise\n",
        "33.5  32 missed by 1.5",
        "5.000 µs each",
        "load 0.5 before and 1.5 after",
    ):
        assert expected in text, text


def test_the_documentation_has_the_goals() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    goals = f"enforcement ≥ {GOALS[ENFORCED]:.2f}, audit ≥ {GOALS[AUDITED]:.2f}, coverage ≥ {GOALS[COVERED]:.2f}, "
    goals += f"delayed stores ≥ {GOALS[DELAYED]:.2f}"
    line = next(line for line in text.splitlines() if goals in line)
    assert f"≤ {MEMORY_GOAL_MIB:.0f} MiB" in line
