"""The unit suite on real servers: it finds known and planted bugs, and correct servers pass."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.errors import ExitCode
from tests.end_to_end.support.machines import release
from tests.end_to_end.support.plumb_runs import PLUMB, document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

PLANTED = [
    # The byte-wise load of big-endian machines becomes a word load.
    ("crcspeed.c", "uint64_t crcspeed64big(", "((uintptr_t)next & 7) != 0", "((uintptr_t)next & 0) != 0"),
    # A widened number stays in the machine's byte order when it is stored.
    ("intset.c", "static void _intsetSet(", "        memrev32ifbe(((int32_t*)is->contents)+pos);\n", ""),
]
"""File, text before it, replaced text, new text: each bug is silent on little-endian machines that allow misaligned
loads.
"""
OVERREAD = [
    (
        "intset.c",
        "static uint8_t intsetSearch(",
        "    int64_t cur = -1;\n",
        "    int64_t cur = -1;\n    (void)*(volatile char *)(is->contents + intsetBlobLen(is) - sizeof(intset));\n",
    )
]
"""A read of the byte after the last element."""


def planted_tree(edits: list[tuple[str, str, str, str]]) -> Path:
    """redis-7.0.15 with the planted bugs."""
    source = release("redis-7.0.15")

    def fill(into: Path) -> None:
        shutil.copytree(source, into, dirs_exist_ok=True)
        for file, after, old, new in edits:
            path = into / "src" / file
            text = path.read_text("utf-8")
            at = text.index(old, text.index(after))
            path.write_text(text[:at] + new + text[at + len(old) :], "utf-8")

    return Cache.default().folder("test-trees", f"units-{key_of([str(edits), source.name])}", fill)


def check(folder: Path, *words: object) -> tuple[int, dict[str, Any]]:
    finished = run("check", "--suite", "units", *words, "--json", "--run", folder)
    return finished.returncode, document(finished)


def news(read: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings that are not in the known list."""
    return [finding for finding in read["findings"] if not finding["known"]]


def replayed(finding: dict[str, Any]) -> int:
    return run(*shlex.split(finding["replay"])[1:], program=PLUMB).returncode


@pytest.mark.slow(
    instead=(
        "test_redis_3_2_6_misaligns_in_bitops_on_armv5_and_the_replay_reproduces_it; "
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named, in this suite"
    )
)
def test_misaligned_hashes_and_bit_counts_of_redis_3_2_6_are_found(tmp_path: Path) -> None:
    """MurmurHash2, MurmurHash64A and BITPOS: the bugs that 4.0 fixed, with their locations, and reproduced."""
    code, read = check(tmp_path / "run", "--target", "armv5", "--server", "redis-3.2.6")
    assert (code, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    found = {f["id"]: (f["file"], f["line"], f["command"]) for f in read["findings"]}
    assert found == {
        "alignment-dictGenHashFunction-load": ("src/dict.c", 117, "(unit murmurhash2)"),
        "alignment-MurmurHash64A-load": ("src/hyperloglog.c", 404, "(unit murmurhash64a)"),
        "alignment-redisBitpos-load": ("src/bitops.c", 131, "(unit bitpos)"),
    }
    assert replayed(read["findings"][0]) == ExitCode.FINDINGS


@pytest.mark.slow(
    instead=(
        ""
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named; "
        "test_a_missing_byte_swap_fails_a_self_test_only_on_a_big_endian_target_and_is_replayed"
    )
)
def test_a_planted_dereference_and_a_planted_byte_order_are_found_and_replayed(tmp_path: Path) -> None:
    code, read = check(tmp_path / "run", "--target", "sparc64", "--server", planted_tree(PLANTED))
    assert (code, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    found = {f["id"]: f for f in read["findings"]}
    # Every release has these findings on every big-endian machine (docs/FOUND.md).
    for name in ("siphash", "siphash_nocase"):
        turned = found.pop(f"wrong-result-units_test_units.py_test_unit_{name}")
        assert "its bytes are in the opposite order everywhere" in turned["title"]
    assert set(found) == {"alignment-crcspeed64big-load", "wrong-result-units_test_units.py_test_unit_intset"}
    wrong = found["wrong-result-units_test_units.py_test_unit_intset"]
    assert "add 32768" in wrong["title"]
    for finding in found.values():
        assert replayed(finding) == ExitCode.FINDINGS, finding["replay"]
    mended = run(*shlex.split(wrong["replay"])[1:], "--server", "redis-7.0.15", program=PLUMB)
    assert mended.returncode == ExitCode.PASS, mended.stdout


@pytest.mark.slow(instead="test_one_byte_beyond_a_block_faults; tests/unit/build/test_allocator.py")
def test_a_read_beyond_a_block_is_found_with_guard_pages_and_hidden_by_libc(tmp_path: Path) -> None:
    words = ("--target", "armv5", "--server", planted_tree(OVERREAD), "--test", "intset")
    code, read = check(tmp_path / "guard", *words, "--allocator", "guard")
    (finding,) = read["findings"]
    assert (code, finding["id"], finding["command"]) == (
        ExitCode.FINDINGS,
        "out-of-bounds-intsetSearch-load",
        "(unit intset)",
    )
    assert replayed(finding) == ExitCode.FINDINGS, finding["replay"]
    code, read = check(tmp_path / "libc", *words)
    assert (code, news(read)) == (ExitCode.PASS, [])


@pytest.mark.slow(
    instead=(
        "test_a_planted_bug_is_found_and_a_function_that_no_test_enters_is_named, which runs all units on armv5; "
        "tests/unit/build/test_unit_drivers.py"
    )
)
def test_redis_7_0_15_passes_on_armv5_and_natively_and_skips_missing_units(tmp_path: Path) -> None:
    code, read = check(tmp_path / "run", "--target", "armv5", "--target", "native")
    assert (code, news(read)) == (ExitCode.PASS, [])
    # On 32 bits two checks of damaged dumps are wrong in every release (docs/found/restore-size-wraps.md).
    assert {finding["unit"] for finding in read["findings"]} == {"intset_integrity", "ziplist_integrity"}
    cells = {cell["target"]: cell for cell in read["cells"] if cell["suite"] == "units"}
    found = {name: (cell["verdict"], cell["passed"], cell["skipped"]) for name, cell in cells.items()}
    assert found == {"armv5": ("XFAIL", 35, 2), "native": ("PASS", 37, 2)}
