"""Progress: no stage is silent for long, a terminal shows one line that is rewritten, and an inner run is named."""

from __future__ import annotations

import itertools
import os
import pty
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from harness.core import progress as progress_module
from harness.core.strict_toml import ROOT
from tests.support import fakes
from tests.support.survivors import eventually

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(progress_module, "TICK_SECONDS", 0.05)


def lines_of(text: str) -> list[str]:
    """The lines without the time of day."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in text.splitlines()]


def test_no_stage_is_silent_for_more_than_the_documents_promise() -> None:
    assert progress_module.SILENT_SECONDS + 2 * progress_module.TICK_SECONDS < 15


@pytest.mark.usefixtures("_impatient")
def test_without_a_terminal_a_stage_reports_its_progress_from_time_to_time() -> None:
    progress = fakes.quiet()
    states = iter(range(1000))
    with progress.stage("build", "building x") as stage:
        stage.shows(lambda: f"compiling {next(states)}/97")
        time.sleep(1.0)
        assert eventually(lambda: len(lines_of(fakes.printed(progress))) >= 3)
    lines = lines_of(fakes.printed(progress))
    assert lines[0] == "building x …"
    took = re.fullmatch(r"building x took (\d+\.\d) s", lines[-1])
    assert took is not None
    assert lines[1:-1] == [f"building x: compiling {number}/97" for number in range(len(lines) - 2)]
    assert 2 <= len(lines[1:-1]) <= (float(took[1]) + 0.1) / progress_module.SILENT_SECONDS, "one in 0.3 s and not more"


@pytest.mark.usefixtures("_impatient")
def test_a_stage_that_cannot_report_progress_reports_its_duration(tmp_path: Path) -> None:
    progress = fakes.quiet()
    with progress.stage("build", "building x") as stage:
        stage.shows(lambda: (tmp_path / "gone").read_text("utf-8"))
        assert eventually(lambda: len(lines_of(fakes.printed(progress))) > 1)
    assert re.fullmatch(r"building x: \d s so far", lines_of(fakes.printed(progress))[1])


@pytest.mark.usefixtures("_impatient")
def test_several_stages_share_a_line_and_a_message_about_one_does_not_delay_the_others() -> None:
    progress = fakes.quiet()
    with progress.stage("build", "building x"), progress.stage("build", "building y"):

        def shown() -> bool:
            progress.say("a cell of z")
            return "so far" in fakes.printed(progress)

        assert eventually(shown)
    lines = [line for line in lines_of(fakes.printed(progress)) if "building" in line]
    assert re.fullmatch(r"building x: \d s so far; building y: \d s so far", lines[2])


@pytest.mark.usefixtures("_impatient")
def test_a_stage_with_regular_messages_prints_no_progress_lines() -> None:
    progress = fakes.quiet()
    said = [time.monotonic()]
    with progress.stage("suites", "running"):
        for _ in range(10):
            time.sleep(0.05)
            progress.say("a cell")
            said.append(time.monotonic())
    longest = max(later - earlier for earlier, later in itertools.pairwise(said))
    # On a busy machine this thread itself may have been silent for so long.
    silent = longest > progress_module.SILENT_SECONDS - progress_module.TICK_SECONDS
    assert silent or not [line for line in lines_of(fakes.printed(progress)) if "so far" in line]


@pytest.mark.usefixtures("_impatient")
def test_all_lines_of_an_inner_run_name_it() -> None:
    progress = fakes.quiet()
    inner = progress.fresh("base: ")
    with inner.stage("build", "building x"):
        assert eventually(lambda: len(lines_of(fakes.printed(progress))) > 1)
    inner.say("done")
    lines = lines_of(fakes.printed(progress))
    assert [line.partition(": ")[0] for line in lines] == ["base"] * len(lines)
    assert lines[0] == "base: building x …"
    assert len(lines) >= 4


def test_a_message_on_standard_error_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = "key:warning:value of [red]one[/red] is " + "longer " * 20 + "than a line"
    progress_module.Progress().say(text)
    out, err = capsys.readouterr()
    assert (out, lines_of(err)) == ("", [text])


SHOWN = """
import sys, time
from harness.core import progress
progress.TICK_SECONDS = 0.1
shown = progress.Progress()
counted = iter(range(1000))
with shown.stage("build", "building x") as stage:
    stage.shows(lambda: f"compiling {next(counted)}/97 " + "and a name that is too long for any line " * 9)
    time.sleep(0.55)
    shown.say("a message")
    time.sleep(0.25)
print("the document")
"""


def on_a_terminal(code: str, **variables: str) -> bytes:
    """What a program writes to a terminal of 80 columns as its standard error."""
    terminal, other = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "COLUMNS": "80", **variables}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=other, env=environment
    ):
        os.close(other)
        written = b""
        # On Linux, reading at the end of a terminal is an error.
        try:
            while part := os.read(terminal, 4096):
                written += part
        except OSError:
            pass
    os.close(terminal)
    return written


def test_on_a_terminal_one_line_is_rewritten_and_finally_erased() -> None:
    written = on_a_terminal(SHOWN).decode()
    moving = re.findall(r"\r\x1b\[2K(building x: compiling \d+/97[^\r\n]*)", written)
    assert len(moving) >= 4, written
    assert all(len(line) == 79 and line.endswith("…") for line in moving), "a line that wraps cannot be erased"
    # What a terminal finally shows, without the erased lines.
    left = re.sub(r"\x1b\[[0-9]*m", "", re.sub(r"[^\n]*\r\x1b\[2K", "", written)).replace("\r", "")
    assert len(lines_of(left)) == 2, left
    assert lines_of(left)[0] == "a message"
    assert lines_of(left)[1].startswith("building x took 0.")


def test_a_terminal_that_cannot_rewrite_a_line_gets_plain_lines() -> None:
    assert b"\x1b[2K" not in on_a_terminal(SHOWN, TERM="dumb")


def test_a_log_gets_plain_lines_even_if_it_accepts_colours() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", SHOWN],
        cwd=ROOT,
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"], "FORCE_COLOR": "1", "GITHUB_ACTIONS": "true"},
    )
    assert finished.stdout == b"the document\n"
    assert b"\r" not in finished.stderr
    assert b"building x \xe2\x80\xa6\n" in finished.stderr
