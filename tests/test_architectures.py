"""Every target's architecture has a module, and no other code names one."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import UsageError
from harness.core.strict_toml import ROOT
from harness.isa import registry
from harness.plan.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

CATALOG = Catalog()
FURTHER_NAMES = {"arm64", "parisc", "powerpc", "riscv", "s390", "thumb", "x86", "amd64", "i386", "loongarch"}
"""What architectures are called besides the names of their targets' instruction sets and emulators."""
NAMES = FURTHER_NAMES.union(*({*each.isas, *each.variants} for each in registry.ARCHITECTURES))
_NAMED = re.compile(rf"(?<![a-z])({'|'.join(sorted(NAMES, key=len, reverse=True))})(v?\d\w*)?(?![a-z])")


def architectures_in(source: str) -> list[str]:
    """`LINE: TEXT` of each identifier and string literal that names an architecture; docstrings excepted."""
    tree = ast.parse(source)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    return [
        f"{line}: {text}"
        for line, text in sorted(_texts(tree, prose))
        if _NAMED.search(re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower())
    ]


def _texts(tree: ast.Module, prose: set[int]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text), lineno=line) if id(node) not in prose:
                yield line, text
            case (
                ast.Name(id=text, lineno=line) | ast.Attribute(attr=text, lineno=line) | ast.arg(arg=text, lineno=line)
            ):
                yield line, text
            case ast.FunctionDef(name=text, lineno=line) | ast.ClassDef(name=text, lineno=line):
                yield line, text
            case ast.keyword(arg=str(text), lineno=line) | ast.alias(name=text, lineno=line):
                yield line, text


@pytest.mark.parametrize(
    "source",
    [
        "MODE = CS_MODE_ARM",
        "if machine == 'sparc64': pass",
        "def _mips_stack(): pass",
        "class ArmFrames: pass",
        "raise UsageError(remedy='--target armv5')",
        "import harness.isa.x86",
        "call(riscv64=1)",
        "text = f'{name} of Thumb code'",
    ],
)
def test_an_architectures_name_is_recognised(source: str) -> None:
    assert architectures_in(source)


@pytest.mark.parametrize(
    "source",
    ['"""As ARM does."""', "alarm = 'harmless'", "alphabet = 1  # of Alpha", "charm64 = disarm()", "'#!/bin/sh'"],
)
def test_prose_and_other_words_name_none(source: str) -> None:
    assert architectures_in(source) == []


def test_only_the_modules_of_architectures_name_one() -> None:
    paths = [path for path in (ROOT / "harness").rglob("*.py") if path.parent != ROOT / "harness" / "isa"]
    found = {str(path.relative_to(ROOT)): architectures_in(path.read_text("utf-8")) for path in paths}
    assert {path: texts for path, texts in found.items() if texts} == {}, "harness/isa/ is where this belongs"


def test_every_target_has_an_architecture() -> None:
    for target in CATALOG.targets.values():
        architecture = registry.of_isa(target.isa)
        assert not target.emulator.qemu or target.emulator.qemu in architecture.variants, target.name


def test_every_architecture_has_a_target_and_names_are_given_once() -> None:
    isas = [isa for each in registry.ARCHITECTURES for isa in each.isas]
    variants = [name for each in registry.ARCHITECTURES for name in each.variants]
    assert sorted(isas) == sorted({target.isa for target in CATALOG.targets.values()})
    assert sorted(variants) == sorted({t.emulator.qemu for t in CATALOG.targets.values()} - {""})


def test_every_variant_has_its_targets_word_size_and_byte_order() -> None:
    for target in CATALOG.targets.values():
        variant = registry.variant(target.emulator.qemu)
        if variant is not None:
            assert variant.word_bytes * 8 == target.width_bits, target.name
            assert variant.big_endian == (target.endianness == "big"), target.name


def test_an_unknown_architecture_is_an_error_that_says_how_to_add_one() -> None:
    with pytest.raises(UsageError, match="no architecture has the instruction set 'toy'") as caught:
        registry.of_isa("toy")
    assert "add-an-architecture" in str(caught.value)
