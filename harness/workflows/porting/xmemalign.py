"""Solaris' -xmemalign: from the accesses of one audit, what each of its policies would have made of them. Pure.

One run serves for all: the audit under `strict` reports whatever is not naturally aligned, which is all that any policy
can be about, and harness.isa.rules says what becomes of an access, as the canaries prove of every policy by itself.
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
"""Width of a program -> what Sun's C compiler takes when nothing is said (harness/plan/policies/solaris.toml)."""


def outcomes(policies: Mapping[str, Policy], target: Target, places: Mapping[str, Sequence[Access]]) -> list[Xmemalign]:
    """A row for each policy that the target has; of a source line's accesses (`places`) the worst counts."""
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
                unsure=sum(seen != other for seen, other in zip(worst, possible, strict=True)),
            )
        )
    return rows


_ORDER = ("done", "repaired", "signal")


def _worst(target: Target, policy: Policy, accesses: Sequence[Access]) -> str:
    return max((_outcome(target, policy, access) for access in accesses), key=_ORDER.index)


def _anywhere(accesses: Sequence[Access]) -> list[Access]:
    """The same instructions at every misaligned address: the emulator notes where each one was at first."""
    return [
        msgspec.structs.replace(access, modulo=modulo)
        for access in accesses
        for modulo in range(1, max(access.size_bytes, 2))
    ]


def _outcome(target: Target, policy: Policy, access: Access) -> str:
    if not rules.forbidden(target, policy, access):
        return "done"
    told: Outcome = rules.prescribed(target, policy, access)
    return "repaired" if told == "done" else "signal"
