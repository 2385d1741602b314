"""Fixtures that several test files share: a command line, and the machine on which it runs."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from harness.build import toolchain
from harness.cli.console_script import main
from harness.core.cache import NO_HOME, default_root
from harness.core.cache_entries.plain_path import refuse_odd
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from tests.support import fakes, order, waits
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fakes import Plumb

# On a busy machine an example may be slow, which is not a fault of the tested code.
hypothesis.settings.register_profile("plumbline", deadline=None)
hypothesis.settings.load_profile("plumbline")

# Thousands of collected tests live until the end. By default, Python looks for cycles among them all the time.
gc.set_threshold(100_000)

SHORT = 70
"""The longest path of a folder that has room for the name of a socket, of at most 107 bytes (unix(7))."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for tests that do not run by default, and for records."""
    parser.addoption("--all", action="store_true", help="also run the tests that are marked as slow")
    parser.addoption("--quick", action="store_true", help="leave out the tests that are marked as costly, too")
    parser.addoption("--times", metavar="FOLDER", help="record there what each test waits for (tools/test_times.py)")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the records of what tests wait for, if they are requested. A user without a home gets a cache."""
    waits.record(config)
    if default_root().is_relative_to(NO_HOME):
        os.environ["PLUMBLINE_CACHE"] = str(Path(tempfile.gettempdir(), f"plumbline-tests-{os.geteuid()}"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow and costly tests, as requested. Processes that share the tests begin with the longest."""
    unwanted = {"slow": not config.getoption("--all"), "costly": config.getoption("--quick")}
    marks = [mark for mark, leave_out in unwanted.items() if leave_out]
    left_out = [item for item in items if any(map(item.get_closest_marker, marks))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    if hasattr(config, "workerinput"):
        order.longest_first(items, order.read_expected())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute tests over processes, unless the command line names another distribution."""
    return order.LongAndShort(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new folder. Its name is short: with pytest's names, a socket's path has more bytes than the system takes."""
    return tmp_path_factory.mktemp("t")


@pytest.fixture
def plumb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plumb:
    """Run a command line in an empty folder with an empty cache: (exit code, standard output, standard error).

    Texts are wrapped as for a terminal of 80 columns.
    """
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    # The test run keeps its own signal handlers.
    monkeypatch.setattr(process, "stop_on_signals", lambda: None)

    def no_network(*_: object) -> None:
        raise InfrastructureError("the harness' own tests fetch nothing")

    monkeypatch.setattr("harness.build.sources.archives.Fetcher._download", no_network)

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        output = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, output.out, output.err

    return run


def dpkg(folder: Path, monkeypatch: pytest.MonkeyPatch, *, installed: bool) -> Iterator[None]:
    """A dpkg-query that has every package, or none."""
    status = "installed" if installed else "not-installed"
    script = f'#!/bin/sh\nshift 3\nfor name; do echo "$name {status}"; done\n'
    fakes.write(folder / "dpkg-query", script, mode=0o755)
    fakes.put_on_path(folder, monkeypatch)
    yield from forgotten_packages()


def forgotten_packages() -> Iterator[None]:
    """Forget dpkg-query's answers before and after the test."""
    toolchain.missing_packages.cache_clear()
    yield
    toolchain.missing_packages.cache_clear()


@pytest.fixture
def plain_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new folder with a plain and short path, wherever other temporary files are: for makefiles and for sockets."""
    with contextlib.suppress(InfrastructureError):
        folder = tmp_path_factory.mktemp("plain")
        refuse_odd(folder)
        if len(str(folder)) <= SHORT:
            yield folder
            return
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def safe_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git read this checkout, whoever owns it."""
    for name, value in {"COUNT": "1", "KEY_0": "safe.directory", "VALUE_0": "*"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)


@pytest.fixture
def asks_dpkg() -> Iterator[None]:
    """Let the test query dpkg-query."""
    yield from forgotten_packages()


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has every package."""
    yield from dpkg(tmp_path / "dpkg", monkeypatch, installed=True)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has no package."""
    yield from dpkg(tmp_path / "dpkg", monkeypatch, installed=False)


@pytest.fixture
def fake_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbolizer that looks up addresses in a stored run."""
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    """A run of bitops on one target whose canaries behaved."""
    stored = StoredRun(tmp_path / "run")
    stored.canary("armv5")
    return stored
