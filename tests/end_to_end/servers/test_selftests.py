"""The servers' own self-tests on real servers: a release passes, and planted bugs are found where they matter."""

from __future__ import annotations

import functools
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.errors import ExitCode
from harness.workflows.mutation_testing import mutations
from tests.end_to_end.support.machines import release
from tests.end_to_end.support.plumb_runs import PLUMB, document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


SWAP = mutations.Edit(
    file="src/ziplist.c", after="void zipSaveInteger(", anchor="        memrev16ifbe(p);\n", replacement=""
)
"""Removes the conversion of a ziplist's 16-bit number to the byte order of files."""
INTSET_SWAP = mutations.Edit(
    file="src/intset.c", anchor="        memrev16ifbe(((int16_t *)is->contents) + pos);\n", replacement=""
)
"""The same for an intset."""
LISTPACK_LOAD = mutations.Edit(
    file="src/listpack.c",
    anchor="negstart = (uint64_t)1 << 31;",
    replacement="uval = *(const uint32_t *)(p + 1); negstart = (uint64_t)1 << 31;",
)
"""Dereferences a listpack's 32-bit number, which the server assembles from bytes."""


def planted_tree(server: str, *edits: mutations.Edit) -> Path:
    """A release with planted edits."""
    source = release(server)
    planted = mutations.Mutation(
        name="selftests", title="", fault="byte-order", server=server, edits=list(edits), expected=[]
    )
    key = key_of([source.name, *(json_codec.encode(edit).decode() for edit in edits)])
    # A tree with the release's name is compiled at the same path, so the compiler's cache has all unedited files.
    make = functools.partial(mutations.plant, planted, source)
    return Cache.default().folder("test-trees", f"selftests-{key}", lambda into: make(into / server)) / server


def test_a_missing_byte_swap_fails_a_self_test_only_on_a_big_endian_target_and_is_replayed(tmp_path: Path) -> None:
    part = ("--test", "ziplist", "--test", "intset")
    read = checked(planted_tree("redis-7.0.15", SWAP), tmp_path / "run", *part)
    found = {finding["command"]: finding for finding in read["findings"]}
    # The other finding is a fault of the self-test itself (docs/FOUND.md).
    assert set(found) == {"(self-test ziplist)", "(self-test intset)"}
    assert found["(self-test intset)"]["id"] == "assertion-checkConsistency"
    assert run(*replay_of(found["(self-test ziplist)"]), program=PLUMB).returncode == ExitCode.FINDINGS


@pytest.mark.slow(
    instead=(
        "test_a_missing_byte_swap_fails_a_self_test_only_on_a_big_endian_target_and_is_replayed, for Redis' own "
        "self-tests; tests/unit/run/test_selftests.py, for parsing GoogleTest's output"
    )
)
def test_tests_in_googletest_find_a_missing_byte_swap_and_a_dereference_where_they_show(tmp_path: Path) -> None:
    # Only the tests of the two broken files. All hundreds of tests would take minutes on sparc64.
    part = ("--test", "IntsetTest.", "--test", "ListpackTest.")
    read = checked(planted_tree("valkey-9.1.2", INTSET_SWAP, LISTPACK_LOAD), tmp_path / "run", *part)
    passed = {cell["target"]: cell["passed"] for cell in read["cells"] if cell["suite"] == "selftests"}
    assert min(passed.values()) > 10
    found = {finding["id"]: finding for finding in read["findings"]}
    place = found["alignment-lpGetWithSize-load"]
    assert (place["function"], place["file"]) == ("lpGetWithSize", "src/listpack.c")
    shown_again(place, "valkey-9.1.2")
    layout = found[LAYOUT]
    assert "test_intset.cpp:" in layout["title"]
    shown_again(layout, "valkey-9.1.2")


LAYOUT = "wrong-result-selftests_test_selftests.py_test_selftest_IntsetTest.TestIntsetRawByteLayout"


def checked(tree: Path, folder: Path, *part: str) -> dict[str, Any]:
    """The document of a check of a planted tree. Asserts that the native build passes and sparc64 fails."""
    words = ("--suite", "selftests", "--target", "sparc64", "--target", "native", "--tier", "full")
    finished = run("check", *words, *part, "--server", tree, "--json", "--run", folder)
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    cells = {cell["target"]: cell for cell in read["cells"] if cell["suite"] == "selftests"}
    assert (cells["native"]["verdict"], cells["native"]["failed"]) == ("PASS", 0)
    return read


def replay_of(finding: dict[str, Any]) -> list[str]:
    """The arguments of the command that reproduces a finding."""
    return shlex.split(finding["replay"])[1:]


def shown_again(finding: dict[str, Any], release: str) -> None:
    """Assert that a finding's command reproduces it, but not on the release without the edit."""
    replay = replay_of(finding)
    assert run(*replay, program=PLUMB).returncode == ExitCode.FINDINGS
    mended = run(*replay, "--server", release, program=PLUMB)
    assert mended.returncode == ExitCode.PASS, mended.stdout


@pytest.mark.slow(instead="tests/unit/run/test_selftests.py, for the reason of a cell that is skipped")
def test_features_that_a_release_lacks_are_skipped_and_another_suite_still_passes(tmp_path: Path) -> None:
    suites = [word for name in ("selftests", "cluster", "modules", "bitops") for word in ("--suite", name)]
    words = ("--target", "native", "--server", "redis-2.8.17")
    finished = run("check", *suites, *words, "--json", "--run", tmp_path / "run")
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.PASS, "PASS")
    skipped = {cell["suite"]: cell["reason"] for cell in read["cells"] if cell["verdict"] == "SKIP"}
    assert "no self-tests" in skipped.pop("selftests")
    came = "what it tests came with release"
    assert skipped == {"cluster": f"{came} 3.0", "modules": f"{came} 6.0"}
    # The other suite's guests reported how many commands they executed.
    table = run("report", tmp_path / "run", "--format", "throughput").stdout
    row = next(line for line in table.splitlines() if line.startswith("| `native`"))
    assert int(re.findall(r"\(([\d,]+) in", row)[0].replace(",", "")) > 1000
