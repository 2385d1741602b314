"""Derives the effect of each of Solaris' -xmemalign policies from the accesses of one audit. Pure.

One run is enough for all of them. The audit under `strict` reports every access that is not naturally aligned, and no
policy concerns any other. harness.isa.rules prescribes the outcome of an access, which the canaries prove for every
policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.isa import rules
from harness.workflows.porting.document import Xmemalign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.finding import Access
    from harness.core.target_model import Policy, Target
    from harness.isa.rules import Outcome

FAMILY = "solaris-"
DEFAULTS = {32: f"{FAMILY}8i", 64: f"{FAMILY}8s"}
"""Width of a program -> the default of Sun's C compiler (harness/plan/policies/solaris.toml)."""


def outcomes(policies: Mapping[str, Policy], target: Target, places: Mapping[str, Sequence[Access]]) -> list[Xmemalign]:
    """One row for each policy that the target has. The worst access of each source line (`places`) counts."""
    rows = []
    for name, policy in policies.items():
        if not name.startswith(FAMILY) or not rules.applies(policy, target):
            continue
        chosen = rules.policy_for(policies, name, target)
        worst = [_worst(target, chosen, accesses) for accesses in places.values()]
        possible = [_worst(target, chosen, _anywhere(accesses)) for accesses in places.values()]
        rows.append(
            Xmemalign(
                policy=name,
                acts_as=chosen.name,
                default=name == DEFAULTS[target.width_bits],
                apart=worst.count("done"),
                repaired=worst.count("repaired"),
                signal=worst.count("signal"),
                unsure=sum(recorded != other for recorded, other in zip(worst, possible, strict=True)),
            )
        )
    return rows


_ORDER = ("done", "repaired", "signal")


def _worst(target: Target, policy: Policy, accesses: Sequence[Access]) -> str:
    return max((_outcome(target, policy, access) for access in accesses), key=_ORDER.index)


def _anywhere(accesses: Sequence[Access]) -> list[Access]:
    """The same instructions at every misaligned address: the emulator records only the first address of each."""
    return [
        msgspec.structs.replace(access, modulo=modulo)
        for access in accesses
        for modulo in range(1, max(access.size_bytes, access.hint_bytes, 2))
    ]


def _outcome(target: Target, policy: Policy, access: Access) -> str:
    if not rules.forbidden(target, policy, access):
        return "done"
    outcome: Outcome = rules.prescribed(target, policy, access)
    return "repaired" if outcome == "done" else "signal"
