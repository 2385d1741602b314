"""Every command has a manual page with all of its options, and pages of one date are identical."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from harness.cli.commands import SECTIONS
from harness.cli.group import plumb
from tools.manual_pages import commands_below, main, write_pages

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """File name -> page."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    return {path.name: path.read_text("utf-8") for path in write_pages(tmp_path / "man")}


def test_every_command_has_a_page_with_its_full_summary(pages: dict[str, str]) -> None:
    for section in SECTIONS.values():
        for entry in section:
            page = pages[f"plumb-{entry.name}.1"]
            assert entry.summary in page.replace("\\-", "-"), entry.name
    assert {"plumb.1", "plumb-known-add.1", "plumb-campaign-worker.1"} <= pages.keys()
    assert len(pages) == len(list(commands_below(plumb)))


def test_a_page_has_every_option_of_its_command(pages: dict[str, str]) -> None:
    seen = 0
    for section in SECTIONS.values():
        for entry in section:
            page = pages[f"plumb-{entry.name}.1"].replace("\\-", "-")
            for option in plumb.commands[entry.name].params:
                if isinstance(option, click.Option) and not option.hidden:
                    assert option.opts[0] in page, f"{entry.name} {option.opts[0]}"
                    seen += 1
    assert seen > 100


@pytest.mark.usefixtures("pages")
def test_the_help_of_a_command_is_the_same_after_its_page_was_written() -> None:
    """Regression: the help had no `-h` in the rest of the process, and a test of docs/cli.md failed by its order."""
    context = click.Context(plumb, info_name="plumb", **plumb.context_settings)
    inner = click.Context(plumb.commands["check"], info_name="check", parent=context)
    assert "-h, --help" in plumb.commands["check"].get_help(inner)


def test_pages_of_one_date_are_identical(
    pages: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = {path.name: path.read_text("utf-8") for path in write_pages(tmp_path / "again")}
    assert again == pages
    assert "2026-01-01" in pages["plumb.1"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert {path.name: path.read_text("utf-8") for path in write_pages(tmp_path / "third")} != pages


def test_without_a_folder_the_usage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 2
    assert capsys.readouterr().err == "usage: python -m tools.manual_pages FOLDER\n" * 2
