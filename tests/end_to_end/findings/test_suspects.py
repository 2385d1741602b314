"""A bug is planted whose finding names no place: the ranking of functions has the changed one among the first."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis.executed_code import code_lines
from harness.build.executed_blocks import code_of
from harness.core.errors import ExitCode
from harness.protocol.resp import Client, info_fields
from harness.record.executed_blocks.executed_tests import read_executed
from harness.record.executed_blocks.process_blocks import ProcessBlocks
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.check import Check
from harness.workflows.mutation_testing import campaign, mutations
from harness.workflows.target_setup import blocks_plugin, set_up_target
from tests.end_to_end.support.machines import quiet_workbench
from tests.end_to_end.support.plumb_runs import PLUMB, run

pytestmark = pytest.mark.end_to_end

FIRST = 5


@pytest.fixture(scope="module")
def planted() -> Path:
    """The run of a check that finds GETRANGE wrong, as the native build of the same source is."""
    row = campaign.mutate(quiet_workbench(), mutations.mutations()["getrange-length-type"], targets=["armv5"])
    assert row.caught
    return Path(row.run)


@pytest.mark.slow(
    instead=("test_executed_blocks.py; tests/unit/record/test_executed_blocks.py; tests/unit/analysis/test_suspects.py")
)
def test_what_a_child_executes_is_covered(tmp_path: Path) -> None:
    bench = quiet_workbench()
    setup = set_up_target(bench, bench.catalog.targets["armv5"])
    tree = bench.open_server("redis-7.0.15")
    build = setup.build(tree, "O2")
    code = code_of(build.server_binary, setup.target.emulator.qemu)
    named: list[set[str]] = []
    for commands in ([("SET", "k", "v")], [("SET", "k", "v"), ("BGSAVE",)]):
        home = tmp_path / str(len(commands))
        guest = Guest(ServerSpec(build=build, version=tree.version), setup.runner("signal"), home, sockets=tmp_path)
        place = tmp_path / f"blocks-{len(commands)}"
        blocks = ProcessBlocks(blocks_plugin(bench), build.server_binary, place, code, counts_start=False)
        guest.execution = blocks
        with guest, Client.at_socket(guest.upstream, deadline_seconds=guest.deadline_seconds) as client:
            for words in commands:
                client.command(*words)
            deadline = time.monotonic() + guest.deadline_seconds
            while (
                len(commands) > 1
                and info_fields(client.command("INFO", "persistence"))["rdb_bgsave_in_progress"] != "0"
            ):
                assert time.monotonic() < deadline
        executed = blocks.served_addresses()
        lines = code_lines(setup.toolchain.prefix, build.server_binary, sorted(executed))
        named.append({place.function for places in lines.values() for place in places})
    assert "setCommand" in named[0]
    assert "rdbSaveRio" not in named[0]
    assert "rdbSaveRio" in named[1]


@pytest.mark.slow(instead="test_executed_blocks.py; tests/unit/record/test_executed_blocks.py")
def test_what_the_servers_program_executes_as_a_tool_is_covered(tmp_path: Path) -> None:
    bench = quiet_workbench()
    request = campaign.planted_request(
        bench,
        "redis-7.0.15",
        targets=["armv5"],
        suites=["persistence"],
        tier="quick",
        run=tmp_path / "run",
        install=False,
        fail_fast=False,
    )
    tests = "persistence/test_persistence.py::test_the_servers_own_tool_finds_nothing_wrong_with_a_peers_file"
    Check(bench, msgspec.structs.replace(request, covered=True, tests=[tests])).run()
    setup = set_up_target(bench, bench.catalog.targets["armv5"])
    binary = setup.build(bench.open_server("redis-7.0.15"), "O2").server_binary
    named = {}
    for test in read_executed(tmp_path / "run" / "armv5" / "persistence"):
        lines = code_lines(setup.toolchain.prefix, binary, sorted(test.addresses))
        named[test.test.partition("[")[2]] = {place.function for places in lines.values() for place in places}
    assert "redis_check_rdb" in named["native-check-rdb]"], named.keys()
    assert "redis_check_aof_main" in named["native-check-aof]"]


def finding_of(folder: Path) -> dict[str, Any]:
    read = json.loads((folder / "findings.json").read_text("utf-8"))
    (found,) = [one for one in read["findings"] if one["kind"] == "wrong-result" and not one["known"]]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow(instead=("tests/unit/analysis/test_suspects.py; test_executed_blocks.py, for what tests execute"))
def test_the_changed_function_is_among_the_first_though_the_oracle_has_the_bug_too(planted: Path) -> None:
    before = finding_of(planted)
    assert before["suspects"] == []
    finished = run("suspects", planted, before["id"], "--json", program=PLUMB)
    assert finished.returncode == ExitCode.PASS, finished.stderr
    ranking = json.loads(finished.stdout)
    named = [one["function"] for one in ranking["suspects"]]
    assert "getrangeCommand" in named[:FIRST], ranking
    assert ranking["passing"] > ranking["failing"] > 0
    assert finding_of(planted)["suspects"] == ranking["suspects"]
    shown = run("show", planted, before["id"], program=PLUMB).stdout
    assert "suspects      1. " in shown
    # Whoever judges the run again keeps the ranking.
    run("judge", planted, program=PLUMB)
    assert finding_of(planted)["suspects"] == ranking["suspects"]


@pytest.mark.slow(instead="tests/unit/cli/test_hints.py")
def test_a_finding_that_is_none_says_what_to_type(planted: Path) -> None:
    finished = run("suspects", planted, "wrong-result-of-nothing", program=PLUMB)
    assert finished.returncode == ExitCode.USAGE, finished.stderr
    assert "no finding 'wrong-result-of-nothing'" in finished.stderr


@pytest.mark.slow(
    instead="test_value_recording.py, for a server without a bug; tests/unit/analysis/test_value_comparison.py"
)
def test_the_changed_function_is_where_values_part() -> None:
    row = campaign.mutate(quiet_workbench(), mutations.mutations()["bitcount-signedness"], targets=["sparc64"])
    folder = Path(row.run)
    (finding, *_) = [
        one
        for one in json.loads((folder / "findings.json").read_text("utf-8"))["findings"]
        if one["kind"] == "wrong-result"
    ]
    finished = run("explain", folder, finding["id"], "--json", program=PLUMB)
    assert finished.returncode == ExitCode.PASS, finished.stderr
    explained = json.loads(finished.stdout)
    place = explained["comparison"]["place"]
    assert (place["function"], place["file"]) == ("redisPopcount", "src/bitops.c"), explained
    shown = run("show", folder, finding["id"], program=PLUMB).stdout
    assert f"place: redisPopcount (src/bitops.c:{place['line']})" in shown
