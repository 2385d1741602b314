"""Where a program's code is, how it is divided into functions, and how long its instructions are at least."""

from __future__ import annotations

import pytest

from harness.analysis.function_symbols import function_symbols
from harness.build.executed_blocks import code_of
from tests.support import fakes


@pytest.mark.parametrize(("machine", "step"), [("arm", 2), ("sparc32plus", 4)])
def test_a_programs_code_is_known_by_its_segments_and_symbols(machine: str, step: int) -> None:
    program = fakes.DATA / "stacks" / machine
    found = code_of(program, machine)
    assert found.step == step, "the length of the shortest instruction"
    (main,) = (symbol for symbol in function_symbols(str(program)).found if symbol.name == "main")
    (function,) = (function for function in found.functions if "main" in function.names)
    assert (function.start, function.size) == (main.start, main.size)
    assert found.begin <= main.start < main.start + main.size <= found.end


def test_of_an_unknown_machine_instructions_may_have_any_length() -> None:
    assert code_of(fakes.DATA / "stacks" / "arm", "none-such").step == 1
