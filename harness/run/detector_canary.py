"""Canaries of detectors: errors that must be reported, and their well-behaved twins, which must not be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis.detectors.registry import named, prelude_files, reports
from harness.build import toolchain
from harness.build.helper_program import compiled
from harness.core.processes import process

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.core.cache import Cache
    from harness.core.target_model import Target, Toolchain

SOURCE = Path(__file__).with_suffix(".c")
RUN_SECONDS = 5.0
SILENT = "nothing reported"


def expectations(detector: str) -> list[tuple[str, str]]:
    """Each case (as `overflow-load bad`) with the identity that it must report, or `SILENT`: errors and twins."""
    errors = named(detector).canary
    return [*((f"{name} bad", identity) for name, identity in errors.items()), *((f"{n} good", SILENT) for n in errors)]


def compile_detector_canary(cache: Cache, target: Target, tools: Toolchain) -> Path | None:
    """Compile the program as servers are compiled; None if a target has no detector.

    Raises InfrastructureError when it does not compile.
    """
    if not target.emulator.detector:
        return None
    # Some files of valkey-9.1.2 are compiled with hidden symbols. Those that the detector's library needs must stay
    # visible.
    hidden = "-fvisibility=hidden"
    return compiled(
        cache,
        tools,
        title=f"the detector's canary for {target.name}",
        kind="canaries",
        owner=f"{target.name}-detector",
        file="detector",
        flags=[*toolchain.compiler_flags(target, "O1"), hidden, "-Wall", "-Werror", "-std=gnu11"],
        sources=[SOURCE],
        generated=prelude_files(target.emulator.detector),
    )


def outcome(program: Path, runner: Runner, case: str) -> str:
    """The result of a case: the reported identities, `SILENT`, or how the program failed."""
    result = process.run(
        runner.command(program, case.split(" ")),
        deadline_seconds=runner.target.deadline_seconds(RUN_SECONDS),
        environment={**process.PLAIN_ENVIRONMENT, **runner.environment},
    )
    if result.expired:
        return "ran for ever"
    if result.code != 0:
        return f"exit status {result.code}: {result.text.strip()}"
    found = reports(result.output, runner.target.emulator.detector)
    return ", ".join(report.identity for report in found) or SILENT
