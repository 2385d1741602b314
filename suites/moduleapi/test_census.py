"""The suite's module calls every function that the server offers to modules, or uncalled.toml gives the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.model import Record
from harness.core.strict_toml import read_toml

if TYPE_CHECKING:
    from harness.run.cell_spec import CellSpec

MODULE = Path(__file__).with_name("moduleapi.c")


class Uncalled(Record, frozen=True):
    """Functions that the module does not call."""

    reason: str
    """Why the module does not call them."""
    functions: list[str]
    """Their names, without `RedisModule_`."""


class UncalledList(Record, frozen=True):
    """uncalled.toml: functions that a server offers to modules and that suites/moduleapi/moduleapi.c does not call."""

    uncalled: list[Uncalled]
    """One entry for each reason."""


def test_every_function_of_the_api_is_called_or_listed(cell: CellSpec) -> None:
    """A module requests a function by its name, so the server's program contains the names of all functions."""
    assert cell.build is not None
    program = cell.build.server_binary.read_bytes()
    # Valkey offers each function under two names.
    offered = {name.decode() for name in re.findall(rb"(?<=\0)(?:Redis|Valkey)Module_(\w+)(?=\0)", program)}
    called = set(re.findall(r"\bRedisModule_(\w+)", MODULE.read_text("utf-8")))
    entries = read_toml(MODULE.with_name("uncalled.toml"), UncalledList).uncalled
    listed = [name for entry in entries for name in entry.functions]
    assert len(offered & called) > 200, "the server's program does not contain the names of the functions"
    assert len(set(listed)) == len(listed), "a function is listed twice"
    assert not called & set(listed), f"called and listed: {sorted(called & set(listed))}"
    assert not offered - called - set(listed), f"neither called nor listed: {sorted(offered - called - set(listed))}"
