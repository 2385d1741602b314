"""Which tests of a release may fail on which targets (suites/upstream/differences.toml)."""

from __future__ import annotations

import pytest

from harness.core import json_codec
from harness.plan.catalog import Catalog
from suites.upstream import table

TARGETS = Catalog().targets


@pytest.mark.parametrize(
    ("because_of", "targets", "kernel"),
    [
        ("byte-order", ["s390x"], True),
        ("speed", ["big-endian"], True),
        ("emulation", ["s390x"], False),
        ("emulation", ["*-kernel"], True),
        ("byte-order", ["sparc64"], False),
    ],
)
def test_a_kernel_target_is_as_its_userland_except_for_what_an_emulator_cannot_do(
    because_of: str, targets: list[str], *, kernel: bool
) -> None:
    entry = {"tests": ["unit/type/hash::*"], "reason": "one", "because_of": because_of, "targets": targets}
    one = json_codec.convert(entry, table.ListedTest)
    assert one.covers("unit/type/hash::HSET", TARGETS["s390x-kernel"], "redis", (7, 0, 15)) is kernel
