"""The Debian packages that count as installed, according to dpkg."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.build.toolchain import installed_in
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

STATES = """\
ccache triggers-pending
make installed
man-db triggers-awaited
half half-installed
opened unpacked
configured half-configured
gone config-files
never not-installed
"""
OF_ARM64 = """\
g++ installed c++-compiler, g++-aarch64-linux-gnu (= 4:12.2.0-3)
gcc installed c-compiler, gcc-aarch64-linux-gnu (= 4:12.2.0-3)
ld config-files linker
make installed
"""


def test_a_package_with_pending_triggers_is_installed_and_an_incomplete_one_is_not() -> None:
    assert installed_in(STATES) == {"ccache", "make", "man-db"}


def test_a_package_provided_by_an_installed_one_counts_as_installed() -> None:
    provided = {"c++-compiler", "g++-aarch64-linux-gnu", "c-compiler", "gcc-aarch64-linux-gnu"}
    assert installed_in(OF_ARM64) == {"g++", "gcc", "make"} | provided


@pytest.mark.usefixtures("asks_dpkg")
def test_a_machine_of_aarch64_has_the_compiler_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the packages gcc and g++ provide the toolchain's names, which dpkg-query does not report."""
    states = tmp_path / "states"
    script = f'shift 3\n[ $# -gt 0 ] || exec cat {states}\nfor name; do grep "^$name " {states}; done\nexit 1\n'
    fakes.write(states, OF_ARM64)
    fakes.write(tmp_path / "dpkg-query", f"#!/bin/sh\n{script}", mode=0o755)
    fakes.put_on_path(tmp_path, monkeypatch)
    asked = ("gcc", "gcc-aarch64-linux-gnu", "g++-aarch64-linux-gnu", "linker", "libc6-dev-arm64-cross")
    assert toolchain.missing_packages(asked) == ["linker", "libc6-dev-arm64-cross"]


@pytest.mark.usefixtures("asks_dpkg")
def test_if_dpkg_cannot_read_its_database_no_package_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: if the real dpkg-query refused its database, doctor listed every package as missing."""
    fakes.write(tmp_path / "status", "Package\n")
    monkeypatch.setattr(process, "PLAIN_ENVIRONMENT", {**process.PLAIN_ENVIRONMENT, "DPKG_ADMINDIR": str(tmp_path)})
    with pytest.raises(InfrastructureError, match="dpkg-query does not say") as raised:
        toolchain.missing_packages(("gcc",))
    assert "status" in str(raised.value)


def test_a_name_that_dpkg_does_not_know_is_not_installed() -> None:
    assert installed_in("dpkg-query: no packages found matching nothing\n") == set()
