"""The machine code of the objects that a program was linked from, stored beside it.

Later builds are compared with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.analysis.code.code_map import CodeMap, read_objects
from harness.core import json_codec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME = "code.json"


def write(
    into: Path, work: Path, link: Sequence[str], known: CodeMap | None = None, *, without: Path | None = None
) -> CodeMap | None:
    """Store the code of all objects in a work folder, and the command that linked them.

    Nothing is stored if an object is unreadable, or if the command is unknown. `known`: another build's code, whose
    equal objects are not read again. `without`: a folder whose objects belong to another program.
    """
    words = [word.replace(str(work), "") for word in link]
    code = read_objects(work, words, known, without=without) if link else None
    if code is not None:
        (into / NAME).write_bytes(json_codec.encode(code))
    return code


def read(folder: Path) -> CodeMap | None:
    """The code that `write` stored; None if there is none."""
    try:
        return json_codec.decode((folder / NAME).read_bytes(), CodeMap)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def newest(folders: Path, prefix: str) -> CodeMap | None:
    """The code of the newest build whose folder's name has this prefix; None if there is none."""
    found = [path for path in folders.glob(f"{prefix}*") if (path / NAME).is_file()]
    return read(max(found, key=lambda path: path.stat().st_mtime)) if found else None
