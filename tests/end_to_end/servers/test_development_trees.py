"""A tree between two releases is treated as the release before it. The tests use disguised releases.

A disguised release calls itself 999.999.999 or 255.255.255, and its release notes are empty, as in `unstable`. So the
tests know which release it must be taken for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.build.sources.source_tree import open_tree
from harness.build.sources.tree_files import copy_tree
from harness.plan.catalog import Catalog
from tests.end_to_end.support import machines
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.model import Build

pytestmark = pytest.mark.end_to_end
SERVERS = Catalog().servers
OF_EVERY_RUN = ("redis-3.2.6", "redis-7.0.15")
"""Releases that other tests also fetch."""


def chosen(names: Sequence[str], of_every_run: Sequence[str]) -> list[object]:
    """Releases as parameters: those of every run, and the others, which are marked as slow."""
    return [name if name in of_every_run else pytest.param(name, marks=pytest.mark.slow) for name in names]


def disguised(name: str, folder: Path) -> Path:
    """A release's tree whose version claims that it is not a release."""
    copy_tree(machines.release(name), folder / name)
    return disguise(folder / name, name)


def disguise(tree: Path, name: str) -> Path:
    """Change a tree's version to one that no release has."""
    server = SERVERS[name]
    old = server.family == "redis" and tuple(map(int, server.version.split("."))) < (6,)
    header = tree / "src" / "version.h"
    macro = f"{server.family.upper()}_VERSION"
    text = header.read_text("utf-8")
    changed = re.sub(rf'({macro}\s+)"[^"]+"', rf'\1"{"999.999.999" if old else "255.255.255"}"', text)
    assert changed != text
    header.write_text(changed, "utf-8")
    (tree / "00-RELEASENOTES").write_text("There are none of this branch.\n", "utf-8")
    return tree


@pytest.mark.parametrize("name", chosen(sorted(SERVERS), OF_EVERY_RUN))
def test_a_disguised_release_is_recognised(tmp_path: Path, name: str) -> None:
    release = SERVERS[name].version.split(".")
    tree = open_tree(disguised(name, tmp_path))
    assert [str(part) for part in tree.version[:2]] == release[:2], tree.development
    # Plumbline never takes a tree for a later release, so it requires no feature that the tree lacks.
    assert tree.version <= tuple(map(int, release))
    assert tree.abilities == open_tree(machines.release(name), digest="not needed").abilities


@pytest.mark.parametrize(
    "name",
    chosen(
        ["redis-2.8.17", "redis-3.2.6", "redis-5.0.6", "redis-6.2.14", "redis-7.0.15", "valkey-8.1.1"], ["redis-3.2.6"]
    ),
)
def test_a_disguised_release_starts_and_is_tested(tmp_path: Path, name: str) -> None:
    # A server starts with the same options everywhere. On ARMv5, a bug keeps Valkey from starting (docs/FOUND.md).
    words = ["--target", "native", "--suite", "bitops", "--test", "getbit", "--seed", "1"]
    finished = run("check", "--server", disguised(name, tmp_path), *words, "--json", "--run", tmp_path / "run")
    assert f"{name} is a development tree (" in finished.stderr
    assert_tested(document(finished))


def assert_tested(answer: dict[str, object]) -> None:
    """Assert that the server was compiled, started and tested, whatever was found."""
    assert isinstance(answer["findings"], list)
    assert isinstance(answer["cells"], list)
    kept = [one for one in answer["findings"] if one["id"] == "exit-start" or one["kind"] == "build"]
    assert not kept, [one["title"] for one in kept]
    cells = {(cell["target"], cell["suite"]): cell for cell in answer["cells"]}
    assert cells["native", "bitops"]["passed"] > 0, cells


def as_before_2_8_8(folder: Path) -> Path:
    """A tree whose makefile does not override Lua's `AR= ar rcu`, and whose sources request only _BSD_SOURCE."""
    tree = folder / "redis-2.8.17"
    copy_tree(machines.release(tree.name), tree)
    makefile, macros = tree / "deps" / "Makefile", tree / "src" / "fmacros.h"
    text = makefile.read_text("utf-8")
    assert ' AR="$(AR) $(ARFLAGS)"' in text
    makefile.write_text(text.replace(' AR="$(AR) $(ARFLAGS)"', ""), "utf-8")
    assert "#define _GNU_SOURCE" in macros.read_text("utf-8")
    macros.write_text(macros.read_text("utf-8").replace("#define _GNU_SOURCE", ""), "utf-8")
    return tree


@pytest.mark.slow(instead="tests/unit/build/test_build.py: the cross tools are where makefiles look for plain names")
def test_a_tree_as_before_2_8_8_compiles(tmp_path: Path) -> None:
    made: Build = machines.build(open_tree(as_before_2_8_8(tmp_path)), "armv5")
    assert made.server_binary.is_file()


def as_in_early_2014(folder: Path) -> Path:
    """A tree between 2.8 and 3.0, with a file that includes a header of the C library before the tree's own macros."""
    tree = folder / "redis-2.8.17"
    copy_tree(machines.release(tree.name), tree)
    version, file = tree / "src" / "version.h", tree / "src" / "hyperloglog.c"
    version.write_text('#define REDIS_VERSION "2.9.11"\n', "utf-8")
    file.write_text(f"#include <math.h>\n{file.read_text('utf-8')}", "utf-8")
    return tree


@pytest.mark.slow(instead="tests/unit/build/test_build.py: such a tree gets the macro")
def test_a_tree_as_in_early_2014_compiles(tmp_path: Path) -> None:
    made: Build = machines.build(open_tree(as_in_early_2014(tmp_path)), "armv5")
    assert made.server_binary.is_file()
