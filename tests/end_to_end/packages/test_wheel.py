"""An installed wheel has every file of the checkout that can change a result, and runs checks in any folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from harness.core.digests import files_below
from harness.core.errors import ExitCode
from harness.core.strict_toml import ROOT
from harness.workflows.campaign.version import harness_version
from tests.end_to_end.support.installations import Installation, built_wheel, install
from tests.end_to_end.support.plumb_runs import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

VERSION = "from harness.workflows.campaign.version import harness_version; print(harness_version())"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installed")
    return install(folder, built_wheel(folder))


def files_of(folder: Path) -> set[str]:
    return {name for name, *_ in files_below(folder) if "__pycache__" not in name}


def test_a_wheel_has_every_file_that_can_change_a_result(installed: Installation) -> None:
    ended = installed.run("python", "-c", VERSION)
    assert ended.stdout.strip() == harness_version(), ended.stderr
    assert not list(installed.packages.rglob("test_wheel.py")), "the wheel must not contain the project's own tests"


@pytest.mark.slow(
    instead=(
        "test_a_wheel_has_every_file_that_can_change_a_result; "
        "test_an_installation_checks_in_any_folder_and_writes_only_there"
    )
)
def test_an_installation_lists_the_same_as_a_checkout(installed: Installation) -> None:
    for kind in ("targets", "servers", "suites"):
        assert installed.run("plumb", "list", kind).stdout == run("list", kind).stdout != ""


def test_an_installation_checks_in_any_folder_and_writes_only_there(installed: Installation) -> None:
    before = files_of(installed.packages)
    proof = installed.run("plumb", "self-test", "--target", "sparc64", "--json")
    assert (proof.returncode, json.loads(proof.stdout)["verdict"]) == (ExitCode.PASS, "PASS"), proof.stderr
    ended = installed.run("plumb", "check", "--target", "armv5", "--suite", "bitops", "--test", "*bitpos*", "--json")
    whole = json.loads(ended.stdout)
    assert (ended.returncode, whole["verdict"]) == (ExitCode.PASS, "PASS"), ended.stderr
    passed = {cell["suite"]: cell["passed"] for cell in whole["cells"]}
    assert passed.keys() == {"canary", "bitops"}
    assert all(passed.values())
    assert [path.name for path in installed.here.iterdir()] == ["runs"]
    assert len(list((installed.here / "runs").iterdir())) == 2
    assert files_of(installed.packages) == before
    # The installation must not use the files of the checkout from which the tests run.
    used = [path for path in (installed.here / "runs").rglob("*.json") if str(ROOT).encode() in path.read_bytes()]
    assert used == []
