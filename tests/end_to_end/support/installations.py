"""Builds Plumbline's wheel, and installs it in an environment that contains only what the wheel requires."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distributions
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.core.strict_toml import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from packaging.utils import NormalizedName

BUILD_SECONDS = 120.0
RUN_SECONDS = 900.0


class Installation(NamedTuple):
    """An environment in which Plumbline is installed."""

    packages: Path
    """Its site-packages."""
    programs: Path
    """Its folder of programs."""
    here: Path
    """The user's folder, which is empty at first."""

    def run(self, program: str, *words: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the user's folder, without the tests' environment variables.

        `cache`: a cache other than that of the tests.
        """
        kept = ("HOME", "PLUMBLINE_CACHE", "XDG_CACHE_HOME", "TMPDIR")
        return subprocess.run(
            [str(self.programs / program), *words],
            cwd=self.here,
            env={
                "PATH": "/usr/bin:/bin",
                **{name: os.environ[name] for name in kept if name in os.environ},
                **({"PLUMBLINE_CACHE": str(cache)} if cache else {}),
            },
            capture_output=True,
            encoding="utf-8",
            timeout=RUN_SECONDS,
            check=False,
        )


def built_wheel(folder: Path, checkout: Path = ROOT) -> Path:
    """The wheel of a checkout, in a folder."""
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(words, cwd=checkout, check=True, capture_output=True, timeout=BUILD_SECONDS)
    (wheel,) = folder.glob("plumbline-*.whl")
    return wheel


def install(folder: Path, wheel: Path, *others: Path) -> Installation:
    """An environment with the wheel, its requirements, and other wheels.

    The requirements come from the tests' environment, which is locked, so an installation needs no network. A package
    that Plumbline uses but does not require is missing.
    """
    venv.create(folder / "venv", with_pip=False)
    packages = folder / "venv" / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python")]
    words = ["install", "--quiet", "--no-deps", "--no-index", *map(str, (wheel, *others))]
    subprocess.run([*pip, *words], check=True, timeout=BUILD_SECONDS)
    there = {canonicalize_name(one.name): one for one in distributions()}
    (own,) = distributions(name="plumbline", path=[str(packages)])
    for required in _required(own, there):
        for top in {file.parts[0] for file in required.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(str(required.locate_file(top)))
    (folder / "here").mkdir()
    return Installation(packages, folder / "venv" / "bin", folder / "here")


def _required(first: Distribution, there: Mapping[NormalizedName, Distribution]) -> list[Distribution]:
    found: dict[NormalizedName, Distribution] = {}
    waiting = [first]
    while waiting:
        for text in waiting.pop().requires or ():
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                found[name] = there[name]
                waiting.append(there[name])
    return list(found.values())
