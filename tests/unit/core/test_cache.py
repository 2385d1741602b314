"""Cache entries are published once, complete or not at all, under keys that distinguish contents."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.core import cache as cache_module
from harness.core.cache import NO_HOME, Cache, default_root
from harness.core.digests import files_below, key_of, refuse_edited, sha256_of
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def entries(cache: Cache, kind: str) -> list[str]:
    folder = cache.root / kind
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_folder_is_filled_once_and_found_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    calls: list[Path] = []

    def fill(into: Path) -> None:
        calls.append(into)
        (into / "file").write_text("whole", "utf-8")

    first = cache.folder("builds", "key", fill)
    second = cache.folder("builds", "key", fill)
    assert (tmp_path / "builds" / "key", first) == (first, second)
    assert (first / "file").read_text("utf-8") == "whole"
    assert len(calls) == 1


def test_nothing_is_visible_under_the_key_before_it_is_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    present: list[bool] = []

    def fill(into: Path) -> None:
        (into / "half").write_text("", "utf-8")
        present.append(cache.path("builds", "key").exists())

    cache.folder("builds", "key", fill)
    assert present == [False]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_a_fill_that_raises_publishes_nothing_and_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    cache = Cache(tmp_path)

    def fill(into: Path) -> None:
        (into / "half").write_text("half", "utf-8")
        raise error

    with pytest.raises(type(error)):
        cache.folder("builds", "key", fill)
    assert entries(cache, "builds") == []


def test_after_a_fill_that_raised_the_next_one_succeeds(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def fail(into: Path) -> None:
        raise ValueError(str(into))

    def fill(into: Path) -> None:
        (into / "file").write_text("", "utf-8")

    with pytest.raises(ValueError, match="key"):
        cache.folder("builds", "key", fail)
    assert [path.name for path in cache.folder("builds", "key", fill).iterdir()] == ["file"]


def test_concurrent_requests_for_one_key_fill_it_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    calls: list[Path] = []
    together = threading.Barrier(8)

    def fill(into: Path) -> None:
        calls.append(into)
        threading.Event().wait(0.2)
        (into / "file").write_text("", "utf-8")

    def ask(_: int) -> Path:
        together.wait(10)
        return cache.folder("builds", "key", fill)

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(ask, range(8)))
    assert (1, {tmp_path / "builds" / "key"}) == (len(calls), found)


def test_a_work_folder_starts_empty_and_is_gone_afterwards_whatever_happens(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (cache.path("work", "w") / "left").mkdir(parents=True)
    with cache.work("w") as work:
        assert not list(work.iterdir())
        (work / "file").touch()
    assert not work.exists()
    with pytest.raises(KeyError), cache.work("w"):
        raise KeyError
    assert not work.exists()


def test_a_new_log_is_empty(tmp_path: Path) -> None:
    Cache(tmp_path).log("build").write_text("of the last time", "utf-8")
    assert not Cache(tmp_path).log("build").exists()


def test_two_stores_on_one_folder_exclude_each_other(tmp_path: Path) -> None:
    inside = threading.Event()
    order: list[str] = []

    def first() -> None:
        with Cache(tmp_path).lock("name"):
            inside.set()
            threading.Event().wait(0.2)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    with Cache(tmp_path).lock("name"):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_an_infrastructure_error_that_says_what_to_do(tmp_path: Path, number: int) -> None:
    cache = Cache(tmp_path)

    def fill(into: Path) -> None:
        raise OSError(number, "No space left on device", str(into / "big"))

    with pytest.raises(InfrastructureError) as caught:
        cache.folder("builds", "key", fill)
    message = str(caught.value)
    assert message.startswith("error: cannot write: No space left on device (")
    assert "try: " in message
    assert "PLUMBLINE_CACHE" in message
    assert entries(cache, "builds") == []


def test_a_cache_folder_that_cannot_be_made_is_an_infrastructure_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", "utf-8")
    with pytest.raises((InfrastructureError, OSError)) as caught:
        Cache(file / "cache").folder("builds", "key", lambda _: None)
    assert isinstance(caught.value, InfrastructureError), f"{caught.value!r} would be reported as a bug of the harness"


def test_the_environment_determines_the_place_of_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "elsewhere"))
    assert Cache.default().root == tmp_path / "elsewhere"


def test_sha256_is_the_published_one_of_abc(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    # The example of FIPS 180-4.
    assert sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@given(st.lists(st.text()), st.lists(st.text()))
@example(["ab", "c"], ["a", "bc"])
@example([""], [])
@example(["1:a"], ["", "a"])
@example(["a1:b"], ["a", "b"])
@example(["é"], ["e", "\u0301"])
def test_keys_are_equal_only_for_equal_lists(one: list[str], other: list[str]) -> None:
    assert (one == other) == (key_of(one) == key_of(other))


@given(st.lists(st.text(), min_size=1), st.data())
def test_keys_change_when_parts_are_joined(parts: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(parts) - 1))
    joined = [*parts[:cut], "".join(parts[cut:])]
    assert (joined == parts) == (key_of(joined) == key_of(parts))


def test_keys_are_stable_across_releases_of_the_harness() -> None:
    assert key_of(["redis", "armv5"]) == key_of(iter(["redis", "armv5"]))
    assert len(key_of([])) == 16


SERVER = b"\x7fELF" + bytes(range(256)) * 40


def fill(into: Path) -> None:
    """An entry with a program, a file and a link."""
    (into / "server").write_bytes(SERVER)
    (into / "server").chmod(0o755)
    (into / "etc").mkdir()
    (into / "etc" / "build.json").write_text("{}", "utf-8")
    (into / "name").symlink_to("server")


def cut_in_half(entry: Path) -> None:
    (entry / "server").write_bytes(SERVER[: len(SERVER) // 2])


def flip_a_bit(file: Path) -> None:
    """Flip a bit without changing size and times, so that only the content shows the damage."""
    status = file.stat()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def link_elsewhere(entry: Path) -> None:
    (entry / "name").unlink()
    (entry / "name").symlink_to("etc")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "half a server": (cut_in_half, f"server has {len(SERVER) // 2} bytes instead of {len(SERVER)}"),
    "an empty server": (lambda entry: (entry / "server").write_bytes(b""), "server has 0 bytes instead of"),
    "no server": (lambda entry: (entry / "server").unlink(), "server is missing"),
    "one flipped bit": (lambda entry: flip_a_bit(entry / "server"), "server has changed"),
    "one flipped bit of the seal": (
        lambda entry: flip_a_bit(entry.with_name("key.seal")),
        "its seal is missing or damaged",
    ),
    "half a seal": (lambda entry: os.truncate(entry.with_name("key.seal"), 99), "its seal is missing or damaged"),
    "a server that may not be executed": (lambda entry: (entry / "server").chmod(0o644), "server has changed"),
    "a file in a folder": (
        lambda entry: (entry / "etc" / "build.json").write_text("[]", "utf-8"),
        "etc/build.json has changed",
    ),
    "another link": (link_elsewhere, "name has "),
    "a file more": (lambda entry: (entry / "etc" / "more").touch(), "etc/more has been added"),
}


@pytest.mark.parametrize("same_process", [True, False])
@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_entry_is_never_used_and_is_remade_with_a_remark(
    tmp_path: Path, damage: str, *, same_process: bool
) -> None:
    messages: list[str] = []
    first = Cache(tmp_path, messages.append)
    entry = first.folder("builds", "key", fill)
    harm, why = DAMAGE[damage]
    harm(entry)
    cache = first if same_process else Cache(tmp_path, messages.append)
    if same_process:
        assert [f"builds/key: {why}"] == [
            sentence[: len(f"builds/key: {why}")] for sentence in cache.damage(read_again=True)
        ]
    assert cache.folder("builds", "key", fill) == entry
    assert (entry / "server").read_bytes() == SERVER
    assert len(messages) == 1
    assert f"builds/key is damaged ({why}" in messages[0]
    assert cache.damage(read_again=True) == []
    assert sorted(path.name for path in entry.iterdir()) == ["etc", "name", "server"]


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_entry_is_removed_when_it_is_looked_up(tmp_path: Path, damage: str) -> None:
    cache = Cache(tmp_path, lambda _: None)
    entry = cache.folder("emulators", "key", fill)
    assert Cache(tmp_path).entry("emulators", "key") == entry
    DAMAGE[damage][0](entry)
    assert Cache(tmp_path, lambda _: None).entry("emulators", "key") is None
    assert entries(cache, "emulators") == []


def test_an_entry_without_a_seal_is_not_used_and_stays_until_it_is_remade(tmp_path: Path) -> None:
    messages: list[str] = []
    cache = Cache(tmp_path, messages.append)
    entry = cache.path("builds", "key")
    entry.mkdir(parents=True)
    (entry / "server").write_bytes(b"of an older release")
    assert cache.entry("builds", "key") is None
    contents: list[bytes] = []

    def make(into: Path) -> None:
        contents.append((entry / "server").read_bytes())
        fill(into)

    assert cache.folder("builds", "key", make) == entry
    assert contents == [b"of an older release"]
    assert (entry / "server").read_bytes() == SERVER
    assert "builds/key has no seal" in messages[0]
    assert entries(cache, "builds") == ["key", "key.seal"]


def test_an_entry_sealed_by_hand_is_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    entry = cache.path("builds", "key")
    entry.mkdir(parents=True)
    fill(entry)
    cache.seal_folder("builds", "key")
    assert Cache(tmp_path).entry("builds", "key") == entry


def test_an_entry_with_changed_times_is_intact(tmp_path: Path) -> None:
    # A CI system's cache restores files with other times.
    cache = Cache(tmp_path)
    entry = cache.folder("builds", "key", fill)
    for path in (entry / "server", entry / "etc" / "build.json"):
        os.utime(path, (1, 1))
    assert cache.damage() == []
    assert Cache(tmp_path).entry("builds", "key") == entry


def test_an_entry_is_synchronised_to_disk_before_it_can_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    final = tmp_path / "builds" / "key"

    def sync(path: Path | str) -> None:
        synced.append((os.path.relpath(path, tmp_path / "builds"), final.exists()))

    monkeypatch.setattr("harness.core.cache_entries.cache_seal.sync", sync)
    Cache(tmp_path).folder("builds", "key", fill)
    before = {path for path, published in synced if not published}
    assert {".key.new/server", ".key.new/etc/build.json", ".key.new", ".key.new/etc"} <= before
    assert [path for path, published in synced if published] == ["."]


@contextlib.contextmanager
def as_usual_user() -> Iterator[Path]:
    """A folder of a user who is not root, as whom this process runs meanwhile: nothing is read-only for root."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            if os.getuid() == 0:
                os.seteuid(0)


NOBODY = 65534


def test_a_damaged_entry_with_read_only_folders_is_remade_again_and_again() -> None:
    """Regression: the rest of the first one stood in the second one's way, which was a bug in Plumbline."""
    with as_usual_user() as folder:
        cache = Cache(folder, lambda _: None)
        for _ in range(2):
            entry = cache.folder("emulators", "key", fill)
            cut_in_half(entry)
            for path in (entry / "etc", entry):
                path.chmod(0o555)
        assert cache.folder("emulators", "key", fill) == entry
        assert (entry / "server").read_bytes() == SERVER
        assert entries(cache, "emulators") == ["key", "key.seal"]


def test_a_damaged_entry_that_cannot_be_removed_is_reported_with_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Cache(tmp_path).folder("builds", "key", fill)
    cut_in_half(entry)

    def refused(self: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "rename", refused)
    with pytest.raises(InfrastructureError) as caught:
        Cache(tmp_path, lambda _: None).folder("builds", "key", fill)
    assert "builds/key is damaged and cannot be removed" in str(caught.value)
    assert f"try: rm -r {shlex.quote(str(entry))}" in str(caught.value)


def test_damage_to_an_entry_in_use_is_reported(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    entry = cache.folder("builds", "key", fill)
    source = cache.folder("sources", "key", fill)
    assert cache.damage() == []
    flip_a_bit(source / "server")
    assert cache.damage() == [], "damage to a source does not matter after its compilation"
    shutil.rmtree(entry)
    assert cache.damage() == ["builds/key: it is missing"]


KILLED = """
import sys, time
from pathlib import Path
from harness.core import cache as cache_module
from harness.core.cache import Cache
cache = Cache(Path(sys.argv[1]))
def fill(into):
    (into / "half").write_text("half")
    with cache.work("place") as work:
        (work / "object").write_text("half")
        (cache.private("tree")).write_text("a copy")
        print("there", flush=True)
        time.sleep(60)
cache.folder("builds", "key", fill)
"""


def test_leftovers_of_a_killed_run_are_swept_and_those_of_a_living_one_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left() -> list[str]:
        places = [*(tmp_path / "builds").iterdir(), *(tmp_path / "work").iterdir()]
        return sorted("own" if path.name.startswith("own-") else path.name for path in places)

    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path))
    run = process.start([sys.executable, "-c", KILLED, tmp_path], output=subprocess.PIPE, folder=ROOT)
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == b"there\n"
        Cache.default()
        assert left() == [".key.new", "own", "place"]
    finally:
        process.kill_group(run)
    Cache.default()
    assert left() == []
    assert not list((tmp_path / "locks").glob("work-own-*"))


def test_waiting_for_a_lock_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "SILENT_SECONDS", 0.1)
    messages: list[str] = []
    said, taken = threading.Event(), threading.Event()

    def say(text: str) -> None:
        messages.append(text)
        said.set()

    def wait() -> None:
        with Cache(tmp_path, say).lock("builds-x"):
            taken.set()

    with Cache(tmp_path).lock("builds-x"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert said.wait(10)
        assert not taken.is_set()
    waiting.join(10)
    assert taken.is_set()
    assert set(messages) == {"waiting for another build, which holds builds-x"}


def test_every_other_command_that_uses_the_cache_is_known(tmp_path: Path) -> None:
    """Each of these has a lock of its own, as in a process of its own."""
    commands = [Cache(tmp_path) for _ in range(4)]
    for cache in commands:
        cache.folder("builds", "key", lambda _: None)
    for cache in commands:
        with cache.use.removal():
            assert len(cache.use.others()) == 3
            assert len(cache.use.users()) == 4


def test_leftovers_of_a_release_with_other_locks_are_swept_when_they_are_old(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    old, new = cache.path("builds", ".key-asdp_3pv"), cache.path("work", "qemu-1")
    for path in (old, new):
        path.mkdir(parents=True)
    os.utime(old, (1, 1))
    cache.sweep()
    assert (old.exists(), new.exists()) == (False, True)


def test_a_private_folder_belongs_to_its_process_and_is_removed_with_it(tmp_path: Path) -> None:
    words = "import sys; from pathlib import Path; from harness.core.cache import Cache; s = Cache(Path(sys.argv[1]))"
    script = f"{words}; a, b = s.private('tree'), s.private('tree'); a.mkdir(); b.mkdir(); print(a != b, a.is_dir())"
    result = process.run([sys.executable, "-c", script, tmp_path], deadline_seconds=60, folder=ROOT)
    assert result.text == "True True\n"
    assert not list((tmp_path / "work").iterdir())
    assert not list((tmp_path / "locks").iterdir())


def test_files_that_were_edited_during_their_use_are_refused() -> None:
    refuse_edited("key", "key", "suites")
    with pytest.raises(InfrastructureError, match="edited while they were in use"):
        refuse_edited("another", "key", "suites")


def test_a_file_that_is_removed_while_a_folder_is_read_is_not_in_it(tmp_path: Path) -> None:
    for name in ("first", "removed", "last"):
        (tmp_path / name).touch()
    found = files_below(tmp_path)
    assert next(found)[0] == "first"
    (tmp_path / "removed").unlink()
    assert [name for name, _, _ in found] == ["last"]


def test_a_user_without_a_home_has_no_cache_in_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a user whom its passwd(5) does not know."""
    for name in ("HOME", "XDG_CACHE_HOME", "PLUMBLINE_CACHE"):
        monkeypatch.delenv(name, raising=False)

    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert default_root() == NO_HOME / "plumbline"
    monkeypatch.setenv("PLUMBLINE_CACHE", "/a/cache")
    assert default_root() == Path("/a/cache")
