"""An output format is one module and one line."""

from __future__ import annotations

import re
import sys
import types
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT
from harness.report.formats import registry
from tests.support.judgements import judgement, run_folder

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = ROOT / "docs" / "howto" / "add-an-output-format.md"


def test_every_module_of_the_package_is_in_the_registry() -> None:
    modules = {path.stem for path in (ROOT / "harness" / "report" / "formats").glob("*.py")} - {"__init__", "registry"}
    registered = {sys.modules[one.render.__module__].__name__.rpartition(".")[2] for one in registry.FORMATS.values()}
    assert modules == registered


def test_no_two_formats_have_one_name_or_file() -> None:
    files = [one.file for one in registry.FILES]
    assert sorted(set(files)) == sorted(files)
    assert len(registry.FORMATS) == 11


def test_the_format_of_the_guide_is_written_into_a_run_folder(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    module = types.ModuleType("csv_format")
    exec(re.sub("^   ", "", code, flags=re.MULTILINE), module.__dict__)  # noqa: S102 - our own document
    folder = run_folder(tmp_path)
    (path,) = registry.write(folder, judgement(), formats=[module.FORMAT])
    assert path == folder / "findings.csv"
    assert path.read_text("utf-8").splitlines() == [
        "id,targets,title",
        "alignment-bitopCommand-load,armv5,misaligned load in bitopCommand",
    ]


@pytest.mark.parametrize("place", ["harness/report/formats/registry.py", "pyproject.toml"])
def test_the_guide_names_the_two_places_beside_the_new_module(place: str) -> None:
    steps = re.findall(r"^\d\. .*", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert len(steps) == 3
    assert any(place in step for step in steps)
