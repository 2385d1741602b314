"""A dialogue with a process, line by line, which leaves no process behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.processes.line_process import LineProcess
from tests.support.survivors import SLEEP, eventually, lives, pids_in

if TYPE_CHECKING:
    from pathlib import Path


COUNTS = 'while read -r word; do echo "heard $word"; echo "over: $word"; done'


def test_a_dialogue_answers_one_line_after_another() -> None:
    dialogue = LineProcess(["sh", "-c", COUNTS])
    try:
        answers = [dialogue.ask(word, last=f"over: {word}", deadline_seconds=10) for word in ("one", "two")]
    finally:
        dialogue.close()
    assert answers == [("heard one\n", "complete"), ("heard two\n", "complete")]


def test_a_dialogue_ends_at_its_deadline_with_the_output_so_far(tmp_path: Path) -> None:
    said = tmp_path / "said"
    dialogue = LineProcess(["sh", "-c", f'echo said; touch "$1"; sleep {SLEEP}', "sh", said])
    try:
        assert eventually(said.exists)
        answer = dialogue.ask("x", last="over: x", deadline_seconds=0.5)
    finally:
        dialogue.close()
    assert answer == ("said\n", "expired")


def test_a_dialogue_reports_the_end_of_its_program() -> None:
    dialogue = LineProcess(["sh", "-c", "read -r word; echo last words; exit 1"])
    try:
        first = dialogue.ask("x", last="over: x", deadline_seconds=10)
        second = dialogue.ask("y", last="over: y", deadline_seconds=10)
    finally:
        dialogue.close()
    assert (first, second) == (("last words\n", "ended"), ("", "ended"))


def test_a_closed_dialogue_leaves_nothing_behind(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    dialogue = LineProcess(["sh", "-c", f'sleep {SLEEP} & echo $! $$ >"$1"; wait', "sh", note])
    pids = pids_in(note, 2)
    dialogue.close()
    dialogue.close()
    assert eventually(lambda: not any(lives(pid) for pid in pids))
