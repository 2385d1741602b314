"""The processor time of every process that ends is counted, however it ends, and reported by suite and program."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from harness.core.errors import UsageError
from harness.core.processes import process, processor_time
from harness.record import run_cost, run_folder
from harness.record.cell_events import ProcessorTime
from harness.record.run_cost import PeakMemory, RunCost
from harness.report import icicle
from harness.report.formats import processor_time as page
from tests.support import fakes
from tests.support.stored import StoredRun
from tests.support.survivors import SLEEP, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUSY_SECONDS = 0.2
BUSY = f"import time\nwhile time.process_time() < {BUSY_SECONDS}: pass\n"
LEAST_SECONDS = BUSY_SECONDS * 0.9
"""The kernel counts in ticks of 10 ms."""


def program(folder: Path, code: str = BUSY) -> Path:
    """A program with a unique name that is short enough for the kernel not to truncate it."""
    path = folder / f"busy-{folder.name[-8:]}"
    path.write_text(f"#!{fakes.PYTHON} -SE\n{code}", "utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("waits", ["run", "poll", "wait", "kill", "terminate"])
def test_a_program_is_counted_once_however_its_end_is_noticed(tmp_path: Path, waits: str) -> None:
    done = tmp_path / "done"
    stays = f"open({str(done)!r}, 'w')\ntime.sleep({SLEEP})\n" if waits in {"kill", "terminate"} else ""
    busy = program(tmp_path, BUSY + stays)
    if waits == "run":
        assert process.run([busy], deadline_seconds=30).code == 0
    else:
        started = process.start([busy])
        ended: dict[str, Callable[[], bool]] = {
            "poll": lambda: started.poll() is not None,
            "wait": lambda: started.wait(30) == 0,
        }
        assert eventually(ended.get(waits, done.exists))
        process.kill_group(started, grace_seconds=10 if waits == "terminate" else 0)
        assert started.poll() == {"kill": -signal.SIGKILL, "terminate": -signal.SIGTERM}.get(waits, 0)
    assert LEAST_SECONDS <= processor_time.by_program()[busy.name] < 2 * LEAST_SECONDS


def test_an_orphan_is_counted_by_its_own_name(tmp_path: Path) -> None:
    done = tmp_path / "done"
    busy = program(tmp_path, f"{BUSY}open({str(done)!r}, 'w')\n")
    # A shell would reap its child. The program that replaces the shell does not.
    waits = f"import os, time\nwhile not os.path.exists({str(done)!r}): time.sleep(0.05)\n"
    goes_on = 'path=$1; shift; "$path" & exec "$@"'
    process.run(["sh", "-c", goes_on, "sh", busy, sys.executable, "-SEc", waits], deadline_seconds=30)
    assert processor_time.by_program()[busy.name] >= LEAST_SECONDS


def test_waiting_ends_with_the_process_or_at_its_deadline() -> None:
    started = process.start(["sleep", "0.3"])
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(0.05)
    assert started.wait(30) == 0
    assert 0.2 < time.monotonic() - began < 20
    process.kill_group(started)


def test_a_thread_is_counted_by_its_purpose() -> None:
    def work() -> None:
        with processor_time.counted_thread("a purpose"):
            end = time.thread_time() + BUSY_SECONDS
            while time.thread_time() < end:
                pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert processor_time.by_thread()["a purpose"] >= LEAST_SECONDS


def test_the_page_adds_targets_up_and_separates_programs(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"), suites=("bitops", "protocol"))
    stored.processor = {
        ("armv5", "bitops"): ProcessorTime(
            start=0.5, tests=1.0, proxy=0.3, programs={"qemu-arm": 2.0, "redis-server": 0.5, "gdb": 0.1}, others=0.1
        ),
        ("sparc64", "bitops"): ProcessorTime(start=0.5, tests=1.0, proxy=0.0, programs={"tclsh8.6": 3.0}, others=0.0),
    }
    for target in ("armv5", "sparc64"):
        for suite in ("bitops", "protocol"):
            stored.test(target, suite, "test_it")
    folder = stored.finish()
    (found,) = page.suites(folder, run_folder.read_run(folder))
    assert found.parts == pytest.approx((1.0, 2.0, 0.3, 2.0, 0.5, 3.0, 0.2))
    text = page.render(folder, run_folder.read_run(folder))
    assert "| `bitops` | 1.0 | 2.0 | 0.3 | 2.0 | 0.5 | 3.0 | 0.2 | 9.0 | 3.0 | 0.0 |" in text
    assert "| all | 1.0 | 2.0 | 0.3 | 2.0 | 0.5 | 3.0 | 0.2 | 9.0 | 3.0 | 0.0 |" in text


def profiled_run(folder: Path) -> Path:
    stored = StoredRun(folder, suites=("bitops",))
    stored.processor = {
        ("armv5", "bitops"): ProcessorTime(start=0.1, tests=0.4, proxy=0.1, programs={"qemu-arm": 0.2}, others=0.0)
    }
    stored.test("armv5", "bitops", "test_it")
    run_cost.write_profile(stored.cell("armv5", "bitops"), {"start;a:b": 0.1, "tests;a:b;c:d": 0.2, "tests;a:b": 0.1})
    folder = stored.finish()
    run_cost.write(
        folder,
        RunCost(
            clock_seconds=2.0,
            processors=2,
            stages={"judge": 0.2},
            own_seconds=0.5,
            programs={"python": 0.8, "gcc": 0.3},
            peak=PeakMemory(pss_bytes=300 << 20, processes=7, by_program={"qemu-arm": 200 << 20, "plumb": 100 << 20}),
            cache_growth_bytes=5 << 20,
            stacks={"plumb;e:f": 0.4},
        ),
    )
    return folder


def test_idle_processor_time_is_waiting_and_the_rest_of_the_run_is_shown(tmp_path: Path) -> None:
    folder = profiled_run(tmp_path / "run")
    text = page.render(folder, run_folder.read_run(folder))
    assert "| `bitops` | 0.1 | 0.4 | 0.1 | 0.2 | 0.0 | 0.0 | 0.0 | 0.8 | 1.5 | 0.7 |" in text
    # Cells took 0.8 s, plumb itself 0.5 s and gcc 0.3 s, of 2 s on each of two processors.
    assert "2.0 s of the clock on 2 processors, which worked for the run\n  1.6 s, and for 2.4 s did not." in text
    assert "`plumb` itself: 0.5 s of processors (judge 0.2 s). Its other programs:\n  0.3 s." in text
    assert "(PSS): 300 MiB in\n  7 processes: qemu-arm 200 MiB, plumb 100 MiB." in text
    assert "The cache grew by 5 MiB." in text


def test_the_flame_graph_has_every_second_once_and_functions_below_their_kind(tmp_path: Path) -> None:
    folder = profiled_run(tmp_path / "run")
    whole = page.tree(folder, run_folder.read_run(folder))
    assert whole.total == pytest.approx(0.8 + 0.5 + 0.3)
    tests = whole.parts["bitops"].parts["tests"]
    assert tests.total == pytest.approx(0.4)
    assert tests.own == pytest.approx(0.1)
    assert tests.parts["a:b"].own == pytest.approx(0.1)
    assert tests.parts["a:b"].parts["c:d"].own == pytest.approx(0.2)
    assert whole.parts["plumb"].parts["e:f"].total == pytest.approx(0.4)
    root = ElementTree.fromstring(page.flame_graph(folder, run_folder.read_run(folder)))  # noqa: S314 - of our own
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert "c:d: 0.2 s, 12.5 %" in titles


def test_samples_that_exceed_the_measured_time_are_scaled_down() -> None:
    part = icicle.Part("tests")
    part.add_shares({("a",): 3.0, ("a", "b"): 1.0}, 2.0)
    assert part.total == pytest.approx(2.0)
    assert part.parts["a"].parts["b"].total == pytest.approx(0.5)


def test_a_function_with_markup_in_its_name_is_text_in_the_picture() -> None:
    part = icicle.Part("run")
    part.add(["<script>alert(1)</script>\x1b[31m"], 1.0)
    picture = icicle.svg(part, title="a & b", unit="s")
    assert "<script" not in picture
    assert "\x1b" not in picture
    ElementTree.fromstring(picture)  # noqa: S314 - of our own


def test_a_damaged_cost_is_refused(tmp_path: Path) -> None:
    folder = profiled_run(tmp_path / "run")
    (folder / run_cost.NAME).write_text("{", "utf-8")
    with pytest.raises(UsageError, match=r"cost\.json"):
        page.render(folder, run_folder.read_run(folder))
