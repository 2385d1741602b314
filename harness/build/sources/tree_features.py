"""Reads a server's abilities from its source, and with them places a tree between two releases.

It reads text in the style of every era since Redis 2.8, and runs nothing. harness.build.sources.source_tree decides
whether a tree is a server's.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.core import json_codec
from harness.core.model import Abilities, Record
from harness.core.strict_toml import read_toml

LANDMARKS = Path(__file__).with_name("landmarks.toml")

NEVER_RELEASED = 255
"""A version with a part this large is a development tree's: 255.255.255, or 999.999.999 in Redis' until 2020."""

_QUOTED = re.compile(r'"([a-z][a-z0-9-]+)"')
_TABLE_ROW = re.compile(r'^\s*\{\s*"([a-z][a-z0-9_.|-]*)"\s*,\s*(?:\w+Command\b|NULL\s*,\s*-?\d)', re.MULTILINE)
"""A command's row. A container's has no function, but an arity, as between 6.2 and 7.0."""
_HEADING = (
    r"^(?:--\[ )?{family}(?: [A-Z][A-Za-z ]*?)? (\d+(?:\.\d+)+)"
    r"(?: GA| RC\d+|-rc\d+)?[ \t]+(?:-[ \t]+)?(?:\]|Released|release notes)"
)
"""A release note's heading: `--[ Redis 2.8.17 ]`, `Redis 7.0 RC3   Released`, `Valkey 8.1.0 GA  -  Released`."""


class Landmark(Record, frozen=True):
    """A release, and features that are in its source and in that of every later release, but in none before."""

    release: str
    commands: tuple[str, ...] = ()
    """Names; `CONTAINER|COMMAND` for a container's command, which servers list since 7.0."""
    options: tuple[str, ...] = ()


class Landmarks(Record, frozen=True):
    """harness/build/sources/landmarks.toml: per family, oldest first."""

    redis: list[Landmark]
    valkey: list[Landmark]


@cache
def landmarks() -> Landmarks:
    """All landmarks."""
    return read_toml(LANDMARKS, Landmarks)


def abilities_of(path: Path) -> Abilities:
    """The abilities in a tree's source: its commands and configuration options.

    Options are all quoted words of src/config.c in lower case. Each era writes its table differently (comparisons with
    argv[0], rows of arrays, macros), and a superfluous word does no harm: no suite queries "yes".
    """
    config = path / "src" / "config.c"
    options = set(_QUOTED.findall(config.read_text("utf-8", "replace"))) if config.is_file() else set()
    return Abilities(commands=tuple(sorted(_commands(path))), options=tuple(sorted(options)))


def _commands(path: Path) -> set[str]:
    """Names of the commands: since 7.0 from one file each, earlier from the table in the server's main file."""
    described = [command for file in (path / "src" / "commands").glob("*.json") for command in _described(file)]
    if described:
        return {name for name, _ in described}
    mains = [path / "src" / name for name in ("server.c", "redis.c")]
    return {name for main in mains if main.is_file() for name in _TABLE_ROW.findall(main.read_text("utf-8", "replace"))}


def _described(file: Path) -> list[tuple[str, str]]:
    """The commands that a file describes, each with its first release; empty if an edit broke the file."""
    try:
        commands = json_codec.decode(file.read_bytes(), dict[str, dict[str, Any]])
    except msgspec.DecodeError:
        return []
    return [
        (
            "|".join(word.lower() for word in (str(command.get("container", "")), name) if word),
            str(command.get("since", "")),
        )
        for name, command in commands.items()
    ]


def is_development(version: tuple[int, ...]) -> bool:
    """Whether a version belongs to no release."""
    return any(part >= NEVER_RELEASED for part in version)


def age_of(path: Path, family: Literal["redis", "valkey"], has: Abilities) -> tuple[tuple[int, ...], str]:
    """The release that a development tree counts as, and the reason.

    It is the newest release whose landmarks, and those of all earlier releases, are in the tree: the tree has
    everything that this release has. A newer release note, or a command that names a newer first release, counts if no
    landmark is known to be missing. An empty version means that the tree lacks one of the oldest landmarks.
    """
    known: list[Landmark] = landmarks().valkey if family == "valkey" else landmarks().redis
    missing = [(mark, lacking) for mark in known if (lacking := _lacking(mark, has))] if has.commands else []
    first = known.index(missing[0][0]) if missing else len(known)
    by_source = _numbers(known[first - 1].release) if first and has.commands else ()
    candidates = [(by_source, "the features of its source"), (_newest_command(path), "its newest command")]
    candidates.append((_newest_note(path, family), "its newest release note"))
    if missing:
        bound = _numbers(missing[0][0].release)
        candidates = [(version, by) for version, by in candidates if version < bound]
    version, by = max(candidates, key=lambda candidate: candidate[0])
    if missing:
        return version, f"{by}; it lacks {missing[0][1]}, which came with {missing[0][0].release}"
    return (
        (version, by)
        if version
        else (_numbers(known[-1].release), ("the latest landmark, since its source lists no commands"))
    )


def _lacking(mark: Landmark, has: Abilities) -> str:
    """The first landmark of a release that a tree lacks; empty when it has all."""
    absent = [name.upper().replace("|", " ") for name in mark.commands if name not in has.commands]
    absent += [f"option {name}" for name in mark.options if name not in has.options]
    return absent[0] if absent else ""


def _newest_note(path: Path, family: str) -> tuple[int, ...]:
    """The newest release in 00-RELEASENOTES; empty in `unstable`, whose file is a placeholder."""
    notes = path / "00-RELEASENOTES"
    text = notes.read_text("utf-8", "replace") if notes.is_file() else ""
    found = re.findall(_HEADING.format(family=family.capitalize()), text, re.MULTILINE)
    return max((_numbers(version) for version in found), default=())


def _newest_command(path: Path) -> tuple[int, ...]:
    """The newest first release that any command names."""
    described = [since for file in (path / "src" / "commands").glob("*.json") for _, since in _described(file)]
    found = (_numbers(since) for since in described if re.fullmatch(r"\d+(\.\d+)*", since))
    return max((version for version in found if not is_development(version)), default=())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
