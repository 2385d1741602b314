"""Runs one cell inside pytest: provides guest and oracle to tests, collects Tcl suites, writes evidence.

It judges nothing. Without --plumb-cell only tests that need no guest can run.
"""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.build import unit_drivers
from harness.core.byte_diff import DifferenceError
from harness.core.errors import InfrastructureError, is_machine_fault, machine_fault
from harness.core.strict_toml import ROOT
from harness.core.wanted_tests import is_wanted
from harness.run import detector_canary, private_network, unit_runner
from harness.run.canary import cases
from harness.run.cell_spec import CellSpec, read_cell
from harness.run.environments import environment_canary, litmus
from harness.run.server_process import StartError
from harness.run.servers.endings import EndedByAnotherError
from harness.run.servers.waits import WAITED, BlockedError
from harness.run.session.cell_session import CellSession
from harness.run.tcl.suite import Interpreter, TclFile
from harness.run.upstream.session import UpstreamFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from harness.record import cell_events
    from harness.run.canary import CanaryRunner
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from harness.run.unit_runner import UnitRun

_CELL = pytest.StashKey["CellSession"]()
_SUITES = ROOT / "suites"
_INTERPRETERS = pytest.StashKey[dict[Path, Interpreter]]()
"""Folder of a Tcl suite -> the runner of its tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --plumb-cell FILE: `plumb check` writes the file for every cell (RUN/TARGET/SUITE/cell.json)."""
    parser.addoption("--plumb-cell", metavar="FILE", default=None, help="the cell to run: cell.json of a run folder")


def pytest_configure(config: pytest.Config) -> None:
    """Open the cell."""
    path = config.getoption("--plumb-cell")
    if path is not None:
        # This must come before any thread or process that would stay outside.
        cell = read_cell(Path(path))
        # From a network of its own, no command reaches a board.
        alone = cell.board is None and private_network.enter()
        config.stash[_CELL] = CellSession(cell, private_network=alone)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the cell, with every process that it started."""
    for interpreter in config.stash.get(_INTERPRETERS, {}).values():
        interpreter.close()
    run = config.stash.get(_CELL, None)
    if run is not None:
        run.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise tests by the cell: the accesses of its instruction set, its detector's errors, its units."""
    run = metafunc.config.stash.get(_CELL, None)
    if "canary_case" in metafunc.fixturenames:
        every = cases(run.cell.runner) if run else []
        metafunc.parametrize("canary_case", every, ids=[case.access.name for case in every])
    if "detector_case" in metafunc.fixturenames:
        errors = detector_canary.expectations(run.cell.runner.target.emulator.detector) if run else []
        metafunc.parametrize("detector_case", errors, ids=[case for case, _ in errors])
    if "environment_case" in metafunc.fixturenames:
        deaths = environment_canary.expectations(run.cell.runner.guest_environment) if run else []
        metafunc.parametrize("environment_case", deaths, ids=[case for case, _ in deaths])
    if "litmus_case" in metafunc.fixturenames:
        shapes = list(litmus.cases(run.cell.runner.target)) if run and run.cell.litmus else []
        metafunc.parametrize("litmus_case", shapes, ids=[case.name for case in shapes])
    if "unit" in metafunc.fixturenames:
        metafunc.parametrize("unit", [unit.name for unit in unit_drivers.table()])
    if "selftest" in metafunc.fixturenames:
        metafunc.parametrize("selftest", run.cell.units.names if run and run.cell.units else [])
    if "upstream_test" in metafunc.fixturenames:
        items = run.upstream.items(run.cell.tests) if run and run.upstream else []
        metafunc.parametrize("upstream_test", items, ids=items)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a .testsuite file as a Tcl suite, whose tests need a guest."""
    run = parent.config.stash.get(_CELL, None)
    if run is None or file_path.suffix != ".testsuite":
        return None
    interpreters = parent.config.stash.setdefault(_INTERPRETERS, {})
    if file_path.parent not in interpreters:
        interpreters[file_path.parent] = Interpreter(sorted(file_path.parent.glob("*.testsuite")), run.cell)
    return TclFile.from_parent(parent, path=file_path, interpreter=interpreters[file_path.parent])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that do not belong to the cell's suite, and those that were not requested."""
    run = config.stash.get(_CELL, None)
    cell = run.cell if run is not None else None
    if cell is None or not (cell.tests or cell.without or cell.only or cell.exactly is not None):
        return
    wanted = [
        item
        for item in items
        if (not cell.tests or is_wanted(_name(item), _upstream_test(item), cell.tests))
        and _name(item) not in cell.without
        and (not cell.only or any(fnmatchcase(_name(item), glob) for glob in cell.only))
        and (cell.exactly is None or _name(item) in cell.exactly)
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


def pytest_collection_finish(session: pytest.Session) -> None:
    """Record how many tests must have ended when the cell ends."""
    run = session.config.stash.get(_CELL, None)
    if run is not None:
        if run.upstream is not None:
            run.upstream.names = {
                upstreams: _name(item) for item in session.items if (upstreams := _upstream_test(item))
            }
        run.collected(len(session.items))


def _name(item: pytest.Item) -> str:
    """A test's name in reports: `bitops/test_bitops.py::test_count`."""
    return item.nodeid.removeprefix("suites/")


def _upstream_test(item: pytest.Item) -> str:
    """The release's own test that an item runs; empty for all others."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return ""
    return str(item.callspec.params.get("upstream_test", ""))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Bracket every test with evidence."""
    run = item.config.stash.get(_CELL, None)
    if run is None:
        return (yield)
    item.stash[_REPORTS] = []
    started = time.monotonic()
    try:
        run.begin(_name(item))
        result = yield
        reports = item.stash[_REPORTS]
        outcome: cell_events.Outcome = (
            "failed" if any(r.failed for r in reports) else "skipped" if any(r.skipped for r in reports) else "passed"
        )
        message = next((_message(report) for report in reports if not report.passed), run.current.note)
        run.end(outcome, message, time.monotonic() - started)
    except (InfrastructureError, OSError) as error:
        if not is_machine_fault(error):
            raise
        run.give_up(machine_fault(error))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Report the functions that a fixture enters if it outlives a test: other tests also need them."""
    run = request.config.stash.get(_CELL, None)
    if run is None or run.recorder is None or fixturedef.scope == "function":
        return (yield)
    run.recorder.begin_fixture()
    try:
        return (yield)
    finally:
        run.recorder.end_fixture()


_REPORTS = pytest.StashKey[list[pytest.TestReport]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the reports as evidence. A fault of the host fails no test: it ends the cell."""
    report = yield
    run = item.config.stash.get(_CELL, None)
    error = call.excinfo.value if call.excinfo is not None else None
    if run is not None and error is not None and is_machine_fault(error):
        run.give_up(machine_fault(error))
    if run is not None and call.excinfo is not None and report.failed:
        run.current.asserted = _place_in_suites(call.excinfo)
    if run is not None and isinstance(error, BlockedError):
        run.current.blockers, run.current.doubt = error.blockers, str(error)
    is_silence = isinstance(error, TimeoutError) and not str(error).startswith(WAITED)
    if run is not None and is_silence and (late := run.servers.late_reply()) is not None:
        run.current.blockers, run.current.doubt = late.blockers, str(late)
    if run is not None and isinstance(error, EndedByAnotherError):
        run.current.doubt = str(error)
    if run is not None and isinstance(error, unit_runner.WrongLineError):
        run.current.wrong_line = error.line
        # The message says it all; the traceback adds nothing.
        report.longrepr = str(error)
    if run is not None and isinstance(error, UpstreamFailedError):
        report.longrepr = str(error)
    if run is not None and isinstance(error, DifferenceError):
        run.current.difference = error
        report.longrepr = str(error)
    if _REPORTS in item.stash:
        item.stash[_REPORTS].append(report)
    return report


def _place_in_suites(error: pytest.ExceptionInfo[BaseException]) -> str:
    """The innermost place of an error in the suites, `SUITE/FILE:LINE`; empty if there is none."""
    places = [
        f"{path.relative_to(_SUITES)}:{entry.lineno + 1}"
        for entry in error.traceback
        if isinstance(path := entry.path, Path) and path.is_relative_to(_SUITES)
    ]
    return places[-1] if places else ""


def _message(report: pytest.TestReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message) if crash else str(report.longrepr)


def _cell_run(request: pytest.FixtureRequest) -> CellSession:
    run = request.config.stash.get(_CELL, None)
    if run is None:
        pytest.fail(f"this test needs a guest; type: plumb check --suite {request.path.parent.name}", pytrace=False)
    return run


@pytest.fixture
def guest(request: pytest.FixtureRequest) -> Guest:
    """A live server on the target, and a fresh one if an earlier test killed it."""
    run = _cell_run(request)
    try:
        return run.servers.guest()
    except StartError as error:
        pytest.fail(f"{error}", pytrace=False)


@pytest.fixture
def start_guest(request: pytest.FixtureRequest) -> StartGuest:
    """Starts more servers for one test, with files and options, on this target or another of the run."""
    return _cell_run(request).servers.start_guest


@pytest.fixture
def cell_run(request: pytest.FixtureRequest) -> CellSession:
    """The cell's servers and evidence, for a test that runs many examples."""
    return _cell_run(request)


@pytest.fixture
def oracle(request: pytest.FixtureRequest) -> Guest:
    """A live native server of the same source."""
    return _cell_run(request).servers.oracle()


@pytest.fixture
def run_unit(request: pytest.FixtureRequest) -> Callable[[str], UnitRun]:
    """Runs a unit. It skips units that the server does not have; the cell itself reports those that did not compile."""
    run = _cell_run(request)

    def run_one(unit: str) -> UnitRun:
        assert run.cell.units is not None
        if unit in run.cell.units.absent:
            pytest.skip(run.cell.units.absent[unit])
        if unit in run.cell.units.broken:
            pytest.skip(f"it does not compile: {run.cell.units.broken[unit]}")
        return run.run_unit(unit)

    return run_one


@pytest.fixture
def unit_lines(run_unit: Callable[[str], UnitRun]) -> Callable[[str], list[str]]:
    """Runs one of Plumbline's units and returns its lines."""

    def lines_of(unit: str) -> list[str]:
        ran = run_unit(unit)
        lines = unit_runner.lines(ran)
        if not unit_runner.complete(ran, unit):
            after = lines[-1:] or "no line"
            pytest.fail(
                f"{unit} did not get to its end: {unit_runner.how_it_ended(ran, complete=False)}, after {after}",
                pytrace=False,
            )
        return lines[:-1]

    return lines_of


@pytest.fixture(scope="session")
def perform(request: pytest.FixtureRequest) -> CanaryRunner:
    """Runs the canary program where the cell's target is."""
    return _cell_run(request).perform()


@pytest.fixture(scope="session")
def cell(request: pytest.FixtureRequest) -> CellSpec:
    """The cell that runs."""
    return _cell_run(request).cell
