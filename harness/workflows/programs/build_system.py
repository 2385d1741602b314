"""How a source tree is configured, built and tested: the build system that it has, and the script that plumb deb runs.

The script runs under plumb exec, in the environment that plumb env prints. It is deliberately simple: for trees that
require more options than these, a person types them after plumb exec.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import PurePath
from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import Record
from harness.workflows.programs import debian_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

STAGE, TESTING = "stage", "testing"
"""Files beside the tree: one names the current stage of the script, and the other's time is the start of the tests."""
DONE = "done"
STAGES = {
    "configure": "the package could not be configured for the target, and its tests did not run; "
    "--with PACKAGE fetches a library of the target, and --configure OPTION may do without one",
    "build": "the package does not build for the target, and its tests did not run",
    "test": "the package's tests failed",
    "untested": "the package's makefile has neither a goal `check` nor a goal `test`",
    DONE: "",
}
"""Stage -> the meaning if the script ended there."""
_OTHER_FOLDERS = {"debian", "doc", "docs", "examples", "test", "tests"}
"""Folders that may have a build system which is not that of the tree."""
SHOWN_TOOLS = "apt-get install --yes --no-install-recommends"


class BuildSystem(Record, frozen=True):
    """A build system, and how it is used."""

    name: str
    markers: tuple[str, ...]
    """Files in a tree's top folder: any of them shows that the tree has it."""
    tools: dict[str, str]
    """Program that must be here -> the package that has it."""
    configure: str
    build: str
    test: str
    prefix: tuple[str, ...]
    """Options that configure the tree for an installation below /usr; `{libraries}` is the folder of libraries below
    it.
    """
    install: str
    """Installs the tree below the folder that the variable DESTDIR names."""


_RULES = """\
make -f debian/rules {goal} CC="$CC" CXX="$CXX" AR="$AR" RANLIB="$RANLIB" \\
    DEB_HOST_MULTIARCH="$HOST_TRIPLET" DEB_HOST_GNU_TYPE="$HOST_TRIPLET"@MAKE@"""
"""What does a stage by a goal of debian/rules."""
OPTIONS = "@OPTIONS@"
"""Where the user's options go in a command that configures a tree."""
MAKE = "@MAKE@"
"""Where the user's words for make go in commands that build and test a tree."""
_MAKE = {"make": "make"}
# A file or folder with the goal's name is not a goal: make has nothing to do for it. Every makefile of Automake has the
# goal `check`, which tests nothing unless Automake knows tests.
_MAKE_TEST = """\
goals='check test'
if grep -q '^check-am:' Makefile 2>/dev/null &&
    ! find . -name Makefile -exec grep -qE '^check-(TESTS|local):' '{{}}' ';' -print | grep -q .; then
    goals='test check'
fi
for goal in $goals; do
    if planned=$(LC_ALL=C make -n $goal {variables}@MAKE@ 2>/dev/null) &&
        ! printf '%s\\n' "$planned" | grep -q "make: Nothing to be done for '$goal'"; then
        make $goal {variables}@MAKE@; echo done > ../stage; exit 0
    fi
done
echo untested > ../stage
exit 1"""
# No option of its own: what the package's authors chose is what their tests expect. Tests of acl preload a library that
# --disable-shared does not build.
_CONFIGURE = "./configure@OPTIONS@"
# Debian's patches to configure.ac leave what Autoconf and Automake generated from it older than it, and make would call
# the release of Automake that the package was made with.
_IN_ORDER = """\
for name in aclocal.m4 configure '*.h.in' Makefile.in; do find . -name "$name" -exec touch '{}' +; done"""
PATIENCE = 20
"""How many times longer than natively a test may take: Meson ends one after 30 s, unless the package says otherwise."""
_GIVEN = 'CC="$CC" CXX="$CXX" '
_PREFIX = ("--prefix=/usr", "--libdir=/usr/{libraries}")
SYSTEMS = (
    BuildSystem(
        name="configure",
        markers=("configure",),
        tools=_MAKE,
        configure=f"{_IN_ORDER}\n{_CONFIGURE}",
        build='make -j"$(nproc)"@MAKE@',
        test=_MAKE_TEST.format(variables=""),
        prefix=_PREFIX,
        install='make install DESTDIR="$DESTDIR"',
    ),
    BuildSystem(
        name="autoreconf",
        markers=("configure.ac", "configure.in"),
        tools={**_MAKE, "autoreconf": "autoconf", "automake": "automake", "libtoolize": "libtool"},
        configure=f"autoreconf --force --install\n{_CONFIGURE}",
        build='make -j"$(nproc)"@MAKE@',
        test=_MAKE_TEST.format(variables=""),
        prefix=_PREFIX,
        install='make install DESTDIR="$DESTDIR"',
    ),
    BuildSystem(
        name="meson",
        markers=("meson.build",),
        tools={"meson": "meson", "ninja": "ninja-build"},
        configure='meson setup --cross-file "$MESON_CROSS_FILE"@OPTIONS@ plumb-build',
        build="meson compile -C plumb-build",
        test=f"meson test -C plumb-build --print-errorlogs --timeout-multiplier {PATIENCE}",
        prefix=_PREFIX,
        install="meson install -C plumb-build",
    ),
    BuildSystem(
        name="cmake",
        markers=("CMakeLists.txt",),
        tools={**_MAKE, "cmake": "cmake"},
        configure="cmake -S . -B plumb-build -DBUILD_TESTING=ON@OPTIONS@",
        build='cmake --build plumb-build -j "$(nproc)"',
        test="ctest --test-dir plumb-build --output-on-failure",
        prefix=("-DCMAKE_INSTALL_PREFIX=/usr", "-DCMAKE_INSTALL_LIBDIR={libraries}"),
        install="cmake --install plumb-build",
    ),
    BuildSystem(
        name="make",
        markers=("GNUmakefile", "makefile", "Makefile"),
        tools=_MAKE,
        configure=":",
        build=f'make -j"$(nproc)" {_GIVEN}@MAKE@',
        test=_MAKE_TEST.format(variables=_GIVEN),
        prefix=(),
        # The names that makefiles without a script give these folders.
        install=f'make install {_GIVEN}DESTDIR="$DESTDIR" prefix=/usr PREFIX=/usr '
        "libdir=/usr/{libraries} LIBDIR=/usr/{libraries}",
    ),
)
"""The build systems, in the order of the search: a tree with several is built by the first."""
NAMES = tuple(one.name for one in SYSTEMS)


class Detected(Record, frozen=True):
    """A tree's build system."""

    system: BuildSystem
    folder: str
    """The folder that has it, relative to the tree; empty for the tree's top folder."""


def detect(tree: Path, named: str = "") -> Detected:
    """The build system of a tree, or the one that is named.

    If the top folder has none, that of the only folder below it which has one, or of the only one which debian/rules
    names.

    Raises UsageError for a tree that has none, or not the named one, and InfrastructureError if its tools are missing.
    """
    found = [(folder, one) for folder in _folders(tree) if (one := _system_in(tree / folder, named)) is not None]
    outermost = {folder for folder, _ in found}
    found = [(folder, one) for folder, one in found if not {"", *_above(folder)} & outermost or not folder]
    if len(found) > 1:
        rules = debian_rules.words_of_rules(tree)
        found = [(folder, one) for folder, one in found if folder in rules] or found
    if len(found) != 1:
        wanted = [one for one in SYSTEMS if named in {"", one.name}]
        markers = ", ".join(marker for one in wanted for marker in one.markers)
        below = f"; several folders below it have one: {', '.join(folder for folder, _ in found)}" if found else ""
        raise UsageError(
            f"the tree has no build system {named}".rstrip() if named else "the tree has no known build system",
            where=str(tree),
            because=f"its top folder has none of: {markers}{below}",
            remedy=f"build it yourself: cd {shlex.quote(str(tree))} && plumb exec --target TARGET -- COMMAND",
        )
    ((folder, chosen),) = found
    if chosen.name == "configure" and not named and not folder and debian_rules.has_patched_configure_ac(tree):
        # The script that the package's authors generated does not have what the patch adds.
        chosen = next(one for one in SYSTEMS if one.name == "autoreconf")
    lacking = [package for program, package in chosen.tools.items() if shutil.which(program) is None]
    if lacking:
        raise InfrastructureError(
            f"the tree is built by {chosen.name}, which is not installed",
            where=str(tree),
            because=f"missing: {', '.join(lacking)}",
            remedy=f"{SHOWN_TOOLS} {' '.join(lacking)}",
        )
    return Detected(system=chosen, folder=folder)


def _folders(tree: Path) -> list[str]:
    """The top folder of a tree, as the empty text, and those that a build system may be in otherwise."""
    shown = [path for path in sorted(tree.glob("*/")) if path.is_dir() and path.name not in _OTHER_FOLDERS]
    below = [path for folder in shown for path in sorted(folder.glob("*/")) if path.is_dir()]
    return ["", *(str(path.relative_to(tree)) for path in [*shown, *below] if path.name[0] != ".")]


def _above(folder: str) -> list[str]:
    """The folders of a tree that contain this one, without the top folder."""
    return [str(path) for path in PurePath(folder).parents if path.name]


def _system_in(folder: Path, named: str) -> BuildSystem | None:
    fitting = (one for one in SYSTEMS if any((folder / marker).is_file() for marker in one.markers))
    return next((one for one in fitting if named in {"", one.name}), None)


def script_of(
    system: BuildSystem,
    options: Sequence[str] = (),
    folder: str = "",
    variables: Mapping[str, str] | None = None,
    make: Sequence[str] = (),
    steps: Mapping[str, str] | None = None,
) -> str:
    """The shell script that builds a tree, its working folder, and runs its tests. It writes its stage beside the tree.

    `folder`: the folder of the tree to build in. `options`: of the configure step. `make`: further words for make.
    Raises UsageError if the build system has no such step, or does not call make. `variables`: what the build and the
    tests have in their environment, unless the caller has it. `steps`: of debian/rules, for a makefile in the top
    folder.
    """
    of_rules = steps if steps and not folder and system.name == "make" else {}
    if options and OPTIONS not in system.configure:
        raise UsageError(
            f"a tree that {system.name} builds is not configured",
            where=f"--configure {options[0]}",
            remedy="edit the script that builds it, or name another system: --build-system",
        )
    if make and MAKE not in system.build:
        raise UsageError(
            f"a tree that {system.name} builds is not built by make",
            where=f"--make {make[0]}",
            remedy="edit the script that builds it, or name another system: --build-system",
        )
    beside = "/".join([".."] * (1 + len([part for part in folder.split("/") if part])))
    given, words = ("".join(f" {shlex.quote(one)}" for one in each) for each in (options, make))
    lines = ["#!/bin/sh", f"# Written by plumb deb for {system.name}: run it in the tree, below plumb exec.", "set -e"]
    # A person's own setting is stronger than the package's.
    lines += [f": ${{{name}={shlex.quote(value)}}}; export {name}" for name, value in (variables or {}).items()]
    lines += [f"cd {shlex.quote(folder)}"] if folder else []
    for stage in ("configure", "build", "test"):
        lines += [
            f"echo {stage} > ../{STAGE}",
            *([f": > ../{TESTING}"] if stage == "test" else []),
            (_RULES.format(goal=of_rules[stage]) if stage in of_rules else getattr(system, stage))
            .replace(OPTIONS, given)
            .replace(MAKE, words),
        ]
    lines.append(f"echo {DONE} > ../{STAGE}")
    return "".join(f"{line}\n" for line in lines).replace("> ../", f"> {beside}/")


def installing_script(system: BuildSystem, libraries: str, variables: Mapping[str, str] | None = None) -> str:
    """The shell script that builds a tree, its working folder, and installs it below the folder that DESTDIR names.

    `libraries`: the folder of libraries below /usr. `variables`: as of `script_of`.
    """
    options = "".join(f" {shlex.quote(one.format(libraries=libraries))}" for one in system.prefix)
    lines = ["#!/bin/sh", "set -e"]
    lines += [f"{name}={shlex.quote(value)}; export {name}" for name, value in (variables or {}).items()]
    lines += [system.configure.replace(OPTIONS, options), system.build, system.install.format(libraries=libraries)]
    return "".join(f"{line}\n" for line in lines).replace(MAKE, "")
