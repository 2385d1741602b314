"""What a release tests itself with passes on the target as it does on this machine.

What fails natively in the same way is no target's fault, and is skipped with what it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import selftests
from harness.unit_run import WrongLineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell_run import CellRun
    from harness.unit_run import UnitRun


def test_selftest(selftest: str, run_unit: Callable[[str], UnitRun], cell_run: CellRun) -> None:
    if selftest in selftests.LONG and cell_run.cell.tier != "thorough":
        pytest.skip("it takes too long under an emulator: tier thorough")
    ran = run_unit(selftest)
    if why := selftests.why_not_run(ran):
        pytest.skip(why)
    complaints = selftests.complaints(ran)
    if complaints:
        excused = cell_run.cell.runner.target.name != "native" and set(complaints) <= set(
            selftests.complaints(cell_run.run_unit_natively(selftest))
        )
        assert excused, f"{selftest}: {'; '.join(complaints)}"
        pytest.skip(f"it fails on the native build, too: {'; '.join(complaints)}")
    if selftest in selftests.PRINTED:
        # A detector may write between the lines: there may be more, and none may be missing.
        printed, right = selftests.printed(ran), selftests.printed(cell_run.run_unit_natively(selftest))
        missing = [line for line in right if line not in printed]
        if missing:
            wrong = next((line for line in printed if line not in right), "")
            raise WrongLineError(selftest, wrong, f"the native build prints {missing[0][:200]!r}")
