"""Helper programs are compiled once for each content, and are not kept if they do not compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.build.helper_program import compiled
from harness.core.cache import Cache
from harness.core.errors import InfrastructureError
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

COMPILER = """#!/bin/sh
case $1 in --version | -print-*) echo 'fake-gcc 1.0'; exit 0 ;; esac
echo "$@" >>CALLS
grep -h 'no C' *.c && exit 1
for last; do :; done
echo "$@" >"$last"
"""
"""Refuses a source that contains `no C`; otherwise the program consists of the compiler's arguments."""


class HelperBench:
    """One small program, and its sources."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.cache = Cache(folder / "cache")
        self.source = fakes.write(folder / "program.c", "int main(void);\n")
        self.header = fakes.write(folder / "include" / "program.h", "/* nothing */\n")
        self.generated: dict[str, str] = {}
        self.flags = ["-O1"]
        fakes.write(folder / "bin" / "fake-gcc", COMPILER.replace("CALLS", str(self.calls)), mode=0o755)

    def make(self) -> Path:
        return compiled(
            self.cache,
            fakes.toolchain(),
            title="the program for armv5",
            kind="programs",
            owner="armv5",
            file="program",
            flags=self.flags,
            sources=[self.source],
            headers=[self.header],
            generated=self.generated,
        )

    def compilations(self) -> int:
        return len(self.calls.read_text("utf-8").splitlines())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HelperBench:
    toolchain.version.cache_clear()
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    return HelperBench(tmp_path)


def test_the_same_content_is_compiled_once(bench: HelperBench) -> None:
    first = bench.make()
    assert first.is_file()
    assert first.parent.name.startswith("armv5-")
    assert bench.make() == first
    assert bench.compilations() == 1


@pytest.mark.parametrize("changed", ["source", "header", "generated", "flags", "compiler"])
def test_another_content_is_another_program(changed: str, bench: HelperBench, tmp_path: Path) -> None:
    first = bench.make()
    if changed == "source":
        fakes.write(bench.source, "int main(int count, char **words);\n")
    elif changed == "header":
        fakes.write(bench.header, "/* something */\n")
    elif changed == "generated":
        bench.generated = {"more.c": "int more;\n"}
    elif changed == "flags":
        bench.flags = ["-O2"]
    else:
        path = tmp_path / "bin" / "fake-gcc"
        fakes.write(path, path.read_text("utf-8").replace("1.0", "2.0"), mode=0o755)
        toolchain.version.cache_clear()
    assert bench.make() != first
    assert bench.compilations() == 2


def test_the_compiler_gets_all_files_and_reads_a_generated_header_first(bench: HelperBench) -> None:
    bench.generated = {"first.h": "/* first */\n", "more.c": "int more;\n"}
    words = bench.make().read_text("utf-8").split()
    include = f"-I{bench.header.parent}"
    assert words == [str(bench.source), "more.c", "-include", "first.h", "-O1", include, "-o", "program"]


def test_a_program_that_does_not_compile_is_an_error_and_is_not_kept(bench: HelperBench) -> None:
    bench.generated = {"more.c": "no C\n"}
    with pytest.raises(InfrastructureError, match="the program for armv5 does not compile") as caught:
        bench.make()
    assert caught.value.where == str(bench.source)
    assert "no C" in caught.value.because
    assert list((bench.cache.root / "programs").iterdir()) == []


def test_a_source_that_was_edited_during_its_compilation_is_not_kept(bench: HelperBench, tmp_path: Path) -> None:
    path = tmp_path / "bin" / "fake-gcc"
    editing = path.read_text("utf-8").replace("for last;", f"echo edited >>{bench.source}; for last;")
    fakes.write(path, editing, mode=0o755)
    with pytest.raises(InfrastructureError, match="edited while they were in use"):
        bench.make()
    assert list((bench.cache.root / "programs").iterdir()) == []
