"""A release's own self-tests pass on the target as they do natively.

If the native build gives no other answer, the target's says nothing: the cell is UNKNOWN, and the message shows the
output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from harness.run import selftests
from harness.run.unit_runner import WrongLineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run.session.cell_session import CellSession
    from harness.run.unit_runner import UnitRun


def test_selftest(selftest: str, run_unit: Callable[[str], UnitRun], cell_run: CellSession) -> None:
    if selftest in selftests.LONG and cell_run.cell.tier != "thorough":
        pytest.skip("it takes too long under an emulator: tier thorough")
    ran = run_unit(selftest)
    assert cell_run.cell.units is not None
    # Of a test with parameters, some may be skipped and others fail.
    complaints = selftests.complaints(ran)
    if complaints:
        blame(selftest, ran, complaints, cell_run)
    if why := selftests.why_not_run(ran):
        leave_out(selftest, why, cell_run)
    if unfinished := selftests.why_unfinished(ran, cell_run.cell.units, selftest):
        blame(selftest, ran, [unfinished], cell_run)
    if selftest in selftests.PRINTED:
        compare(selftest, ran, cell_run)


def compare(selftest: str, ran: UnitRun, cell_run: CellSession) -> None:
    """Fail the test unless it printed what the native build prints."""
    native = cell_run.run_unit_natively(selftest)
    if broken := selftests.complaints(native):
        say_nothing(f"the native build, with which it is compared, fails: {'; '.join(broken)}", cell_run)
    assert selftests.printed(native), f"{selftest} prints nothing, so there is nothing to compare"
    lost = selftests.missing(ran, native)
    if lost is not None:
        right = selftests.printed(native)
        wrong = next((line for line in selftests.printed(ran) if line not in right), "")
        raise WrongLineError(selftest, wrong, f"the native build prints {lost[:200]!r}")


def blame(selftest: str, ran: UnitRun, complaints: list[str], cell_run: CellSession) -> NoReturn:
    """Fail the test; the failure says nothing if the native build fails in the same way."""
    message = f"{selftest}: {'; '.join(complaints)}"
    if is_native(cell_run):
        pytest.fail(message, pytrace=False)
    native = cell_run.run_unit_natively(selftest)
    there = selftests.complaints(native)
    assert cell_run.cell.units is not None
    unfinished = selftests.why_unfinished(native, cell_run.cell.units, selftest)
    if selftests.failed_alike(ran, native) or (not there and complaints == [unfinished]):
        say_nothing(f"it fails in the same way on the native build, too: {'; '.join(complaints)}", cell_run)
    pytest.fail(message + (f" (the native build: {'; '.join(there)})" if there else ""), pytrace=False)


def leave_out(selftest: str, why: str, cell_run: CellSession) -> NoReturn:
    """Skip a test that its program did not run, if it does not run it natively either or says that it is for other
    machines. Nothing else explains why the target is not tested.
    """
    if not is_native(cell_run) and not selftests.is_for_other_machines(why):
        native = cell_run.run_unit_natively(selftest)
        if not selftests.why_not_run(native):
            say_nothing(f"{why}, and natively it runs", cell_run)
    pytest.skip(why)


def say_nothing(why: str, cell_run: CellSession) -> NoReturn:
    """Fail the test without blaming the target."""
    cell_run.current.doubt = why
    pytest.fail(why, pytrace=False)


def is_native(cell_run: CellSession) -> bool:
    """Whether the target is the native build, with which others are compared."""
    return cell_run.cell.runner.target.name == "native"
