"""A replay on an emulated machine has three results. It is `gone` only if the replay could have shown the finding."""

from __future__ import annotations

import base64
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.plan.catalog import Catalog
from harness.run import silence_check
from harness.run.server_process import Guest
from harness.workflows.replay.reruns.server import recorded_server
from harness.workflows.target_setup import set_up_target
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import FIXUP_FOR_SIGNAL, run
from tests.support.reproducers import reproducer as stored

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def reproducer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """redis-3.2.6's misaligned load in BITPOS."""
    folder = tmp_path_factory.mktemp("known-bad") / "run"
    words = ("--target", "armv5", "--suite", "bitops", "--server", "redis-3.2.6", "--test", "bitpos_finds")
    found = json.loads(run("check", *words, "--json", "--run", folder).stdout)["findings"]
    (one,) = [finding for finding in found if finding["function"] == "redisBitpos"]
    return Path(shlex.split(one["replay"])[-1])


def replayed(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run("replay", path, *words)


def changed(path: Path, **fields: Any) -> Path:
    """The same reproducer with other fields, as if a run on this host had made it."""
    other = path.with_name("changed.json")
    other.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")
    return other


def test_a_finding_is_reproduced_and_gone_where_it_was_fixed(reproducer: Path) -> None:
    again = replayed(reproducer)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (
        ExitCode.FINDINGS,
        "reproduced: alignment-redisBitpos-load",
    )
    stacks = [line.split()[0] for line in again.stdout.splitlines() if line.startswith("    ")]
    assert (stacks[0], stacks.count("main")) == ("redisBitpos", 1), (
        "the crash handler's faults must have their own stacks"
    )
    mended = replayed(reproducer, "--server", "redis-7.0.15")
    assert (mended.returncode, mended.stdout.splitlines()[-1]) == (
        ExitCode.PASS,
        "not reproduced: alignment-redisBitpos-load",
    )


def test_a_server_that_does_not_start_is_inconclusive_and_a_bisection_skips_it(reproducer: Path) -> None:
    """A failed start of a fixed server is not the finding, and does not prove that the finding is gone."""
    other = changed(reproducer, options=["--databases", "none"])
    result = replayed(other, "--server", "redis-7.0.15", "--trust", "--json")
    answer = json.loads(result.stdout)
    assert (result.returncode, answer["outcome"]) == (ExitCode.INCONCLUSIVE, "unknown"), result.stderr
    assert "does not start" in answer["reason"]
    assert replayed(other, "--server", "redis-7.0.15", "--trust", "--bisect").returncode == 125


def test_a_reproducer_without_a_whole_request_sends_nothing(reproducer: Path) -> None:
    """Regression: a replay waited 20 s for a reply that no server gives."""
    cut = {"connection": 1, "direction": "request", "data": base64.b64encode(b"*").decode()}
    other = changed(reproducer, chunks=[cut], command="", after_tests=True)
    result = replayed(other, "--trust", "--json")
    answer = json.loads(result.stdout)
    assert (result.returncode, answer["outcome"]) == (ExitCode.INCONCLUSIVE, "unknown"), result.stderr
    assert answer["reason"] == "the reproducer has no whole request: nothing was sent"


def test_an_emulator_that_cannot_write_its_log_proves_no_absence(tmp_path: Path) -> None:
    runner, tools = machines.runner("armv5"), Catalog().toolchain_of(Catalog().targets["armv5"])
    assert silence_check.why_blind(Cache.default(), runner, tools, tmp_path, None) == ""
    assert silence_check.why_blind(Cache.default(), runner, tools, tmp_path / "absent", None)
    # Here the canary dies, and no record remains.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "canary-fault.jsonl").symlink_to(os.devnull)
    assert silence_check.why_blind(Cache.default(), runner, tools, tmp_path / "other", None)


def test_an_emulator_that_forbids_nothing_proves_no_absence(reproducer: Path) -> None:
    """The emulator repairs accesses that it should trap, so the finding does not recur, but is not gone."""
    result = run("replay", reproducer, "--json", program=[sys.executable, "-c", FIXUP_FOR_SIGNAL])
    answer = json.loads(result.stdout)
    assert (result.returncode, answer["outcome"]) == (ExitCode.INCONCLUSIVE, "unknown"), result.stderr
    assert "done where signal is prescribed" in answer["reason"]
    bisecting = run("replay", reproducer, "--bisect", program=[sys.executable, "-c", FIXUP_FOR_SIGNAL])
    assert bisecting.returncode == 255


@pytest.mark.parametrize("target", ["native", "sparc64"])
def test_each_server_of_a_replay_loads_the_module_for_its_own_machine(tmp_path: Path, target: str) -> None:
    """The recorded path belongs to the finding's machine, and may no longer be in the cache."""
    bench = machines.quiet_workbench()
    setup = set_up_target(bench, bench.catalog.targets[target])
    tree = bench.open_server("redis-7.0.15")
    options = ("--loadmodule", "/cache/of/another/machine/moduleapi.so", "--databases", "4")
    spec = recorded_server(setup, setup.build(tree, "O2"), tree, stored(options=options))
    assert spec.options[2:] == options[2:]
    with Guest(spec, setup.runner("signal"), tmp_path / "guest", sockets=tmp_path) as guest, guest.client() as client:
        assert "b'moduleapi'" in str(client.command("MODULE", "LIST"))
