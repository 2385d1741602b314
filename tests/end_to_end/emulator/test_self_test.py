"""plumb self-test with real emulators passes if they enforce alignment, and is UNKNOWN if one does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.plan.catalog import Catalog
from harness.workflows.target_setup import set_up_target
from harness.workflows.workbench import Workbench
from tests.end_to_end.support.plumb_runs import FIXUP_FOR_SIGNAL, PLUMB, RUN_SECONDS, document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

TARGETS = ("--target", "armv5", "--target", "sparc64")


def verdicts(whole: dict[str, Any]) -> dict[str, str]:
    return {cell["target"]: cell["verdict"] for cell in whole["cells"]}


def test_an_installation_that_enforces_alignment_passes(tmp_path: Path) -> None:
    finished = run("self-test", *TARGETS, "--run", tmp_path / "run", "--json")
    whole = document(finished)
    assert (finished.returncode, whole["verdict"], whole["findings"]) == (ExitCode.PASS, "PASS", [])
    assert verdicts(whole) == {"armv5": "PASS", "sparc64": "PASS"}
    assert {cell["suite"] for cell in whole["cells"]} == {"canary"}
    assert min(cell["passed"] for cell in whole["cells"]) > 50
    assert (tmp_path / "run" / "report.html").is_file()


def test_an_emulator_that_repairs_accesses_it_must_trap_is_unknown(tmp_path: Path) -> None:
    words = ("self-test", *TARGETS, "--run", tmp_path / "run", "--json")
    finished = run(*words, program=[sys.executable, "-c", FIXUP_FOR_SIGNAL])
    whole = document(finished)
    assert (finished.returncode, whole["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN")
    assert verdicts(whole) == {"armv5": "UNKNOWN", "sparc64": "UNKNOWN"}
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow(instead="tests/unit/workflows/test_self_test.py; test_an_installation_that_enforces_alignment_passes")
def test_without_a_target_built_emulators_are_tested_and_the_others_are_named(tmp_path: Path) -> None:
    """The cache has one emulator. Nothing is fetched or built for the others."""
    setup = set_up_target(Workbench.default(), Catalog().targets["sparc64"])
    emulator = setup.programs["sparc64"].parent
    cache = Cache(tmp_path / "cache")

    def copy(into: Path) -> None:
        shutil.copytree(emulator, into, dirs_exist_ok=True)

    cache.folder("emulators", emulator.name, copy)
    finished = subprocess.run(
        [*PLUMB, "self-test", "--run", str(tmp_path / "run"), "--json"],
        env={**os.environ, "PLUMBLINE_CACHE": str(cache.root)},
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_SECONDS,
        check=False,
    )
    whole = document(finished)
    assert (finished.returncode, verdicts(whole)) == (ExitCode.PASS, {"sparc64": "PASS"})
    (remark,) = whole["remarks"]
    assert remark.startswith("no emulator is built for ")
    assert "armv5" in remark
