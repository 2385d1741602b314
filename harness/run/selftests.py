"""Self-tests: the tests that a server's release contains, built for a target, listed, run and read.

Redis compiles them into the server with REDIS_TEST (since 3.2); Valkey 8 builds a separate program from the files in
src/unit. Since Valkey 9.1 these are C++ and need GoogleTest (harness.build.googletest), which is an optional package.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import allocator_log
from harness.analysis.crash_reports import assertion_log
from harness.build import allocator, googletest, toolchain
from harness.build.server_build import build_key
from harness.build.unit_drivers import Units, build_units, in_a_line
from harness.core import json_codec
from harness.core.cache import disk_errors
from harness.core.digests import key_of
from harness.core.model import Record
from harness.run.unit_runner import how_it_ended

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.build.server_build import Builder
    from harness.build.workshop.build_directory import BuildDirectory
    from harness.build.workshop.build_plan import BuildPlan
    from harness.core.model import Program, SourceTree
    from harness.run.unit_runner import UnitRun

RECIPE = "2"
PRINTED = ("crc64", "endianconv", "sha1test", "zipmap")
"""Redis' self-tests without their own judgement: they print results for a person to compare. Here they are compared
with the output of the native build.
"""

SINGLE_FILE = ("--single", "{unit}")
"""The arguments of Valkey 8's program."""

LONG = (
    "test_rax.c",
    "HashtableTest.incremental_find",
    "QuicklistTest.quicklistComprassionPlainNode",
    "QuicklistTest.quicklistRotate500Val5000TimesAtCompress",
)
"""Self-tests for the thorough tier only. Valkey 8's takes half a minute natively, longer than all others together;
Valkey 9's take between 10 and 21 s under one of the emulators, of 76 s for all 319 on ARMv5; most others take a
tenth of a second."""


class Style(Record, frozen=True):
    """How a server family's self-tests are built and called."""

    goal: str
    """The make target in src, and the program's name."""
    flags: tuple[str, ...]
    """Compiler flags in addition to the target's."""
    arguments: tuple[str, ...]
    names: tuple[str, ...]
    googletest: bool = False
    """Whether the program is linked with GoogleTest."""


def style_of(tree: SourceTree) -> Style | str:
    """How to build a tree's self-tests, according to its source; or why it has none."""
    version = ".".join(map(str, tree.version))
    source = tree.content / "src"
    listed = source / "unit" / "test_files.h"
    if listed.is_file():
        names = re.findall(r'^\s*\{"(test_\w+\.c)",', listed.read_text("utf-8"), re.MULTILINE)
        return Style(goal=f"{tree.family}-unit-tests", flags=(), arguments=SINGLE_FILE, names=tuple(sorted(names)))
    texts = [path.read_text("utf-8", "replace") for path in (source / "unit").glob("*.cpp")]
    if names := [name for text in texts for name in googletest.names_in(text)]:
        return Style(
            goal=f"{tree.family}-unit-gtests",
            flags=(),
            arguments=googletest.ARGUMENTS,
            names=tuple(sorted(names)),
            googletest=True,
        )
    main = source / "server.c"
    names = _names_in(main.read_text("utf-8", "replace")) if main.is_file() else []
    if not names:
        return f"{tree.family} {version} has no self-tests: neither REDIS_TEST in src/server.c, nor src/unit"
    return Style(
        goal=f"{tree.family}-server", flags=("-DREDIS_TEST",), arguments=("test", "{unit}"), names=tuple(sorted(names))
    )


def _names_in(text: str) -> list[str]:
    """The self-tests that a server's main file names: in a table since 6.2, in comparisons of the argument before."""
    names: list[str] = []
    for part in re.findall(r"^#ifdef REDIS_TEST$(.*?)^#endif", text, re.MULTILINE | re.DOTALL):
        names += re.findall(r'^\s*\{"(\w+)",\s*\w+\}', part, re.MULTILINE)
        names += re.findall(r'strcasecmp\(argv\[2\], "(\w+)"\)', part)
    return [name for name in dict.fromkeys(names) if name != "all"]


def build_program(kind: Program, builder: Builder, plan: BuildPlan) -> Units:
    """Build the program that a suite runs instead of a server. It is linked with libc's allocator, whatever the plan
    says; one that is preloaded, it has.

    Raises BuildFailedError, InfrastructureError.
    """
    build = build_units if kind == "units" else build_selftests
    units = build(builder, msgspec.structs.replace(plan, allocator="libc"))
    preload = allocator.preloaded(builder.cache, plan.target, plan.tools, plan.allocator)
    return msgspec.structs.replace(units, preload=preload)


def build_selftests(builder: Builder, plan: BuildPlan) -> Units:
    """The tree's self-tests for a target, from the cache if possible. They compile together, so that all are broken or
    none.

    Raises InfrastructureError without a compiler.
    """
    style = style_of(plan.tree)
    absence = style if isinstance(style, str) else googletest.absence(plan.tools) if style.googletest else ""
    if absence or isinstance(style, str):
        return Units(program=None, absent={"all": absence}, broken={}, kind="selftests")
    parts = [RECIPE, build_key(plan), style.goal, *style.flags]
    if style.googletest:
        parts += [*googletest.TEST_FLAGS, googletest.identity(), toolchain.identity(plan.tools, "g++")]
    key = f"{plan.stem}-{key_of(parts)}"

    def compile_into(into: Path) -> None:
        what = f"self-tests of {plan.title}"
        with builder.workshop(plan, what=what, kind="selftests") as shop:
            (into / "broken.json").write_bytes(json_codec.pretty(_compile(shop, style, into)))

    folder = builder.cache.folder("selftests", key, compile_into)
    problem = json_codec.decode((folder / "broken.json").read_bytes(), str)
    return Units(
        program=None if problem else folder / style.goal,
        absent={},
        broken=dict.fromkeys(style.names, problem) if problem else {},
        kind="selftests",
        names=style.names,
        arguments=style.arguments,
    )


def _compile(shop: BuildDirectory, style: Style, into: Path) -> str:
    """Put the program into a folder. Returns why that failed, or an empty text."""
    compiler = shop.wrapper("gcc", style.flags, suffix="-selftests")
    settings: Mapping[str, str] = {}
    if style.googletest:
        made, settings = googletest.compile_with(shop)
        if made.code != 0:
            return f"GoogleTest does not compile: {in_a_line(made)}"
        shop.wrapper("g++", googletest.TEST_FLAGS)
    result = shop.make([style.goal, *(f"{name}={value}" for name, value in settings.items())], compiler=compiler)
    program = shop.tree / "src" / ("unit" if style.googletest else "") / style.goal
    if result.code != 0 or not program.is_file():
        return in_a_line(result) or f"make {style.goal} made no program"
    with disk_errors(into):
        shutil.copy2(program, into)
    return ""


def why_none(units: Units) -> str:
    """Why none of a server's self-tests can run; empty when one can or should run, and for Plumbline's own units."""
    nothing = units.kind == "selftests" and set(units.names) <= set(units.absent)
    return next(iter(units.absent.values()), "") if nothing else ""


def with_native_faults(units: Units, native: Units) -> Units:
    """The same units, of which each that the same compiler error breaks natively says so: that is not the target's
    fault, although nothing checks the target either.
    """
    broken = {
        name: f"it does not compile natively either: {why}"
        if _without_folders(native.broken.get(name)) == _without_folders(why)
        else why
        for name, why in units.broken.items()
    }
    return msgspec.structs.replace(units, broken=broken)


def _without_folders(error: str | None) -> str | None:
    return re.sub(r"\S*/", "", error) if error is not None else None


_FAILED = re.compile(
    r"\bFAILED\b|\[\S*fail\S*\]|not all tests passed|Memory leak detected|\[serverAssert|Failed assertion|\bmatches=0\b"
)
_TIMED = re.compile(r"\b[num]?sec\b|\bms\b")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PASSING = re.compile(r"^\d+(:\w)? |0x[0-9a-f]+")
"""Parts of a line that differ from run to run: a check's number, a process number, addresses."""


def lines(run: UnitRun) -> list[str]:
    """The lines that a self-test printed, without colours and without the allocator's own line."""
    return _COLOUR.sub("", allocator_log.without_range(run.output).decode("utf-8", "replace")).splitlines()


def printed(run: UnitRun) -> list[str]:
    """The lines without timings, which depend on the machine."""
    return [line for line in lines(run) if not _TIMED.search(line)]


def why_not_run(run: UnitRun) -> str:
    """Why a self-test's program did not run it although it was called; empty when it ran."""
    return googletest.why_not_run(lines(run))


def is_for_other_machines(why: str) -> bool:
    """Whether a self-test that skips itself says that it is not for this machine, such as one of 32 bits."""
    return bool(_OF_MACHINES.search(why))


_OF_MACHINES = re.compile(r"\b(?:32|64)[- ]?bits?\b|endian|\barchitecture\b", re.IGNORECASE)


def why_unfinished(run: UnitRun, units: Units, name: str) -> str:
    """What is missing from the output of a self-test that ended with status 0: the report of a test that ran to its
    end. Empty if nothing is, and for Redis' self-tests, which make no such report.
    """
    if units.arguments == googletest.ARGUMENTS:
        report = r"\[  PASSED  \] \d+ tests?\."
    elif units.arguments == SINGLE_FILE:
        report = rf"\[END\] - {re.escape(name)}: [1-9]\d* tests?,"
    else:
        return ""
    # A detector may write between the words of others.
    found = any(re.search(report, line) for line in lines(run))
    return "" if found else "it ended without the report of a test that ran to its end"


def missing(run: UnitRun, native: UnitRun) -> str | None:
    """The first line that the native build prints and the target does not, in this order; None if there is none.

    A detector may write between the lines.
    """
    rest = iter(printed(run))
    return next((line for line in printed(native) if line not in rest), None)


def complaints(run: UnitRun) -> list[str]:
    """The failures that a self-test reports, and how it ended if it failed to end well. Empty when it passed.

    Parts that differ from run to run are left out, so that two runs can be compared.
    """
    found = [*_failed_checks(run), *_asserted(run)]
    if run.expired or run.code:
        found.append(how_it_ended(run, complete=False))
    return list(dict.fromkeys(found))


def failed_alike(here: UnitRun, native: UnitRun) -> bool:
    """Whether a self-test fails on a target in exactly the same checks as natively, equally often, and ends in the same
    way.

    In that case it says nothing about the target. Two hangs are never alike, and two deaths only if the same assertion
    caused both: a target may die of a fault of its own.
    """
    if here.expired or native.expired or here.code != native.code:
        return False
    failures, asserted = _failed_checks(here), _asserted(here)
    if here.code < 0 and not (here.code == -signal.SIGABRT and asserted):
        return False
    alike = Counter(failures) == Counter(_failed_checks(native)) and asserted == _asserted(native)
    # Before 6.2, Redis' main program forgets what the test of quicklists returned, and exits as if it had no such test.
    return alike and bool(failures or asserted or here.code > 0)


def _failed_checks(run: UnitRun) -> list[str]:
    """The failed checks, each repeated as often as it failed."""
    every = lines(run)
    if googletest.spoke(every):
        return googletest.failures(every)
    return [_PASSING.sub("", line).strip() for line in every if _FAILED.search(line)]


def _asserted(run: UnitRun) -> list[str]:
    """The assertion that ended a self-test, with its location; empty if there was none."""
    place = assertion_log.asserted(run.output)
    return [f"{place.file}:{place.line}: an assertion failed"] if place else []
