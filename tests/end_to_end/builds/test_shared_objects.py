"""ccache reuses one tree's objects for another, whatever the trees' names, and their debug information is right."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis.symbols import Symbols
from harness.build import toolchain
from harness.build.server_build import Builder
from harness.build.sources.source_tree import open_tree
from harness.build.workshop.build_plan import BuildPlan
from harness.core.cache import Cache
from harness.core.finding import Frame
from harness.plan.catalog import Catalog
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

MAKEFILE = """
redis-server: main.o same.o
\t$(CC) -o redis-server main.o same.o
%.o: %.c
\t$(CC) -I$(CURDIR)/../deps/lib -c $< -o $@
"""
SAME = '#include <lib.h>\n#include "own.h"\nint same(void)\n{\n    return LIB + OWN;\n}\n'


def server(path: Path, main: str) -> Path:
    """A server of two files and two headers. One header's folder is given as an absolute path."""
    fakes.server_tree(path)
    fakes.write(path / "deps" / "lib" / "lib.h", "#define LIB 1\n")
    fakes.write(path / "src" / "own.h", "#define OWN 2\n")
    fakes.write(path / "src" / "same.c", SAME)
    fakes.write(path / "src" / "main.c", f"int same(void);\nint main(void) {{ return same() + {main}; }}\n")
    fakes.write(path / "src" / "Makefile", MAKEFILE)
    return path


def hits(cache: Cache) -> tuple[int, int]:
    """The hits and misses of ccache since the last call."""
    environment = {"PATH": "/usr/bin:/bin", "CCACHE_DIR": str(cache.root / "ccache")}
    printed = subprocess.run(
        ["ccache", "--print-stats", "--zero-stats"], env=environment, check=True, capture_output=True, encoding="utf-8"
    ).stdout
    found = {name: int(number) for name, _, number in (line.partition("\t") for line in printed.splitlines()) if number}
    return found["direct_cache_hit"] + found["preprocessed_cache_hit"], found["cache_miss"]


@pytest.mark.parametrize("name", ["native", "armv5"])
def test_a_checkout_reuses_the_objects_of_its_release(tmp_path: Path, name: str) -> None:
    catalog, cache = Catalog(), Cache(tmp_path / "cache")
    target = catalog.targets[name]
    tools = catalog.toolchain_of(target)
    builder = Builder(cache, fakes.quiet())

    builder.build(
        BuildPlan(tree=open_tree(server(tmp_path / "redis-7.0.15", "1")), target=target, tools=tools, optimisation="O2")
    )
    assert hits(cache) == (0, 2)
    of_checkout = builder.build(
        BuildPlan(tree=open_tree(server(tmp_path / "my-redis", "100")), target=target, tools=tools, optimisation="O2")
    )
    assert hits(cache) == (1, 1), "only main.c has changed"

    # The object of another tree is located in this tree.
    at = Frame(function="??", file="same.c", line=5, origin="unknown", pc=0)
    placed = Symbols(tools.triple, str(of_checkout.server_binary)).placed(at)
    assert (placed.function, placed.file, placed.origin) == ("same", "src/same.c", "server")
    assert str(tmp_path).encode() not in of_checkout.server_binary.read_bytes(), "the path of the work folder is left"


def test_an_object_of_another_assembler_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Catalog().targets["native"]
    tools = msgspec.structs.replace(Catalog().toolchain_of(target), triple="mine")
    assembler = fakes.write(tmp_path / "bin" / "as", '#!/bin/sh\nexec /usr/bin/as "$@"\n', mode=0o755)
    for name in ("gcc", "g++"):
        answers = f"case $1 in -print-prog-name=as) echo {assembler}; exit;; esac"
        text = f'#!/bin/sh\n{answers}\nexec {name} -B{assembler.parent}/ "$@"\n'
        fakes.write(tmp_path / "bin" / f"mine-{name}", text, mode=0o755)
    for name in ("ar", "ranlib"):
        fakes.write(tmp_path / "bin" / f"mine-{name}", f'#!/bin/sh\nexec {name} "$@"\n', mode=0o755)
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    cache = Cache(tmp_path / "cache")
    tree = open_tree(server(tmp_path / "redis-7.0.15", "1"))

    def build() -> tuple[int, int]:
        toolchain.digest_of_linked.cache_clear()
        Builder(cache, fakes.quiet()).build(BuildPlan(tree=tree, target=target, tools=tools, optimisation="O2"))
        return hits(cache)

    assert build() == (0, 2)
    assert build() == (0, 0), "a cached build was made again"
    assembler.write_text(assembler.read_text("utf-8") + "# another version\n", "utf-8")
    assert build() == (0, 2), "ccache returned objects of the old assembler"
    shutil.rmtree(cache.root / "builds")
    assert build() == (2, 0)
