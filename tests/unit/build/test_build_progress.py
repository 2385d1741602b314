"""A build's progress: compiler calls counted in a growing log, and totals and times of earlier builds."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from harness.build import build_progress
from harness.build.build_progress import CompilerCalls, Steps, counted_stage, ninja_steps, seconds_left
from harness.core.cache import Cache
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HISTORY = ("server", "redis", "7.0", "armv5", "O2", "libc")


def build(cache: Cache, steps: int, history: Sequence[str] = HISTORY) -> str:
    """Run a build of some steps. Returns its state after half of them."""
    with counted_stage(cache, fakes.quiet(), "build", "building x", history=history, verb="compiling") as progress:
        progress.counts(lambda: Steps(steps // 2))
        half = progress.state()
        progress.counts(lambda: Steps(steps))
    return half


def test_each_line_that_compiles_with_a_wrapper_counts_once(tmp_path: Path) -> None:
    log, work = tmp_path / "log", tmp_path / "work"
    calls = CompilerCalls(log, work)
    assert calls() == Steps(0), "make has not begun"
    fakes.write(
        log, f"$ make CC={work}/gcc -c\ncd ../deps && make\n{work}/gcc -O2 -c a.c -o a.o\n{work}/gcc -o x a.o\n"
    )
    assert calls() == Steps(1)
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"{work}/g++-drivers -c b.cc\n{work}/gcc -O2 -c c.c")
    assert calls() == Steps(2), "an incomplete line counts later"
    with log.open("a", encoding="utf-8") as stream:
        stream.write(" -o c.o\n")
    assert (calls(), calls()) == (Steps(3), Steps(3))


def test_ninjas_own_step_numbers_are_used(tmp_path: Path) -> None:
    log = fakes.write(
        tmp_path / "log", "[9/9] of another\n$ ninja\n[1/97] Compiling a\nwarning: [x]\n[43/97] Compiling b\n"
    )
    assert ninja_steps(log) == Steps(43, 97)
    assert ninja_steps(fakes.write(log, "configuring\n")) == Steps(0)


def test_the_first_build_counts_without_a_total_and_the_next_with_one(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert build(cache, 96) == "compiling 48, 0 s so far"
    assert build(cache, 96).startswith("compiling 48/96, ")


def test_work_after_a_build_is_shown_but_is_no_step_of_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with counted_stage(cache, fakes.quiet(), "build", "building x", history=HISTORY, verb="compiling") as progress:
        progress.counts(lambda: Steps(96))
        progress.goes_on("configuring jemalloc")
        assert progress.state() == "configuring jemalloc, 0 s so far"
        progress.goes_on("preprocessing", lambda: Steps(7, 80))
        assert progress.state() == "preprocessing 7/80, 0 s so far"
    assert "48/96" in build(cache, 96)


def test_a_failed_build_does_not_enter_the_history(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    build(cache, 96)
    with (
        contextlib.suppress(BrokenPipeError),
        counted_stage(cache, fakes.quiet(), "build", "building x", history=HISTORY) as progress,
    ):
        progress.counts(lambda: Steps(3))
        raise BrokenPipeError
    assert "48/96" in build(cache, 96)


def test_the_history_of_another_target_or_release_is_used_but_never_of_another_kind(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    build(cache, 96)
    build(cache, 200, ("server", "redis", "8.0", "armv5", "O2", "libc"))
    build(cache, 4, ("units", "redis", "7.0", "sparc64", "O2", "libc"))
    assert "compiling 40/96" in build(cache, 80, ("server", "redis", "7.0", "sparc64", "O2", "libc"))
    assert "compiling 30/80" in build(cache, 60, ("server", "redis", "9.0", "sparc64", "O2", "libc")), "the latest"
    assert "compiling 40," in build(cache, 80, ("selftests", "redis", "7.0", "sparc64", "O2", "libc"))


def test_more_steps_than_in_the_history_have_no_total(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    build(cache, 10)
    assert build(cache, 40) == "compiling 20, 0 s so far"


def test_a_damaged_history_is_ignored(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    build(cache, 96)
    (file,) = (tmp_path / build_progress.KIND).iterdir()
    file.write_text("{", "utf-8")
    assert build(cache, 96) == "compiling 48, 0 s so far"


@pytest.mark.parametrize(
    ("seconds", "share", "before", "left"),
    [
        (0, 0, 0, 0),
        (10, 0, 60, 50),
        (70, 0, 60, 0),
        (10, 0.5, 0, 10),
        (10, 0.5, 600, 10),
        (1, 0.05, 200, 164),
    ],
    ids=["nothing is known", "history", "slower than ever", "pace", "pace above history", "history above pace"],
)
def test_the_time_left_follows_history_first_and_then_the_pace(
    seconds: float, share: float, before: float, left: float
) -> None:
    assert seconds_left(seconds, share, before) == pytest.approx(left, abs=0.5)
