"""The required effect of a misaligned access: the rules of CPUs and kernels, as values. Pure.

A target says which alignment its hardware demands; a policy says what a forbidden access does. This module combines the
two. The canary suite proves the emulator against it, the kernel tier proves a real kernel, and reports take fates from
it.
"""

from __future__ import annotations

import fnmatch
import typing
from typing import TYPE_CHECKING, Literal

import msgspec

from harness.core.errors import UsageError
from harness.core.finding import Access
from harness.core.target_model import AccessClass
from harness.isa import registry

if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Mapping

    from harness.core.finding import Fate
    from harness.core.target_model import PlannedAccess, Policy, Target, Toolchain
    from harness.isa.encodings.encoding import Encoding

Outcome = Literal["done", "signal", "rotated", "truncated", "unaddressed", "at-pc"]
"""Done: the right bytes were moved. signal: SIGBUS, BUS_ADRALN (but see `signal_of`), and nothing was moved. rotated: a
word was loaded from the address without its low bits, and rotated. truncated: the access used the address without its
low bits. unaddressed, at-pc: as signal, but a real kernel of MIPS reports neither BUS_ADRALN nor an address, and one of
RISC-V the instruction's address (`shown`); nothing prescribes them."""

CLASSES: tuple[AccessClass, ...] = typing.get_args(AccessClass)
UNSPLIT: frozenset[AccessClass] = frozenset({"exclusive", "acquire", "swap", "cas", "linked", "stack"})
"""Classes that no compiler splits into smaller accesses."""
ROTATED: frozenset[AccessClass] = frozenset({"word", "swap"})
"""Classes whose loaded word ARM rotates before ARMv6, where its check is off (ARM DDI 0100I, LDR and SWP)."""
WIDEST_ASSUMED = 16
"""`Policy.assumed_bytes` of compilers that split nothing."""
AUDIT = "audit"


def policy_for(policies: Mapping[str, Policy], name: str, target: Target) -> Policy:
    """The policy that a target's kernel applies when a user selects the named policy, or an audit of it.

    Raises UsageError for an unknown name, and for a policy that the target does not have.
    """
    if is_audit(name):
        base = _named(policies, base_name(name), target)
        if target.emulator.has_kernel:
            raise UsageError(
                f"{target.name} has no audit",
                because="a real kernel does not report the accesses that it allows",
                remedy=f"plumb audit --target {userland(target)}",
            )
        return base if target.emulator.runs_here else audited(base)
    if name in policies and (reason := policies[name].unusable.get(model(target))):
        raise UsageError(
            f"no program of {target.name} can run under policy {name}",
            where="--policy",
            because=reason,
            remedy=f"plumb audit --policy {name} --target {target.name}, which performs the accesses and lists them",
        )
    return _named(policies, name, target)


def _named(policies: Mapping[str, Policy], name: str, target: Target) -> Policy:
    if name not in policies:
        raise UsageError(f"unknown policy '{name}'", where="--policy", remedy="plumb list policies")
    policy = policies[name]
    if not _fits(policy, target):
        usable = sorted(known.name for known in policies.values() if applies(known, target))
        raise UsageError(
            f"policy {name} does not apply to {target.name}",
            because=f"it is for {', '.join(policy.targets)}",
            remedy=f"--target '{policy.targets[0]}', or for {target.name} one of: {', '.join(usable)}",
        )
    if target.emulator.has_kernel and not has_switch(target):
        return policies[target.kernel]
    # The host is not emulated, so no policy changes the behaviour of its hardware and kernel.
    chosen = "signal" if target.emulator.runs_here else policy.effective_policy.get(model(target), name)
    switch = registry.of_isa(target.isa).alignment_switch if target.emulator.has_kernel else None
    return policies[dict(switch.own_names).get(chosen, chosen) if switch is not None else chosen]


def check_toolchain(policy: Policy, target: Target, tools: Toolchain) -> None:
    """Raise UsageError for a policy that a toolchain's programs cannot have.

    Natural alignment is demanded of a program's own code: a C library uses what its CPU allows, even before main().
    An audit performs what the library does, and names the function.
    """
    if policy.demand == "natural" and tools.is_static and not is_audit(policy.name):
        raise UsageError(
            f"policy {policy.name} is not available on {target.name} with the toolchain {tools.name}",
            where="--policy",
            because="its programs contain their C library, which the policy cannot separate from the server's code",
            remedy=f"plumb audit --policy {policy.name} with this toolchain, or another toolchain",
        )


def applies(policy: Policy, target: Target) -> bool:
    """Whether a policy makes sense for a target; for a target with a kernel, whether that kernel has the policy."""
    return _fits(policy, target) and model(target) not in policy.unusable


def _fits(policy: Policy, target: Target) -> bool:
    fits = any(fnmatch.fnmatch(model(target), glob) for glob in policy.targets)
    if not target.emulator.has_kernel:
        return fits
    # A kernel without a switch has only its own policy.
    return fits and (policy.mode is not None if has_switch(target) else policy.name in {"signal", target.kernel})


def has_switch(target: Target) -> bool:
    """Whether its kernel's treatment of misaligned accesses can be set, as /proc/cpu/alignment does."""
    switch = registry.of_isa(target.isa).alignment_switch
    return switch is not None and switch.kernel == target.kernel


def counted_policy(policies: Mapping[str, Policy], name: str) -> str:
    """The policy that audits a board: its kernel has to repair what it counts. Raises UsageError for another one."""
    chosen = "fixup" if name == "signal" else name
    if chosen in policies and not policies[chosen].fixup:
        raise UsageError(
            f"policy {name} does not audit a board",
            where="--policy",
            because="its kernel counts the accesses that it repairs, and this policy has none repaired",
            remedy="--policy fixup",
        )
    return chosen


def switch_file(target: Target) -> str:
    """The file that sets its kernel's treatment of misaligned accesses; empty if it has none."""
    switch = registry.of_isa(target.isa).alignment_switch
    return switch.file if switch is not None and has_switch(target) else ""


def counting_file(target: Target) -> str:
    """The file in which its kernel counts them; empty if it has none."""
    return registry.of_isa(target.isa).counting_file


def own_mode(policies: Mapping[str, Policy], policy: Policy, target: Target) -> int | None:
    """What makes its kernel follow a policy, written to `switch_file`; None if nothing does."""
    switch = registry.of_isa(target.isa).alignment_switch
    if switch is None or not has_switch(target):
        return None
    return policies[dict(switch.own_names).get(policy.name, policy.name)].mode


def settings(policies: Mapping[str, Policy], target: Target) -> list[Policy]:
    """Every policy to which a target's kernel can be set; if it has no switch, its only policy."""
    switch = registry.of_isa(target.isa).alignment_switch
    if switch is None or not has_switch(target):
        return [policies[target.kernel]]
    return [policy for policy in policies.values() if policy.name.startswith(switch.policies)]


def signal_of(target: Target) -> signal.Signals:
    """The signal of a misaligned access on a target."""
    return registry.of_isa(target.isa).misaligned_signal


def shown(target: Target, outcome: Outcome) -> tuple[Outcome, ...]:
    """What the canary program prints on a target for a prescribed outcome: a real kernel has its own signals.

    A board may have an emulator in a kernel's place, so that each of both is right there.
    """
    if outcome != "signal" or not target.emulator.is_elsewhere:
        return (outcome,)
    own = registry.of_isa(target.isa).kernel_signal
    return (own,) if target.emulator.has_kernel else tuple(dict.fromkeys((outcome, own)))


def userland(target: Target) -> str:
    """The name of the target whose programs it runs."""
    return target.userland or target.name


def model(target: Target) -> str:
    """The name of a target's machine in policies and in tables of instructions."""
    return target.variant_of or userland(target)


def audit_name(policy: str) -> str:
    """The name of a policy's audit."""
    return AUDIT if policy == "signal" else f"{AUDIT}-{policy}"


def is_audit(policy: str) -> bool:
    """Whether a policy's name is that of an audit."""
    return policy == AUDIT or policy.startswith(f"{AUDIT}-")


def base_name(policy: str) -> str:
    """The policy of an audit; the name itself if it is not an audit's."""
    return policy.removeprefix(AUDIT).removeprefix("-") or "signal" if is_audit(policy) else policy


def audited(policy: Policy) -> Policy:
    """A policy that reports and performs every access that the given one forbids."""
    name = audit_name(policy.name)
    return msgspec.structs.replace(policy, name=name, fixup=CLASSES, ignore=(), report=True, effective_policy={})


def shape(access: PlannedAccess | Encoding, offset: int) -> Access:
    """A planned access, or that of an encoding, at so many bytes past a 64-byte boundary."""
    unit, hint = access.unit_bytes, access.hint_bytes
    return Access(
        direction=access.direction,
        access_class=access.access_class,
        size_bytes=unit,
        modulo=offset % max(unit, hint, 1),
        hint_bytes=hint,
    )


def forbidden(target: Target, policy: Policy, access: Access) -> bool:
    """Whether an access is one that the policy has to deal with."""
    unit, hint, plain = access.size_bytes, access.hint_bytes, access.access_class not in UNSPLIT
    if policy.demand == "none" or not access.access_class:
        return False
    required = hint or min(target.demand.get(access.access_class, 1), unit)
    # Registers of 16 bytes contain pairs or copies of bytes; no object of portable C requires more than 8.
    natural = min(unit, 8) if plain else unit
    demand = max(natural, required) if policy.demand == "natural" else required
    # Compilers split no instruction that asks for more than its unit, and none at all where they are assumed to write
    # units of any width, vectors of 32 bytes among them.
    splits = policy.assumed_bytes < WIDEST_ASSUMED
    is_split = splits and plain and hint <= unit and access.modulo % min(unit, policy.assumed_bytes) == 0
    return access.modulo % demand != 0 and not is_split


def prescribed(target: Target, policy: Policy, access: Access) -> Outcome:
    """The effect of an access under a policy that `policy_for` has selected for its target."""
    if not forbidden(target, policy, access) or access.access_class in policy.fixup:
        return "done"
    if access.access_class in policy.ignore:
        return "rotated" if access.access_class in ROTATED and access.direction == "load" else "truncated"
    return "signal"


def rotates(encoding: Encoding) -> bool:
    """Whether what an encoding loads is rotated where its check is off. SWP loads too, and counts as a store."""
    return encoding.access_class in ROTATED and any(move.direction == "load" for move in encoding.moves)


def recorded_policies(policies: Mapping[str, Policy], name: str, machines: Collection[Target]) -> dict[str, Policy]:
    """The policies that a run records: those that `fate` reads for its machines, and what the named one is on each."""
    base = policies[base_name(name)]
    used = {policy_for(policies, base.name, machine).name for machine in machines if applies(base, machine)}
    return {one: policies[one] for one in sorted(used | fate_policies(policies, machines))}


def fate_policies(policies: Mapping[str, Policy], machines: Collection[Target]) -> set[str]:
    """The names of the policies that `fate` reads for these machines. Raises KeyError if `ignore` is missing."""
    ignore = policies["ignore"]
    instead = {ignore.effective_policy.get(model(machine), ignore.name) for machine in machines}
    return {"signal", ignore.name, *instead, *(machine.kernel for machine in machines)}


def fate(target: Target, policies: Mapping[str, Policy], access: Access) -> Fate:
    """The fate of a misaligned access on its target under its own kernel; empty if too little is known."""
    if not access.access_class or not access.size_bytes:
        return ""
    if prescribed(target, policies["signal"], access) == "done":
        return "hardware"
    ignore = policies["ignore"]
    ignoring = policies[ignore.effective_policy.get(model(target), "ignore")]
    if applies(ignore, target) and prescribed(target, ignoring, access) == "rotated":
        return "rotated"
    return "fixup" if prescribed(target, policies[target.kernel], access) == "done" else "kill"
