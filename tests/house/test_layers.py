"""A module imports only from lower layers. A wrong import fails here with its chain."""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tomllib
from collections import Counter
from typing import TYPE_CHECKING, Any

from importlinter.cli import lint_imports

from harness.core.processes import process
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def settings() -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return read


def test_no_module_imports_upwards(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_an_import_that_judging_must_not_have_is_detected(tmp_path: Path) -> None:
    """The layers allow these imports. Only the contract of hermetic judging forbids them."""
    shutil.copytree(ROOT / "harness", tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    planted = {
        "judge.findings": "build.kernel",
        "judge.verdict": "run.canary",
        "report.formats.sarif": "build.emulators.runner",
        "record.event_log": "plan.plan",
    }
    for importer, imported in planted.items():
        module = tmp_path / "harness" / f"{importer.replace('.', '/')}.py"
        module.write_text(f"{module.read_text('utf-8')}\nfrom harness.{imported} import planted\n", "utf-8")
    check = "import sys; from importlinter.cli import lint_imports; "
    check += "sys.exit(lint_imports(config_filename=sys.argv[1], limit_to_contracts=('hermetic',), no_cache=True))"
    words = [sys.executable, "-c", check, str(ROOT / "pyproject.toml")]
    result = process.run(words, folder=tmp_path, deadline_seconds=120)
    assert result.code == 1
    for importer, imported in planted.items():
        assert f"harness.{importer} -> harness.{imported}" in result.text


def test_every_module_has_a_layer() -> None:
    layered = {
        f"{package}.{name.strip()}"
        for contract in settings()["contracts"]
        if contract["type"] == "layers"
        for package in contract["containers"]
        for row in contract["layers"]
        for name in row.split("|")
    }
    files = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "harness").rglob("*.py")]
    modules = {".".join(file.parts).removesuffix(".__init__") for file in files} - {"harness"}
    assert set() == modules - layered, "modules without a layer in pyproject.toml, which nothing checks"
    assert set() == layered - modules, "layers of pyproject.toml without a module"


CLASS = re.compile(r"\bclass +(\w+)")


def test_a_class_name_is_used_once() -> None:
    folders = ("harness", "suites", "tests")
    sources = {path: path.read_text("utf-8") for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))}
    # To find the names that may occur twice takes a fraction of the time that parsing all modules takes.
    written = Counter(name for text in sources.values() for name in CLASS.findall(text))
    twice = {name for name, number in written.items() if number > 1}
    named: dict[str, list[str]] = {}
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)) if not twice.isdisjoint(CLASS.findall(text)) else ():
            if isinstance(node, ast.ClassDef):
                named.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


def listed_in(registry: Path) -> set[str]:
    """The modules of its own package that a registry imports; empty if there is no registry."""
    if not registry.is_file():
        return set()
    own = ".".join(registry.parent.relative_to(ROOT).parts)
    nodes = ast.walk(ast.parse(registry.read_text("utf-8")))
    return {
        name.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == own for name in node.names
    }


def test_a_package_documents_its_contents_and_has_at_most_fifteen_modules() -> None:
    packages = [path.parent for path in (ROOT / "harness").rglob("__init__.py")]
    assert len([entry for entry in (ROOT / "harness").iterdir() if entry.name != "__pycache__"]) <= 14
    for package in packages:
        # Modules in a registry do not count, because a reader reads the registry instead.
        uncounted = {"__init__", *listed_in(package / "registry.py")}
        modules = [path for path in package.glob("*.py") if path.stem not in uncounted]
        assert len(modules) <= 15, f"{package.relative_to(ROOT)} has {len(modules)} modules"
        body = ast.parse((package / "__init__.py").read_text("utf-8"))
        assert len(body.body) == 1, f"{package.relative_to(ROOT)}/__init__.py contains more than its docstring"
        words = ast.get_docstring(body) or ""
        assert package == ROOT / "harness" or ("import" in words and "Begin with" in words), package
