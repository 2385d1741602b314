"""The cache: where everything that is expensive is kept, content-addressed, published whole or not at all.

An entry is filled under another name and renamed into place under a lock, once it is on the disk, so that a killed run
leaves nothing half-made and two runs at a time do not corrupt each other. Beside it lies its seal
(harness.core.cache_seal): what has none is not believed, and what differs from it is made anew. Whoever is killed
leaves folders that nobody has locked any more: the next command sweeps them.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from filelock import FileLock, Timeout

from harness.core import cache_seal
from harness.core.errors import InfrastructureError
from harness.core.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NEW, _OLD, _SEAL = ".new", ".old", ".seal"
_FORGOTTEN_SECONDS = 2 * 86400
"""So old is a leftover of a release that locked it by another name, which may not be swept before."""


class Cache:
    """One cache folder; `Cache.default()` is the user's (PLUMBLINE_CACHE, else the platform's cache folder)."""

    def __init__(self, root: Path, say: Callable[[str], None] | None = None) -> None:
        self.root = root
        self._say = say or Progress().say
        """Takes remarks: what was damaged."""
        self._whole: dict[Path, cache_seal.State] = {}
        """Entries that this process has found whole, and the state that they had then."""
        self._guard = threading.RLock()
        self._own: Path | None = None

    @classmethod
    def default(cls) -> Cache:
        """The user's cache, swept of what killed runs have left."""
        named = os.environ.get("PLUMBLINE_CACHE")
        store = cls(Path(named or platformdirs.user_cache_dir("plumbline", appauthor=False)))
        store.sweep()
        return store

    def path(self, kind: str, key: str) -> Path:
        """Where an entry is, or would be. Who uses one asks `entry` or `folder`, which look whether it is whole."""
        return self.root / kind / key

    def seal_path(self, kind: str, key: str) -> Path:
        """Where the seal of an entry is: without it the entry is not believed."""
        return self.root / kind / f"{key}{_SEAL}"

    def paths(self, kind: str, key: str) -> list[Path]:
        """All that makes an entry: what is to be kept of it elsewhere."""
        return [self.path(kind, key), self.seal_path(kind, key)]

    def folder(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """The entry's folder, made by `fill` (given an empty folder) if it is not there yet, or not whole.

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
                self._say(f"the cache's {kind}/{key} has no seal, as an older release made it: it is made anew")
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
        """The entry's folder; None where there is none that could be used. A damaged one is removed, with a remark.

        The first time it is read whole; afterwards it is enough that nobody has written to it
        (harness.core.cache_seal.State).
        """
        path = self.path(kind, key)
        if not self._problem(kind, key):
            return path
        # What an older release made has no seal. It is replaced when another has been made: it may be in use.
        if not path.exists() or not self.seal_path(kind, key).exists():
            return None
        with self.lock(f"{kind}-{key}"):
            problem = self._problem(kind, key)
            if not problem:
                return path
            if path.exists():
                self._say(f"the cache's {kind}/{key} is damaged ({problem}): it is removed, and made anew if need be")
                self._remove(kind, key)
        return None

    def damage(self, *, read_again: bool = False) -> list[str]:
        """What is wrong by now with entries that this process has used. Sources do not count: they were compiled.

        Without `read_again` it costs next to nothing: read is what somebody has written to.
        """
        with self._guard:
            used = [path for path in self._whole if path.parent.name != "sources"]
            if read_again:
                self._whole = {}
        found = ((path, self._problem(path.parent.name, path.name)) for path in used)
        return [f"{path.parent.name}/{path.name}: {problem}" for path, problem in found if problem]

    def seal_folder(self, kind: str, key: str) -> None:
        """Seal an entry as it is: for one that something else vouches for, as an archive's pinned hash does."""
        with self.lock(f"{kind}-{key}"):
            cache_seal.write(cache_seal.seal_of(self.path(kind, key)), self.seal_path(kind, key))

    def _problem(self, kind: str, key: str) -> str:
        """Why an entry cannot be used; empty when it can."""
        path = self.path(kind, key)
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
                # Whoever wrote to it since it was first looked at will be noticed the next time.
                self._whole[path] = state
            return problem

    def _publish(self, unfinished: Path, kind: str, key: str) -> None:
        """Put a filled folder in its place, on the disk before it can be found there."""
        state = cache_seal.state_of(unfinished)
        made = cache_seal.seal_of(unfinished)
        cache_seal.put_on_disk(unfinished)
        cache_seal.write(made, self.seal_path(kind, key))
        self._set_aside(kind, key)
        unfinished.rename(self.path(kind, key))
        cache_seal.sync(unfinished.parent)
        with self._guard:
            self._whole[self.path(kind, key)] = state
        shutil.rmtree(unfinished.with_name(f".{key}{_OLD}"), ignore_errors=True)

    def _remove(self, kind: str, key: str) -> None:
        """Remove an entry. Hold its lock. Raises InfrastructureError where it cannot be removed."""
        path = self.path(kind, key)
        try:
            old = self._set_aside(kind, key)
            self.seal_path(kind, key).unlink(missing_ok=True)
        except OSError as error:
            raise InfrastructureError(
                f"the cache's {kind}/{key} is damaged, and cannot be removed",
                where=str(path),
                because=str(error),
                remedy=f"rm -r '{path}', or name another cache folder: PLUMBLINE_CACHE=FOLDER",
            ) from error
        shutil.rmtree(old, ignore_errors=True)

    def _set_aside(self, kind: str, key: str) -> Path:
        """Rename an entry, if there is one, so that it goes in one moment."""
        old = self.path(kind, f".{key}{_OLD}")
        shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self.path(kind, key).rename(old)
        return old

    @contextlib.contextmanager
    def work(self, name: str) -> Iterator[Path]:
        """An empty folder to build in, locked, gone afterwards. Its path depends on the name alone."""
        folder = self.path("work", name)
        with self.lock(f"work-{name}"):
            shutil.rmtree(folder, ignore_errors=True)
            try:
                with disk_errors(folder):
                    folder.mkdir(parents=True)
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def private(self, name: str) -> Path:
        """A place for a folder of this process' own, not there yet; it is gone after the process, however that ends."""
        with self._guard:
            if self._own is None:
                self._own = self._make_own()
            return Path(tempfile.mkdtemp(dir=self._own)) / name

    def _make_own(self) -> Path:
        with disk_errors(self.root):
            (self.root / "work").mkdir(parents=True, exist_ok=True)
            (self.root / "locks").mkdir(exist_ok=True)
            # Locked before it is there: a folder that nobody has locked is swept.
            name = f"own-{os.getpid()}-{time.time_ns()}"
            lock = self._lock_of(f"work-{name}")
            lock.acquire()
            folder = self.path("work", name)
            folder.mkdir(mode=0o700)
        atexit.register(_give_up, folder, lock)
        return folder

    def sweep(self) -> None:
        """Remove what killed runs have left half-made. What a living process holds is locked, and stays."""
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
                        # Nobody will ever lock it again.
                        Path(held.lock_file).unlink(missing_ok=True)
                finally:
                    held.release()

    def _leftovers(self) -> list[tuple[Path, str]]:
        """Folders that are there while something is being made, and the lock of whoever makes it."""
        try:
            kinds = [kind for kind in self.root.iterdir() if kind.is_dir()]
        except OSError:
            return []
        found: list[tuple[Path, str]] = []
        for kind in kinds:
            with contextlib.suppress(OSError):
                for path in kind.iterdir():
                    if kind.name == "work":
                        found.append((path, f"work-{path.name}"))
                    elif path.name.startswith(".") and path.is_dir():
                        found.append((path, f"{kind.name}-{path.name[1:].removesuffix(_NEW).removesuffix(_OLD)}"))
        return found

    def log(self, name: str) -> Path:
        """A build's log, not there yet: it outlives the work folder."""
        path = self.root / "logs" / f"{name}.log"
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        return path

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Exclude other threads and processes that take the same name."""
        locks = self.root / "locks"
        with disk_errors(locks):
            locks.mkdir(parents=True, exist_ok=True)
        with self._lock_of(name):
            yield

    def _lock_of(self, name: str) -> FileLock:
        return FileLock(self.root / "locks" / f"{name}.lock", thread_local=False)


def _give_up(folder: Path, lock: FileLock) -> None:
    """Remove a process' own folder at its end, and its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what a full or read-only disk raises into an error that says so."""
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
