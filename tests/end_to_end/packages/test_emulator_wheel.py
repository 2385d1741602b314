"""With the wheel of emulators, an installation passes its self-test without a network or a compiler for QEMU."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from harness.build.emulators.emulator_cache import Emulators
from harness.build.sources.archives import Fetcher
from harness.build.sources.emulator_wheel import IDENTITY, PACKAGE, PROGRAMS
from harness.core.cache import Cache
from harness.core.digests import sha256_of
from harness.core.errors import ExitCode
from harness.core.progress import Progress
from harness.plan.catalog import Catalog
from tests.end_to_end.support.installations import Installation, built_wheel, install
from tools.emulators import c_library, write_wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

TARGETS = {"armv5": "arm", "sparc64": "sparc64"}
"""Target -> QEMU's name of its processor."""
SELF_TEST = ("self-test", "--json", "--offline", *(word for name in TARGETS for word in ("--target", name)))


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    cache = Cache.default()
    emulators = Emulators(cache, Fetcher(cache, Progress()), Progress())
    return emulators.prepare([Catalog().targets[name].emulator for name in TARGETS])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, programs: dict[str, Path]) -> Installation:
    folder = tmp_path_factory.mktemp("installed")
    return install(folder, built_wheel(folder), write_wheel(programs, folder))


@pytest.mark.slow(instead="tests/unit/build/test_emulator_wheel.py; test_self_test.py")
def test_the_wheels_emulators_pass_the_self_test_and_the_report_has_their_digests(
    tmp_path: Path, installed: Installation, programs: dict[str, Path]
) -> None:
    ended = installed.run("plumb", *SELF_TEST, cache=tmp_path / "cache")
    assert ended.returncode == ExitCode.PASS, ended.stderr
    whole = json.loads(ended.stdout)
    assert whole["verdict"] == "PASS"
    assert whole["emulators"] == {name: [sha256_of(programs[qemu])] for name, qemu in TARGETS.items()}
    assert "from the package plumbline-emulators" in " ".join(ended.stderr.split())
    assert "building QEMU" not in ended.stderr
    packed = {path.name: sha256_of(path) for path in (installed.packages / PACKAGE / PROGRAMS).iterdir()}
    assert packed == {f"qemu-{qemu}": sha256_of(programs[qemu]) for qemu in TARGETS.values()}


@pytest.mark.slow(instead="tests/unit/build/test_emulator_wheel.py")
def test_a_wheel_of_other_sources_is_not_used(tmp_path: Path, installed: Installation) -> None:
    path = installed.packages / PACKAGE / IDENTITY
    identity = path.read_text("utf-8")
    path.write_text(identity.replace(json.loads(identity)["key"], "0123456789abcdef"), "utf-8")
    try:
        ended = installed.run("plumb", *SELF_TEST, cache=tmp_path / "cache")
    finally:
        path.write_text(identity, "utf-8")
    assert ended.returncode == ExitCode.INFRASTRUCTURE, ended.stderr
    assert "compiling QEMU, although plumbline-emulators is installed" in " ".join(ended.stderr.split())
    assert re.search(r"the source of qemu\S* is not in the cache", ended.stderr)


@pytest.mark.slow(instead="tests/unit/build/test_emulator_wheel.py")
def test_the_wheels_tag_names_the_c_library_that_the_programs_require(
    installed: Installation, programs: dict[str, Path]
) -> None:
    (record,) = installed.packages.glob(f"{PACKAGE}-*.dist-info/WHEEL")
    major, minor = c_library(programs.values())
    assert f"Tag: py3-none-manylinux_{major}_{minor}_" in record.read_text("utf-8")
    # Every later C library has these symbols. The programs were linked with the host's C library.
    assert c_library([]) < (major, minor)
