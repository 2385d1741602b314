"""The cost of a check on real servers: time by process, time by function in the flame graph, and memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from harness.core.errors import ExitCode
from harness.record import run_cost
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


@pytest.mark.slow(instead="tests/unit/core/test_profiler.py and tests/unit/core/test_processor_time.py")
def test_a_profiled_check_reports_the_use_of_time_and_memory(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ("bench", "--harness", "--target", "armv5", "--suite", "bitops", "--run", folder, "--json")
    finished = run(*words)
    assert finished.returncode == ExitCode.PASS, finished.stderr
    judged = document(finished)
    suites = {each["suite"]: each for each in judged["suites"]}
    assert suites["bitops"]["emulators"] > 0.5
    assert suites["bitops"]["native_servers"] > 0
    assert suites["bitops"]["elapsed"] > 0
    cost = judged["cost"]
    assert cost["stages"]["judge"] > 0
    assert cost["clock_seconds"] >= suites["bitops"]["elapsed"]
    # An emulator, the test process and plumb itself. The native server does not always run when the memory is largest.
    assert {"qemu-arm", "python"} <= {name.partition(" ")[0] for name in cost["peak"]["by_program"]}
    assert 60 << 20 < cost["peak"]["pss_bytes"] < 4 << 30
    stacks = run_cost.read_profile(folder / "armv5" / "bitops")
    assert any("suites.bitops.test_" in stack for stack in stacks)
    assert 0 < sum(stacks.values()) <= suites["bitops"]["start"] + suites["bitops"]["tests"] + 0.5
    picture = ElementTree.parse(folder / "processor-time.svg")  # noqa: S314 - of our own
    titles = [element.text or "" for element in picture.iter() if element.tag.endswith("title")]
    assert any(title.startswith("emulators: ") for title in titles)
    assert any(title.startswith("plumb: ") for title in titles)
    assert json.loads((folder / "findings.json").read_text("utf-8"))["verdict"] == "PASS"
    assert run("report", folder, "--format", "processor-time").stdout.count("PSS") == 1
