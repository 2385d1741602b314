"""Keeps the cache small: lists its entries, removes unused ones, and enforces the limit for every command.

It removes only whole entries, the trees of planted bugs, which every `plumb mutate` rebuilds, and the code that
emulators have translated. Lists of packages, ccache's objects, keys, histories and corpora are not entries, and stay
until `plumb clean --yes`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from typing import TYPE_CHECKING

import msgspec
from filelock import FileLock, Timeout

from harness.core import json_codec
from harness.core.cache import KEPT, write_whole
from harness.core.digests import files_below
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from harness.core.cache import Cache

LIMIT_BYTES = 10 << 30
"""The limit unless the user has set another."""
SLACK = 20
"""A command that exceeds the limit also frees this share of it, so that the next commands do not exceed it again."""
_LIMIT, _SIZES, _SEAL = "limit.json", "sizes.json", ".seal"
_LARGEST_TEXT = 1 << 16
"""Larger files are programs and data. They are not searched for paths of the cache."""
_NO_WAYS = ("sources", "archives", "packages", "upstream-native")
"""Kinds whose content comes from elsewhere, or is a result, and names no entry."""


_UNSEALED = {"mutants": "mutant", "translations": "translations", KEPT: "work"}
"""Kinds whose folders can be removed although they are not entries -> the prefix of their locks' names. Every user of
such a folder holds its lock. Emulators do not need their translations.
"""


class CacheEntry(Record, frozen=True):
    """An entry that can be removed separately."""

    kind: str
    key: str
    bytes: int
    used_ns: int
    """When a command last used it, or an entry that needs it; nanoseconds since 1970."""

    @property
    def name(self) -> str:
        """KIND/KEY."""
        return f"{self.kind}/{self.key}"


class Holding(Record, frozen=True):
    """What the cache holds."""

    entries: list[CacheEntry]
    others: dict[str, int]
    """Folder of the cache -> bytes in it that belong to no entry."""

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(entry.bytes for entry in self.entries) + sum(self.others.values())

    def by_kind(self) -> dict[str, int]:
        """Bytes by folder of the cache."""
        found = dict(self.others)
        for entry in self.entries:
            found[entry.kind] = found.get(entry.kind, 0) + entry.bytes
        return dict(sorted(found.items()))


class _Limit(Record, frozen=True):
    bytes: int | None


def limit(cache: Cache) -> int | None:
    """The cache's limit in bytes; None for no limit."""
    try:
        return json_codec.decode((cache.root / _LIMIT).read_bytes(), _Limit).bytes
    except (OSError, msgspec.DecodeError):
        return LIMIT_BYTES


def set_limit(cache: Cache, size: int | None) -> None:
    """Store a new limit."""
    cache.root.mkdir(parents=True, exist_ok=True)
    write_whole(cache.root / _LIMIT, json_codec.encode(_Limit(bytes=size)))


def look(cache: Cache) -> Holding:
    """The cache's entries. Each counts as used when it, or an entry that needs it, was last used. Reading all texts
    shows which entries need which.
    """
    return _with_needs(cache, measure(cache))


def measure(cache: Cache) -> Holding:
    """What the cache holds, with the time of each entry's own use. An entry is measured once: it does not change.

    A folder that is not an entry is measured again after its own time has changed.
    """
    known = _known_sizes(cache)
    sizes: dict[str, int] = {}
    entries: list[CacheEntry] = []
    others: dict[str, int] = {}
    for folder in sorted(cache.root.iterdir()) if cache.root.is_dir() else []:
        names = sorted(each.name for each in os.scandir(folder)) if folder.is_dir() else []
        found = list(_entries_in(cache, folder, names, known))
        entries += found
        sizes |= {_remembered_as(entry): entry.bytes for entry in found}
        keys = {entry.key for entry in found}
        # A seal is counted with its entry.
        inside = [name for name in names if name.removesuffix(_SEAL) not in keys]
        if rest := sum(_bytes_of(folder / name) for name in inside):
            others[folder.name] = rest
    with contextlib.suppress(OSError):
        write_whole(cache.root / _SIZES, json_codec.encode(sizes))
    return Holding(entries=entries, others=others)


def _entries_in(cache: Cache, folder: Path, names: list[str], known: Mapping[str, int]) -> Iterator[CacheEntry]:
    kind = folder.name
    seals = {name for name in names if name.endswith(_SEAL)}
    for name in names:
        if name.startswith(".") or not (kind in _UNSEALED or f"{name}{_SEAL}" in seals):
            continue
        # Others may remove it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            entry = CacheEntry(kind=kind, key=name, bytes=0, used_ns=_used_ns(cache, kind, name))
            size = known.get(_remembered_as(entry))
            if size is None:
                path = folder / name
                if not path.is_dir():
                    continue
                size = _bytes_of(path) + _bytes_of(cache.seal_path(kind, name))
            yield msgspec.structs.replace(entry, bytes=size)


def _remembered_as(entry: CacheEntry) -> str:
    """The name of an entry's size."""
    return f"{entry.name}@{entry.used_ns}" if entry.kind in _UNSEALED else entry.name


def remove(cache: Cache, entries: Iterable[CacheEntry]) -> list[CacheEntry]:
    """Remove the entries that no running command uses, neither directly nor through another entry. Returns the removed
    entries.
    """
    gone: list[CacheEntry] = []
    aside: list[Path] = []
    with cache.use.removal() as since:
        used = _used_since(cache, since)
    # Without a lock, because reading takes seconds. Entries that other commands begin to use meanwhile are kept.
    needed = _needed_by(cache, used)
    with cache.use.removal() as since:
        needed |= _needed_by(cache, _used_since(cache, since) - used)
        for entry in entries:
            if entry.name in needed:
                continue
            with contextlib.suppress(OSError, Timeout):
                if entry.used_ns >= since or _used_ns(cache, entry.kind, entry.key) >= since:
                    continue
                # A process that is rebuilding it holds this lock. Do not wait for it.
                prefix = _UNSEALED.get(entry.kind, entry.kind)
                lock = FileLock(cache.root / "locks" / f"{prefix}-{entry.key}.lock", thread_local=False)
                with lock.acquire(blocking=False):
                    aside.append(cache.set_aside(entry.kind, entry.key))
                    cache.seal_path(entry.kind, entry.key).unlink(missing_ok=True)
                    gone.append(entry)
    # Without a lock, because it takes seconds. The next command removes what a killed one leaves.
    for path in aside:
        shutil.rmtree(path, ignore_errors=True)
    return gone


def remove_others(cache: Cache) -> int:
    """Remove everything except entries, if no other command uses the cache. Returns its size in bytes; the limit
    stays.
    """
    with cache.use.removal():
        if any(cache.use.others()):
            return 0
        holding = look(cache)
        for path in cache.root.iterdir():
            if path.name in {_LIMIT, "locks"}:
                continue
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return sum(holding.others.values())


def unused_for(
    holding: Holding, seconds: float, *, keep: Callable[[CacheEntry], bool] = lambda _: False
) -> list[CacheEntry]:
    """The entries that no command has used for this time, and that nothing requires."""
    until = time.time_ns() - int(seconds * 1e9)
    return [entry for entry in holding.entries if entry.used_ns < until and not keep(entry)]


def of_builds(
    entries: Iterable[CacheEntry], targets: Collection[str], *, server: str = "", target: str = ""
) -> list[CacheEntry]:
    """Those of the entries that belong to a server, to a target, or to both: their keys name them. The name of another
    target may begin in the same way (armv7-time64).
    """

    def belongs(entry: CacheEntry) -> bool:
        longest = max((name for name in targets if f"-{name}-" in f"-{entry.key}-"), key=len, default="")
        return (not server or entry.key.startswith(f"{server}-")) and target in {"", longest}

    return [entry for entry in entries if belongs(entry)]


def beyond_limit(holding: Holding, size: int) -> list[CacheEntry]:
    """The entries to remove so that the rest fits, least recently used first. What a command used within the last hour
    stays: the next command of the same work would make it again.

    Translated code precedes all others: it is large, and regenerated in a tenth of a second.
    """
    an_hour_ago = time.time_ns() - 3600 * 10**9
    excess = holding.bytes - size
    chosen = []
    unused = [entry for entry in holding.entries if entry.used_ns < an_hour_ago]
    for entry in sorted(unused, key=lambda entry: (entry.kind != "translations", entry.used_ns)):
        if excess <= 0:
            break
        chosen.append(entry)
        excess -= entry.bytes
    return chosen


def keep_limit(cache: Cache, say: Callable[[str], None]) -> None:
    """Remove what exceeds the limit, and some more, if an entry was added since the last check."""
    if not cache.has_grown():
        return
    size, holding = limit(cache), measure(cache)
    if size is None or holding.bytes <= size:
        return
    chosen = beyond_limit(_with_needs(cache, holding), size - size // SLACK)
    gone = remove(cache, chosen)
    if len(gone) < len(chosen) or not chosen:
        # Commands use the rest, or have just used it: the next command looks again.
        cache.note_growth()
    now = holding.bytes - sum(entry.bytes for entry in gone)
    removed = f"{len(gone)} least recently used entries were removed, and {gibibytes(now)} are left"
    say(
        f"the cache had {gibibytes(holding.bytes)}, more than its limit of {gibibytes(size)}: "
        f"{removed if gone else 'commands have used the rest within the last hour'} (plumb clean --limit)"
    )


def gibibytes(size: int) -> str:
    """A size for people."""
    return f"{size / 2**30:.1f} GiB" if size >= 1 << 30 else f"{size / 2**20:.0f} MiB"


def _used_ns(cache: Cache, kind: str, key: str) -> int:
    """When a command used an entry last. Raises FileNotFoundError if there is none."""
    path = cache.path(kind, key) if kind in _UNSEALED else cache.seal_path(kind, key)
    return path.stat().st_mtime_ns


def _known_sizes(cache: Cache) -> Mapping[str, int]:
    try:
        return json_codec.decode((cache.root / _SIZES).read_bytes(), dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}


def _bytes_of(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return _bytes_below(str(path))
    with contextlib.suppress(OSError):
        return path.lstat().st_size
    return 0


def _bytes_below(folder: str) -> int:
    """The sizes of the files below a folder. A Path for each would take most of the time that every command spends."""
    found = 0
    # Others may remove files meanwhile.
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as inside:
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                found += _bytes_below(entry.path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    found += entry.stat(follow_symlinks=False).st_size
    return found


def _with_needs(cache: Cache, holding: Holding) -> Holding:
    """The same entries, each used as late as those that need it."""
    entries = holding.entries
    used = {entry.name: entry.used_ns for entry in entries}
    able = [entry for entry in entries if entry.kind not in {*_NO_WAYS, *_UNSEALED}]
    ways = {entry.name: _needs(cache, entry) & used.keys() for entry in able}
    archives = [entry for entry in entries if entry.kind == "archives"]
    for tree in entries:
        if tree.kind == "sources":
            # Small beside its tree, and CI systems keep it. A tree without all folders has a longer name.
            ways[tree.name] = {
                one.name for one in archives if tree.key == one.key or tree.key.startswith(f"{one.key}-")
            }
    # Latest first, so that one round is enough unless two entries need each other.
    changed = True
    while changed:
        changed = False
        for name in sorted(ways, key=lambda each: -used[each]):
            for needed in ways[name]:
                if used[needed] < used[name]:
                    used[needed] = used[name]
                    changed = True
    last = [msgspec.structs.replace(entry, used_ns=used[entry.name]) for entry in entries]
    return Holding(entries=last, others=holding.others)


def _used_since(cache: Cache, since_ns: int) -> set[str]:
    """The names of the entries that a command has used since then, of kinds that can name others."""
    found: set[str] = set()
    for folder in cache.root.iterdir():
        if folder.name in {*_NO_WAYS, *_UNSEALED}:
            continue
        for seal in folder.glob(f"*{_SEAL}"):
            with contextlib.suppress(OSError):
                if seal.stat().st_mtime_ns >= since_ns:
                    found.add(f"{folder.name}/{seal.name.removesuffix(_SEAL)}")
    return found


def _needed_by(cache: Cache, names: set[str]) -> set[str]:
    """What these entries need, directly or not."""
    found: set[str] = set()
    ahead = list(names)
    while ahead:
        name = ahead.pop()
        kind, _, key = name.partition("/")
        fresh = set() if kind in _NO_WAYS else _needs(cache, CacheEntry(kind=kind, key=key, bytes=0, used_ns=0)) - found
        found |= fresh
        ahead += fresh
    return found


def _needs(cache: Cache, entry: CacheEntry) -> set[str]:
    """The entries that links and short texts of this one name by their paths."""
    root = str(cache.root)
    # As it is, and as in a quoted word of a shell script and in a string of JSON.
    forms = {root, root.replace("'", "'\"'\"'"), json_codec.encode(root).decode()[1:-1]}
    pattern = re.compile(
        rb"(?:%s)/([\w.+-]+/[\w.+~:-]+)" % b"|".join(re.escape(os.fsencode(form)) for form in sorted(forms))
    )
    found: set[str] = set()
    for _, path, status in files_below(cache.path(entry.kind, entry.key)):
        with contextlib.suppress(OSError):
            if path.is_symlink():
                content = os.fsencode(path.readlink())
            elif status.st_size <= _LARGEST_TEXT:
                content = path.read_bytes()
            else:
                continue
            found |= {match.decode() for match in pattern.findall(content)}
    return found - {entry.name}
