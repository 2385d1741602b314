"""The cost of a server: the counter is right, a planted slowdown is found, and a failed measurement has no figure."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build import toolchain
from harness.build.instruction_counter import call_numbers, compile_counter, counted
from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.errors import ExitCode
from harness.core.target_model import ORACLE
from harness.plan.workloads import BenchWorkload
from harness.record.instruction_counts import InstructionCounts
from harness.run.counting import counted_server
from harness.workflows.measure import server_cost_run
from harness.workflows.measure.cost_comparison import exit_code
from harness.workflows.workbench import Workbench
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

    from harness.workflows.measure.cost_document import Measurement

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
PROGRAM = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    volatile int sum = 0;
    int file = open(words[1], O_CREAT | O_WRONLY, 0600);
    (void)count;
    for (int turn = 0; turn < 1000; turn++) {
        sum += turn;
    }
    pid_t child = atoi(words[2]) ? fork() : -1;
    if (child == 0) {
        for (int turn = 0; turn < 1000; turn++) {
            sum += turn;
        }
        if (write(file, "four", 4) != 4) {
            return 1;
        }
        _exit(0);
    }
    if (child > 0) {
        waitpid(child, NULL, 0);
    }
    if (write(file, "seven..", 7) != 7 || fsync(file) || write(2, "log", 3) != 3) {
        return 1;
    }
    return 0;
}
"""
SET = BenchWorkload(
    name="set",
    title="",
    commands=(("SET", "key:{key}", "{value}"),),
    prepare=(("SET", "key:{key}", "{value}"),),
    keys=100,
    payload_bytes=64,
    requests=300,
    warm_up=100,
)
GET = BenchWorkload(name="get", title="", commands=(("GET", "key:{key}"),), prepare=SET.prepare, keys=100, requests=300)


@cache
def program(name: str) -> Path:
    target = CATALOG.targets[name]
    compiler = toolchain.tool(CATALOG.toolchain_of(target), "gcc")
    flags = [*target.compiler_flags, "-O1"]

    def compile_into(into: Path) -> None:
        (into / "counted.c").write_text(PROGRAM, "utf-8")
        subprocess.run([compiler, "counted.c", *flags, "-o", "counted"], cwd=into, check=True)

    key = key_of([PROGRAM, toolchain.version(compiler), *flags])
    return Cache.default().folder("canaries", f"counted-{name}-{key}", compile_into) / "counted"


def measured(
    *workloads: BenchWorkload, server: str = "redis-7.0.15", against: str = "", target: str = "armv5"
) -> Measurement:
    request = server_cost_run.CostRequest(
        targets=[target],
        workloads=workloads,
        servers=[server],
        against=against,
        rounds=2,
        limit=0.03,
        optimisation="O2",
        allocator="libc",
    )
    return server_cost_run.measure(Workbench.default(), request)


@pytest.mark.parametrize(
    "name",
    [name if name == "armv5" else machines.beyond(name) for name in machines.REQUIRED],
)
def test_the_counter_agrees_with_a_trace_of_single_instructions(name: str, tmp_path: Path) -> None:
    bench = Workbench.default()
    target = CATALOG.targets[name]
    tools = CATALOG.toolchain_of(target)
    here = CATALOG.toolchain_of(CATALOG.targets[ORACLE])
    counts = InstructionCounts(tmp_path)
    runner = machines.runner(name)
    counting = counted(
        runner,
        compile_counter(bench.cache, here, bench.fetcher),
        call_numbers(bench.cache, target, tools),
        counts.arguments,
    )
    # Both runs need the same path, because the cost of the program's start depends on its length.
    words = [str(tmp_path / "out"), "0"]
    with (tmp_path / "log").open("wb") as log:
        subprocess.run(counting.command(program(name), words), check=True, stderr=log, timeout=60)
    (row,) = counts.threads()
    command = runner.command(program(name), words)
    trace = ["-one-insn-per-tb", "-d", "exec,nochain", "-D", str(tmp_path / "trace")]
    subprocess.run([command[0], *trace, *command[1:]], check=True, stderr=subprocess.DEVNULL, timeout=120)
    executed = len(re.findall(r"^Trace \d+:", (tmp_path / "trace").read_text("utf-8", "replace"), re.MULTILINE))
    # The loader's work depends a little on its own address.
    assert row.instructions == pytest.approx(executed, rel=0.005)
    # The log does not count as a file.
    assert (row.writes, row.written_bytes, row.syncs, row.ended) == (1, 7, 1, True)
    counts.close()


@pytest.mark.slow(instead="the other tests of test_server_cost.py, on armv5; tests/unit/build/test_emulator_spec.py")
def test_a_native_server_is_counted_in_an_emulated_machine() -> None:
    found = measured(SET, GET, target=ORACLE)
    assert {cost.workload: cost.instructions.spread < 0.01 for cost in found.costs} == {"set": True, "get": True}
    assert {cost.target for cost in found.costs} == {ORACLE}
    # Its libraries and its heap are distinguished from those of the emulator.
    assert all(cost.allocations.value and cost.own_bytes.value for cost in found.costs)
    assert exit_code(found) is ExitCode.PASS


def test_a_child_is_counted_separately_from_its_start(tmp_path: Path) -> None:
    bench = Workbench.default()
    target = CATALOG.targets["armv5"]
    here = CATALOG.toolchain_of(CATALOG.targets[ORACLE])
    counts = InstructionCounts(tmp_path)
    counting = counted(
        machines.runner("armv5"),
        compile_counter(bench.cache, here, bench.fetcher),
        call_numbers(bench.cache, target, CATALOG.toolchain_of(target)),
        counts.arguments,
    )
    words = [str(tmp_path / "out"), "1"]
    subprocess.run(counting.command(program("armv5"), words), check=True, stderr=subprocess.DEVNULL, timeout=60)
    parent, child = counts.threads()
    assert (parent.forked, parent.written_bytes, parent.syncs) == (False, 7, 1)
    assert (child.forked, child.ended, child.written_bytes, child.syncs) == (True, True, 4, 0)
    # The count is that of its loop. It excludes the parent's start, which takes tens of thousands of instructions.
    assert 5_000 < child.instructions < 20_000 < parent.instructions
    assert 0 < child.private_bytes <= child.resident_bytes
    counts.close()


@pytest.mark.slow(
    instead=(
        "tests/unit/workflows/test_cost_comparison.py; test_a_child_is_counted_separately_from_its_start, for "
        "repeatable figures"
    )
)
def test_the_same_tree_twice_shows_no_difference() -> None:
    """Neither in instructions nor in memory."""
    same = measured(SET, GET, against="redis-7.0.15")
    assert exit_code(same) is ExitCode.PASS, same.no_figures
    assert {one.verdict for one in same.differences} == {"same"}


@pytest.mark.slow(
    instead=(
        "tests/unit/workflows/test_cost_comparison.py; test_the_counter_agrees_with_a_trace_of_single_instructions"
    )
)
def test_a_planted_loop_shows_its_function_and_no_difference_elsewhere(tmp_path: Path) -> None:
    tree = Workbench.default().open_server("redis-7.0.15")
    shutil.copytree(tree.content, tmp_path / "slow", symlinks=True)
    source = tmp_path / "slow" / "src" / "t_string.c"
    text = source.read_text("utf-8")
    head = "int getGenericCommand(client *c) {\n    robj *o;\n"
    assert text.count(head) == 1
    source.write_text(text.replace(head, f"{head}    for (volatile int turn = 0; turn < 100; turn++);\n"), "utf-8")
    slow = measured(SET, GET, server=str(tmp_path / "slow"), against="redis-7.0.15")
    assert exit_code(slow) is ExitCode.FINDINGS, slow.no_figures
    found = {one.workload: one for one in slow.differences if one.figure == "instructions"}
    assert (found["set"].verdict, found["get"].verdict) == ("same", "beyond the limit")
    # One iteration of the loop takes five to seven instructions.
    assert list(found["get"].functions) == ["getGenericCommand"]
    assert 500 < found["get"].functions["getGenericCommand"] < 800


@pytest.mark.slow(instead="tests/unit/workflows/test_server_cost.py; test_a_child_is_counted_separately_from_its_start")
def test_the_timers_work_among_requests_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    (calm,) = measured(GET).costs
    monkeypatch.setattr(counted_server, "CALM_HZ", "10")
    (busy,) = measured(GET).costs
    # With the timer's work a request would cost 5 % more on a fast machine, and 25 % more on a slow one.
    assert busy.instructions.value == pytest.approx(calm.instructions.value, rel=0.01)
    assert busy.functions.get("serverCron", 0) < 10


@pytest.mark.slow(
    instead=(
        "tests/unit/workflows/test_server_cost.py; test_a_child_is_counted_separately_from_its_start, on a "
        "program that writes, synchronises and forks"
    )
)
def test_saving_counts_bytes_syncs_and_the_child() -> None:
    def changed(name: str, **fields: object) -> BenchWorkload:
        return BenchWorkload(
            **{field: getattr(SET, field) for field in BenchWorkload.__struct_fields__} | {"name": name, **fields}
        )

    always = changed("always", saving="aof-always", requests=50, spread=0.03)
    saved = changed("saved", during="bgsave", spread=0.03)
    plain, synced, forked = measured(SET, always, saved).costs
    assert (plain.file_writes.value, plain.syncs.value, plain.child_instructions.value) == (0, 0, 0)
    assert (synced.file_writes.value, synced.syncs.value) == (1, 1)
    # The protocol's form of SET with a key of 16 bytes and a value of 64.
    assert synced.written_bytes.value == len(b"*3\r\n$3\r\nSET\r\n$16\r\n\r\n$64\r\n\r\n") + 16 + 64
    assert 100 * 80 < forked.child_written_bytes.value < 100 * 100
    assert 0 < forked.child_instructions.value < 3_000_000
    assert forked.copied_bytes.value > 0


@pytest.mark.slow(instead="tests/unit/workflows/test_server_cost.py; test_a_child_is_counted_separately_from_its_start")
def test_memory_is_measured_while_no_table_is_being_moved() -> None:
    full, doubled = 4_096, 4_224
    keys = msgspec.structs.replace(SET, name="full", prepare=(), warm_up=0, drawn="in-order", payload_bytes=8)
    found = measured(
        msgspec.structs.replace(keys, keys=full, requests=full, pipeline=64),
        msgspec.structs.replace(keys, name="doubled", keys=doubled, requests=doubled, pipeline=64),
    )
    grown = {one.workload: one.growth_bytes.value for one in found.costs}
    pointer, key_bytes = 4, grown["full"]
    more = doubled * grown["doubled"] - full * grown["full"]
    # The table has doubled. With the previous table, it would take another 16 KiB.
    assert more == pytest.approx(full * pointer + (doubled - full) * (key_bytes - pointer), abs=full * pointer / 4)


@pytest.mark.slow(instead="tests/unit/workflows/test_server_cost.py; test_a_child_is_counted_separately_from_its_start")
def test_a_connection_costs_the_memory_that_it_keeps_while_idle() -> None:
    connecting = BenchWorkload(
        name="connecting", title="", commands=(("PING",),), new_connections=True, requests=50, spread=0.05
    )
    (cost,) = measured(connecting).costs
    # A new connection has a buffer of 16 KiB for replies, and another one for requests.
    assert 500 < cost.growth_bytes.value < 8_000


@pytest.mark.slow(
    instead=(
        "tests/unit/workflows/test_server_cost.py, for an error reply and a request that is not executed; "
        "tests/unit/record/test_instruction_counts.py, for a server that ends"
    )
)
def test_an_error_reply_and_a_server_that_dies_give_no_figure() -> None:
    wrong = BenchWorkload(
        name="wrong", title="", commands=(("INCR", "key:{key}"),), prepare=SET.prepare, payload_bytes=9, requests=5
    )
    dying = BenchWorkload(name="dying", title="", commands=(("DEBUG", "SEGFAULT"),), requests=5)
    lacking = BenchWorkload(name="lacking", title="", commands=(("NOSUCH",),), requests=5)
    found = measured(wrong, dying, lacking, GET)
    assert [cost.workload for cost in found.costs] == ["get"]
    reasons = {one.workload: one.reason for one in found.no_figures}
    assert "error reply" in reasons["wrong"]
    assert "not an integer" in reasons["wrong"]
    assert "SIGSEGV" in reasons["dying"]
    assert "no NOSUCH" in reasons["lacking"]
    assert exit_code(found) is ExitCode.INCONCLUSIVE


@pytest.mark.slow(instead="the other tests of test_server_cost.py on a real kernel")
def test_on_a_real_kernel_a_request_costs_what_it_costs_alone_and_the_kernels_share() -> None:
    batched = msgspec.structs.replace(SET, name="batched", pipeline=10)
    # redis-benchmark draws keys from its own seed.
    many = msgspec.structs.replace(SET, name="many", connections=10, spread=0.02)
    counting = msgspec.structs.replace(SET, name="counting", commands=(("INCR", "n:{key}"),), prepare=(), spread=0.02)
    # redis-cli sends this.
    both = msgspec.structs.replace(SET, name="both", commands=(*SET.commands, *GET.commands), spread=0.02)
    alone = {one.workload: one.instructions.value for one in measured(SET, batched, many, counting, both).costs}
    found = measured(SET, batched, many, counting, both, target="armv5-kernel")
    assert exit_code(found) is ExitCode.PASS, found.no_figures
    with_kernel = {one.workload: one.instructions.value for one in found.kernel_costs}
    assert alone.keys() == with_kernel.keys() == {"set", "batched", "many", "counting", "both"}
    # A single request costs two calls and an exchange on loopback. Of ten requests, each costs a tenth of that.
    share = {name: with_kernel[name] - alone[name] for name in alone}
    assert share["set"] > 5_000
    assert 0 < share["batched"] < share["set"] / 3
    assert share["set"] / 3 < share["many"] < share["set"] * 1.5
    assert share["counting"] == pytest.approx(share["set"], rel=0.3)
    # redis-cli wakes the server up differently.
    assert share["set"] < share["both"] < share["set"] * 2
    by_name = {one.workload: one for one in found.kernel_costs}
    # With ten connections a request waits for nine others, whose instructions also count for the client.
    assert by_name["many"].latencies["p50"] > 5 * with_kernel["many"]
    assert by_name["both"].latencies == {}
    for one in found.kernel_costs:
        memory = (one.resident_bytes, one.proportional_bytes, one.own_bytes, one.used_memory)
        resident, proportional, own, used = (figure.value if figure else 0 for figure in memory)
        assert resident >= proportional > own > 500_000 < used


@pytest.mark.slow(
    instead=("tests/unit/workflows/test_server_cost.py; test_a_child_is_counted_separately_from_its_start")
)
def test_on_a_real_kernel_a_child_copies_pages_and_an_error_reply_gives_no_figure() -> None:
    plain = msgspec.structs.replace(SET, keys=8_000, requests=200, spread=0.03)
    saving = msgspec.structs.replace(plain, name="saving", during="bgsave")
    # Two commands, so that redis-cli sends them.
    wrong = msgspec.structs.replace(SET, name="wrong", commands=(*GET.commands, ("INCR", "key:{key}")))
    found = measured(plain, saving, wrong, target="armv5-kernel")
    costs = {one.workload: one for one in found.kernel_costs}
    child, copied = costs["saving"].child_instructions, costs["saving"].copied_bytes
    assert child is not None
    # Writing a key takes a few thousand instructions, and most requests write to separate pages.
    assert 8_000 * 500 < child.value < 8_000 * 50_000
    assert copied is not None
    assert 50 * 4096 < copied.value < 4_000_000
    # A copied page costs the server a page fault, which counts as its own.
    assert costs["saving"].instructions.value > costs["set"].instructions.value + 1_000
    assert costs["set"].child_instructions is None
    reasons = {one.workload: one.reason for one in found.no_figures}
    assert reasons.keys() == {"wrong"}
    assert "not an integer" in reasons["wrong"]
    assert exit_code(found) is ExitCode.INCONCLUSIVE


@pytest.mark.slow(instead="tests/unit/workflows/test_cost_comparison.py; tests/unit/workflows/test_server_cost.py")
def test_on_a_real_kernel_the_same_tree_twice_shows_no_difference() -> None:
    same = measured(GET, against="redis-7.0.15", target="armv5-kernel")
    assert exit_code(same) is ExitCode.PASS, same.no_figures
    assert {one.figure: one.verdict for one in same.differences} == {"instructions": "same", "used_memory": "same"}
