"""Every need that a suite states can be answered: a misspelled one would skip tests for ever, or never."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.run.server_questions import questions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = {"command", "option", "info", "form", "api", "file"}
SUITES = sorted((ROOT / "suites").rglob("*.py"))


def needs_of_tests() -> Iterator[tuple[Path, str]]:
    """The needs that tests state as plain texts, in `require` and `lacks`."""
    for path in SUITES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in {"require", "lacks"}:
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield path, argument.value


def needs_of_suites() -> Iterator[tuple[Path, str]]:
    for suite in Catalog().suites.values():
        for need in suite.needs:
            yield suite.path / "suite.toml", need


STATED = [*needs_of_suites(), *needs_of_tests()]


def test_suites_and_tests_state_needs() -> None:
    assert len({need for _, need in needs_of_suites()}) > 10
    assert len({need for _, need in needs_of_tests()}) > 20


@pytest.mark.parametrize(("place", "need"), STATED, ids=[need for _, need in STATED])
def test_each_need_can_be_answered(place: Path, need: str) -> None:
    kind, _, name = need.partition(" ")
    assert kind in KINDS, f"{place}: {need}"
    known = {"form": {one.name for one in questions().forms}, "api": set(questions().api)}
    if kind in known:
        assert name in known[kind], f"{place}: {need} is not in harness/run/server_questions.toml"
    else:
        assert name
        assert name == name.lower() or kind == "file", f"{place}: {need}"


def test_each_question_is_needed() -> None:
    stated = {need for _, need in STATED}
    asked = {f"form {one.name}" for one in questions().forms} | {f"api {name}" for name in questions().api}
    assert asked <= stated, asked - stated
