"""Every target's architecture has a module, and no other code names one."""

from __future__ import annotations

import re

import pytest

from harness.core.errors import UsageError
from harness.core.strict_toml import ROOT
from harness.isa import registry
from harness.plan.catalog import Catalog
from tests.support.code_names import named_in, named_outside

CATALOG = Catalog()
FURTHER_NAMES = {"arm64", "parisc", "powerpc", "riscv", "s390", "thumb", "x86", "amd64", "i386", "loongarch"}
"""Names of architectures besides those of their targets' instruction sets and emulators."""
NAMES = FURTHER_NAMES.union(*({*each.isas, *each.variants} for each in registry.ARCHITECTURES))
_NAMED = re.compile(rf"(?<![a-z])({'|'.join(sorted(NAMES, key=len, reverse=True))})(v?\d\w*)?(?![a-z])")


@pytest.mark.parametrize(
    "source",
    [
        "MODE = CS_MODE_ARM",
        "if machine == 'sparc64': pass",
        "def _mips_stack(): pass",
        "class ArmFrames: pass",
        "raise UsageError(remedy='--target armv5')",
        "import harness.isa.x86",
        "from harness.isa.x86 import VARIANTS",
        "call(riscv64=1)",
        "text = f'{name} of Thumb code'",
    ],
)
def test_an_architectures_name_is_recognised(source: str) -> None:
    assert named_in(source, _NAMED)


@pytest.mark.parametrize(
    "source",
    ['"""As ARM does."""', "alarm = 'harmless'", "alphabet = 1  # of Alpha", "charm64 = disarm()", "'#!/bin/sh'"],
)
def test_prose_and_other_words_name_no_architecture(source: str) -> None:
    assert named_in(source, _NAMED) == []


def test_only_the_modules_of_architectures_name_one() -> None:
    assert named_outside(ROOT / "harness" / "isa", _NAMED) == {}, "names of architectures belong in harness/isa/"


def test_every_target_has_an_architecture() -> None:
    for target in CATALOG.targets.values():
        architecture = registry.of_isa(target.isa)
        assert not target.emulator.is_qemu_user or target.emulator.qemu in architecture.variants, target.name


def test_every_architecture_has_a_target_and_names_are_given_once() -> None:
    isas = [isa for each in registry.ARCHITECTURES for isa in each.isas]
    variants = [name for each in registry.ARCHITECTURES for name in each.variants]
    assert sorted(isas) == sorted({target.isa for target in CATALOG.targets.values()})
    assert sorted(variants) == sorted({t.emulator.qemu for t in CATALOG.targets.values() if t.emulator.is_qemu_user})


def test_every_variant_has_its_targets_word_size_and_byte_order() -> None:
    for target in CATALOG.targets.values():
        variant = registry.variant(target.emulator.qemu)
        if variant is not None:
            assert variant.word_bytes * 8 == target.width_bits, target.name
            assert variant.big_endian == (target.endianness == "big"), target.name


def test_an_unknown_architecture_is_an_error_that_says_how_to_add_one() -> None:
    with pytest.raises(UsageError, match="no architecture has the instruction set 'none-such'") as caught:
        registry.of_isa("none-such")
    assert "add-an-architecture" in str(caught.value)
