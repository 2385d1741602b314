"""Compiles GoogleTest for a target from the distribution's sources: Valkey writes its self-tests in it since 9.1.

No target's sysroot contains it; Debian's package `googletest` contains its sources. It belongs to no toolchain, because
checks of other servers do not need it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.build.sources.tree_files import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.build.workshop.build_directory import BuildDirectory
    from harness.core.processes import process
    from harness.core.target_model import Toolchain

FOLDER = Path("/usr/src/googletest")
PACKAGE = "googletest"
STANDARD = "-std=c++17"
"""The standard that Valkey's makefile compiles its tests with; every GoogleTest since 1.8 supports it."""

TEST_FLAGS = ("-w", "-g1", "-Og")
"""Flags for the server's C++ beyond the target's own. Valkey's makefile also uses -Og. It turns warnings into
errors, and other compilers may warn more."""


def absence(tools: Toolchain) -> str:
    """Why a toolchain cannot compile GoogleTest tests, and what to install; empty when it can."""
    if not (FOLDER / "CMakeLists.txt").is_file():
        return f"GoogleTest is not in {FOLDER}: {toolchain.install_command([PACKAGE])}"
    for compiler in (toolchain.tool(tools, "g++"), *toolchain.own_compiler(tools, "g++")):
        if shutil.which(compiler) is None:
            packages = [package for package in tools.packages if package.startswith("g++")]
            return f"there is no compiler {compiler}: {toolchain.install_command(packages)}"
    return ""


def identity() -> str:
    """The identity of the installed sources; requires that they are installed."""
    return digest_of(FOLDER)


def compile_with(shop: BuildDirectory) -> tuple[process.Result, Mapping[str, str]]:
    """Compile it in a workshop: the compiler's result, and the settings that point the server's makefile to it."""
    include = [f"-I{FOLDER / name / 'include'}" for name in ("googletest", "googlemock")]
    inside = [f"-I{FOLDER / name}" for name in ("googletest", "googlemock")]
    # GoogleTest's own warnings and line numbers do not matter; without lines, ccache recognises it in another folder.
    compiler = shop.wrapper("g++", ["-w", "-g0"], suffix="-googletest")
    sources = [FOLDER / "googletest" / "src" / "gtest-all.cc", FOLDER / "googlemock" / "src" / "gmock-all.cc"]
    objects = [source.with_suffix(".o").name for source in sources]
    for source, made in zip(sources, objects, strict=True):
        words: list[str | Path] = [compiler, STANDARD, *include, *inside, "-c", source, "-o", made]
        result = shop.run(words, folder=shop.work)
        if result.code != 0:
            break
    libraries = " ".join(str(shop.work / made) for made in objects)
    return result, {"GTEST_CFLAGS": " ".join(include), "GTEST_LIBS": libraries}


# Tests in a source


def names_in(text: str) -> list[str]:
    """The tests in a source whose result depends on the target, as `SUITE.TEST`.

    It excludes benchmarks, which judge nothing (one needs another's leftovers), and death tests, which accept any
    death.
    """
    found = re.findall(r"^\s*TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", text, re.MULTILINE)
    names = [f"{suite}.{test}" for suite, test in found if not suite.endswith("DeathTest")]
    return [name for name in names if not re.search(r"benchmark|performance", name, re.IGNORECASE)]


ARGUMENTS = ("--seed", "1", "--gtest_also_run_disabled_tests", "--gtest_filter={unit}:*/{unit}/*")
"""Arguments that run one test: with the same random numbers on every run, even if its authors disabled it, and with
each of its parameters."""

# Output of a run


def spoke(lines: list[str]) -> bool:
    """Whether a GoogleTest program printed these lines."""
    return any(line.startswith("[==========] ") for line in lines)


def failures(lines: list[str]) -> list[str]:
    """The failed expectations, one per line: the place and the expected value."""
    found: list[str] = []
    inside = False
    for line in lines:
        if re.search(r"^(\S+:\d+|unknown file): Failure$", line):
            found.append(line)
            inside = True
        elif inside and line.strip() and not line.startswith("["):
            found[-1] += f" {line.strip()}"
        else:
            inside = False
    return found


def why_not_run(lines: list[str]) -> str:
    """Why a program did not run its test; empty when it did."""
    if any(line.startswith("[==========] Running 0 tests ") for line in lines):
        return "the release does not compile it for this target"
    at = next((at for at, line in enumerate(lines) if line.startswith("[  SKIPPED ] ")), None)
    if at is None:
        return ""
    before = [line.strip() for line in lines[:at] if line.strip()]
    return f"it skips itself: {before[-1]}" if before and not before[-1].startswith("[") else "it skips itself"
