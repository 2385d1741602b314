"""Plumbline uses an installed wheel's emulators only if they were built from these sources."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.build import host_packages
from harness.build.emulators import qemu_source
from harness.build.emulators.compilation import CrossHost
from harness.build.emulators.emulator_cache import Emulators, emulator_folder
from harness.build.emulators.qemu_source import QEMU_FOLDER, pinned_qemu, qemu_changes, qemu_key
from harness.build.sources.archives import Fetcher
from harness.build.sources.emulator_wheel import IDENTITY, PACKAGE, PROGRAMS, EmulatorWheel
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import sha256_of
from harness.core.errors import InfrastructureError, UsageError
from harness.plan.catalog import Catalog
from tests.support import fakes
from tools.emulators import cross_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QEMU = pinned_qemu()
KEY = qemu_key(QEMU)
OTHER = "aarch64"
"""A kind of machine for which this one can compile emulators, unless it is of that kind."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of emulators for ARM and SPARC on Python's path. Each emulator is a program that starts."""
    folder = tmp_path / "site" / PACKAGE
    fakes.write(folder / "__init__.py", "")
    for name in ("arm", "sparc64"):
        fakes.write(folder / PROGRAMS / f"qemu-{name}", f"#!/bin/sh\necho {name}\n", mode=0o755)
    identify(folder)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield folder
    sys.modules.pop(PACKAGE, None)


def identify(folder: Path, **other: Any) -> None:
    """Write the wheel's identity. `other`: fields with wrong values."""
    programs = {path.name.removeprefix("qemu-"): sha256_of(path) for path in (folder / PROGRAMS).iterdir()}
    whole = EmulatorWheel(
        key=KEY,
        qemu=QEMU.version,
        archive=QEMU.sha256,
        configure=QEMU.configure,
        changes=qemu_changes(),
        machine=platform.machine(),
        programs=programs,
    )
    (folder / IDENTITY).write_bytes(json_codec.pretty(msgspec.structs.replace(whole, **other)))


def prepared(tmp_path: Path, *targets: str) -> tuple[dict[str, Path], str]:
    """Prepare the emulators of targets in an empty cache, without a network, so that nothing can be compiled. Returns
    the emulators and the messages.
    """
    cache, progress = Cache(tmp_path / "cache"), fakes.quiet()
    emulators = Emulators(cache, Fetcher(cache, fakes.quiet(), offline=True), progress)
    specs = [Catalog().targets[name].emulator for name in targets]
    found: dict[str, Path] = {}
    try:
        found = emulators.prepare(specs)
    except InfrastructureError as error:
        if not re.search(r"the source of qemu\S* is not in the cache", str(error)):
            raise
    return found, " ".join(fakes.printed(progress).split())


def test_emulators_of_the_same_sources_are_used_and_nothing_is_compiled(tmp_path: Path, package: Path) -> None:
    found, said = prepared(tmp_path, "armv5", "sparc64")
    assert {name: sha256_of(path) for name, path in found.items()} == {
        name: sha256_of(package / PROGRAMS / f"qemu-{name}") for name in ("arm", "sparc64")
    }
    assert all(path.is_relative_to(tmp_path / "cache") for path in found.values())
    assert "using the emulators for arm, sparc64 from the package plumbline-emulators" in said
    assert "compiled" not in said


@pytest.mark.parametrize("damage", ["cut", "read-only", "no program"])
def test_a_damaged_copy_of_an_emulator_is_taken_from_the_package_again(
    tmp_path: Path, package: Path, damage: str
) -> None:
    first, _ = prepared(tmp_path, "armv5")
    program = first["arm"]
    if damage == "cut":
        os.truncate(program, 9)
    elif damage == "read-only":
        program.chmod(0o444)
        program.parent.chmod(0o555)
    else:
        program.unlink()
    again, said = prepared(tmp_path, "armv5")
    assert again == first
    assert sha256_of(program) == sha256_of(package / PROGRAMS / "qemu-arm")
    assert "using the emulators for arm from the package plumbline-emulators" in said


def test_without_the_package_only_the_time_that_compiling_takes_is_said(tmp_path: Path) -> None:
    """Without a network even the sources of QEMU are missing, so it is said before anything else."""
    said = prepared(tmp_path, "armv5", "sparc64")[1]
    assert "no emulator for arm, sparc64 yet: QEMU is compiled once, which takes about four minutes" in said
    assert "plumbline-emulators" not in said


UNFIT = {
    "other sources": ({"key": "0123456789abcdef"}, f"their key is 0123456789abcdef, not {KEY}"),
    "other machine": ({"machine": "riscv128"}, f"they run on riscv128, and this is {platform.machine()}"),
    "damaged": ({"programs": {"arm": "0" * 64}}, "its digest is not the one in identity.json"),
    "none": ({"programs": {}}, "none is for arm"),
}


@pytest.mark.parametrize(("other", "reason"), UNFIT.values(), ids=UNFIT)
def test_other_emulators_are_compiled_with_a_stated_reason(
    tmp_path: Path, package: Path, other: dict[str, Any], reason: str
) -> None:
    identify(package, **other)
    found, said = prepared(tmp_path, "armv5")
    assert found == {}
    assert "compiling QEMU, although plumbline-emulators is installed:" in said
    assert reason in said
    assert not emulator_folder(Cache(tmp_path / "cache"), KEY, "arm").exists()


def test_an_emulator_that_does_not_start_here_is_compiled(tmp_path: Path, package: Path) -> None:
    program = package / PROGRAMS / "qemu-arm"
    program.write_text("#!/bin/sh\necho libglib-2.0.so.0: cannot open shared object file; exit 127\n", "utf-8")
    identify(package)
    found, said = prepared(tmp_path, "armv5")
    assert found == {}
    assert "does not start here (libglib-2.0.so.0: cannot open shared object file)" in said


def test_a_package_without_an_identity_is_not_used(tmp_path: Path, package: Path) -> None:
    (package / IDENTITY).write_text("{}", "utf-8")
    found, said = prepared(tmp_path, "armv5")
    assert found == {}
    assert "cannot be read" in said


@pytest.mark.parametrize("changed", ["overlay/linux-user/plumbline.c", "hooks.patch", "qemu.toml"])
def test_any_change_of_their_sources_changes_the_emulators_key(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    folder = tmp_path / "qemu"
    shutil.copytree(QEMU_FOLDER, folder)
    text = (folder / changed).read_text("utf-8")
    edited = text.replace('"--disable-docs"', '"--enable-docs"') if changed == "qemu.toml" else f"{text}\n"
    assert edited != text
    (folder / changed).write_text(edited, "utf-8")
    assert package.is_dir()
    monkeypatch.setattr(qemu_source, "QEMU_FOLDER", folder)
    found, said = prepared(tmp_path, "armv5")
    assert found == {}
    assert f"their key is {KEY}, not" in said


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="without dpkg no package counts as missing")
def test_only_compiled_emulators_need_qemus_build_dependencies(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.build.toolchain.missing_packages", list)

    def needed(target: str) -> bool:
        return "ninja-build" in host_packages.diagnose(Catalog(), [target], emulator="pinned").packages

    assert [needed("armv5"), needed("aarch64")] == [False, True]
    identify(package, key="0123456789abcdef")
    assert needed("armv5")


@pytest.mark.skipif(platform.machine() == OTHER, reason="it is the host's kind")
def test_emulators_for_another_kind_of_machine_are_not_used_on_this_one(tmp_path: Path, package: Path) -> None:
    """Neither those in the cache nor those of an installed wheel replace emulators for this machine."""
    assert package.is_dir()
    specs = [Catalog().targets["armv5"].emulator]
    other = cross_host(Catalog(), OTHER)
    assert other is not None
    cache = Cache(tmp_path / "cache")

    def put(into: Path) -> None:
        fakes.write(into / "qemu-arm", "", mode=0o755)

    cache.folder("emulators", f"{KEY}-arm", put)
    emulators = Emulators(cache, Fetcher(cache, fakes.quiet(), offline=True), fakes.quiet(), host=other)
    assert emulators.cached(specs) == set()
    with pytest.raises(InfrastructureError, match=r"the source of qemu\S* is not in the cache"):
        emulators.prepare(specs)


@pytest.mark.skipif(platform.machine() == OTHER, reason="it is the host's kind")
def test_another_kind_of_machine_is_recognised_by_its_cross_compiler() -> None:
    assert cross_host(Catalog(), "") is None
    assert cross_host(Catalog(), platform.machine()) is None
    other = cross_host(Catalog(), OTHER)
    assert other == CrossHost(machine=OTHER, triple="aarch64-linux-gnu", debian_architecture="arm64")
    with pytest.raises(UsageError, match="no emulators are compiled here for vax"):
        cross_host(Catalog(), "vax")
