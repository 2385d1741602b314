"""A server's output cannot control the terminal or page that shows it, and plain text is shown unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from harness.core.untrusted_text import one_line, visible


@given(some.text())
def test_one_line_is_one_printable_line(text: str) -> None:
    shown = one_line(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1


@given(some.text())
def test_text_keeps_newlines_and_tabs_and_nothing_else_that_is_not_printable(text: str) -> None:
    assert {one for one in visible(text) if not one.isprintable()} <= {"\n", "\t"}
    assert visible(text).count("\n") == text.count("\n")


@given(some.text(alphabet=some.characters(exclude_categories=("C", "Zl", "Zp", "Mn", "Lo"))).filter(str.isprintable))
def test_printable_text_is_unchanged(text: str) -> None:
    assert (visible(text), one_line(text)) == (text, text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("\ud800", r"\ud800"),
        ("\x85\u2028", r"\x85\u2028"),
        ("a\u3164b\ufe0f\U000e0100", r"a\u3164b\ufe0f\U000e0100"),
        ("é 漢 \U0001f600", "é 漢 \U0001f600"),
    ],
)
def test_control_sequences_are_shown_as_escapes(text: str, shown: str) -> None:
    assert one_line(text) == shown
