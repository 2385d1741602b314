"""The grammar sends every command of the release, or gives a reason for omitting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites._shared.census import of_release
from suites.fuzz.grammar import left_out

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec
    from suites._shared.paired_servers import PairedServers


def test_the_grammar_sends_every_command_or_there_is_a_reason(both: PairedServers, cell: CellSpec) -> None:
    missing = left_out(of_release(both.oracle, cell).keys())
    assert not missing, f"neither sent nor listed as unsent in suites/fuzz/grammar.toml: {', '.join(missing)}"
