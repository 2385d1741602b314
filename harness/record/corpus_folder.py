"""A corpus: the entries that an open-ended suite keeps between runs, each with the features that it was the first to
show.

FOLDER/NAME             an entry, whose name contains its content's hash; only the suite knows what is in it
FOLDER/NAME.features    EntryFeatures: it was tried on a build, and showed these features that no other entry had shown

An entry without features for a build has not been tried there. Features without an entry say that it was tried, and
that it is not worth keeping.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from harness.core import json_codec
from harness.core.cache import write_whole
from harness.core.model import Record

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".features"


LARGEST_BYTES = 1 << 17
"""Size limit of an entry: longer ones are not worth their space."""

_ENTRY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")
_Feature = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class EntryFeatures(Record, frozen=True):
    """NAME.features."""

    build: str
    """The build on which the entry was tried, and the kind of features. Numbers of another build mean nothing."""
    new: list[_Feature]
    """Edges of the guest's code, or other features that the suite numbers; empty if it showed nothing new."""
    failed: bool = False
    """Whether it failed there, or elsewhere before. Such an entry is always kept."""


def entries(folder: Path) -> list[Path]:
    """The entries of a corpus, by name; none if there is no folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix != SUFFIX and path.name[0] != "." and path.is_file())


def features_of(entry: Path) -> EntryFeatures | None:
    """The features of an entry, whether or not it was kept; None if it was not tried, or if its features are
    unreadable.
    """
    try:
        return json_codec.decode(features_path(entry).read_bytes(), EntryFeatures)
    except (FileNotFoundError, IsADirectoryError, msgspec.DecodeError):
        return None


def tried(folder: Path) -> dict[str, EntryFeatures]:
    """The names and features of all entries that were tried, whether or not they were kept. Names that no suite gives
    are left out.
    """
    names = sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
    return {
        name: features
        for name in names
        if _ENTRY_NAME.fullmatch(name) and (features := features_of(folder / name)) is not None
    }


def keep(entry: Path, content: bytes) -> None:
    """Write an entry."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    write_whole(entry, content)


def note(entry: Path, features: EntryFeatures) -> None:
    """Record the features of an entry."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    write_whole(features_path(entry), json_codec.encode(features))


def minimise(folder: Path, build: str) -> tuple[int, int]:
    """Drop every entry all of whose features smaller entries have. Returns the numbers of features and of entries left.

    Entries that failed stay, and so do those that were not tried on the build.
    """
    found = {name: features for name, features in tried(folder).items() if features.build == build}
    here = {name: (folder / name).stat().st_size for name in found if (folder / name).is_file()}
    shown: set[int] = set()
    kept = 0
    for name in sorted(here, key=lambda name: (here[name], name)):
        new = set(found[name].new)
        if new <= shown and not found[name].failed:
            note(folder / name, msgspec.structs.replace(found[name], new=[]))
            (folder / name).unlink(missing_ok=True)
        else:
            kept += not new <= shown
            shown |= new
    return len(shown), kept


def features_path(entry: Path) -> Path:
    """The file of an entry's features."""
    return entry.with_name(f"{entry.name}{SUFFIX}")
