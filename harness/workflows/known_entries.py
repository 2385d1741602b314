"""Writes entries of a known list for a finding of a judged run, and lists the entries in force for a server.

An entry for a finding fits the occasions on which the run saw it, and no others.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.analysis.source_excerpt import line_at
from harness.build.sources import server_tree, source_tree
from harness.build.sources.server_package import upstream_version
from harness.core import json_codec
from harness.core.cache import Cache, write_whole
from harness.core.errors import UsageError
from harness.core.model import Record, ServerPackage
from harness.core.strict_toml import read_text
from harness.judge import provenance
from harness.judge.baseline import WITHOUT_LINES
from harness.judge.known import known_list, tree_list
from harness.judge.known.known_list import EMPTY, KnownFinding, Settings
from harness.judge.known.tree_list import IN_TREE
from harness.judge.reproducer import read_reproducer, stored_at
from harness.record import program_launch, run_folder

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from harness.analysis.source_excerpt import Sources
    from harness.core.finding import Finding
    from harness.plan.catalog import Catalog
    from harness.record.program_launch import CommandRecord

DAYS = 180
"""How long an entry counts unless the user gives a date."""
SOON_DAYS = 30
"""An entry expires soon if fewer days are left."""
HEAD = "# Findings that are expected for now. A check says when an entry has expired, or is no longer seen.\n"
"""The beginning of a new list."""

_CHANCE = re.compile(
    # A log line's process number and time; a folder; an address.
    r"\d+:[A-Z] \d+ \w+ \d+ [\d:.]+|(?<![\w.])/(?:[^\s/'\"]+/)+|0x[0-9a-f]+"
)
"""The parts of a message that differ from run to run and from machine to machine."""


def exact_entries(
    finding: Finding,
    *,
    server: dict[str, str],
    settings: Settings,
    sources: Sources,
    reason: str,
    expires: datetime.date,
) -> list[KnownFinding]:
    """The entries that together fit every occasion on which a finding was seen.

    `server`: the keys that name the server. `settings`: the run's. `sources`: the lines around the places of its
    findings. The identity of a fault names only a function, which may get a second one: the line counts.
    """
    seen: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for witness in finding.witnesses:
        line = line_at(witness, sources) if witness.detector not in WITHOUT_LINES else ""
        of_witness = {**settings.keys_on(witness.target), "suite": witness.suite}
        of_line = {"line": _pattern(line)} if line else {}
        for occasion in witness.occasions:
            of_occasion = {
                "test": _pattern(occasion.test),
                "command": _pattern(occasion.command, _CHANCE),
                "said": _pattern(occasion.said or occasion.title, _CHANCE),
            }
            if witness.suite == program_launch.SUITE:
                # The test is the program with its arguments. Other commands may name it by another path.
                del of_occasion["command"]
            keys = {**of_witness, **of_occasion, **of_line}
            seen.setdefault(tuple(keys.items()), []).append(witness.target)
    return [
        json_codec.convert(
            {
                "id": _pattern(finding.id),
                **server,
                "targets": list(dict.fromkeys(targets)),
                "reason": reason,
                "expires": expires,
                **dict(keys),
            },
            KnownFinding,
        )
        for keys, targets in seen.items()
    ]


def _pattern(text: str, chance: re.Pattern[str] | None = None) -> str:
    """The glob that matches a text, and any text that differs only in random parts."""
    parts = chance.split(text) if chance else [text]
    return "*".join(re.sub(r"[*?\[]", r"[\g<0>]", part) for part in parts)


def list_of(cache: Cache, folder: Path, finding: Finding) -> Path:
    """The list of the tree in which a finding was seen.

    Only a run made on this host determines it: a run from elsewhere must not choose where a file is written. Raises
    UsageError if the list is unknown.
    """
    reproducer = stored_at(folder, finding.replay)
    command = _command_of(folder, finding)
    if reproducer is None or not provenance.is_ours(cache, reproducer.read_bytes()):
        why = "the run was not made on this host, so its record must not decide where a file is written"
        raise UsageError("no list is named", where=str(folder), because=why, remedy=f"--file TREE/{IN_TREE}")
    tree = Path(command.folder if command is not None else read_reproducer(str(reproducer)).server)
    if not tree.is_absolute():
        why = f"{tree} is a release, which has no list of its own"
        raise UsageError(
            "no list is named", where=str(folder), because=why, remedy="--file FILE, and later --known FILE"
        )
    if not tree.is_dir():
        raise UsageError("the tree of the run is gone", where=str(tree), remedy=f"--file TREE/{IN_TREE}")
    return tree / IN_TREE


def _command_of(folder: Path, finding: Finding) -> CommandRecord | None:
    """The command whose program showed a finding, in whose folder its list is; None for a server's finding."""
    cells = (folder / one.target / one.suite for one in finding.witnesses if one.suite == program_launch.SUITE)
    return next(filter(None, map(program_launch.read_command, cells)), None)


def server_keys(path: Path, folder: Path, server: str) -> dict[str, str]:
    """The keys by which an entry of a list names a server: none in a tree's own list, which is only for that tree.

    Raises UsageError for a tree whose release is not recorded.
    """
    record = run_folder.read_run(folder)
    if path.absolute().parts[-2:] == IN_TREE.parts or program_launch.SUITE in record.suites:
        # Any command may run the program.
        return {}
    if not Path(server).is_absolute():
        return {"server": _pattern(server)}
    if not record.release:
        raise UsageError(
            "the run does not record the release of its tree", where=str(folder), remedy=f"--file TREE/{IN_TREE}"
        )
    return {"release": f"{record.family} =={record.release}"}


def append(path: Path, entries: Sequence[KnownFinding]) -> None:
    """Add entries to the end of a list, which is created if necessary. Nothing else in the file changes.

    Raises UsageError for a list that is damaged, that has such an entry, or whose form takes no more entries.
    """
    old = read_text(path) if path.is_file() else HEAD
    present = known_list.entries_of(old, path) if path.is_file() else []
    for entry in entries:
        for other in present:
            if msgspec.structs.replace(entry, reason=other.reason, expires=other.expires) == other:
                raise UsageError(
                    f"the list already contains {entry.id}",
                    where=str(path),
                    because=f"until {other.expires}: {other.reason}",
                    remedy="edit its `reason` or `expires` there",
                )
    kept = re.sub(rf"^{re.escape(EMPTY.strip())}\s*$\n?", "", old, flags=re.MULTILINE).rstrip("\n")
    text = "\n\n".join([*([kept] if kept else []), *map(_toml, entries)]) + "\n"
    try:
        whole = known_list.entries_of(text, path)
    except UsageError as error:
        raise UsageError("no entry can be added at the end", where=str(path), because=error.because) from error
    assert whole == [*present, *entries], "the entry does not read back as it was written"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path.resolve(), text.encode())


def _toml(entry: KnownFinding) -> str:
    where = ("id", "server", "release", "targets", "reason", "expires")
    keys = (*where, *Settings.__struct_fields__, "suite", "test", "command", "said", "line")
    defaults = KnownFinding(id="", reason="", expires=entry.expires)
    values = {key: getattr(entry, key) for key in keys}
    written = [key for key in keys if key in {"id", "reason", "expires"} or values[key] != getattr(defaults, key)]
    return "\n".join(["[[findings]]", *(f"{key} = {_toml_value(values[key])}" for key in written)])


def _toml_value(value: str | datetime.date | list[str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return f'"{"".join(map(_toml_character, value))}"' if isinstance(value, str) else str(value)


def _toml_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return {"\n": "\\n", "\t": "\\t"}.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


class ListedEntry(Record, frozen=True):
    """An entry in force for a server, and its location."""

    file: str
    entry: KnownFinding
    state: Literal["in force", "expires soon", "expired"]

    def __str__(self) -> str:
        state = f"expired on {self.entry.expires}" if self.state == "expired" else f"until {self.entry.expires}"
        soon = ", soon" if self.state == "expires soon" else ""
        entry = self.entry
        machines = [f"{entry.width_bits}-bit"] if entry.width_bits else []
        machines += [f"{entry.time_bits}-bit time_t"] if entry.time_bits else []
        machines += [f"{entry.endianness}-endian"] if entry.endianness else []
        machines += [name for key in Settings.__struct_fields__ if (name := getattr(entry, key)) != "*"]
        where = " ".join(part for part in (",".join(entry.targets), *machines, entry.suite) if part)
        return f"{entry.id}  {where}  {state}{soon}: {entry.reason}  ({self.file})"


def listed(catalog: Catalog, server: str, known: Path, today: datetime.date) -> list[ListedEntry]:
    """The entries for a server: those of a list and, if the server is a tree, those of its own list. Raises UsageError
    for an invalid list.
    """
    found = server_tree.known_server(catalog, server, packages=True)
    files = [known]
    if isinstance(found, Path):
        tree = source_tree.open_tree(found, digest="not needed yet")
        name, release = str(found), f"{tree.family}-{'.'.join(map(str, tree.version))}"
        files += [found / IN_TREE] if tree_list.text_in(found) else []
    elif isinstance(found, ServerPackage):
        name, release = found.title, f"{found.family}-{upstream_version(found)}"
    else:
        name, release = found.name, f"{found.family}-{found.version}"
    return [
        ListedEntry(file=str(file), entry=entry, state=_state(entry, today))
        for file in files
        for entry in known_list.entries_of(read_text(file), file)
        if known_list.concerns(entry, name, release)
    ]


def _state(entry: KnownFinding, today: datetime.date) -> Literal["in force", "expires soon", "expired"]:
    left = (entry.expires - today).days
    return "expired" if left < 0 else "expires soon" if left < SOON_DAYS else "in force"
