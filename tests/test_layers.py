"""A module imports only downwards: a wrong import fails here, with the chain that is wrong."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from importlinter.cli import lint_imports

from harness.load import ROOT

if TYPE_CHECKING:
    import pytest


def settings() -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return read


def test_no_module_imports_upwards(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_every_module_has_a_layer() -> None:
    layered = {
        "harness." + name.strip().removeprefix("harness.")
        for contract in settings()["contracts"]
        for row in contract["layers"]
        for name in row.split("|")
    }
    modules = {f"harness.{path.stem}" for path in (ROOT / "harness").glob("*.py") if path.stem != "__init__"}
    assert set() == modules - layered, (
        "modules that the layers of pyproject.toml leave out, so that nothing checks them"
    )
    assert set() == layered - modules, "layers of pyproject.toml without a module"
