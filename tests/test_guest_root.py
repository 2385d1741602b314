"""The folder in which an emulator looks for a target's libraries, where Debian's loaders look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.build.qemu_user import Emulators
from harness.build.sources.archives import Fetcher
from harness.core.cache import Cache
from harness.plan.catalog import Catalog
from tests import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.target_model import Toolchain


def emulators_and_tools(tmp_path: Path) -> tuple[Emulators, Toolchain]:
    cache = Cache(tmp_path / "cache")
    emulators = Emulators(cache, Fetcher(cache, fakes.quiet(), offline=True), fakes.quiet())
    tools = Catalog().toolchains["gcc-sparc64-linux-gnu"]
    return emulators, msgspec.structs.replace(tools, sysroot={one: str(tmp_path / one) for one in ("lib", "lib64")})


def test_each_library_is_in_the_folder_of_the_triple_as_well(tmp_path: Path) -> None:
    emulators, tools = emulators_and_tools(tmp_path)
    for place in ("lib/libc.so.6", "lib64/ld-linux.so.2"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).write_text(place, "utf-8")
    root = emulators.guest_root(tools)
    found = {place: (root / place).read_text("utf-8") for place in ("lib/libc.so.6", "lib64/ld-linux.so.2")}
    assert found == {place: place for place in found}
    assert (root / "lib" / tools.triple / "libc.so.6").read_text("utf-8") == "lib/libc.so.6"


def test_a_library_that_is_installed_later_is_found(tmp_path: Path) -> None:
    emulators, tools = emulators_and_tools(tmp_path)
    without = emulators.guest_root(tools)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libatomic.so.1").touch()
    assert not (without / "lib" / "libatomic.so.1").exists()
    assert (emulators.guest_root(tools) / "lib" / "libatomic.so.1").exists()
