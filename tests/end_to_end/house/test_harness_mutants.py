"""A trial of a mutant: in a copy, with nothing left of it, and a record of what each test executes."""

from __future__ import annotations

import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest

from harness.core.errors import InfrastructureError, UsageError
from tools.harness_mutants.executions import Executions
from tools.harness_mutants.operators import mutants_in
from tools.harness_mutants.stages import changed_files
from tools.harness_mutants.trial import END, Checkout

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.end_to_end

CODE = """\
import subprocess
import sys


def double(number: int) -> int:
    return number * 2


def in_a_process() -> str:
    code = "from harness.core.code import alone; print(alone(3))"
    return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout


def alone(number: int) -> int:
    return number + 4


def endless(number: int) -> int:
    while number > 0:
        number -= 1
    return number
"""
TESTS = """\
import os
import subprocess
from pathlib import Path

import pytest

from harness.core import code


@pytest.fixture(scope="module")
def four():
    return code.double(2)


def test_double():
    assert code.double(4) == 8


def test_fixture(four):
    assert four == 4


def test_process():
    assert code.in_a_process() == "7\\n"


def test_endless():
    assert code.endless(3) == 0


def test_writes():
    for folder in (Path("/tmp"), Path("tests"), Path(os.environ["PLUMBLINE_CACHE"])):
        (folder / "left").write_text("by a trial")
    subprocess.Popen(["sleep", "987654"], start_new_session=True)
"""


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkout]:
    """A project with a harness of one file, and an environment with this one's packages."""
    # A trial has a /tmp of its own.
    with tempfile.TemporaryDirectory(prefix="plumbline-", dir="/var/tmp") as folder:
        yield made_checkout(Path(folder), monkeypatch)


def made_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    (folder / "cache").mkdir()
    monkeypatch.setenv("PLUMBLINE_CACHE", str(folder / "cache"))
    made = Checkout("0123456789ab", folder)
    made.state.mkdir()
    for file, text in {
        "harness/__init__.py": "",
        "harness/core/__init__.py": "",
        "harness/core/code.py": CODE,
        "tests/test_code.py": TESTS,
        "tools/__init__.py": "",
        ".venv/pyvenv.cfg": f"home = {Path(sys.base_prefix) / 'bin'}\n",
    }.items():
        (made.root / file).parent.mkdir(parents=True, exist_ok=True)
        (made.root / file).write_text(text, "utf-8")
    (made.root / ".venv" / "bin").mkdir()
    (made.root / ".venv" / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    packages = made.root / ".venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "project.pth").write_text(f"{made.root}\n{sysconfig.get_path('purelib')}\n", "utf-8")
    return made


def running(text: str) -> list[list[str]]:
    """The command lines with a text. A process that ends meanwhile has none."""
    lines = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]
    return [line for line in lines if text in " ".join(line)]


@pytest.mark.slow(instead="tests/tools/test_harness_mutants.py; test_the_tests_that_execute_a_place_are_recorded")
def test_a_trial_finds_the_failing_test_and_leaves_nothing(checkout: Checkout) -> None:
    before = {path: path.read_bytes() for path in checkout.root.rglob("*") if path.is_file()}
    mutants = {(one.function, one.operator): one for one in mutants_in(checkout.root)}
    clean = checkout.run(["tests"], seconds=100)
    assert (clean.failed, clean.code, len(clean.ends)) == ([], 0, 5)
    for function, test in (("double", "test_double"), ("alone", "test_process"), ("in_a_process", "test_process")):
        operator = "empty result" if function == "in_a_process" else "arithmetic"
        changed = changed_files(checkout.root, [mutants[function, operator]])
        result = checkout.run(["tests"], seconds=100, changed=changed, first_failure=True)
        assert result.failed == [f"tests/test_code.py::{test}"]
    assert {path: path.read_bytes() for path in checkout.root.rglob("*") if path.is_file()} == before
    assert not Path("/tmp/left").exists()  # noqa: S108 - a test of a trial writes it
    assert list((checkout.state.parent / "cache").iterdir()) == []
    assert running("987654") == []
    assert [path.name for path in checkout.state.iterdir()] == ["last.log"]


def test_a_mutant_without_end_is_ended_by_the_time_limit(checkout: Checkout) -> None:
    (mutant,) = [one for one in mutants_in(checkout.root) if (one.function, one.operator) == ("endless", "no effect")]
    changed = changed_files(checkout.root, [mutant])
    started = time.monotonic()
    result = checkout.run(["tests"], seconds=10, changed=changed)
    assert result.expired
    assert result.failed == []
    assert time.monotonic() - started < 60
    assert running(str(checkout.root)) == []


def test_a_mutant_that_ends_pytest_is_noticed(checkout: Checkout) -> None:
    ending = CODE.replace("    return number\n", "    __import__('os')._exit(0)\n")
    result = checkout.run(["tests"], seconds=100, changed={"harness/core/code.py": ending.encode()})
    assert [end.test.rpartition("::")[2] for end in result.ends] == ["test_double", "test_fixture", "test_process"]
    assert result.failed == [END]
    assert checkout.run(["tests"], seconds=100).failed == []


@pytest.mark.parametrize("lines", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_tests_that_execute_a_place_are_recorded(checkout: Checkout, lines: bool) -> None:
    kept = checkout.state / "kept"
    checkout.run(["tests"], seconds=100, functions=True, lines=lines, keep=kept)
    executions = Executions([kept], checkout.root)
    names = ["test_double", "test_endless", "test_fixture", "test_process", "test_writes"]
    assert sorted(executions.seconds) == [f"tests/test_code.py::{name}" for name in names]
    found = {
        one.function: {test.rpartition("::")[2] for test in executions.tests_of(one)}
        for one in mutants_in(checkout.root)
        if one.operator == "empty result"
    }
    # A fixture that the file's tests share may make each of them fail.
    assert found == {
        "double": set(names),
        "in_a_process": {"test_process"},
        "alone": {"test_process"},
        "endless": {"test_endless"},
    }


def test_a_checkout_in_the_folder_that_trials_replace_is_refused() -> None:
    with pytest.raises(UsageError, match="/tmp/a/checkout is in /tmp"):  # noqa: S108
        Checkout("0123456789ab", Path("/tmp/a")).provide()  # noqa: S108


def test_pytest_that_cannot_run_is_no_result(checkout: Checkout) -> None:
    with pytest.raises(InfrastructureError, match="did not run"):
        checkout.run(["tests/no_such_file.py"], seconds=100)
