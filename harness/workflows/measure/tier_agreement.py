"""Compares the tiers: every plain access at every offset, in every mode, on the emulated CPU and on a real kernel.

Plain are accesses in one addressing mode, in the instruction set that the target's compiler writes: what a kernel does
with an access rarely depends on how its address was written, and an access that never ends costs a quarter of a second
an offset. A real kernel determines the correct behaviour of its model. The computer under that kernel is emulated too,
and where it differs from hardware, tier_differences.toml lists the difference with its cause. A board can take the
place of that computer.
"""

from __future__ import annotations

import fnmatch
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.strict_toml import read_toml
from harness.core.target_model import AccessClass  # noqa: TC001 - msgspec reads the annotations when it decodes
from harness.isa import access_table, rules
from harness.report.markdown_table import table
from harness.run import canary
from harness.run.boards.reached_machine import CANARY as CANARY_THERE
from harness.run.boards.reached_machine import ReachedMachine
from harness.run.vm.guest import CANARY, VirtualMachine
from harness.workflows.target_setup import kernel_target, set_up_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.target_model import Policy
    from harness.run.boards.board_image import BoardImage
    from harness.workflows.workbench import Workbench

DIFFERENCES = Path(__file__).with_name("tier_differences.toml")


class TierDifference(Record, frozen=True):
    """A known difference between the tiers."""

    targets: list[str]
    """Globs of targets of the kernel tier."""
    policies: list[str]
    classes: list[AccessClass]
    user: list[rules.Outcome]
    kernel: str
    reason: str


class TierDifferenceTable(Record, frozen=True):
    """harness/workflows/measure/tier_differences.toml."""

    differences: list[TierDifference]


class AgreementRow(Record, frozen=True):
    """One access under one policy, at the offsets at which each of the three results is the same."""

    target: str
    policy: str
    access: str
    access_class: AccessClass
    offsets: list[int]
    """Bytes past a 64-byte boundary."""
    user: str
    kernel: str
    """What the kernel tier did, or the board."""
    prescribed: str
    reason: str
    """The listed reason why the tiers differ; empty if they agree, or if no listed difference applies."""
    tried: int = 16
    """The number of offsets at which the access was made."""

    @property
    def agrees(self) -> bool:
        """Whether both tiers do what the documentation prescribes."""
        return self.user == self.kernel == self.prescribed


def compare_tiers(bench: Workbench, names: Sequence[str]) -> list[AgreementRow]:
    """Run the canary program on both tiers, and compare. Raises UsageError for a target without a kernel."""
    catalog = bench.catalog
    differences = read_toml(DIFFERENCES, TierDifferenceTable).differences
    rows: list[AgreementRow] = []
    for name in names:
        target = kernel_target(catalog, name)
        setups = set_up_targets(bench, [target, catalog.targets[rules.userland(target)]])
        kernel_tier, user_tier = setups.values()
        accesses = access_table.plain_accesses(target)
        program = canary.compile_canary(bench.cache, target, kernel_tier.toolchain, accesses=accesses)
        image = kernel_tier.vm_image({CANARY: program}, mode=None)
        with tempfile.TemporaryDirectory(prefix="plumb-agree-") as folder:
            host = VirtualMachine(image, Path(folder), sockets=Path(folder))
            try:
                for policy in rules.settings(catalog.policies, target):
                    with bench.progress.stage("agree", f"{name}: {policy.name}"):
                        runner = user_tier.runner(policy.name)
                        # The same program, with the emulated computer's table.
                        user = canary.perform_all(canary.emulated(program, runner), target, accesses)
                        machine = host.machine()
                        if policy.mode is not None:
                            machine.set_alignment(policy.mode)
                        perform = canary.on_machine(Path(CANARY), machine, target)
                        kernel = canary.perform_all(perform, target, accesses)
                        for case in canary.cases(runner):
                            if case.access.name in kernel:
                                rows += _rows(name, policy, case, user, kernel, differences)
            finally:
                host.close()
    return rows


def compare_board(bench: Workbench, board: BoardImage) -> list[AgreementRow]:
    """Run the canary program under the emulator and on a board, in each mode that its kernel can be set to.

    `bench`: without the board. Where its user may not set the mode, the board's own is compared alone. Raises
    InfrastructureError if it cannot be reached, or if it has modes and nothing tells which one is set.
    """
    catalog = bench.catalog
    target = catalog.targets[board.board.target]
    there = catalog.on_board(board.board, Path(board.file)).targets[target.name]
    setup = set_up_targets(bench, [target])[target.name]
    differences = read_toml(DIFFERENCES, TierDifferenceTable).differences
    accesses = access_table.plain_accesses(target)
    program = canary.compile_canary(bench.cache, target, setup.toolchain, accesses=accesses)
    rows: list[AgreementRow] = []
    has_modes = rules.has_switch(target)
    for policy in rules.settings(catalog.policies, target):
        mode = policy.mode if has_modes else None
        host = ReachedMachine(msgspec.structs.replace(board, programs={CANARY_THERE: program}, mode=mode))
        try:
            with bench.progress.stage("agree", f"{board.file}: {policy.name}"):
                mode = host.machine().mode()
                if has_modes and mode is None:
                    raise InfrastructureError(
                        "nothing tells what the board's kernel does with misaligned accesses",
                        where=host.shell.shown,
                        because=f"its user cannot read {board.switch_file}",
                    )
                if has_modes and mode != policy.mode:
                    bench.progress.say(f"{policy.name}: not compared, since the board's mode stays {mode}")
                    continue
                runner = setup.runner(policy.name)
                user = canary.perform_all(canary.emulated(program, runner), target, accesses)
                told = canary.perform_all(canary.on_machine(Path(CANARY_THERE), host, there), there, accesses)
        finally:
            host.close()
        signals = rules.shown(there, "signal")
        kernel = {name: ["signal" if one in signals else one for one in found] for name, found in told.items()}
        for case in canary.cases(runner):
            if case.access.name in kernel:
                rows += _rows(target.name, policy, case, user, kernel, differences)
    if not rows:
        raise InfrastructureError(
            "nothing was compared",
            where=board.file,
            because=f"its user may not set the mode of {board.switch_file}, and no policy is the one that is set",
            remedy="let `start` run as root there",
        )
    return rows


def _rows(
    target: str,
    policy: Policy,
    case: canary.CanaryCase,
    user: dict[str, list[str]],
    kernel: dict[str, list[str]],
    differences: Sequence[TierDifference],
) -> list[AgreementRow]:
    access = case.access
    triples: dict[tuple[str, str, str], list[int]] = {}
    results = zip(user[access.name], kernel[access.name], case.prescribed, strict=True)
    for offset, triple in enumerate(results):
        triples.setdefault(triple, []).append(offset)
    return [
        AgreementRow(
            target=target,
            policy=policy.name,
            access=access.name,
            access_class=access.access_class,
            offsets=offsets,
            tried=len(canary.offsets(access)),
            user=by_user,
            kernel=by_kernel,
            prescribed=prescribed,
            reason=""
            if by_user == by_kernel
            else explain(differences, target, policy.name, access.access_class, by_user, by_kernel),
        )
        for (by_user, by_kernel, prescribed), offsets in triples.items()
    ]


def explain(
    differences: Sequence[TierDifference], target: str, policy: str, kind: AccessClass, user: str, kernel: str
) -> str:
    """The listed reason of a difference, or nothing."""
    for difference in differences:
        if (
            any(fnmatch.fnmatch(target, glob) for glob in difference.targets)
            and policy in difference.policies
            and kind in difference.classes
            and user in difference.user
            and kernel == difference.kernel
        ):
            return difference.reason
    return ""


def unexplained(rows: Sequence[AgreementRow]) -> list[AgreementRow]:
    """Rows without an explanation: the tiers differ for no listed reason, or the model does not do what it should."""
    return [row for row in rows if row.user != row.prescribed or (row.user != row.kernel and not row.reason)]


def summary(rows: Sequence[AgreementRow], machine: str = "kernel tier") -> list[str]:
    """A Markdown table: one line for each target and policy, with the accesses that have the same results.

    `machine`: the title of the column of `AgreementRow.kernel`.
    """
    cells = []
    merged: dict[tuple[str, ...], tuple[list[str], AgreementRow]] = {}
    for row in rows:
        offsets = ",".join(map(str, row.offsets)) if len(row.offsets) < row.tried else "all"
        key = (row.target, row.policy, offsets, row.user, row.kernel, row.prescribed)
        merged.setdefault(key, ([], row))[0].append(row.access)
    for (target, policy, offsets, user, kernel, prescribed), (accesses, row) in merged.items():
        marked = kernel if row.agrees else f"**{kernel}**"
        cells.append((target, policy, f"`{' '.join(accesses)}`", offsets, user, marked, prescribed))
    return table(["target", "policy", "accesses", "at", "user tier", machine, "prescribed"], cells)
