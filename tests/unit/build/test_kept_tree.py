"""A build continues in the tree of the previous one. It compiles only what a change affects, with the same result."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.server_build import Builder
from harness.build.sources.source_tree import take
from harness.build.workshop import build_code, build_warnings, kept_objects, kept_tree
from harness.build.workshop.build_failure import BuildFailedError
from harness.build.workshop.build_plan import BuildPlan
from harness.core.cache import KEPT, Cache
from harness.core.processes import process
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.core.model import Build

pytestmark = pytest.mark.costly

MAKEFILE = """
release := $(shell test -f release.h || echo '#define RELEASE 1' >release.h)
redis-server: main.o one.o two.o ../deps/lib/liblib.a
\t$(CC) -o redis-server main.o one.o two.o ../deps/lib/liblib.a
%.o: %.c .make-prerequisites
\t$(CC) -Wall -I../deps/lib -MMD -o $@ -c $<
.make-prerequisites:
\t@touch $@
../deps/lib/liblib.a:
\t$(MAKE) -C ../deps/lib
"""
LIBRARY = """
liblib.a: lib.o
\tar rcs liblib.a lib.o
lib.o: lib.c lib.h
\t$(CC) -c lib.c
"""
FILES = {
    "src/Makefile": MAKEFILE,
    "src/main.c": '#include "release.h"\n#include "two.h"\n#include "lib.h"\nint one(void);\n'
    "int main(void) { return one() + two() + lib() + RELEASE; }\n",
    "src/one.c": "int one(void) { int unused; return 1; }\n",
    "src/two.c": '#include "two.h"\nint two(void) { return TWO; }\n',
    "src/two.h": "#define TWO 2\nint two(void);\nstatic inline int width(void) { int idle; return TWO; }\n",
    "deps/lib/Makefile": LIBRARY,
    "deps/lib/lib.c": '#include "lib.h"\nint lib(void) { return LIB; }\n',
    "deps/lib/lib.h": "#define LIB 3\nint lib(void);\n",
    "docs/text": "words\n",
}
LONG_AGO = 1_000_000_000
"""A time before that of every object, so that make would see no change."""


class _Place:
    """A user's tree, and a separate cache."""

    def __init__(self, folder: Path) -> None:
        self.tree = fakes.server_tree(folder / "redis")
        self.write(FILES)
        self.cache = Cache(folder / "cache")
        self._folder = folder
        self._count = 0

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            os.utime(fakes.write(self.tree / name, text), (LONG_AGO, LONG_AGO))

    def build(self, cache: Cache | None = None) -> Build:
        self._count += 1
        tree = take(self.tree, self._folder / f"copy-{self._count}")
        target = msgspec.structs.replace(fakes.target(), compiler_flags=[])
        return Builder(cache or self.cache, fakes.quiet()).build(
            BuildPlan(tree=tree, target=target, tools=fakes.toolchain(""), optimisation="O1")
        )

    def compiled(self) -> set[str]:
        """The objects that the last build made."""
        (log,) = (self.cache.root / "logs").glob("build-*.log")
        lines = log.read_text("utf-8").splitlines()
        calls = [line for line in lines if " -c " in line and "-MM " not in line and not line.startswith("$")]
        return {line.split(" -c ")[1].strip().replace(".c", ".o") for line in calls}

    def build_and_compare(self) -> set[str]:
        """Build, and assert that the result equals that of a build in an empty cache. Returns the compiled objects."""
        built = self.build()
        anew = self.build(Cache(self._folder / f"cache-{self._count}"))
        assert built.server_binary.read_bytes() == anew.server_binary.read_bytes()
        # Paths differ, but the content of objects must not.
        assert build_code.read(built.folder) == build_code.read(anew.folder)
        warnings = [sorted(build_warnings.read(each).warnings, key=repr) for each in (built, anew)]
        assert warnings[0] == warnings[1]
        return self.compiled()


def test_objects_of_other_programs_are_not_code_of_the_server(tmp_path: Path) -> None:
    place = _Place(tmp_path)
    place.build()
    (kept,) = (place.cache.root / KEPT).iterdir()
    (kept / "suites").mkdir()
    (kept / "suites" / "driver.o").write_bytes((kept / "tree/src/one.o").read_bytes())
    place.write({"src/one.c": "int one(void) { return 11; }\n"})
    assert place.build_and_compare() == {"one.o"}
    assert (kept / "suites" / "driver.o").is_file()


ALL = {"main.o", "one.o", "two.o", "lib.o"}


@pytest.fixture
def place(plain_path: Path) -> _Place:
    made = _Place(plain_path)
    assert made.build_and_compare() == ALL
    return made


def test_only_affected_files_are_compiled_and_the_result_is_the_same(place: _Place) -> None:
    place.write({"src/one.c": "int one(void) { int unused; return 11; }\n"})
    assert place.build_and_compare() == {"one.o"}
    # The files that include a changed header are found by content, because all files are older than their objects.
    place.write({"src/two.h": "#define TWO 22\nint two(void);\nstatic inline int width(void) { return TWO; }\n"})
    assert place.build_and_compare() == {"main.o", "two.o"}
    place.write({**FILES, "src/one.c": "int one(void) { return 111; }\n"})
    assert place.build_and_compare() == {"main.o", "one.o", "two.o"}


@pytest.mark.parametrize(
    "files",
    [
        {"src/Makefile": MAKEFILE.replace("-Wall", "-Wall -Wextra")},
        {"deps/lib/lib.h": "#define LIB 33\nint lib(void);\n"},
        {"src/lib.h": "#define LIB 33\nint lib(void);\n"},
        {"src/script.sh": "echo\n"},
        {"docs/text": "other words\n"},
    ],
    ids=lambda files: next(iter(files)),
)
def test_any_other_change_starts_a_new_tree(place: _Place, files: Mapping[str, str]) -> None:
    place.write(files)
    assert place.build_and_compare() == ALL


def test_a_removed_file_starts_a_new_tree(place: _Place) -> None:
    (place.tree / "docs" / "text").unlink()
    assert place.build_and_compare() == ALL


@pytest.mark.parametrize("name", ["deps/lib/liblib.a", "deps/lib/lib.o", "src/release.h"])
def test_a_tree_with_an_altered_product_is_not_used(place: _Place, name: str) -> None:
    (kept,) = (place.cache.root / KEPT).iterdir()
    (kept / "tree" / name).write_bytes(b"damaged")
    place.write({"src/one.c": "int one(void) { return 11; }\n"})
    assert place.build_and_compare() == ALL


def test_an_altered_object_and_an_altered_source_are_remade(place: _Place) -> None:
    (kept,) = (place.cache.root / KEPT).iterdir()
    (kept / "tree/src/two.o").write_bytes(b"damaged")
    (kept / "tree/src/two.c").write_text("int two(void) { return 222; }\n", "utf-8")
    (kept / "tree/src/left.c").write_text("it was compiled after the server\n", "utf-8")
    place.write({"src/one.c": "int one(void) { return 11; }\n"})
    assert place.build_and_compare() == {"one.o", "two.o"}
    assert not (kept / "tree/src/left.c").exists()


@pytest.mark.parametrize("what", ["package", "header", "compiler"])
def test_another_machine_starts_a_new_tree(
    place: _Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    from harness.build import toolchain

    if what == "package":
        monkeypatch.setattr(kept_tree, "PACKAGES", fakes.write(tmp_path / "status", "a package was installed"))
    elif what == "header":
        monkeypatch.setattr(kept_tree, "OWN_HEADERS", fakes.write(tmp_path / "include/lib.h", "").parent)
    else:
        monkeypatch.setattr(toolchain, "identity", lambda *_: "another compiler")
    place.write({"src/one.c": "int one(void) { return 11; }\n"})
    place.build()
    assert place.compiled() == ALL


def test_files_that_a_script_generates_are_not_kept(tmp_path: Path) -> None:
    place = _Place(tmp_path)
    generated = MAKEFILE.replace("main.o one.o", "made.o main.o one.o").replace(
        ".make-prerequisites:", "made.c: one.c\n\tsed s/one/made/ one.c >made.c\n.make-prerequisites:"
    )
    place.write({"src/Makefile": generated})
    place.build()
    place.write({"src/one.c": "int one(void) { return 11; }\n"})
    assert place.build_and_compare() == {*ALL, "made.o"}


def test_a_tree_with_a_file_whose_name_is_no_text_is_not_kept(tmp_path: Path) -> None:
    place = _Place(tmp_path)
    (place.tree / os.fsdecode(b"docs/\xff")).touch()
    place.build()
    place.write({"src/one.c": "int one(void) { return 11; }\n"})
    place.build()
    assert place.compiled() == ALL


def test_a_build_that_fails_keeps_nothing(place: _Place) -> None:
    place.write({"src/one.c": "int one(void) { return }\n"})
    with pytest.raises(BuildFailedError, match="does not compile"):
        place.build()
    assert list((place.cache.root / KEPT).iterdir()) == []
    assert list((place.cache.root / "work").iterdir()) == []
    place.write(FILES)
    place.write({"src/two.c": "int two(void) { return 2; }\n"})
    assert place.build_and_compare() == ALL


def test_a_release_keeps_no_tree(tmp_path: Path) -> None:
    place = _Place(tmp_path)
    tree = msgspec.structs.replace(take(place.tree, tmp_path / "copy"), copy=None)
    target = msgspec.structs.replace(fakes.target(), compiler_flags=[])
    Builder(place.cache, fakes.quiet()).build(
        BuildPlan(tree=tree, target=target, tools=fakes.toolchain(""), optimisation="O1")
    )
    assert not (place.cache.root / KEPT).exists()


class _OutsideObjects:
    """Objects that are compiled outside a tree. One of them reads a header of the tree."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.folder = work / "suites" / "drivers"
        self.sources = work.with_name("drivers")
        self.header = fakes.write(work / "tree" / "src" / "two.h", "#define TWO 2\n")
        fakes.write(self.sources / "one.c", "int one;\n")
        fakes.write(self.sources / "two.c", '#include "two.h"\nint two = TWO;\n')
        self.fill()
        self.compile()
        fakes.write(self.folder / "archive.a", "of these objects\n")

    def fill(self, recipe: str = "recipe") -> set[str]:
        kept_objects.fill(self.folder, self.sources, self.work, recipe)
        return {path.name for path in self.folder.iterdir()} - {"one.c", "two.c"}

    def compile(self) -> None:
        compiled_in = self.header.parent
        for name in ("one", "two"):
            source = f"../../suites/drivers/{name}.c"
            words = ["gcc", "-MMD", "-iquote", ".", "-c", source, "-o", f"../../suites/drivers/{name}.o"]
            process.run_successfully(words, problem="no object", deadline_seconds=60, folder=compiled_in)
        kept_objects.keep(self.folder, compiled_in, self.work, "recipe")


BOTH = {"one.o", "one.d", "two.o", "two.d"}


def test_objects_outside_a_tree_are_kept_while_their_sources_are_unchanged(tmp_path: Path) -> None:
    outside = _OutsideObjects(tmp_path / "work")
    assert outside.fill() == BOTH, "products other than the objects must not be kept"
    assert outside.fill() == set(), "objects that were not recorded again must not be kept"
    outside.compile()
    outside.header.write_text("#define TWO 22\n", "utf-8")
    os.utime(outside.header, (LONG_AGO, LONG_AGO))
    assert outside.fill() == {"one.o", "one.d"}
    outside.compile()
    fakes.write(outside.sources / "one.c", "int one = 1;\n")
    assert outside.fill() == {"two.o", "two.d"}
    outside.compile()
    assert outside.fill("another compiler") == set()
    outside.compile()
    (outside.folder / "one.o").write_bytes(b"damaged")
    (outside.folder / "two.d").unlink()
    assert outside.fill() == {"two.o"}
    outside.compile()
    (outside.folder / "two.d").unlink()
    kept_objects.keep(outside.folder, outside.header.parent, outside.work, "recipe")
    assert outside.fill() == {"one.o", "one.d"}, "the files that the object's compiler read are unknown"
