"""A module imports only downwards: a wrong import fails here, with the chain that is wrong."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from importlinter.cli import lint_imports

from harness.core.strict_toml import ROOT

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
        f"{package}.{name.strip()}"
        for contract in settings()["contracts"]
        for package in contract["containers"]
        for row in contract["layers"]
        for name in row.split("|")
    }
    files = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "harness").rglob("*.py")]
    modules = {".".join(file.parts).removesuffix(".__init__") for file in files} - {"harness"}
    assert set() == modules - layered, (
        "modules that the layers of pyproject.toml leave out, so that nothing checks them"
    )
    assert set() == layered - modules, "layers of pyproject.toml without a module"
