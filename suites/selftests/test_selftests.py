"""A release's own self-tests pass on the target as they do natively.

If the same checks also fail natively, the failure says nothing about the target: the test is skipped and shows the
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
    # Of a test with parameters, some may be skipped and others fail.
    complaints = selftests.complaints(ran)
    if complaints:
        blame(selftest, ran, complaints, cell_run)
    if why := selftests.why_not_run(ran):
        pytest.skip(why)
    if selftest in selftests.PRINTED:
        native = cell_run.run_unit_natively(selftest)
        if broken := selftests.complaints(native):
            pytest.skip(f"the native build, with which it is compared, fails: {'; '.join(broken)}")
        assert selftests.printed(native), f"{selftest} prints nothing, so there is nothing to compare"
        lost = selftests.missing(ran, native)
        if lost is not None:
            right = selftests.printed(native)
            wrong = next((line for line in selftests.printed(ran) if line not in right), "")
            raise WrongLineError(selftest, wrong, f"the native build prints {lost[:200]!r}")


def blame(selftest: str, ran: UnitRun, complaints: list[str], cell_run: CellSession) -> NoReturn:
    """Fail the test; or skip it if the same checks fail in the native build."""
    message = f"{selftest}: {'; '.join(complaints)}"
    if cell_run.cell.runner.target.name == "native":
        pytest.fail(message, pytrace=False)
    native = cell_run.run_unit_natively(selftest)
    there = selftests.complaints(native)
    if selftests.failed_alike(ran, native):
        pytest.skip(f"it fails on the native build by the same checks, too: {'; '.join(complaints)}")
    pytest.fail(message + (f" (the native build: {'; '.join(there)})" if there else ""), pytrace=False)
