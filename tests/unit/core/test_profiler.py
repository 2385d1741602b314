"""The profiler charges only the main thread's processor time, to the function that uses it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.core import json_codec
from harness.core.processes.profiler import SAMPLING

BUSY_SECONDS = 0.4
PROGRAM = f"""
import json, os, threading, time
from harness.core.processes.profiler import Profiler

def until(seconds):
    while time.thread_time() < seconds: pass

def outer(): until(time.thread_time() + {BUSY_SECONDS})

profiler = Profiler("first")
profiler.start()
WORK
stacks = profiler.stop()
print(json.dumps(stacks))
"""


def stacks_of(work: str) -> dict[str, float]:
    """Seconds by stack of a process that runs this code."""
    code = PROGRAM.replace("WORK", work)
    # The profiler ignores `__main__`, so that the code must run in another module.
    code = f"import sys, types\nmodule = types.ModuleType('work')\nexec({code!r}, vars(module))"
    ended = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, timeout=60)
    return json_codec.decode(ended.stdout, dict[str, float])


def test_time_is_charged_to_the_function_that_uses_it_and_to_its_phase() -> None:
    stacks = stacks_of("outer()\nprofiler.phase = 'second'\nuntil(time.thread_time() + 0.2)")
    first = sum(seconds for stack, seconds in stacks.items() if stack.startswith("first;"))
    assert first == pytest.approx(BUSY_SECONDS, abs=0.05)
    # The loops count the time of the samples, too.
    worked = stacks["first;work:<module>;work:outer;work:until"] + stacks[f"first;{SAMPLING}"]
    assert worked == pytest.approx(BUSY_SECONDS, abs=0.05)
    assert stacks["second;work:<module>;work:until"] + stacks[f"second;{SAMPLING}"] == pytest.approx(0.2, abs=0.05)


def test_another_threads_time_is_not_charged_to_the_main_thread() -> None:
    stacks = stacks_of("busy = threading.Thread(target=outer)\nbusy.start()\nwhile busy.is_alive(): time.sleep(0.005)")
    assert sum(stacks.values()) < BUSY_SECONDS / 4


def test_the_timer_shortens_no_wait_and_children_have_no_timer() -> None:
    waits = "began = time.monotonic()\nbusy = threading.Thread(target=outer)\nbusy.start()\ntime.sleep(0.6)\n"
    child = "assert os.system('python3 -c \"while __import__(\\'time\\').process_time() < 0.2: pass\"') == 0\n"
    stacks_of(f"{waits}assert time.monotonic() - began >= 0.6\nbusy.join()\n{child}")
