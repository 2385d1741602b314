"""Folders as archives: packed the same way every time, named by hash, and unpacked whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
import time
from typing import TYPE_CHECKING

from harness.build.sources.archives import is_archives_fault
from harness.core.errors import InconclusiveError
from harness.core.processes import process

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LARGEST_BYTES = 4 << 30
"""The most that an archive may unpack to. A run folder of upstream's tests has some hundred megabytes."""
DEEPEST = 100
"""The most folders that a name may have."""
MOST_MEMBERS = 250_000
"""The most files, folders and links. Run folders of upstream's tests and source trees have some thousands."""
LONGEST_READ_BYTES = 1 << 15
"""The most that is read at once: a header, which names and links of 4 KiB fit in. Content is read in 16 KiB."""
UNPACK_SECONDS = 300.0
"""The most processor time, in seconds, that one thread spends on an archive."""


def digest_of_archive(content: bytes) -> str:
    """The name of an archive: SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def pack(folder: Path, names: Iterable[Path] | None = None) -> bytes:
    """Pack a folder, or only some paths in it: the files, folders and links, and no socket, pipe or device."""
    chosen = sorted(folder.rglob("*")) if names is None else sorted({folder / name for name in names})
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in chosen:
            kind = path.lstat().st_mode
            if stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind):
                archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_anonymous)
    return packed.getvalue()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who packs, and when folders were made: a copy of the same files has the same digest."""
    if member.isdir():
        member.mtime = 0
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _extract(archive: tarfile.TarFile, members: list[tarfile.TarInfo], into: Path) -> None:
    """Write the members below a folder. Raises TarError if one would be, or leads, elsewhere."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(into, members, filter="data")
        return
    # Python before 3.11.4, as Debian 12 has it, lacks the filter.
    inside = into.resolve()
    for member in members:
        place = inside / member.name
        paths = [place.parent / member.linkname] if member.issym() else []
        if not (member.isreg() or member.isdir() or member.issym()):
            raise tarfile.ExtractError(f"{member.name!r} is a special file or a hard link")
        # A link that was written before is followed, as the system will follow it.
        if not all(path.resolve().is_relative_to(inside) for path in (place, *paths)):
            raise tarfile.ExtractError(f"{member.name!r} leads outside the archive's folder")
        member.mode = 0o755 if member.isdir() else member.mode & 0o755 | 0o600
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        archive.extract(member, into)


class _Unpacked(gzip.GzipFile):
    """What a compressed archive unpacks to.

    A few megabytes can unpack to more than the disk, have a header that fills the memory, or one that tarfile reads for
    hours. Reading such an archive raises TarError.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(fileobj=io.BytesIO(content))
        self._begun = time.thread_time()

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= LONGEST_READ_BYTES:
            raise tarfile.ReadError(f"a header has {size} bytes")
        self._refuse_waste(self.tell())
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        # What is passed over is unpacked, too.
        self._refuse_waste(offset)
        return super().seek(offset, whence)

    def _refuse_waste(self, place: int) -> None:
        if place > LARGEST_BYTES:
            raise tarfile.ReadError(f"it unpacks to more than {LARGEST_BYTES >> 30} GiB")
        if time.thread_time() - self._begun > UNPACK_SECONDS:
            raise tarfile.ReadError(f"unpacking takes more than {UNPACK_SECONDS:.0f} s of processor time")


def _members(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """Raises TarError for an archive that no run folder and no source tree needs."""
    members: list[tarfile.TarInfo] = []
    for member in archive:
        if len(members) == MOST_MEMBERS:
            raise tarfile.ReadError(f"it has more than {MOST_MEMBERS} members")
        members.append(member)
    return members


def _refuse_unusual(members: list[tarfile.TarInfo], into: Path) -> None:
    """Raise InconclusiveError for members that no run folder and no source tree has."""
    if deep := next((one.name for one in members if one.name.count("/") > DEEPEST), ""):
        # Whatever walks through folders would call itself too often.
        raise InconclusiveError("an archive has too deep folders", where=str(into), because=deep[:80])


def unpack(content: bytes, digest: str, into: Path) -> None:
    """Unpack an archive into a new folder, which appears whole.

    Raises InconclusiveError if the content is not what the digest names, or contains a path that leads outside.
    """
    if digest_of_archive(content) != digest:
        raise InconclusiveError(
            "an archive is not what was sent", where=str(into), because=f"its digest is not {digest}"
        )
    unfinished = into.with_name(f".{into.name}.{os.getpid()}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=_Unpacked(content), mode="r:") as archive:
            members = _members(archive)
            _refuse_unusual(members, into)
            _extract(archive, members, unfinished)
        process.refuse_after_stop()
        unfinished.rename(into)
    except Exception as error:
        if not is_archives_fault(error):
            raise
        raise InconclusiveError("an archive cannot be unpacked", where=str(into), because=str(error)) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
