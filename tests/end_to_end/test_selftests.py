"""The servers' own self-tests on real servers: a release passes, what is planted is found where it shows."""

from __future__ import annotations

import functools
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from harness import codec, mutation
from harness.errors import ExitCode
from harness.store import Store, key_of
from tests.end_to_end.machines import release
from tests.end_to_end.plumb_runs import PLUMB, document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


SWAP = mutation.Edit(
    file="src/ziplist.c", after="void zipSaveInteger(", anchor="        memrev16ifbe(p);\n", replacement=""
)
"""Where a ziplist's number of 16 bits is brought into the order of bytes that files have."""
INTSET_SWAP = mutation.Edit(
    file="src/intset.c", anchor="        memrev16ifbe(((int16_t *)is->contents) + pos);\n", replacement=""
)
"""Where an intset's is."""
LISTPACK_LOAD = mutation.Edit(
    file="src/listpack.c",
    anchor="negstart = (uint64_t)1 << 31;",
    replacement="uval = *(const uint32_t *)(p + 1); negstart = (uint64_t)1 << 31;",
)
"""Where a listpack's number of 32 bits is put together of its bytes."""


def planted_tree(server: str, *edits: mutation.Edit) -> Path:
    """A release with edits of ours in it."""
    source = release(server)
    planted = mutation.Mutation(
        name="selftests", title="", fault="byte-order", server=server, edits=list(edits), expected=[]
    )
    key = key_of([source.name, *(codec.encode(edit).decode() for edit in edits)])
    # A tree by the release's name is compiled where the release is: what is not edited, the compiler's cache knows.
    make = functools.partial(mutation.plant, planted, source)
    return Store.default().folder("test-trees", f"selftests-{key}", lambda into: make(into / server)) / server


def test_a_missing_byte_swap_fails_a_self_test_on_a_big_endian_target_alone_and_is_replayed(tmp_path: Path) -> None:
    words = (
        "--suite",
        "selftests",
        "--target",
        "sparc64",
        "--target",
        "native",
        "--server",
        planted_tree("redis-7.0.15", SWAP),
    )
    finished = run("check", *words, "--json", "--run", tmp_path / "run")
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    cells = {cell["target"]: cell for cell in read["cells"] if cell["suite"] == "selftests"}
    assert (cells["native"]["verdict"], cells["native"]["failed"]) == ("PASS", 0)
    found = {finding["command"]: finding for finding in read["findings"]}
    # The other one is the self-test's own fault: docs/FOUND.md.
    assert set(found) == {"(self-test ziplist)", "(self-test intset)"}
    assert found["(self-test intset)"]["id"] == "assertion-checkConsistency"
    replay = shlex.split(found["(self-test ziplist)"]["replay"])[1:]
    assert run(*replay, program=PLUMB).returncode == ExitCode.FINDINGS
    mended = run(*replay, "--server", "redis-7.0.15", program=PLUMB)
    assert mended.returncode == ExitCode.PASS, mended.stdout


def test_a_release_without_self_tests_skips_the_cell_and_another_suite_still_passes(tmp_path: Path) -> None:
    words = ("--suite", "selftests", "--suite", "bitops", "--target", "native", "--server", "redis-2.8.17")
    finished = run("check", *words, "--json", "--run", tmp_path / "run")
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.PASS, "PASS")
    cell = next(cell for cell in read["cells"] if cell["suite"] == "selftests")
    assert (cell["verdict"], "no self-tests" in cell["reason"]) == ("SKIP", True)
    # The other one's guests said how many commands they carried out.
    told = run("report", tmp_path / "run", "--format", "throughput").stdout
    row = next(line for line in told.splitlines() if line.startswith("| `native`"))
    assert int(re.findall(r"\(([\d,]+) in", row)[0].replace(",", "")) > 1000
