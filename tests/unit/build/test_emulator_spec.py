"""Code gets the properties of a target's emulator from EmulatorSpec, and only EmulatorSpec compares its kind."""

from __future__ import annotations

import ast

import pytest

from harness.core.errors import UsageError
from harness.core.strict_toml import ROOT
from harness.core.target_model import ORACLE, EmulatorSpec
from harness.plan.catalog import Catalog
from harness.workflows.measure.server_cost_run import countable_target

KINDS = frozenset({"user", "native", "system"})


def comparisons(source: str) -> list[int]:
    """Lines that read `emulator.kind`, or compare a `kind` with one of its values."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute | ast.Compare):
            continue
        reads = isinstance(node, ast.Attribute) and node.attr == "kind" and ast.unparse(node.value).endswith("emulator")
        compares = isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Attribute) and side.attr == "kind" for side in [node.left, *node.comparators]
        )
        words = {
            leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
        }
        if reads or (compares and words & KINDS):
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("source", ["target.emulator.kind", "spec.kind == 'user'", "spec.kind in {'user', 'native'}"])
def test_a_comparison_is_recognised(source: str) -> None:
    assert comparisons(source) == [1]


def test_the_kind_of_an_emulator_is_compared_in_its_own_class_alone() -> None:
    paths = [path for folder in ("harness", "suites", "tools") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): comparisons(path.read_text("utf-8")) for path in paths}
    assert {path: len(lines) for path, lines in found.items() if lines} == {"harness/core/target_model.py": 3}


@pytest.mark.parametrize(
    ("spec", "runs_here", "has_kernel", "can_audit"),
    [
        (EmulatorSpec(kind="native"), True, False, False),
        (EmulatorSpec(kind="system"), False, True, False),
        (EmulatorSpec(kind="user"), False, False, True),
    ],
)
def test_each_kind_has_the_properties_that_callers_need(
    spec: EmulatorSpec, *, runs_here: bool, has_kernel: bool, can_audit: bool
) -> None:
    assert (spec.runs_here, spec.has_kernel, spec.can_audit) == (runs_here, has_kernel, can_audit)
    assert spec.is_qemu_user == can_audit


def test_a_native_target_is_counted_by_the_emulator_that_it_names() -> None:
    spec = Catalog().targets[ORACLE].emulator
    assert spec.runs_here
    assert (spec.counting.kind, spec.counting.qemu, spec.counting.cpu) == ("user", "x86_64", "Haswell")
    emulated = Catalog().targets["armv5"].emulator
    assert emulated.counting == emulated
    with pytest.raises(LookupError):
        _ = Catalog().targets["native-asan"].emulator.counting


def test_a_native_target_is_not_counted_on_another_machine_than_the_emulated_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        if machine == "x86_64":
            assert countable_target(Catalog(), ORACLE).emulator.qemu == machine
        else:
            with pytest.raises(UsageError, match="counted in an emulated x86_64, and the host is aarch64"):
                countable_target(Catalog(), ORACLE)
        assert countable_target(Catalog(), "armv5").emulator.qemu == "arm"
