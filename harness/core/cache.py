"""The cache: content-addressed entries for everything that is expensive, each published as a whole or not at all.

An entry is filled under a temporary name. Once it is on the disk, it is renamed into place under a lock, so killed runs
leave no partial entry and concurrent runs do not corrupt each other. Beside each entry is its seal
(harness.core.cache_entries.cache_seal): an entry without a seal is not used, and an entry that differs from its seal is
rebuilt. A killed run leaves folders that no process has locked; the next command removes them.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shlex
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from filelock import FileLock, Timeout

from harness.core.cache_entries import cache_seal
from harness.core.cache_entries.cache_use import CacheUse
from harness.core.errors import InfrastructureError
from harness.core.progress import SILENT_SECONDS, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NEW, _OLD, _SEAL = ".new", ".old", ".seal"
KEPT = "kept-work"
"""The folder of work folders that are kept for the next use."""
_GROWN = "locks/grown"
"""A file that exists if an entry was added since the size of the cache was last checked."""
_FORGOTTEN_SECONDS = 2 * 86400
"""The age at which a leftover without a lock of this name is removed: an older release may hold another lock on it."""


NO_HOME = Path("/nonexistent")
"""Debian's home of users without a home: no program makes it (Debian Policy 9.2.3)."""


def default_root() -> Path:
    """The folder of the user's cache. Nobody can make that of a user without a home, who must name another."""
    if named := os.environ.get("PLUMBLINE_CACHE"):
        return Path(named)
    try:
        found = Path(platformdirs.user_cache_dir("plumbline", appauthor=False))
    except RuntimeError:
        # Neither HOME nor passwd(5) names one. Older releases of the library return a path that begins with a tilde.
        return NO_HOME / "plumbline"
    return found if found.is_absolute() else NO_HOME / "plumbline"


class Cache:
    """One cache folder; `Cache.default()` is the user's (PLUMBLINE_CACHE, else the platform's cache folder)."""

    def __init__(self, root: Path, say: Callable[[str], None] | None = None) -> None:
        self.root = root
        self._say = say or Progress().say
        """Receives remarks about damage."""
        self._whole: dict[Path, cache_seal.State] = {}
        """Entries that this process has verified → their state at that time."""
        self._guard = threading.RLock()
        self._own: Path | None = None
        self.use = CacheUse(root / "locks")
        """Prevents others from removing entries that this process uses."""

    @classmethod
    def default(cls) -> Cache:
        """The user's cache, after the leftovers of killed runs have been removed."""
        cache = cls(default_root())
        cache.sweep()
        return cache

    def path(self, kind: str, key: str) -> Path:
        """The path of an entry, which need not exist. To use an entry, call `entry` or `folder`, which verify it."""
        return self.root / kind / key

    def seal_path(self, kind: str, key: str) -> Path:
        """The path of an entry's seal, without which the entry is not used."""
        return self.root / kind / f"{key}{_SEAL}"

    def paths(self, kind: str, key: str) -> list[Path]:
        """All paths of an entry, for a copy of it elsewhere."""
        return [self.path(kind, key), self.seal_path(kind, key)]

    def folder(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """The entry's folder. If it is missing or damaged, `fill` makes it in an empty folder.

        If `fill` raises, nothing is published. Raises InfrastructureError on a full or read-only disk.
        """
        found = self.entry(kind, key)
        if found is not None:
            return found
        final = self.path(kind, key)
        with self.lock(f"{kind}-{key}"):
            if not self._problem(kind, key):
                return final
            if final.exists():
                self._say(
                    f"the cache entry {kind}/{key} has no seal, because an older release made it: it is made again"
                )
            unfinished = final.with_name(f".{key}{_NEW}")
            with disk_errors(final):
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir(parents=True)
                try:
                    fill(unfinished)
                    unfinished.chmod(0o755)
                    self._publish(unfinished, kind, key)
                finally:
                    shutil.rmtree(unfinished, ignore_errors=True)
        return final

    def entry(self, kind: str, key: str) -> Path | None:
        """The entry's folder; None if no usable entry exists. A damaged entry is removed with a remark.

        The first use reads the whole entry. Later uses only check that it was not written to
        (harness.core.cache_entries.cache_seal.State).
        """
        path = self.path(kind, key)
        if not self._problem(kind, key):
            return path
        # An entry of an older release has no seal. It may be in use, so it stays until a new one replaces it.
        if not path.exists() or not self.seal_path(kind, key).exists():
            return None
        with self.lock(f"{kind}-{key}"):
            problem = self._problem(kind, key)
            if not problem:
                return path
            if path.exists():
                self._say(f"the cache entry {kind}/{key} is damaged ({problem}): it is removed, and rebuilt if needed")
                self._remove(kind, key)
        return None

    def damage(self, *, read_again: bool = False) -> list[str]:
        """Problems with entries that this process has used, except sources, which have been compiled already.

        Without `read_again`, only entries that were written to are read, which costs almost nothing.
        """
        with self._guard:
            used = [path for path in self._whole if path.parent.name != "sources"]
            if read_again:
                self._whole = {}
        found = ((path, self._problem(path.parent.name, path.name)) for path in used)
        return [f"{path.parent.name}/{path.name}: {problem}" for path, problem in found if problem]

    def seal_folder(self, kind: str, key: str) -> None:
        """Seal an entry as it is, if something else vouches for it, such as an archive's pinned hash."""
        with self.lock(f"{kind}-{key}"):
            cache_seal.write(cache_seal.seal_of(self.path(kind, key)), self.seal_path(kind, key))

    def _problem(self, kind: str, key: str) -> str:
        """Why an entry is unusable; empty if it is usable."""
        path = self.path(kind, key)
        # The use is recorded first: from here on, nothing removes the entry.
        self.use.note(self.seal_path(kind, key))
        with self._guard:
            state = cache_seal.state_of(path)
            if state and self._whole.get(path) == state:
                return ""
            if not path.is_dir():
                return "it is missing"
            sealed = cache_seal.read(self.seal_path(kind, key))
            if sealed is None:
                return "its seal is missing or damaged"
            problem = cache_seal.difference(path, sealed)
            if problem:
                self._whole.pop(path, None)
            else:
                # A write after `state` was taken is noticed at the next use.
                self._whole[path] = state
            return problem

    def _publish(self, unfinished: Path, kind: str, key: str) -> None:
        """Flush a filled folder to the disk, then move it into place."""
        state = cache_seal.state_of(unfinished)
        made = cache_seal.seal_of(unfinished)
        cache_seal.put_on_disk(unfinished)
        cache_seal.write(made, self.seal_path(kind, key))
        self.set_aside(kind, key)
        unfinished.rename(self.path(kind, key))
        self.use.note(self.seal_path(kind, key))
        self.note_growth()
        cache_seal.sync(unfinished.parent)
        with self._guard:
            self._whole[self.path(kind, key)] = state
        _remove_folder(unfinished.with_name(f".{key}{_OLD}"))

    def _remove(self, kind: str, key: str) -> None:
        """Remove an entry, whose lock the caller holds. Raises InfrastructureError if that fails."""
        path = self.path(kind, key)
        try:
            old = self.set_aside(kind, key)
            self.seal_path(kind, key).unlink(missing_ok=True)
        except OSError as error:
            raise InfrastructureError(
                f"the cache entry {kind}/{key} is damaged and cannot be removed",
                where=str(path),
                because=str(error),
                remedy=f"rm -r {shlex.quote(str(path))}, or name another cache folder: PLUMBLINE_CACHE=FOLDER",
            ) from error
        _remove_folder(old)

    def note_growth(self) -> None:
        """Make the next command that ends check the size of the cache."""
        with contextlib.suppress(OSError):
            (self.root / _GROWN).touch()

    def has_grown(self) -> bool:
        """Whether any command has added an entry since the last call."""
        try:
            (self.root / _GROWN).unlink()
        except OSError:
            return False
        return True

    def set_aside(self, kind: str, key: str) -> Path:
        """Rename an entry, if it exists, so that it disappears atomically. The caller holds its lock."""
        old = self.path(kind, f".{key}{_OLD}")
        _remove_folder(old)
        with contextlib.suppress(FileNotFoundError):
            self.path(kind, key).rename(old)
        return old

    @contextlib.contextmanager
    def work(self, name: str, *, keep: bool = False) -> Iterator[Path]:
        """An empty, locked folder to build in, removed afterwards. Its path depends only on the name.

        With `keep`, the folder is not empty if it was kept before, and is kept if nothing is raised. If the command is
        killed, the next one removes the folder.
        """
        folder, kept = self.path("work", name), self.path(KEPT, name)
        with self.lock(f"work-{name}"):
            shutil.rmtree(folder, ignore_errors=True)
            try:
                with disk_errors(folder):
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    if keep and kept.is_dir():
                        kept.rename(folder)
                    else:
                        folder.mkdir()
                yield folder
                if keep:
                    with disk_errors(kept):
                        kept.parent.mkdir(exist_ok=True)
                        shutil.rmtree(kept, ignore_errors=True)
                        # The limit of the cache depends on the time of the last use.
                        os.utime(folder)
                        folder.rename(kept)
                    self.note_growth()
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def private(self, name: str) -> Path:
        """A path for a new folder of this process. The folder is removed when the process has ended, however it
        ended.
        """
        with self._guard:
            if self._own is None:
                self._own = self._make_own()
            return Path(tempfile.mkdtemp(dir=self._own)) / name

    def _make_own(self) -> Path:
        with disk_errors(self.root):
            (self.root / "work").mkdir(parents=True, exist_ok=True)
            (self.root / "locks").mkdir(exist_ok=True)
            # The lock comes first: a folder without a lock is swept.
            name = f"own-{os.getpid()}-{time.time_ns()}"
            lock = self._lock_of(f"work-{name}")
            lock.acquire()
            folder = self.path("work", name)
            folder.mkdir(mode=0o700)
        atexit.register(_give_up, folder, lock)
        return folder

    def sweep(self) -> None:
        """Remove the partial folders of killed runs. Folders of living processes are locked, and stay."""
        for left, lock in self._leftovers():
            if not Path(self._lock_of(lock).lock_file).exists():
                with contextlib.suppress(OSError):
                    if time.time() - left.lstat().st_mtime > _FORGOTTEN_SECONDS:
                        shutil.rmtree(left, ignore_errors=True)
                continue
            held = self._lock_of(lock)
            with contextlib.suppress(Timeout, OSError):
                held.acquire(blocking=False)
                try:
                    shutil.rmtree(left, ignore_errors=True)
                    if left.name.startswith("own-"):
                        # No process will use this lock again.
                        Path(held.lock_file).unlink(missing_ok=True)
                finally:
                    held.release()

    def _leftovers(self) -> list[tuple[Path, str]]:
        """Folders that exist only while an entry is made, each with the name of its lock."""
        try:
            kinds = [kind for kind in self.root.iterdir() if kind.is_dir()]
        except OSError:
            return []
        found: list[tuple[Path, str]] = []
        for kind in kinds:
            with contextlib.suppress(OSError):
                # Every command scans it, and a cache has thousands of entries: creating a Path for each takes 60 ms.
                for entry in os.scandir(kind):
                    if kind.name == "work":
                        found.append((Path(entry), f"work-{entry.name}"))
                    elif entry.name.startswith(".") and entry.is_dir():
                        lock = f"{kind.name}-{entry.name[1:].removesuffix(_NEW).removesuffix(_OLD)}"
                        found.append((Path(entry), lock))
        return found

    def log(self, name: str) -> Path:
        """A path for a build's log, which outlives the work folder. An old log is removed."""
        path = self.root / "logs" / f"{name}.log"
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        return path

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Exclude other threads and processes that lock the same name."""
        locks = self.root / "locks"
        with disk_errors(locks):
            locks.mkdir(parents=True, exist_ok=True)
        held = self._lock_of(name)
        while True:
            try:
                held.acquire(timeout=SILENT_SECONDS)
                break
            except Timeout:
                self._say(f"waiting for another build, which holds {name}")
        try:
            yield
        finally:
            held.release()

    def _lock_of(self, name: str) -> FileLock:
        return FileLock(self.root / "locks" / f"{name}.lock", thread_local=False)


def _remove_folder(folder: Path) -> None:
    """Remove a folder as far as possible, even if it or a folder in it was made read-only."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir():
        for inside, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                Path(inside).chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _give_up(folder: Path, lock: FileLock) -> None:
    """Remove a process' own folder and its lock at the end of the process."""
    shutil.rmtree(folder, ignore_errors=True)
    Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that others may read at any time: they see the old content or the new one, but never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.rename(path)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert the exceptions of a full or read-only disk to an error that says so."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR}:
            raise
        raise InfrastructureError(
            f"cannot write: {error.strerror}",
            where=str(error.filename or path),
            remedy="free some space (plumb clean shows what the cache holds), or name another cache folder: "
            "PLUMBLINE_CACHE=FOLDER",
        ) from error
