"""Started processes get only the listed variables of the caller's environment, and the list is documented."""

from __future__ import annotations

import re
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from harness.core.processes import environment, process, process_tree
from harness.core.strict_toml import ROOT
from harness.record import cell_events, event_log
from harness.workflows.cell_process import pytest_command, run_cell
from tests.support import cells, fakes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.costly

HOSTILE = {
    "PYTEST_ADDOPTS": "--deselect suites/canary -k nothing",
    "PYTEST_PLUGINS": "plumbline_no_such_module",
    "PYTHONPATH": "{here}",
    "PYTHONSTARTUP": "{here}/startup.py",
    "PYTHONOPTIMIZE": "2",
    "PYTHONWARNINGS": "error",
    "PYTHONHOME": "/nonexistent",
    "TCLLIBPATH": "{here}",
    "LD_PRELOAD": "{here}/no.so",
    "LD_LIBRARY_PATH": "{here}",
    "QEMU_CPU": "max",
    "QEMU_STRACE": "1",
    "MALLOC_PERTURB_": "1",
    "GLIBC_TUNABLES": "glibc.malloc.check=1",
    "ASAN_OPTIONS": "detect_leaks=0",
    "MAKEFLAGS": "-n",
    "CFLAGS": "-DNDEBUG",
    "HYPOTHESIS_PROFILE": "none",
    "CI": "true",
}


def outcomes(tmp_path: Path, name: str) -> dict[str, str]:
    """Test -> outcome, of a cell of the suite canary with failing programs, run as `plumb check` runs it."""
    runner = fakes.unemulated(fakes.target())
    folder = tmp_path / name
    spec = cells.spec_of("canary", folder, runner)
    record = run_cell(spec, fakes.quiet())
    assert record.problem_kind != "crash", record.problem
    return {
        event.name: event.outcome
        for event in event_log.read_events(folder / "events.jsonl")
        if isinstance(event, cell_events.TestEvent)
    }


def test_the_callers_environment_removes_no_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = outcomes(tmp_path, "plain")
    assert len(plain) > 2, plain
    # It would shadow one of Plumbline's packages.
    fakes.write(tmp_path / "harness" / "__init__.py", "raise SystemExit(0)\n")
    fakes.write(tmp_path / "startup.py", "raise SystemExit(0)\n")
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value.format(here=tmp_path))
    assert outcomes(tmp_path, "hostile") == plain


def test_a_configuration_of_pytest_in_a_parent_folder_removes_no_test() -> None:
    command = [str(word) for word in pytest_command(["canary"], ROOT / "cell.json")]
    assert command[command.index("--config-file") + 1] == str(ROOT / "pyproject.toml")


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_no_list_contains_a_variable_that_changes_results(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    for made in (environment.for_cell(), environment.for_build(), environment.for_git(), environment.for_registry()):
        assert name not in made


def test_a_cell_gets_only_the_listed_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    monkeypatch.setenv("REDIS_SECRET", "1")
    result = process.run(["env"], deadline_seconds=60, environment=environment.for_cell())
    names = {line.partition("=")[0] for line in result.text.splitlines()}
    assert names == {*environment.CELL, *environment.CELL_SETTINGS, process_tree.MARK}


def test_a_cells_temporary_files_go_where_the_commands_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    question = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
    result = process.run(question, deadline_seconds=60, environment=environment.for_cell())
    assert result.text.strip() == str(tmp_path)


def test_clients_of_registries_keep_what_the_user_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for name in ("https_proxy", "NO_PROXY", "PIP_INDEX_URL", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, name)
        assert environment.for_registry()[name] == name
        assert name not in environment.for_build()
    assert environment.for_registry()["HOME"] == "/home/somebody"


def test_git_reads_the_configuration_that_variables_name_and_not_a_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI systems name the folders that are safe in this way."""
    configured = {"GLOBAL": "/a/file", "NOSYSTEM": "1", "COUNT": "1", "KEY_0": "safe.directory", "VALUE_0": "*"}
    for name, value in configured.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.worktree'='/elsewhere'")
    made = environment.for_git()
    assert {name: value for name, value in made.items() if name.startswith("GIT_")} == {
        f"GIT_CONFIG_{name}": value for name, value in configured.items()
    }


def test_the_reference_lists_the_variables_that_reach_a_cell() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    section = text.partition("## Your environment")[2].partition("\n## ")[0]
    row = next(line for line in section.splitlines() if line.startswith("| a cell's tests |"))
    assert set(re.findall(r"`([A-Za-z_]+)`", row)) == set(environment.CELL)
    for name in (*environment.BUILD, *environment.USER, *environment.REGISTRY, *environment.REGISTRY_PREFIXES):
        assert f"`{name}`" in section or f"`{name}*`" in section, name
