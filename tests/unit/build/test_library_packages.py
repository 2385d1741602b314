"""Libraries of a target from Debian: requests that are refused before anything is fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build.sources.debian_source import SourcePackages, source_named
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.core.progress import Progress
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fakes import Plumb


@pytest.mark.parametrize(
    ("words", "told"),
    [
        # These are built from source.
        (["--target", "sparc64", "--with", "zlib1g-dev", "--offline"], "the cache has no index of bookworm"),
        (["--target", "riscv64", "--with", "zlib=1.2-3", "--offline"], "the source of bookworm/zlib=1.2-3 is not in"),
        (["--target", "armv7-time64", "--with", "zlib=1-2", "--offline"], "the source of bookworm/zlib=1-2 is not in"),
        (["--target", "sparc64", "--with", "../zlib"], "'../zlib' names no package (--with)"),
        (["--target", "armv5", "--with", "../zlib"], "'../zlib' names no package (--with)"),
        (["--target", "armv5", "--with", "zlib1g-dev", "--sysroot", "."], "two root folders"),
        (
            ["--target", "armv5", "--with", "zlib1g-dev", "--offline"],
            "the cache does not contain zlib1g-dev of bookworm",
        ),
    ],
)
@pytest.mark.parametrize("command", ["exec", "deb", "env"])
def test_a_library_that_cannot_be_had_is_refused_with_the_reason(
    plumb: Plumb, command: str, words: list[str], told: str
) -> None:
    if command == "env" and "--sysroot" in words:
        words = ["--target", "armv5", "--with", "no package"]
        told = "'no package' names no package"
    rest = {"exec": ["--", "true"], "deb": ["zlib=1.2-3"], "env": []}[command]
    code, _, errors = plumb(command, *words, *rest)
    assert code != ExitCode.PASS
    assert told in " ".join(errors.split())


def test_a_library_is_named_by_its_source_or_by_a_package_that_it_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apt shows the source of a binary package under the source's name."""
    shown = '*zlib*) echo "Package: zlib" ;; *both*) printf "Package: a\\nPackage: both\\n" ;;'
    apt = f'#!/bin/sh\ncase "$*" in {shown} esac\n'
    for name, script in (("apt-get", "#!/bin/sh\n"), ("apt-cache", apt), ("dpkg-source", "#!/bin/sh\n")):
        fakes.write(tmp_path / "bin" / name, script, mode=0o755)
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    fakes.write(tmp_path / "cache" / "apt" / "bookworm" / "lists" / "x_Sources", "")
    sources = SourcePackages(Cache(tmp_path / "cache"), Progress(), offline=True)

    def built(text: str) -> str:
        return sources.building(source_named(text)).title

    assert [built(one) for one in ("zlib1g-dev", "zlib", "both")] == ["bookworm/zlib", "bookworm/zlib", "bookworm/both"]
    assert built("zlib1g-dev=1-2") == "bookworm/zlib1g-dev=1-2"
    assert built("absent") == "bookworm/absent"
