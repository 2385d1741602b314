"""Writes the manual pages of plumb and of each of its commands, from the help that they print: for packages.

    python -m tools.manual_pages FOLDER

`man -l FOLDER/plumb-check.1` shows one. The pages have the date of SOURCE_DATE_EPOCH, if that is set, so that a package
can be built again with the same bytes (reproducible-builds.org, SOURCE_DATE_EPOCH).
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click_man.core import write_man_pages

from harness.cli.group import plumb

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = "%Y-%m-%d"


def write_pages(folder: Path) -> list[Path]:
    """Write a page for plumb and for each command. Returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    _make_help_options(plumb, click.Context(plumb, info_name="plumb", **plumb.context_settings))
    for command in commands_below(plumb):
        # click-man would cut the first sentence after 45 characters.
        command.short_help = command.get_short_help_str(limit=1000)
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    write_man_pages(
        "plumb",
        plumb,
        version=importlib.metadata.version("plumbline"),
        target_dir=str(folder),
        date=time.strftime(DAY, time.gmtime(seconds)),
    )
    return sorted(folder.glob("plumb*.1"))


def _make_help_options(command: click.Command, context: click.Context) -> None:
    """Make the help options of a command and of those below it.

    Click keeps the first one that it makes, and click-man would make others, in contexts without the group's settings.
    """
    command.get_help_option(context)
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            _make_help_options(each, click.Context(each, info_name=name, parent=context))


def commands_below(command: click.Command) -> Iterator[click.Command]:
    """A command and all those below it."""
    yield command
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from commands_below(each)


def main(words: list[str]) -> int:
    """Write the pages into the folder that is named, and print their paths."""
    if len(words) != 1 or words[0].startswith("-"):
        click.echo("usage: python -m tools.manual_pages FOLDER", err=True)
        return 2
    click.echo("\n".join(map(str, write_pages(Path(words[0])))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
