"""A target's programs have pages of the specified size, and an emulator that cannot provide them refuses to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


SOURCE = ROOT / "tests" / "support" / "data" / "pages.c"


@pytest.mark.parametrize(
    "target",
    [*machines.REQUIRED, "aarch64-16k", "aarch64-64k", *map(machines.beyond, [*machines.OTHERS, "powerpc64-64k"])],
)
def test_pages_have_the_size_that_the_target_specifies(target: str, tmp_path: Path) -> None:
    command = machines.runner(target).command(machines.compiled(target, SOURCE, tmp_path), [])
    due = Catalog().targets[target].page_size_bytes
    assert process.run(command, deadline_seconds=60).text == f"{due} whole\n"


def test_an_emulator_with_other_pages_refuses(tmp_path: Path) -> None:
    runner = machines.runner("armv5")
    options = ["65536" if word == "4096" else word for word in runner.options]
    assert options != runner.options
    command = msgspec.structs.replace(runner, options=options).command(machines.compiled("armv5", SOURCE, tmp_path), [])
    result = process.run(command, deadline_seconds=60)
    assert (result.code, "this emulator's pages have 4096 bytes" in result.text) == (1, True)
