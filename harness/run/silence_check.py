"""Checks that silence is meaningful: the emulator must punish the canaries' faults and record them.

A check trusts a target because of its canary suite. A replay needs the same proof: an emulator that cannot write its
log, for example on a full disk, reports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.errors import InfrastructureError
from harness.record import fault_log
from harness.run import canary, detector_canary
from harness.run.environments import environment_canary, litmus
from harness.run.machines import canary_place

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.core.cache import Cache
    from harness.core.target_model import Toolchain
    from harness.run.machines import OtherMachine


def why_blind(cache: Cache, runner: Runner, tools: Toolchain, folder: Path, host: OtherMachine | None) -> str:
    """Why a target may misbehave without a report; empty if its canaries prove that it cannot.

    `folder` receives the logs; it should be on the same disk as the guest's logs.
    """
    if runner.target.emulator.detector:
        return _deaf(cache, runner, tools)
    if host is None and not runner.records_faults:
        return "this emulator, or machine, records no faults"
    try:
        return (
            _canaries(cache, runner, tools, folder, host)
            or _unsurrounded(cache, runner, tools, folder)
            or _in_wrong_order(cache, runner, tools)
        )
    except InfrastructureError as error:
        return f"{error.what}: {error.because}"


def _deaf(cache: Cache, runner: Runner, tools: Toolchain) -> str:
    """The first error that the target's detector does not report as it must; empty if there is none."""
    program = detector_canary.compile_detector_canary(cache, runner.target, tools)
    assert program is not None
    for case, identity in detector_canary.expectations(runner.target.emulator.detector):
        if (reported := detector_canary.outcome(program, runner, case)) != identity:
            return f"its detector says {reported} of {case}, where {identity} is due"
    return ""


def _unsurrounded(cache: Cache, runner: Runner, tools: Toolchain, folder: Path) -> str:
    """The requirements that the runner's environment does not meet; empty if it meets all."""
    program = environment_canary.compile_environment_canary(cache, runner, tools)
    return environment_canary.misbehaviour(program, runner, folder) if program is not None else ""


def _in_wrong_order(cache: Cache, runner: Runner, tools: Toolchain) -> str:
    """The first litmus test that contradicts the runner's order of memory accesses; empty if none does."""
    if not runner.memory_order:
        return ""
    program = litmus.compile_litmus(cache, runner.target, tools)
    wrong = ((case.name, litmus.disagreement(program, runner, case)) for case in litmus.cases(runner.target))
    return next((f"the outcome of its litmus test {name} was {what}" for name, what in wrong if what), "")


def _canaries(cache: Cache, runner: Runner, tools: Toolchain, folder: Path, host: OtherMachine | None) -> str:
    program = canary.compile_canary(cache, runner.target, tools)
    if host is None:
        performed = canary.performed(program, runner, folder / "canary.jsonl", tools.prefix)
    else:
        perform = canary.on_machine(canary_place(host), host.machine(), runner.target)
        performed = canary.CanaryResult(outcomes=canary.perform_all(perform, runner.target), reports={})
    cases = canary.cases(runner)
    for case in cases:
        if wrong := canary.disagreements(case, performed, runner):
            return f"its canary {case.access.name} did not behave: {wrong[0]}"
    deadly = next((case for case in cases if "signal" in case.prescribed), None)
    if deadly is None or host is not None:
        return ""
    log = folder / "canary-fault.jsonl"
    offset = deadly.prescribed.index("signal")
    died = canary.dies(canary.emulated(program, runner, log), deadly.access, offset, runner.target)
    return (
        "" if died and fault_log.count_faults(log) else f"the fault of its canary {deadly.access.name} was not recorded"
    )
