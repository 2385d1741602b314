"""The cache removes the least recently used entries, but never an entry that a running command uses or another entry
needs.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.workflows import cache_upkeep
from tests.support.cache_entries import DAY, SIZE, add, age
from tests.support.survivors import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fakes import Plumb

pytestmark = pytest.mark.costly


def left(root: Path) -> list[str]:
    return [entry.name for entry in cache_upkeep.look(Cache(root)).entries]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Three entries that no running command has used, the oldest first. A shell quotes the cache's path."""
    folder = tmp_path / 'the user\'s "cache"'
    folder.mkdir()
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from harness.core.cache import Cache
from tests.support.cache_entries import add
for number in (3, 2, 1): add(Cache(Path({str(folder)!r})), f"builds/old-{{number}}", days=10 * number)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
    return folder


def test_the_least_recently_used_entries_are_removed_first(filled: Path) -> None:
    cache = Cache(filled)
    holding = cache_upkeep.look(cache)
    gone = cache_upkeep.remove(cache, cache_upkeep.beyond_limit(holding, holding.bytes - holding.entries[0].bytes - 1))
    assert [entry.name for entry in gone] == ["builds/old-3", "builds/old-2"]
    assert left(filled) == ["builds/old-1"]
    assert sorted(path.name for path in (filled / "builds").iterdir()) == ["old-1", "old-1.seal"]


def test_a_use_makes_an_entry_the_last_to_be_removed_also_by_another_process(filled: Path) -> None:
    assert Cache(filled).entry("builds", "old-3")
    holding = cache_upkeep.look(Cache(filled))
    chosen = cache_upkeep.beyond_limit(holding, holding.bytes - 1)
    assert [entry.name for entry in chosen] == ["builds/old-2"]


@pytest.mark.parametrize("end", ["itself", "killed"])
def test_an_entry_that_a_running_command_uses_stays_until_it_ends(filled: Path, end: str) -> None:
    done = filled / "done"
    code = f"""
from pathlib import Path
from harness.core.cache import Cache
assert Cache(Path({str(filled)!r})).entry("builds", "old-3")
Path({str(done)!r}).touch()
while Path({str(done)!r}).exists(): __import__("time").sleep(0.02)
"""
    cache = Cache(filled)
    # They were chosen before the other command began.
    everything = cache_upkeep.look(cache).entries
    user = process.start([sys.executable, "-c", code], folder=ROOT)
    try:
        assert eventually(done.exists)
        assert [entry.name for entry in cache_upkeep.remove(cache, everything)] == ["builds/old-1", "builds/old-2"]
        # The entry is complete: its first use in another process reads all of it.
        assert Cache(filled).damage() == []
        assert (filled / "builds" / "old-3" / "file").is_file()
        if end == "itself":
            done.unlink()
            assert eventually(lambda: user.poll() is not None)
    finally:
        process.kill_group(user)
    cache = Cache(filled)
    assert [entry.name for entry in cache_upkeep.remove(cache, cache_upkeep.look(cache).entries)] == ["builds/old-3"]
    assert not list((filled / "locks").glob("use-*"))


def test_no_command_begins_to_use_an_entry_during_a_removal(filled: Path) -> None:
    asked, done = filled / "asked", filled / "done"
    code = f"""
from pathlib import Path
from harness.core.cache import Cache
cache = Cache(Path({str(filled)!r}))
Path({str(asked)!r}).touch()
Path({str(done)!r}).write_text(str(cache.entry("builds", "old-3")))
"""
    cache = Cache(filled)
    with cache.use.removal():
        user = process.start([sys.executable, "-c", code], folder=ROOT)
        assert eventually(asked.exists)
        time.sleep(0.5)
        assert not done.exists()
        cache.set_aside("builds", "old-3")
    assert user.wait(30) == 0
    process.kill_group(user)
    assert done.read_text("utf-8") == "None"


@pytest.mark.parametrize("by", ["link", "script", "document"])
def test_entries_that_another_entry_needs_stay_as_long_as_it_does(filled: Path, by: str) -> None:
    needed = Cache(filled).path("builds", "old-3") / "file"
    text = (
        f"#!/bin/sh\nexec {shlex.quote(str(needed))}\n" if by == "script" else json_codec.encode([str(needed)]).decode()
    )
    code = f"""
from pathlib import Path
from harness.core.cache import Cache
def fill(into):
    if {by == "link"}: (into / "lib").symlink_to({str(needed)!r})
    else: (into / "gcc").write_text({text!r}, "utf-8")
Cache(Path({str(filled)!r})).folder("guest-roots", "young", fill)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
    holding = cache_upkeep.look(Cache(filled))
    gone = cache_upkeep.remove(Cache(filled), cache_upkeep.unused_for(holding, 5 * DAY))
    assert [entry.name for entry in gone] == ["builds/old-1", "builds/old-2"]
    assert needed.is_file()


@pytest.mark.parametrize("begins", ["before the removal", "while the removal reads"])
def test_needed_entries_stay_if_a_command_begins_to_use_the_entry_after_the_choice(
    filled: Path, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = f"""
from pathlib import Path
from harness.core.cache import Cache
from tests.support.cache_entries import age
cache = Cache(Path({str(filled)!r}))
cache.folder("inits", "between", lambda into: (into / "of").symlink_to(cache.path("builds", "old-2") / "file"))
cache.folder("guest-roots", "old", lambda into: (into / "init").symlink_to(cache.path("inits", "between") / "of"))
for name in ("inits/between", "guest-roots/old"): age(cache, name, 20)
"""
    subprocess.run([sys.executable, "-c", make], check=True, cwd=ROOT, timeout=60)
    cache, done = Cache(filled), filled / "done"
    chosen = cache_upkeep.unused_for(cache_upkeep.look(cache), 5 * DAY)
    code = f"""
from pathlib import Path
from harness.core.cache import Cache
assert Cache(Path({str(filled)!r})).entry("guest-roots", "old")
Path({str(done)!r}).touch()
__import__("time").sleep(60)
"""
    users: list[subprocess.Popen[bytes]] = []
    read = cache_upkeep._needed_by  # noqa: SLF001

    def begin(of: Cache, names: set[str]) -> set[str]:
        found = read(of, names)
        if not users:
            users.append(process.start([sys.executable, "-c", code], folder=ROOT))
            assert eventually(done.exists)
        return found

    try:
        if begins == "before the removal":
            begin(cache, set())
        monkeypatch.setattr(cache_upkeep, "_needed_by", begin)
        gone = [entry.name for entry in cache_upkeep.remove(cache, chosen)]
    finally:
        for user in users:
            process.kill_group(user)
    assert gone == ["builds/old-1", "builds/old-3"]
    assert (cache.path("guest-roots", "old") / "init").resolve().read_bytes() == b"x" * SIZE


def test_a_clock_that_is_set_back_takes_nothing_from_a_running_command(filled: Path) -> None:
    done = filled / "done"
    code = f"""
import time
from pathlib import Path
from harness.core.cache import Cache
cache = Cache(Path({str(filled)!r}))
assert cache.entry("builds", "old-1")
now = time.time_ns
time.time_ns = lambda: now() - 3600 * 10**9
assert cache.entry("builds", "old-3")
Path({str(done)!r}).touch()
time.sleep(60)
"""
    cache = Cache(filled)
    chosen = cache_upkeep.look(cache).entries
    user = process.start([sys.executable, "-c", code], folder=ROOT)
    try:
        assert eventually(done.exists)
        assert [entry.name for entry in cache_upkeep.remove(cache, chosen)] == ["builds/old-2"]
    finally:
        process.kill_group(user)


def test_an_archive_stays_as_long_as_its_unpacked_tree(filled: Path) -> None:
    code = f"""
from pathlib import Path
from harness.core.cache import Cache
from tests.support.cache_entries import add
cache = Cache(Path({str(filled)!r}))
for name in ("used", "left", "use"): add(cache, f"archives/{{name}}-0123", days=50)
for name, days in (("used-0123-45", 1), ("left-0123", 40)): add(cache, f"sources/{{name}}", days=days)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
    holding = cache_upkeep.look(Cache(filled))
    gone = cache_upkeep.remove(Cache(filled), cache_upkeep.unused_for(holding, 35 * DAY))
    assert [entry.name for entry in gone] == ["archives/left-0123", "archives/use-0123", "sources/left-0123"]


def test_a_removal_that_is_killed_anywhere_leaves_intact_entries_and_no_leftovers(filled: Path) -> None:
    """The removal is killed at each rename in turn. The remaining entries must be usable, removed ones can be made
    again, and leftovers are swept.
    """
    for call in ("rename", "unlink", "rmtree"):
        code = f"""
import os, signal, shutil
from pathlib import Path
from harness.core.cache import Cache
from harness.workflows import cache_upkeep
cache = Cache(Path({str(filled)!r}))
chosen = cache_upkeep.look(cache).entries
def killed(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
if {call!r} == "rmtree": shutil.rmtree = killed
else: setattr(Path, {call!r}, killed)
cache_upkeep.remove(cache, chosen)
"""
        ended = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, timeout=60)
        assert ended.returncode == -signal.SIGKILL, call
        cache = Cache(filled)
        cache.sweep()
        for name in ("old-1", "old-2", "old-3"):
            folder = add(cache, f"builds/{name}")
            assert (folder / "file").read_bytes() == b"x" * SIZE
        assert not [path for path in (filled / "builds").iterdir() if path.name.startswith(".")]
        # Otherwise this process would count as a user of the entries from now on.
        subprocess.run([sys.executable, "-c", AGED.format(root=str(filled))], check=True, cwd=ROOT, timeout=60)


AGED = """
import os, time
from pathlib import Path
for seal in Path({root!r}).rglob("*.seal"): os.utime(seal, (time.time() - 864000,) * 2)
"""


def test_two_removals_and_two_users_at_a_time_never_break_entries_in_use(tmp_path: Path) -> None:
    use = f"""
import sys
from pathlib import Path
from harness.core.cache import Cache
cache = Cache(Path({str(tmp_path)!r}), say=print)
for number in range(60):
    key = str(number % 7)
    folder = cache.folder("builds", key, lambda into: (into / "file").write_text(key))
    # Whatever others remove, this process can use its entries until it ends.
    for seen in range(min(number + 1, 7)):
        assert (cache.root / "builds" / str(seen) / "file").read_text() == str(seen), (number, seen)
"""
    trim = f"""
import time
from pathlib import Path
from harness.core.cache import Cache
from harness.workflows import cache_upkeep
end = time.monotonic() + 6
while time.monotonic() < end:
    cache = Cache(Path({str(tmp_path)!r}))
    cache_upkeep.remove(cache, cache_upkeep.look(cache).entries)
"""
    removals = [subprocess.Popen([sys.executable, "-c", trim], cwd=ROOT) for _ in range(2)]
    try:
        with ThreadPoolExecutor(2) as pool:
            for _ in range(3):
                users = [
                    pool.submit(subprocess.run, [sys.executable, "-c", use], cwd=ROOT, check=True, timeout=60)
                    for _ in range(2)
                ]
                for user in users:
                    user.result()
        assert [removal.wait(60) for removal in removals] == [0, 0]
    finally:
        for removal in removals:
            removal.kill()
            removal.wait()


def test_a_command_enforces_the_limit_when_the_cache_has_grown(filled: Path) -> None:
    said: list[str] = []
    cache = Cache(filled)
    cache_upkeep.set_limit(cache, SIZE + 500)
    cache_upkeep.keep_limit(cache, said.append)
    assert left(filled) == ["builds/old-1"]
    assert said
    assert "2 least recently used entries were removed" in said[0]
    # Nothing has been added since.
    cache_upkeep.set_limit(cache, 0)
    cache_upkeep.keep_limit(cache, said.append)
    assert left(filled) == ["builds/old-1"]


def test_a_command_that_exceeds_the_limit_makes_room_for_the_next_ones(filled: Path) -> None:
    """Otherwise each command that adds an entry would read the whole cache again to find the needs of its entries."""
    cache = Cache(filled)
    held = cache_upkeep.measure(cache).bytes
    # The cache exceeds the limit by one byte, and the oldest entry is smaller than a twentieth of the limit.
    cache_upkeep.set_limit(cache, 30 * SIZE)
    (cache.root / "history").mkdir()
    (cache.root / "history" / "times").write_bytes(bytes(30 * SIZE + 1 - held))
    cache_upkeep.keep_limit(cache, lambda _: None)
    assert left(filled) == ["builds/old-1"]


def test_entries_that_a_running_command_kept_from_removal_are_checked_again(filled: Path) -> None:
    said: list[str] = []
    cache, done = Cache(filled), filled / "done"
    cache_upkeep.set_limit(cache, 0)
    code = f"""
from pathlib import Path
from harness.core.cache import Cache
for name in ("old-1", "old-2", "old-3"): assert Cache(Path({str(filled)!r})).entry("builds", name)
Path({str(done)!r}).touch()
__import__("time").sleep(60)
"""
    user = process.start([sys.executable, "-c", code], folder=ROOT)
    try:
        assert eventually(done.exists)
        cache_upkeep.keep_limit(cache, said.append)
    finally:
        process.kill_group(user)
    assert len(left(filled)) == 3
    assert "commands have used the rest within the last hour (plumb clean --limit)" in said[0]
    cache_upkeep.keep_limit(cache, said.append)
    assert len(left(filled)) == 3, "the next command of the same work would make them again"
    for name in left(filled):
        age(cache, name, days=1)
    cache_upkeep.keep_limit(cache, said.append)
    assert left(filled) == []
    assert "3 least recently used entries were removed" in said[2]


def test_translated_code_is_removed_before_entries_that_are_costly_to_make_and_none_of_the_last_hour() -> None:
    hour, now = 3600 * 10**9, time.time_ns()

    def entry(kind: str, hours: float) -> cache_upkeep.CacheEntry:
        return cache_upkeep.CacheEntry(kind=kind, key=str(hours), bytes=10, used_ns=now - int(hours * hour))

    used = [entry("archives", 90), entry("translations", 0.5), entry("translations", 2), entry("translations", 3)]
    holding = cache_upkeep.Holding(entries=used, others={})
    chosen = [(one.kind, one.key) for one in cache_upkeep.beyond_limit(holding, 1)]
    assert chosen == [("translations", "3"), ("translations", "2"), ("archives", "90")]


def test_the_default_limit_is_ten_gibibytes_and_none_means_no_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache_upkeep.limit(cache) == 10 * 2**30
    cache_upkeep.set_limit(cache, None)
    assert cache_upkeep.limit(Cache(tmp_path)) is None


def test_clean_removes_by_age_and_keeps_releases(filled: Path, monkeypatch: pytest.MonkeyPatch, plumb: Plumb) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", str(filled))
    for kind, old, new in (("builds", "old-3", "redis-7.0.15-armv5-O2-1"), ("builds", "old-2", "my-redis-armv5-O2-1")):
        for suffix in ("", ".seal"):
            (filled / kind / f"{old}{suffix}").rename(filled / kind / f"{new}{suffix}")
    code, out, _ = plumb("clean", "--older-than", "15d", "--keep-releases")
    assert code == 0
    assert "removed: 1 entries" in out
    assert "of at most 10.0 GiB" in out
    assert left(filled) == ["builds/old-1", "builds/redis-7.0.15-armv5-O2-1"]
    code, out, _ = plumb("clean", "--older-than", "15d")
    assert left(filled) == ["builds/old-1"]


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--server", "redis-7.0.15"], {"redis-7.0.15-armv7-O2-1", "redis-7.0.15-armv7-time64-O2-2"}),
        (["--target", "armv7"], {"redis-7.0.15-armv7-O2-1", "armv7-3"}),
        (["--server", "redis-7.0.15", "--target", "armv7"], {"redis-7.0.15-armv7-O2-1"}),
        (["--server", "redis-7.0.15", "--older-than", "30d"], {"redis-7.0.15-armv7-time64-O2-2"}),
    ],
    ids=["a server", "a target", "both", "a server, by age"],
)
def test_clean_removes_what_belongs_to_a_server_or_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plumb: Plumb, words: list[str], gone: set[str]
) -> None:
    """The name of one target may begin with that of another."""
    keys = {"redis-7.0.15-armv7-O2-1": 1, "redis-7.0.15-armv7-time64-O2-2": 40, "armv7-3": 1, "redis-7.0.1-native-4": 1}
    code = f"""
from pathlib import Path
from harness.core.cache import Cache
from tests.support.cache_entries import add
for key, days in {keys}.items(): add(Cache(Path({str(tmp_path)!r})), f"builds/{{key}}", days=days)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path))
    assert plumb("clean", *words)[0] == 0
    assert {name.removeprefix("builds/") for name in left(tmp_path)} == keys.keys() - gone


def test_clean_reduces_the_cache_to_its_limit(filled: Path, monkeypatch: pytest.MonkeyPatch, plumb: Plumb) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", str(filled))
    (filled / "history").mkdir()
    (filled / "history" / "times").write_text("1", "utf-8")
    assert plumb("clean", "--limit", "20GiB")[0] == 0
    assert plumb("clean", "--yes")[0] == 0
    assert sorted(path.name for path in filled.iterdir()) == ["limit.json", "locks"]
    assert cache_upkeep.limit(Cache(filled)) == 20 * 2**30


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--keep-releases"], "--keep-releases has no effect here"),
        (["--yes", "--server", "redis-7.0.15"], "--yes removes everything"),
        (["--older-than", "soon"], "'soon' is not an age such as 12h or 30d"),
        (["--limit", "10"], "'10' is not a size such as 500MiB or 20GiB, nor none"),
    ],
)
def test_clean_refuses_meaningless_options(plumb: Plumb, words: list[str], why: str) -> None:
    code, _, err = plumb("clean", *words)
    assert code == 4
    assert why in err
