"""Builds a server as its own makefile would on the target, with additional warnings.

harness.build.server_build adds what old trees lack (libatomic behind the objects, -fcommon for old releases). A porter
must know about these gaps, so here only the flags of the target's ABI are added. Every source file that was compiled is
then preprocessed once more, for harness.workflows.porting.conditionals.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import compiler_output
from harness.build import allocator, toolchain
from harness.build.build_progress import Steps
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import level_flags
from harness.core.processes import process
from harness.core.processes.timeouts import if_slow
from harness.workflows.porting import conditionals
from harness.workflows.porting.document import Step
from harness.workflows.porting.source_lines import line_of, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.analysis.compiler_output import Compilation, Linking
    from harness.build.server_build import Builder
    from harness.build.workshop.build_directory import BuildDirectory
    from harness.build.workshop.build_plan import BuildPlan
    from harness.core.model import Build
    from harness.record.compiler_warnings import Diagnostic

WARNINGS = ["cast-align=strict", "address-of-packed-member"]
"""Warnings added to the makefile's own. Plain -Wcast-align is silent for machines that accept any address."""
C_WARNINGS = ["int-to-pointer-cast", "pointer-to-int-cast"]
PREPROCESS_SECONDS = 600
CONFIGURE_SECONDS = 900
_OUTPUTS = {"-MMD", "-MD", "-MP", "-c"}
_OUTPUTS_WITH_NAME = {"-o", "-MF", "-MT", "-MQ"}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the build."""

    succeeded: bool
    errors: list[Diagnostic]
    warnings: list[Diagnostic]
    linking: Linking
    last_words: str
    """The last lines of make's output."""
    configured: Step
    passed: dict[str, set[int]]
    """File in the tree -> lines that the preprocessor kept in any compilation."""
    log: Path


def attempt(builder: Builder, plan: BuildPlan) -> Attempt:
    """Make the server for a target without the project's help. A failure is a result. Raises InfrastructureError."""
    what = f"{plan.title} as its makefile has it, with warnings,"
    with builder.workshop(plan, what=what, kind="port") as shop:
        compilers = _without_help(shop)
        # Parallel jobs print relative names, so make prints each job's output in one piece after its folder.
        command = shop.make_command([shop.binary.name])
        result = shop.run([*command, "--keep-going", "--output-sync=target", "--print-directory"])
        diagnostics = compiler_output.read(result.text, shop.tree)
        calls = compiler_output.compilations(result.text, tuple(map(str, compilers)))
        shop.steps.goes_on("configuring jemalloc")
        configured = _configure(shop)
        return Attempt(
            succeeded=result.code == 0 and shop.binary.is_file(),
            errors=[diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"],
            warnings=[diagnostic for diagnostic in diagnostics if diagnostic.severity == "warning"],
            linking=compiler_output.linking(result.text),
            last_words="\n".join(result.text.strip().splitlines()[-3:]),
            configured=configured,
            passed=_preprocess(calls, shop),
            log=shop.log,
        )


def _without_help(shop: BuildDirectory) -> list[Path]:
    """Write the compilers' wrappers again, without the project's additions. Returns their paths."""
    warnings = [f"-W{name}" for name in WARNINGS] + [f"-Wno-error={name.partition('=')[0]}" for name in WARNINGS]
    only_c = [f"-W{name}" for name in C_WARNINGS]
    paths = []
    for name, more in (("gcc", only_c), ("g++", [])):
        paths.append(shop.work / name)
        own = shop.plan.settings.cflags
        flags = [*shop.target.compiler_flags, *level_flags(shop.plan.optimisation), *own, *warnings, *more]
        toolchain.write_wrapper(paths[-1], shop.tools, name, flags, [])
    return paths


def _configure(shop: BuildDirectory) -> Step:
    """Run jemalloc's configure script for the target: makefiles decide everything else in a tree."""
    own = allocator.configure_options(shop.plan.settings)
    try:
        settings = allocator.configure_jemalloc(shop.server, shop.target, shop.tools, shop.work, own)
    except UsageError:
        return Step(name="configure", result="none", detail="the tree has no configure script: its makefiles decide")
    deadline_seconds = shop.tools.deadline_seconds(CONFIGURE_SECONDS)
    result = process.run(
        ["./configure", f"CC={shop.work / 'gcc'}", "--with-lg-quantum=3", *own],
        deadline_seconds=deadline_seconds,
        folder=shop.tree / "deps" / "jemalloc",
        log=shop.log,
        environment={**shop.environment(), **settings},
    )
    if result.expired:
        raise _late(shop, "jemalloc's configure script", deadline_seconds)
    if result.code == 0:
        told = f"pages of {shop.target.page_size_bytes} bytes, told to it"
        pages = f"pages as {allocator.CONFIGURE_OPTIONS} has them" if allocator.has_page_size(own) else told
        return Step(
            name="configure", result="ok", detail=(f"deps/jemalloc, the only part with a configure script: {pages}")
        )
    lines = [line for line in result.text.splitlines() if "error" in line] or result.text.strip().splitlines()
    why = lines[-1] if lines else "it printed nothing"
    return Step(name="configure", result="failed", detail=f"deps/jemalloc does not: {why}")


def _late(shop: BuildDirectory, what: str, deadline_seconds: float) -> InfrastructureError:
    """The error of a step that did not end in time: it says nothing about the tree."""
    return InfrastructureError(
        f"{what} did not end within {deadline_seconds:g} s",
        where=str(shop.tree),
        log=str(shop.log),
        remedy=if_slow(shop.tools.timeout_multiplier),
    )


def _preprocess(calls: list[Compilation], shop: BuildDirectory) -> dict[str, set[int]]:
    """The lines that the preprocessor keeps, for all files of the tree."""
    calls = [call for call in calls if can_be_repeated(call)]
    ended: list[Compilation] = []
    shop.steps.goes_on("preprocessing", lambda: Steps(len(ended), len(calls)))

    deadline_seconds = shop.tools.deadline_seconds(PREPROCESS_SECONDS)

    def one(call: Compilation) -> dict[str, set[int]]:
        made = process.run(
            preprocessing(call.words),
            deadline_seconds=deadline_seconds,
            folder=Path(call.folder),
            environment=shop.environment(),
        )
        if made.expired:
            raise _late(shop, "the preprocessor", deadline_seconds)
        ended.append(call)
        return conditionals.passed(made.output, call.folder, shop.tree)

    found: dict[str, set[int]] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for lines in pool.map(one, calls):
            for file, numbers in lines.items():
                found.setdefault(file, set()).update(numbers)
    return found


def can_be_repeated(call: Compilation) -> bool:
    """Whether a compiler's call can be started again. The makefile may have removed its folder, and prints any text."""
    size = sum(len(os.fsencode(word)) + 1 for word in call.words)
    return Path(call.folder).is_dir() and "\0" not in "".join(call.words) and size < MOST_WORDS_BYTES


MOST_WORDS_BYTES = 1 << 17
"""The longest command line that is repeated: Linux takes no longer word, and twelve times as many bytes (execve(2))."""


def preprocessing(words: list[str]) -> list[str]:
    """A compiler's command line as one that preprocesses to standard output."""
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if word not in _OUTPUTS | _OUTPUTS_WITH_NAME and before not in _OUTPUTS_WITH_NAME
    ]
    return [*kept, "-E", "-dD", "-dI"]


def steps(tried: Attempt, build: Build | BuildFailedError, files: Mapping[str, str]) -> list[Step]:
    """Configure, compile and link: the tree's own result, and whether the project's additions helped."""
    compiled = Step(name="compile", result="ok", detail=_warned(tried.warnings))
    linked = Step(name="link", result="ok", detail="with the libraries that the makefile names")
    if tried.errors:
        first = tried.errors[0]
        number = "1 error" if len(tried.errors) == 1 else f"{len(tried.errors)} errors"
        detail = f"{number}, the first at {first.file}:{first.line}: {first.text}"
        mended = not isinstance(build, BuildFailedError)
        lines = [quoted(f"{one.file}:{one.line}", line_of(files, one.file, one.line), one.text) for one in tried.errors]
        compiled = Step(name="compile", result="mended" if mended else "failed", detail=detail, lines=lines)
    if not tried.succeeded:
        mended = not isinstance(build, BuildFailedError)
        why = link_problem(tried.linking) or (
            "code that does not compile is not linked" if tried.errors else tried.last_words
        )
        linked = Step(name="link", result="mended" if mended else "failed", detail=why)
    return [tried.configured, compiled, linked]


def link_problem(linking: Linking) -> str:
    """The linker's problems and their remedy; empty if it reported none."""
    atomics = [name for name in linking.undefined if name.startswith("__atomic_")]
    others = [name for name in linking.undefined if not name.startswith("__atomic_")]
    problems = []
    if atomics:
        problems.append(f"without -latomic after the objects it lacks {', '.join(atomics)}")
    if linking.twice:
        problems.append(
            f"without -fcommon it has {len(linking.twice)} duplicate globals, such as {', '.join(linking.twice[:3])}"
        )
    if others:
        problems.append(f"it lacks {', '.join(others[:8])}")
    return "; ".join(problems)


def _warned(warnings: list[Diagnostic]) -> str:
    return f"{len(warnings)} warnings" if warnings else "without a warning"
