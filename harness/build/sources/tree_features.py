"""What a server's source says that it can do; and by that, which release a tree between two releases is taken for.

It reads texts in the style of every era, from Redis 2.8 on, and runs nothing. It does not judge whether a tree is one
of a server: that is harness.build.sources.source_tree's.
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
"""A version with so large a part is a development tree's: 255.255.255, or 999.999.999 in Redis' until 2020."""

_QUOTED = re.compile(r'"([a-z][a-z0-9-]+)"')
_TABLE_ROW = re.compile(r'^\s*\{\s*"([a-z][a-z0-9_.|-]*)"\s*,\s*\w+Command\b', re.MULTILINE)
_HEADING = (
    r"^(?:--\[ )?{family}(?: [A-Z][A-Za-z ]*?)? (\d+(?:\.\d+)+)"
    r"(?: GA| RC\d+|-rc\d+)?[ \t]+(?:-[ \t]+)?(?:\]|Released|release notes)"
)
"""A release note's heading: `--[ Redis 2.8.17 ]`, `Redis 7.0 RC3   Released`, `Valkey 8.1.0 GA  -  Released`."""


class Landmark(Record, frozen=True):
    """A release, and what only it and later ones have: that is found in the source of each of these."""

    release: str
    commands: tuple[str, ...] = ()
    """A container's as `CONTAINER|COMMAND`; those are told only since 7.0."""
    options: tuple[str, ...] = ()


class Landmarks(Record, frozen=True):
    """harness/build/sources/landmarks.toml: per family, oldest first."""

    redis: list[Landmark]
    valkey: list[Landmark]


@cache
def landmarks() -> Landmarks:
    """All of them."""
    return read_toml(LANDMARKS, Landmarks)


def abilities_of(path: Path) -> Abilities:
    """What the source of a tree says: its commands, and the options of its configuration.

    Options are every quoted word of src/config.c in lower case. Each era writes its table in another way (comparisons
    with argv[0], rows of arrays, macros), and a word too many does no harm: nobody asks for "yes".
    """
    config = path / "src" / "config.c"
    options = set(_QUOTED.findall(config.read_text("utf-8", "replace"))) if config.is_file() else set()
    return Abilities(commands=tuple(sorted(_commands(path))), options=tuple(sorted(options)))


def _commands(path: Path) -> set[str]:
    """Names of the commands: of a file each since 7.0, of the table in the server's main file before."""
    described = [one for file in (path / "src" / "commands").glob("*.json") for one in _described(file)]
    if described:
        return {name for name, _ in described}
    mains = [path / "src" / name for name in ("server.c", "redis.c")]
    return {name for main in mains if main.is_file() for name in _TABLE_ROW.findall(main.read_text("utf-8", "replace"))}


def _described(file: Path) -> list[tuple[str, str]]:
    """The commands that a file describes, and since which release there are: none where an edit left it broken."""
    try:
        told = json_codec.decode(file.read_bytes(), dict[str, dict[str, Any]])
    except msgspec.DecodeError:
        return []
    return [
        ("|".join(word.lower() for word in (str(one.get("container", "")), name) if word), str(one.get("since", "")))
        for name, one in told.items()
    ]


def is_development(version: tuple[int, ...]) -> bool:
    """Whether a version is none of a release."""
    return any(part >= NEVER_RELEASED for part in version)


def age_of(path: Path, family: Literal["redis", "valkey"], has: Abilities) -> tuple[tuple[int, ...], str]:
    """The release that a development tree is taken for, and by what.

    It is the newest whose landmarks are all there, as are those of the releases before it: whoever asks for what this
    release has finds it. A later note of a release, or command that says since when it exists, counts as far as no
    landmark is known to be missing. An empty version: the tree is older than all landmarks.
    """
    known: list[Landmark] = landmarks().valkey if family == "valkey" else landmarks().redis
    missing = [(one, lacking) for one in known if (lacking := _lacking(one, has))] if has.commands else []
    first = known.index(missing[0][0]) if missing else len(known)
    by_source = _numbers(known[first - 1].release) if first and has.commands else ()
    told = [(by_source, "what its source has"), (_newest_command(path), "its newest command")]
    told.append((_newest_note(path, family), "its newest release note"))
    if missing:
        bound = _numbers(missing[0][0].release)
        told = [(version, by) for version, by in told if version < bound]
    version, by = max(told, key=lambda one: one[0])
    if missing:
        return version, f"{by}; it has no {missing[0][1]}, which came with {missing[0][0].release}"
    return (version, by) if version else (_numbers(known[-1].release), "nothing in its source, which tells no command")


def _lacking(one: Landmark, has: Abilities) -> str:
    """The first of a release's landmarks that is not there."""
    absent = [name.upper().replace("|", " ") for name in one.commands if name not in has.commands]
    absent += [f"option {name}" for name in one.options if name not in has.options]
    return absent[0] if absent else ""


def _newest_note(path: Path, family: str) -> tuple[int, ...]:
    """The newest release that 00-RELEASENOTES tells of; `unstable` has a placeholder there, and nothing is found."""
    notes = path / "00-RELEASENOTES"
    text = notes.read_text("utf-8", "replace") if notes.is_file() else ""
    found = re.findall(_HEADING.format(family=family.capitalize()), text, re.MULTILINE)
    return max((_numbers(version) for version in found), default=())


def _newest_command(path: Path) -> tuple[int, ...]:
    """The newest release of those since which commands say that they exist."""
    described = [since for file in (path / "src" / "commands").glob("*.json") for _, since in _described(file)]
    found = (_numbers(since) for since in described if re.fullmatch(r"\d+(\.\d+)*", since))
    return max((one for one in found if not is_development(one)), default=())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
