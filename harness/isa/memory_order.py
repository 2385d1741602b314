"""The order in which processors make their stores visible to one another: harness/isa/memory_orders.toml.

The pinned emulator runs threads on the host's processors, and so shows programs the host's order. With `--memory-order
weak` it delays each thread's stores as the target's architecture allows.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

from harness.core.errors import UsageError
from harness.core.model import Record
from harness.core.strict_toml import PACKAGE, read_toml

if TYPE_CHECKING:
    from harness.core.model import Flavour, MemoryOrder, StorePair
    from harness.core.target_model import Target

MEMORY_ORDERS = PACKAGE / "isa" / "memory_orders.toml"

ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=60000"}
"""What programs get besides: an allocator with a large cache for each thread seldom takes a lock, which would order all
stores.
"""
EARLY_LOADS = 50
"""The percentage of loads that are executed early, of those that may be and make a difference."""
SLOWER = 4
"""How many times longer programs may take while their stores wait."""

PAUSES_TO_SEE = 1000, 20000
"""How often a thread pauses while the others make 100,000 stores, instead of 5, so that the log names stores that they
saw. A small program that fails after some hundred stores has no other time to pause."""
PAIR_DEPTH = 64
"""How many stores of each thread wait at most if only two may be reordered: all between them wait, too."""
RESERVED_BYTES = 1 << 39
"""The size of the address space of programs with 64-bit pointers, where their addresses must not change: QEMU chooses
them only within a space that it reserves (its `-R`). All such architectures have as much.
"""

Order = Literal["unordered", "ordered", "ordered-unforwarded", "none"]
"""Of the stores of one thread, as other threads see them (memory_orders.toml explains each)."""


class MemoryModel(Record, frozen=True):
    """One architecture in harness/isa/memory_orders.toml."""

    order: Order
    store_barrier: str
    """An instruction that orders stores alone, or more; empty if the order is `none`."""
    early_loads: bool
    """Whether the emulator executes loads early, where the architecture lets it."""
    load_barrier: str
    """The instruction that, after a branch, orders loads behind it; empty unless `early_loads`."""
    single: list[str]
    """CPU models of the emulator that stand for a machine with one processor."""
    source: str


class MemoryModels(Record, frozen=True):
    """harness/isa/memory_orders.toml."""

    architectures: dict[str, MemoryModel]


@functools.cache
def models() -> dict[str, MemoryModel]:
    """Each model, by the name that targets give the instruction set."""
    return read_toml(MEMORY_ORDERS, MemoryModels).architectures


def why_not(target: Target) -> str:
    """The reason why a target's programs cannot be shown a weaker order than the host's; empty if they can."""
    if target.emulator.runs_here:
        return "its programs run directly on the host, in the host's order"
    if target.emulator.is_elsewhere:
        return "it is a machine with its own kernel; the user tier emulates the same programs"
    model = models()[target.isa]
    if model.order == "none":
        return f"its stores are not reordered ({model.source})"
    if target.emulator.cpu in model.single:
        return f"{target.emulator.cpu} is a single processor ({model.source})"
    return ""


def check_order(order: MemoryOrder, target: Target, flavour: Flavour) -> None:
    """Raise UsageError for an order that a target's programs cannot be shown."""
    if order == "usual" or not (why := why_not(target) or _not_pinned(flavour)):
        return
    raise UsageError(
        f"memory order '{order}' is not available on {target.name}",
        where="--memory-order",
        because=why,
        remedy="leave out the target or the option",
    )


def _not_pinned(flavour: Flavour) -> str:
    return "a distribution's emulator does not delay stores" if flavour == "distro" else ""


def model_of(target: Target) -> MemoryModel:
    """The model of a target. Raises UsageError for one whose programs see no weaker order than the host's."""
    check_order("weak", target, "pinned")
    return models()[target.isa]


def emulator_option(model: MemoryModel, seed: int) -> str:
    """The model as the value of the pinned emulator's `-memory-order` (toolchains/qemu/overlay/linux-user)."""
    stores = "unordered" if model.order == "unordered" else "ordered"
    forwarding = "no" if model.order == "ordered-unforwarded" else "yes"
    early = f",early-loads={EARLY_LOADS}" if model.early_loads else ""
    return f"stores={stores},forwarding={forwarding}{early},seed={seed}"


def with_evidence(option: str, seed: int, pair: StorePair | None = None) -> str:
    """The same option, with another seed, so that more of the stores which others see early are logged. `pair`: only
    the first of these may be early.
    """
    # Threads log more while they pause, and a server that always pauses does little: half of the seeds have the usual
    # pauses. With a pair there are few overtakes, and so few pauses.
    often, always = PAUSES_TO_SEE
    number = always if pair is None and seed % 4 == 3 else often
    pauses = f",pauses={number}" if pair is not None or seed % 2 else ""
    alone = f",early={pair.early},late={pair.late},depth={PAIR_DEPTH}" if pair is not None else ""
    return f"{option},seed={seed}{pauses}{alone}"
