"""The keys of a CI system's cache change only with the cached content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build import build_progress, toolchain
from harness.build.emulators import qemu_source
from harness.core.cache import Cache
from harness.core.errors import InfrastructureError
from harness.plan.catalog import Catalog
from harness.workflows.ci_cache import ci_cache_entries
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from harness.workflows.ci_cache import CiCacheEntry


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The installed compilers: name -> version. A test may change it."""
    versions = {"gcc": "13.1", "arm-linux-gnueabi-gcc": "13.1"}

    def version(compiler: str) -> str:
        if compiler not in versions:
            raise InfrastructureError(f"no compiler {compiler}")
        return versions[compiler]

    monkeypatch.setattr(toolchain, "version", version)
    return versions


def kept(tmp_path: Path, *targets: str, server: str = "redis-7.0.15") -> dict[str, CiCacheEntry]:
    return ci_cache_entries(Catalog(), Cache(tmp_path / "cache"), targets, server)


def test_every_path_is_in_the_store_and_every_key_is_valid_for_github(
    tmp_path: Path, compilers: dict[str, str]
) -> None:
    found = kept(tmp_path, "armv5", "armv5-kernel")
    assert list(found) == ["emulators", "kernels", "builds"]
    for cache in found.values():
        assert cache.paths
        assert all(path.startswith(str(tmp_path / "cache")) for path in cache.paths)
        assert len(cache.key) < 512
        assert "," not in cache.key
        assert cache.key.startswith(cache.restore_key)


def test_the_server_changes_only_the_key_of_builds_and_not_the_prefix_of_older_keys(
    tmp_path: Path, compilers: dict[str, str]
) -> None:
    tree = fakes.server_tree(tmp_path / "tree")
    before = kept(tmp_path, "armv5", server=str(tree))
    assert kept(tmp_path, "armv5", server=str(tree)) == before
    with (tree / "src" / "version.h").open("a", encoding="utf-8") as header:
        header.write("/* changed */\n")
    after = kept(tmp_path, "armv5", server=str(tree))
    assert before["emulators"] == after["emulators"]
    assert before["builds"].key != after["builds"].key
    assert before["builds"].restore_key == after["builds"].restore_key


def test_a_jobs_build_times_are_kept_for_the_next(tmp_path: Path, compilers: dict[str, str]) -> None:
    history = Cache(tmp_path / "cache").path(build_progress.KIND, "")
    assert str(history) in kept(tmp_path, "armv5")["builds"].paths


def test_a_compiler_changes_the_keys_of_its_products(tmp_path: Path, compilers: dict[str, str]) -> None:
    before = kept(tmp_path, "armv5", "armv5-kernel")
    compilers["arm-linux-gnueabi-gcc"] = "13.2"
    after = kept(tmp_path, "armv5", "armv5-kernel")
    assert [before[name].key == after[name].key for name in before] == [True, False, False]


def test_changes_to_the_emulator_change_its_key(
    tmp_path: Path, compilers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept(tmp_path, "armv5")["emulators"].key
    monkeypatch.setattr(qemu_source, "sha256_of", lambda _: "another")
    assert before != kept(tmp_path, "armv5")["emulators"].key


def test_a_target_without_its_compiler_has_no_entry(tmp_path: Path, compilers: dict[str, str]) -> None:
    assert list(kept(tmp_path, "native")) == ["builds"]
    compilers.clear()
    assert list(kept(tmp_path, "armv5", "armv5-kernel")) == ["emulators"]


def test_a_target_that_only_a_family_compiles_for_has_the_familys_c_library_and_hides_no_other(
    tmp_path: Path, compilers: dict[str, str]
) -> None:
    cache = Cache(tmp_path / "cache")
    alone = set(kept(tmp_path, "armv5")["builds"].paths)
    both = ci_cache_entries(Catalog(), cache, ["armv5", "loongarch64"], "redis-7.0.15")["builds"]
    assert set(both.paths) - alone == {str(cache.path("compiler-libraries", "clang-musl"))}
    assert alone <= set(both.paths)


def test_another_toolchain_has_its_own_keys_and_keeps_its_c_library(tmp_path: Path, compilers: dict[str, str]) -> None:
    cache = Cache(tmp_path / "cache")
    catalog = Catalog().planned_for("clang-musl")
    other = ci_cache_entries(catalog, cache, ["armv5"], "redis-7.0.15")["builds"]
    builds = kept(tmp_path, "armv5")["builds"]
    assert "clang-musl" in other.restore_key
    assert other.key.removeprefix(other.restore_key) != builds.key.removeprefix(builds.restore_key)
    assert str(cache.path("compiler-libraries", "clang-musl")) in other.paths
    assert not any("/builds/" in path for path in other.paths)
