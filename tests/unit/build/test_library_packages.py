"""Libraries of a target from Debian: requests that are refused before anything is fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode

if TYPE_CHECKING:
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
