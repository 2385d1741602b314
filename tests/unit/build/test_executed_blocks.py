"""Where a program's code is, how it is divided into functions, and how long its instructions are at least. The plugin
that records its blocks can be compiled as long as the emulator runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.analysis.function_symbols import function_symbols
from harness.build.executed_blocks import code_of, compile_blocks
from harness.build.instruction_counter import PLUGIN_HEADER
from harness.core.cache import Cache
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path


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


class SourceOnce:
    """A fetcher of the emulator's source, which is there once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        fakes.write(folder / PLUGIN_HEADER, "/* calls of the emulator */\n")

    def tree(self, *_: object, **__: object) -> Path:
        assert (self._folder / PLUGIN_HEADER).is_file(), "the source was unpacked again"
        return self._folder


def test_the_header_outlives_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: once the limit had removed the source, a pre-merge check recorded nothing and did not say so."""
    compiled: list[Path] = []
    monkeypatch.setattr("harness.build.executed_blocks.compile_plugin", lambda *words, **_: compiled.append(words[2]))
    cache, tools = Cache(tmp_path / "cache"), fakes.toolchain()
    source: Any = SourceOnce(tmp_path / "source")
    compile_blocks(cache, tools, source)
    (tmp_path / "source" / PLUGIN_HEADER).unlink()
    compile_blocks(cache, tools, source)
    assert [one.read_text("ascii") for one in compiled] == ["/* calls of the emulator */\n"] * 2
