"""The fuzzer finds known bugs without hints, shrinks their streams, and reports the same for the same seed."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core import json_codec
from harness.core.errors import ExitCode
from harness.protocol.command_stream import read_stream
from suites.fuzz.session import SHRUNK, Shrinking
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream

pytestmark = pytest.mark.end_to_end

SMALL = 10
"""Maximum number of commands in a shrunk failure."""
MINUTE = 60.0


def small_streams(folder: Path) -> list[tuple[Path, Stream]]:
    """The failing streams that the quick tier has shrunk. It keeps the others unchanged."""
    found = [(path, read_stream(path)) for path in sorted(folder.glob("streams/*.stream"))]
    return found[: SHRUNK["quick"]]


@pytest.mark.slow(
    instead=(
        "tests/suites/test_fuzz.py, for streams and how they are shortened; "
        "test_the_same_seed_gives_the_same_run_and_a_different_seed_does_not; "
        "test_a_finding_is_reproduced_and_gone_where_it_was_fixed"
    )
)
def test_redis_3_2_6_dies_of_few_commands_that_can_be_replayed(tmp_path: Path) -> None:
    words = ("--target", "armv5", "--suite", "fuzz", "--server", "redis-3.2.6", "--seed", 1)
    finished = run("check", *words, "--json", "--run", tmp_path / "run")
    read = document(finished)
    assert (finished.returncode, read["verdict"]) == (ExitCode.FINDINGS, "FAIL")
    found = {finding["function"] for finding in read["findings"] if finding["kind"] == "alignment"}
    assert {"dictGenHashFunction", "bitopCommand", "redisBitpos", "MurmurHash64A"} <= found
    streams = small_streams(tmp_path / "run" / "armv5" / "fuzz")
    assert streams
    assert all(len(stream) <= SMALL for _, stream in streams), [str(path) for path, _ in streams]
    again = run("replay", streams[0][0], "--target", "armv5", "--server", "redis-3.2.6")
    assert again.returncode == ExitCode.FINDINGS, again.stdout
    assert "SIGBUS" in again.stdout


@pytest.mark.slow(
    instead=(
        "tests/suites/test_fuzz.py; "
        "test_a_missing_byte_swap_fails_a_self_test_only_on_a_big_endian_target_and_is_replayed"
    )
)
def test_a_missing_byte_swap_is_found_on_a_big_endian_target_with_both_replies(tmp_path: Path) -> None:
    """intset.c without one memrev16ifbe: replies about small sets of integers are wrong."""
    fetched = run("fetch", "--server", "redis-7.0.15").stdout.split(": ", 1)[1].strip()
    tree = tmp_path / "tree"
    shutil.copytree(fetched, tree)
    source = tree / "src" / "intset.c"
    text = source.read_text("latin-1")
    anchor = "        memrev16ifbe(&v16);\n        return v16;"
    assert text.count(anchor) == 1
    source.write_text(text.replace(anchor, "        return v16;"), "latin-1")
    words = ("--target", "sparc64", "--suite", "fuzz", "--server", tree, "--seed", 1)
    finished = run("check", *words, "--json", "--run", tmp_path / "run")
    read = document(finished)
    assert finished.returncode == ExitCode.FINDINGS
    assert all(len(stream) <= SMALL for _, stream in small_streams(tmp_path / "run" / "sparc64" / "fuzz"))
    # The goal: a planted bug is shrunk within a minute.
    lines = (tmp_path / "run" / "sparc64" / "fuzz" / "streams" / "shrinking.jsonl").read_text("utf-8").splitlines()
    shrunk = [json_codec.decode(line.encode(), Shrinking) for line in lines]
    assert shrunk
    assert all(one.commands_after <= SMALL and one.seconds < MINUTE for one in shrunk), shrunk
    finding = next(one for one in read["findings"] if one["command"].startswith("SMEMBERS"))
    assert ": guest [" in finding["title"]
    assert ", native [" in finding["title"]
    replayed = run(*shlex.split(finding["replay"])[1:])
    assert replayed.returncode == ExitCode.FINDINGS, replayed.stdout
    assert "differs: " in replayed.stdout
    # With the original tree the failure is gone.
    mended = run(*shlex.split(finding["replay"])[1:], "--server", "redis-7.0.15")
    assert mended.returncode == ExitCode.PASS, mended.stdout


def test_the_same_seed_gives_the_same_run_and_a_different_seed_does_not(tmp_path: Path) -> None:
    progress = []
    for number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(number)
        words = ("--target", "native", "--suite", "fuzz", "--test", "streams", "--seed", seed, "--run", folder)
        assert run("check", *words).returncode == ExitCode.PASS
        progress.append((folder / "native" / "fuzz" / "progress").read_text("utf-8"))
    assert progress[0] == progress[1] != progress[2]


@pytest.mark.slow(
    instead=(
        "tests/suites/test_fuzz.py, on the corpus; test_the_same_seed_gives_the_same_run_and_a_different_seed_does_not"
    )
)
def test_fuzzing_ends_in_time_and_continues_with_its_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Path(run("build", "--target", "native").stdout.split(": ", 1)[1]).parents[2]
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    # A separate corpus, with everything else from the user's cache.
    for place in cache.iterdir():
        if place.name != "corpus":
            (tmp_path / "cache" / place.name).symlink_to(place)
    first = run("fuzz", "--target", "native", "--time", "15s", "--seed", 1, "--run", tmp_path / "1")
    assert first.returncode == ExitCode.PASS, first.stderr
    kept = list((tmp_path / "cache" / "corpus").glob("*/kept-*.stream"))
    assert len(kept) > 20
    assert "streams kept" in first.stderr
    words = ("--target", "native", "--count", 20, "--test", "streams", "--seed", 2)
    second = run("fuzz", *words, "--run", tmp_path / "2")
    assert second.returncode == ExitCode.PASS, second.stderr
    # More streams than twenty examples can show: the fuzzer knows the others without sending them.
    progress = (tmp_path / "2" / "native" / "fuzz" / "progress").read_text("utf-8")
    assert int(re.findall(r"(\d+) streams kept", progress)[0]) >= len(kept)
    # In another folder, the fuzzer begins without a corpus.
    third = run("fuzz", *words, "--run", tmp_path / "3", "--corpus", tmp_path / "corpora")
    assert third.returncode == ExitCode.PASS, third.stderr
    assert 0 < len(list((tmp_path / "corpora").glob("*/kept-*.stream"))) <= 20
