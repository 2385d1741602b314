"""Objects that are compiled beside a build's tree, and kept for the next build as its tree is (kept_tree).

Here, too, contents decide: an object stays if every file of the work folder that its compiler read is unchanged.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from harness.analysis.compiler_output import prerequisites
from harness.core import json_codec
from harness.core.digests import sha256_of
from harness.core.model import Record

NAME = "kept.json"


class KeptObject(Record, frozen=True):
    """An object that was compiled beside the tree."""

    digest: str
    reads: dict[str, str]
    """File below the work folder that its compiler read -> digest."""


class KeptObjects(Record, frozen=True):
    """The objects of a folder beside the tree."""

    recipe: str
    objects: dict[str, KeptObject]


def keep(folder: Path, compiled_in: Path, work: Path, recipe: str) -> None:
    """Record the files that the compilers of a folder's objects read, which ran in `compiled_in`. Objects without this
    information are compiled again the next time.
    """
    digests: dict[str, str] = {}
    objects: dict[str, KeptObject] = {}
    for path in sorted(folder.glob("*.o")):
        rule = path.with_suffix(".d")
        read = prerequisites(rule.read_text("utf-8", "replace")) if rule.is_file() else []
        files = {os.path.normpath(compiled_in / name) for name in read}
        if not files or not all(Path(file).is_relative_to(work) and Path(file).is_file() for file in files):
            continue
        for file in files - digests.keys():
            digests[file] = sha256_of(Path(file))
        reads = {os.path.relpath(file, work): digests[file] for file in sorted(files)}
        objects[path.name] = KeptObject(digest=sha256_of(path), reads=reads)
    (folder / NAME).write_bytes(json_codec.encode(KeptObjects(recipe=recipe, objects=objects)))


def fill(folder: Path, sources: Path, work: Path, recipe: str) -> None:
    """Give a folder these sources. Of its content, only objects remain that the same compilers would make again."""
    for path in sorted(folder.glob("*")):
        if path.suffix not in {".o", ".d"} and path.name != NAME:
            path.unlink()
    shutil.copytree(sources, folder, dirs_exist_ok=True)
    try:
        kept = json_codec.decode((folder / NAME).read_bytes(), KeptObjects)
        objects = kept.objects if kept.recipe == recipe else {}
    except (OSError, msgspec.DecodeError):
        objects = {}
    (folder / NAME).unlink(missing_ok=True)
    digests: dict[str, str] = {}

    def is_same(file: str, digest: str) -> bool:
        if file not in digests:
            digests[file] = sha256_of(work / file) if (work / file).is_file() else ""
        return digests[file] == digest

    for path in sorted(folder.glob("*.o")):
        one = objects.get(path.name)
        if one is None or sha256_of(path) != one.digest or not all(is_same(*read) for read in one.reads.items()):
            path.unlink()
            path.with_suffix(".d").unlink(missing_ok=True)
