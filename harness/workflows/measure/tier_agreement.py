"""Do both tiers agree? Every access at every offset, in every mode, on the emulated CPU and on a real kernel.

What a real kernel does is the last word on the model of it; where the emulated computer under that kernel is itself
only a model of hardware, the difference is listed with its cause in harness/workflows/measure/tier_differences.toml.
"""

from __future__ import annotations

import fnmatch
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build.qemu_user import Emulators
from harness.core.model import AccessClass, Record
from harness.core.strict_toml import read_toml
from harness.isa import rules
from harness.report.markdown_table import table
from harness.run import canary
from harness.run.vm.guest import CANARY, VirtualMachine
from harness.workflows.target_setup import machine_target, prepare_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.model import Policy
    from harness.core.progress import Progress
    from harness.plan.catalog import Catalog

DIFFERENCES = Path(__file__).with_name("tier_differences.toml")


class TierDifference(Record, frozen=True):
    """A known disagreement of the tiers."""

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
    """One access under one policy, at the offsets where all three say the same of it."""

    target: str
    policy: str
    access: str
    access_class: AccessClass
    offsets: list[int]
    """Bytes past a 16-byte boundary."""
    user: str
    kernel: str
    prescribed: str
    reason: str
    """Why the tiers differ; empty where they agree, and where nobody knows."""

    @property
    def agrees(self) -> bool:
        """Whether both tiers do what is prescribed."""
        return self.user == self.kernel == self.prescribed


def agree(
    catalog: Catalog, store: Cache, fetcher: Fetcher, progress: Progress, names: Sequence[str]
) -> list[AgreementRow]:
    """Run the canary program everywhere, and compare. Raises UsageError for a target without a kernel."""
    emulators = Emulators(store, fetcher, progress)
    differences = read_toml(DIFFERENCES, TierDifferenceTable).differences
    rows: list[AgreementRow] = []
    for name in names:
        target = machine_target(catalog, name)
        model = catalog.targets[rules.userland(target)]
        programs = emulators.prepare([model.emulator])
        tools = catalog.toolchain_of(model)
        program = canary.compile_canary(store, target, tools)
        prepared = prepare_machine(catalog, store, fetcher, progress, target, {CANARY: program}, mode=None)
        with tempfile.TemporaryDirectory(prefix="plumb-agree-") as folder:
            host = VirtualMachine(prepared, Path(folder), sockets=Path(folder))
            try:
                for policy in rules.settings(catalog.policies, target):
                    with progress.stage("agree", f"{name}: {policy.name}"):
                        resolved = rules.policy_for(catalog.policies, policy.name, model)
                        runner = emulators.runner(model, tools, resolved, programs)
                        user = canary.perform_all(canary.emulated(program, runner), model)
                        machine = host.machine()
                        if policy.mode is not None:
                            machine.set_alignment(policy.mode)
                        perform = canary.on_machine(Path(CANARY), machine, target.slowdown)
                        kernel = canary.perform_all(perform, target)
                        for case in canary.cases(runner):
                            rows += _rows(name, policy, case, user, kernel, differences)
            finally:
                host.close()
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
    seen = zip(user[access.name], kernel[access.name], case.prescribed, strict=True)
    for offset, triple in enumerate(seen):
        triples.setdefault(triple, []).append(offset)
    return [
        AgreementRow(
            target=target,
            policy=policy.name,
            access=access.name,
            access_class=access.access_class,
            offsets=offsets,
            user=mine,
            kernel=theirs,
            prescribed=due,
            reason=""
            if mine == theirs
            else explain(differences, target, policy.name, access.access_class, mine, theirs),
        )
        for (mine, theirs, due), offsets in triples.items()
    ]


def explain(
    differences: Sequence[TierDifference], target: str, policy: str, kind: AccessClass, user: str, kernel: str
) -> str:
    """The listed reason of a difference, or nothing."""
    for one in differences:
        if (
            any(fnmatch.fnmatch(target, glob) for glob in one.targets)
            and policy in one.policies
            and kind in one.classes
            and user in one.user
            and kernel == one.kernel
        ):
            return one.reason
    return ""


def unexplained(rows: Sequence[AgreementRow]) -> list[AgreementRow]:
    """Rows that nobody explains: the tiers differ without a listed reason, or the model is not as prescribed."""
    return [row for row in rows if row.user != row.prescribed or (row.user != row.kernel and not row.reason)]


def summary(rows: Sequence[AgreementRow]) -> list[str]:
    """A Markdown table: a line for each target, policy and class, and each thing that is said of it."""
    cells = []
    merged: dict[tuple[str, ...], tuple[list[str], AgreementRow]] = {}
    for row in rows:
        offsets = ",".join(map(str, row.offsets)) if len(row.offsets) < len(canary.OFFSETS) else "all"
        key = (row.target, row.policy, offsets, row.user, row.kernel, row.prescribed)
        merged.setdefault(key, ([], row))[0].append(row.access)
    for (target, policy, offsets, user, kernel, due), (accesses, row) in merged.items():
        marked = kernel if row.agrees else f"**{kernel}**"
        cells.append((target, policy, " ".join(accesses), offsets, user, marked, due))
    return table(["target", "policy", "accesses", "at", "user tier", "kernel tier", "prescribed"], cells)
