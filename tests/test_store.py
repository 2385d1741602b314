"""The cache: published whole or not at all, once, under keys that tell contents apart."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.errors import InfrastructureError
from harness.store import Store, key_of, sha256_of

if TYPE_CHECKING:
    from pathlib import Path


def entries(store: Store, kind: str) -> list[str]:
    folder = store.root / kind
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_folder_is_filled_once_and_found_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    calls: list[Path] = []

    def fill(into: Path) -> None:
        calls.append(into)
        (into / "file").write_text("whole", "utf-8")

    first = store.folder("builds", "key", fill)
    second = store.folder("builds", "key", fill)
    assert (tmp_path / "builds" / "key", first) == (first, second)
    assert (first / "file").read_text("utf-8") == "whole"
    assert len(calls) == 1


def test_nothing_is_visible_under_the_key_before_it_is_whole(tmp_path: Path) -> None:
    store = Store(tmp_path)
    seen: list[bool] = []

    def fill(into: Path) -> None:
        (into / "half").write_text("", "utf-8")
        seen.append(store.path("builds", "key").exists())

    store.folder("builds", "key", fill)
    assert seen == [False]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_a_fill_that_raises_publishes_nothing_and_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    store = Store(tmp_path)

    def fill(into: Path) -> None:
        (into / "half").write_text("half", "utf-8")
        raise error

    with pytest.raises(type(error)):
        store.folder("builds", "key", fill)
    assert entries(store, "builds") == []


def test_after_a_fill_that_raised_the_next_one_succeeds(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fail(into: Path) -> None:
        raise ValueError(str(into))

    def fill(into: Path) -> None:
        (into / "file").write_text("", "utf-8")

    with pytest.raises(ValueError, match="key"):
        store.folder("builds", "key", fail)
    assert [path.name for path in store.folder("builds", "key", fill).iterdir()] == ["file"]


def test_concurrent_requests_for_one_key_fill_it_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    calls: list[Path] = []
    together = threading.Barrier(8)

    def fill(into: Path) -> None:
        calls.append(into)
        threading.Event().wait(0.2)
        (into / "file").write_text("", "utf-8")

    def ask(_: int) -> Path:
        together.wait(10)
        return store.folder("builds", "key", fill)

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(ask, range(8)))
    assert (1, {tmp_path / "builds" / "key"}) == (len(calls), found)


def test_a_work_folder_starts_empty_and_is_gone_afterwards_whatever_happens(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (store.path("work", "w") / "left").mkdir(parents=True)
    with store.work("w") as work:
        assert not list(work.iterdir())
        (work / "file").touch()
    assert not work.exists()
    with pytest.raises(KeyError), store.work("w"):
        raise KeyError
    assert not work.exists()


def test_a_log_is_not_there_yet(tmp_path: Path) -> None:
    Store(tmp_path).log("build").write_text("of the last time")
    assert not Store(tmp_path).log("build").exists()


def test_two_stores_on_one_folder_exclude_each_other(tmp_path: Path) -> None:
    inside = threading.Event()
    order: list[str] = []

    def first() -> None:
        with Store(tmp_path).lock("name"):
            inside.set()
            threading.Event().wait(0.2)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    with Store(tmp_path).lock("name"):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_an_infrastructure_error_that_says_what_to_do(tmp_path: Path, number: int) -> None:
    store = Store(tmp_path)

    def fill(into: Path) -> None:
        raise OSError(number, "No space left on device", str(into / "big"))

    with pytest.raises(InfrastructureError) as caught:
        store.folder("builds", "key", fill)
    message = str(caught.value)
    assert message.startswith("error: cannot write: No space left on device (")
    assert "try: " in message
    assert "PLUMBLINE_CACHE" in message
    assert entries(store, "builds") == []


def test_a_cache_folder_that_cannot_be_made_is_an_infrastructure_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", "utf-8")
    with pytest.raises((InfrastructureError, OSError)) as caught:
        Store(file / "cache").folder("builds", "key", lambda _: None)
    assert isinstance(caught.value, InfrastructureError), f"{caught.value!r} would be reported as a bug of the harness"


def test_the_users_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "elsewhere"))
    assert Store.default().root == tmp_path / "elsewhere"


def test_sha256_is_the_published_one_of_abc(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    # FIPS 180-4's example.
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
