"""The folder in which an emulator finds a target's libraries has them in the places that Debian's loaders search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.build.emulators.guest_root import guest_root
from harness.core.cache import Cache
from harness.plan.catalog import Catalog

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.target_model import Toolchain


def cache_and_tools(tmp_path: Path) -> tuple[Cache, Toolchain]:
    tools = Catalog().toolchains["gcc-sparc64-linux-gnu"]
    sysroot = {one: str(tmp_path / one) for one in ("lib", "lib64")}
    return Cache(tmp_path / "cache"), msgspec.structs.replace(tools, sysroot=sysroot)


def test_each_library_is_in_the_folder_of_the_triple_as_well(tmp_path: Path) -> None:
    cache, tools = cache_and_tools(tmp_path)
    for place in ("lib/libc.so.6", "lib64/ld-linux.so.2"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).write_text(place, "utf-8")
    root = guest_root(cache, tools)
    found = {place: (root / place).read_text("utf-8") for place in ("lib/libc.so.6", "lib64/ld-linux.so.2")}
    assert found == {place: place for place in found}
    assert (root / "lib" / tools.triple / "libc.so.6").read_text("utf-8") == "lib/libc.so.6"


def test_a_library_that_is_installed_later_is_found(tmp_path: Path) -> None:
    cache, tools = cache_and_tools(tmp_path)
    without = guest_root(cache, tools)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libatomic.so.1").touch()
    assert not (without / "lib" / "libatomic.so.1").exists()
    assert (guest_root(cache, tools) / "lib" / "libatomic.so.1").exists()
