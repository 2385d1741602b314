"""A guest's root file system has everything that its programs load, from the toolchain's sysroot."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from harness.build.dynamic_links import links_of
from harness.build.initramfs import with_libraries
from harness.core.errors import InfrastructureError
from tests.support import fakes


def host_program() -> Path:
    """A dynamically linked program of this host."""
    found = shutil.which("true")
    assert found is not None
    return Path(found)


def test_a_program_is_accompanied_by_its_loader_and_its_libraries() -> None:
    loader = Path(links_of(host_program()).interpreter)
    folder = loader.resolve().parent
    tools = msgspec.structs.replace(
        fakes.toolchain(), sysroot={"lib/own": str(folder), str(loader.parent).lstrip("/"): str(loader.parent)}
    )
    places = with_libraries({"/srv/true": host_program()}, tools)
    assert places["/srv/true"] == host_program().resolve()
    assert places[str(loader)] == loader.resolve()
    libraries = links_of(host_program()).libraries
    assert libraries
    for name in libraries:
        assert (folder / name).resolve() in places.values(), name


def test_a_sysroot_without_a_programs_loader_is_an_error_that_names_it() -> None:
    with pytest.raises(InfrastructureError, match=r"has no .*(ld-linux|libc)") as raised:
        with_libraries({"/srv/true": host_program()}, fakes.toolchain())
    assert "true needs it" in str(raised.value)
