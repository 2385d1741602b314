"""Results of several rounds: medians with their spread, and no figure if the rounds differ too much."""

from __future__ import annotations

import ast
import re
import signal
from types import SimpleNamespace

import msgspec
import pytest

from harness.analysis.code_profile import CodeProfile
from harness.core.errors import InconclusiveError
from harness.plan.workloads import BenchWorkload
from harness.run.counting.round_counts import RoundCounts
from harness.run.counting.workload_needs import LacksCommandError
from harness.workflows.measure import kernel_cost_run
from harness.workflows.measure.cost_comparison import differences
from harness.workflows.measure.cost_document import CostDifference, KernelCost, Measurement, NoFigure, ServerCost, join
from harness.workflows.measure.kernel_load import (
    UnsupportedError,
    benchmark_words,
    calls_in,
    cli_line,
    latencies_in,
    refuse_error_replies,
    refuse_lost_requests,
    sender_of,
)
from harness.workflows.measure.server_cost import KernelRound, kernel_cost, no_figure, percentile, server_cost
from harness.workflows.measure.server_cost_tables import tables

WORKLOAD = BenchWorkload(name="get", title="", commands=(("GET", "key"),), requests=100)
COUNTS = RoundCounts(
    requests=100,
    instructions=760_000,
    other_instructions=0,
    child_instructions=0,
    child_written_bytes=0,
    child_private_bytes=0,
    calls=800,
    writes=0,
    written_bytes=0,
    syncs=0,
    used_memory_before=1_000_000,
    used_memory=1_000_000,
    resident_bytes=4_000_000,
    own_bytes=2_000_000,
    turns=[7_600] * 100,
)

KERNEL_ROUND = KernelRound(
    instructions=20_000,
    latencies={},
    sent_by="benchmark",
    child_instructions=None,
    copied_bytes=None,
    used_memory=1_000_000,
    resident_bytes=4_096_000,
    proportional_bytes=3_072_000,
    own_bytes=2_048_000,
)


def cost(*instructions: int, workload: BenchWorkload = WORKLOAD, name: str = "theirs", **changed: int) -> ServerCost:
    rounds = [
        (
            msgspec.structs.replace(COUNTS, instructions=number * 100, turns=[number] * 100, **changed),
            CodeProfile({"getCommand": (number - 5_000) * 100, "call": 500_000}, 400),
        )
        for number in instructions
    ]
    return server_cost(workload, rounds, server=name, target="armv5", build="b")


def on_kernel(*instructions: float, name: str = "theirs", **changed: object) -> KernelCost:
    rounds = [msgspec.structs.replace(KERNEL_ROUND, instructions=number, **changed) for number in instructions]
    return kernel_cost(WORKLOAD, rounds, server=name, target="armv5-kernel")


def measured(differing: list[CostDifference], missing: list[NoFigure] | None = None) -> Measurement:
    return Measurement(
        servers=["ours"],
        against="theirs",
        optimisation="O2",
        allocator="libc",
        limit=0.03,
        kernel_costs=[],
        costs=[cost(7_600, 7_610, name="ours"), cost(7_600, 7_610)],
        no_figures=missing or [],
        differences=differing,
    )


def test_the_parts_of_a_measurement_are_joined_in_the_order_of_one_machine() -> None:
    def row(target: str, server: str, workload: str) -> ServerCost:
        return msgspec.structs.replace(cost(7_600, 7_610, name=server), target=target, workload=workload)

    # Neither targets nor servers nor workloads are in alphabetical order.
    pairs = [(target, workload) for target in ("sparc64", "armv5") for workload in ("set", "get", "bitop")]
    ours, theirs = ([row(target, name, workload) for target, workload in pairs] for name in ("ours", "against"))
    costs = [one for target in ("sparc64", "armv5") for one in (*ours, *theirs) if one.target == target]
    lacking = [("sparc64", "ours", "bitop"), ("armv5", "against", "get")]
    whole = msgspec.structs.replace(
        measured([line for one, other in zip(ours, theirs, strict=True) for line in differences(one, other, 0.03)]),
        against="against",
        costs=[one for one in costs if (one.target, one.server, one.workload) not in lacking],
        no_figures=[NoFigure(server=s, target=t, workload=w, reason="it died") for t, s, w in lacking],
    )

    def part(target: str, workload: str) -> Measurement:
        rows = {
            name: [one for one in getattr(whole, name) if (one.target, one.workload) == (target, workload)]
            for name in ("costs", "kernel_costs", "no_figures", "differences")
        }
        return msgspec.structs.replace(whole, **rows)

    assert join([part(*pair) for pair in pairs], limit=0.03) == whole


def test_figures_of_another_toolchain_name_it() -> None:
    plain = measured([])
    other = msgspec.structs.replace(plain, toolchain="clang-musl")
    assert [tables(one)[0].title for one in (plain, other)] == ["ours -O2 libc", "ours -O2 libc clang-musl"]


def test_a_figure_is_the_median_for_one_request_with_its_spread() -> None:
    found = cost(7_600, 7_630, 7_615)
    assert (found.instructions.value, found.instructions.least, found.instructions.most) == (7_615, 7_600, 7_630)
    assert found.instructions.spread == pytest.approx(30 / 7_615)
    assert (found.kernel_calls.value, found.allocations.value) == (8, 4)
    assert found.functions == {"getCommand": 2_615, "call": 5_000}
    assert found.percentiles == {"p50": 7_615, "p95": 7_630, "p99": 7_630}


def test_an_unrepeatable_count_is_not_a_figure() -> None:
    with pytest.raises(InconclusiveError, match="does not repeat") as caught:
        cost(7_600, 7_700)
    assert "7,600 to 7,700" in caught.value.because
    assert cost(7_600, 7_700, workload=msgspec.structs.replace(WORKLOAD, spread=0.02)).instructions.value == 7_650


def test_unrepeatable_memory_is_not_a_figure() -> None:
    rounds = [
        (msgspec.structs.replace(COUNTS, used_memory=used), CodeProfile({}, 400)) for used in (1_000_000, 1_020_000)
    ]
    with pytest.raises(InconclusiveError, match="its memory does not repeat") as caught:
        server_cost(WORKLOAD, rounds, server="theirs", target="armv5", build="b")
    assert "1,000,000 to 1,020,000 bytes" in caught.value.because
    assert server_cost(
        msgspec.structs.replace(WORKLOAD, spread=0.02), rounds, server="theirs", target="armv5", build="b"
    ).used_memory.value == pytest.approx(1_010_000)
    kernel = [msgspec.structs.replace(KERNEL_ROUND, used_memory=used) for used in (1_000_000, 1_200_000)]
    with pytest.raises(InconclusiveError, match="its memory does not repeat"):
        kernel_cost(WORKLOAD, kernel, server="theirs", target="armv5-kernel")


def test_memory_that_grows_unexpectedly_is_not_a_figure() -> None:
    steady = msgspec.structs.replace(WORKLOAD, steady=True)
    assert cost(7_600, 7_600, workload=steady, used_memory=1_000_050).growth_bytes.value == 0.5
    with pytest.raises(InconclusiveError, match="memory grows"):
        cost(7_600, 7_600, workload=steady, used_memory=1_006_400)
    assert cost(7_600, 7_600, used_memory=1_006_400).growth_bytes.value == 64


def test_percentiles_are_those_of_single_requests_alone() -> None:
    assert cost(7_600, 7_600, workload=msgspec.structs.replace(WORKLOAD, pipeline=10)).percentiles == {}
    assert [percentile(range(1, 101), number) for number in (50, 95, 99)] == [50, 95, 99]
    assert percentile([3], 99) == 3


def test_an_unrepeatable_count_on_a_kernel_is_not_a_figure() -> None:
    # Interrupts add two percentage points to the one that the workload allows.
    assert on_kernel(20_000, 20_500).instructions.value == 20_250
    with pytest.raises(InconclusiveError, match="does not repeat"):
        on_kernel(20_000, 21_000)


def test_figures_on_a_kernel_have_the_servers_memory_and_its_child() -> None:
    saving = on_kernel(20_000, 20_100, child_instructions=65_000_000, copied_bytes=3_584_000)
    plain = msgspec.structs.replace(on_kernel(20_000, 20_100), workload="plain")
    whole = msgspec.structs.replace(measured([]), kernel_costs=[saving, plain])
    figures, children = (one for one in tables(whole) if not one.title)
    assert figures.rows[0][3:] == ["benchmark", "20,050", "0.50%", "", "", "", "977", "4,000", "3,000", "2,000"]
    assert [row[1:] for row in children.rows] == [["get", "armv5-kernel", "65,000,000", "3,500"]]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LacksCommandError("the release has no XADD"), "the release has no XADD"),
        (InconclusiveError("it died", where="redis on armv5", because="SIGSEGV"), "it died: SIGSEGV"),
        (OSError("refused"), "refused"),
    ],
)
def test_a_missing_figure_has_its_errors_reason(error: Exception, reason: str) -> None:
    found = no_figure(WORKLOAD, error, server="ours", target="armv5")
    assert found == NoFigure(server="ours", target="armv5", workload="get", reason=reason)
    assert no_figure(WORKLOAD, error, server="ours", target="armv5", inapplicable=True).inapplicable


SEVERAL = {"commands": (("GET", "key"), ("SET", "key", "{value}"))}


@pytest.mark.parametrize(
    ("changed", "sender"),
    [
        ({}, "benchmark"),
        ({"pipeline": 10, "connections": 50, "saving": "aof-always"}, "benchmark"),
        ({"connections": 50, "during": "bgsave"}, "benchmark"),
        ({"during": "bgsave"}, "benchmark"),
        ({"drawn": "in-order"}, "cli"),
        (SEVERAL, "cli"),
        ({"commands": (("SET", "{number}", "{value}"),)}, "cli"),
        ({"commands": (("VADD", "key", "FP32", "{floats}", "element"),)}, "cli"),
    ],
    ids=str,
)
def test_a_program_inside_the_machine_sends_the_workloads_that_it_supports(
    changed: dict[str, object], sender: str
) -> None:
    assert sender_of(msgspec.structs.replace(WORKLOAD, **changed)) == sender


@pytest.mark.parametrize(
    "changed",
    [
        {"new_connections": True},
        {"payload_bytes": 100_000},
        SEVERAL | {"pipeline": 10},
        {"drawn": "in-order", "connections": 50},
    ],
    ids=str,
)
def test_the_kernel_tier_refuses_workloads_that_no_program_in_it_can_send(changed: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError, match="no program on the kernel tier sends"):
        sender_of(msgspec.structs.replace(WORKLOAD, **changed))


def test_redis_benchmark_sends_a_workloads_own_command() -> None:
    sets = msgspec.structs.replace(
        WORKLOAD, commands=(("SET", "key:{key}", "{value}"),), keys=500, payload_bytes=3, pipeline=8, connections=50
    )
    options = ["--csv", "-p", "6379", "-c", "50", "-P", "8", "-n", "400", "-r", "500"]
    assert benchmark_words(sets, 6379, 400) == ["/srv/benchmark", *options, "SET", "key:__rand_int__", "xxx"]


def test_latencies_are_instructions_of_the_machine() -> None:
    heading = '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms"'
    text = f'WARNING: something\n{heading}\n"SET key:__rand_int__ x","19.5","2.1","0.4","2.071","3.199","4.015"\n'
    assert latencies_in(text) == pytest.approx({"p50": 2_071_000, "p95": 3_199_000, "p99": 4_015_000})
    # Releases before 6.2.
    assert latencies_in('"SET key:__rand_int__ x","19.5"\n') == {}


def test_an_unrepeatable_percentile_is_not_a_figure() -> None:
    rounds = [
        msgspec.structs.replace(KERNEL_ROUND, latencies={"p50": p50, "p99": p99})
        for p50, p99 in ((2_000_000.0, 3_000_000.0), (2_100_000.0, 6_000_000.0))
    ]
    found = kernel_cost(WORKLOAD, rounds, server="ours", target="armv5-kernel")
    assert found.latencies == {"p50": 2_050_000}


def test_redis_cli_reads_every_byte_of_a_request_on_one_line() -> None:
    request = [b"SET", b"key:1", bytes(range(256)), b""]
    line = cli_line(request)
    assert line.startswith(b'"SET" "key:1" "')
    assert line.index(b"\n") == len(line) - 1
    # Its escapes are those of Python's bytes literals.
    assert list(ast.literal_eval(f"[{', '.join('b' + word for word in _quoted(line))}]")) == request


def test_a_measurement_with_an_error_reply_gives_no_figure() -> None:
    replies = 'OK\n"(error) as a value"\n1) "(error)"\n'
    refuse_error_replies(WORKLOAD, replies)
    with pytest.raises(InconclusiveError) as raised:
        refuse_error_replies(WORKLOAD, f"{replies}(error) WRONGTYPE of a key\nOK\n")
    assert "the server sent an error reply, so there is no figure" in str(raised.value)
    assert "WRONGTYPE of a key" in str(raised.value)


@pytest.mark.parametrize("executed", [0, 2_999, 3_001])
def test_a_measurement_with_an_unexecuted_request_gives_no_figure(executed: int) -> None:
    two = msgspec.structs.replace(WORKLOAD, commands=(("SET", "key", "x"), ("GET", "key")))
    stats = {"cmdstat_set": "calls=1500,usec=9", "cmdstat_get": "calls=1500,usec=9", "cmdstat_info": "calls=7,usec=1"}
    refuse_lost_requests(two, "cli", 3_000, calls_in(stats, two))
    with pytest.raises(InconclusiveError, match=f"the server executed {executed} requests, where cli sent 3000"):
        refuse_lost_requests(two, "cli", 3_000, executed)


def _quoted(line: bytes) -> list[str]:
    return re.findall(r'"(?:[^"\\]|\\.)*"', line.decode("ascii"))


def test_a_child_is_stopped_and_one_that_ended_before_gives_no_figure() -> None:
    states = iter(["R", "t"])
    stopped = []
    guest = SimpleNamespace(pid=42)
    machine = SimpleNamespace(
        processes=lambda: ["1 0 S init", "42 1 S server", f"43 42 {next(states, 'Z')} server"],
        send_signal=lambda *words: stopped.append(words),
    )
    assert kernel_cost_run.held_child(guest, machine, WORKLOAD) == 43  # type: ignore[arg-type]
    assert stopped == [(43, signal.SIGSTOP)]
    with pytest.raises(InconclusiveError, match="the child ended before the first request"):
        kernel_cost_run.held_child(guest, machine, WORKLOAD)  # type: ignore[arg-type]
