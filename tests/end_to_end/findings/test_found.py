"""A bug of docs/found is tested on two releases: it occurs on the release with the bug, and not on the other one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode
from tests.end_to_end.support.plumb_runs import run
from tools import bugs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

BUG = "redis-3.2-bit-operations"
HAS, LACKS = "redis-3.2.6", "redis-7.0.15"


@pytest.mark.slow(instead="tests/tools/test_found.py; test_a_finding_is_reproduced_and_gone_where_it_was_fixed")
def test_a_release_with_a_bug_shows_it_and_one_without_is_silent(tmp_path: Path) -> None:
    bug = bugs.read_bugs()[BUG]
    assert HAS in bug.has
    assert LACKS in bug.lacks
    path = tmp_path / "answers.json"
    words = (BUG, "--server", HAS, "--server", LACKS, "--answers", path)
    finished = run(*words, program=[sys.executable, "-m", "tools.found"])
    assert finished.returncode == ExitCode.PASS, finished.stderr
    answers = {one.server: (one.answer, one.reason) for one in bugs.read_answers(path).answers}
    assert answers.keys() == {HAS, LACKS}
    assert answers[HAS] == ("there", "alignment-bitopCommand-load")
    assert answers[LACKS][0] == "gone", answers[LACKS]
