"""The servers' own self-tests on real servers: a release passes, what is planted is found where it shows."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from harness.errors import ExitCode
from harness.store import Store, key_of
from tests.end_to_end.machines import release
from tests.end_to_end.plumb_runs import PLUMB, document, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end


FUNCTION, SWAP = "void zipSaveInteger(", "        memrev16ifbe(p);\n"
"""In ziplist.c: where a number of 16 bits is brought into the order of bytes that files have."""


def planted_tree() -> Path:
    """redis-7.0.15 whose ziplists keep small numbers in the machine's own order, and read them in the right one."""
    source = release("redis-7.0.15")

    def fill(into: Path) -> None:
        shutil.copytree(source, into, dirs_exist_ok=True)
        path = into / "src" / "ziplist.c"
        before, name, after = path.read_text("utf-8").partition(FUNCTION)
        assert SWAP in after
        path.write_text(before + name + after.replace(SWAP, "", 1), "utf-8")

    return Store.default().folder("test-trees", f"selftests-{key_of([FUNCTION, SWAP, source.name])}", fill)


def test_a_missing_byte_swap_fails_a_self_test_on_a_big_endian_target_alone_and_is_replayed(tmp_path: Path) -> None:
    words = ("--suite", "selftests", "--target", "sparc64", "--target", "native", "--server", planted_tree())
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
