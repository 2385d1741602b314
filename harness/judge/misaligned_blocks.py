"""Tells misaligned accesses whose cause is the server's allocator: it gives blocks that are themselves misaligned.

A tree that stores a block's size in four bytes before it has every block at 4 mod 8. Each function that loads or stores
eight bytes there fails, and none of them is at fault. All of them are places of one finding.

An access belongs to it only if the server's own blocks, at the addresses that it told in the same cell, have one
misalignment, the access has the same one, and its address is neither on the stack nor in a mapped file or the program's
own data. A function with any other misaligned access keeps its own finding. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.judge.sightings.sighting import Sighting

FEWEST = 16
"""How many blocks must agree. A few may do so by chance."""
LARGEST = 16
"""The strictest alignment that malloc promises."""
IDENTITY = "alignment-allocator-blocks"


def misalignment_of(addresses: Sequence[int]) -> tuple[int, int]:
    """The remainder and the modulus that the blocks at these addresses have in common: 4, 8. 0, 1 if they are aligned,
    or if there are too few.
    """
    if len(set(addresses)) >= FEWEST:
        modulus = LARGEST
        while modulus > 1:
            remainders = {address % modulus for address in addresses}
            if len(remainders) == 1:
                return (remainders.pop(), modulus) if remainders != {0} else (0, 1)
            modulus //= 2
    return 0, 1


def marked(sightings: Iterable[Sighting], target: str, addresses: Sequence[int]) -> list[Sighting]:
    """A cell's sightings, those of misaligned blocks with the blocks' misalignment. `addresses`: of blocks of a server
    on the cell's target.
    """
    remainder, modulus = misalignment_of(addresses)
    return [
        msgspec.structs.replace(one, blocks=f"{remainder} mod {modulus}")
        if remainder and one.target == target and one.address % modulus == remainder and modulus <= one.required_bytes
        else one
        for one in sightings
    ]


def title_of(blocks: str) -> str:
    """The title of the finding. `blocks`: as in a sighting."""
    return f"misaligned blocks: the server's allocator puts each at {blocks}"


def merged(sightings: list[Sighting]) -> list[Sighting]:
    """The sightings, with one identity for all functions whose every misaligned access is to a misaligned block."""
    others = {one.identity for one in sightings if not one.blocks}
    return [
        msgspec.structs.replace(one, identity=IDENTITY, exact_identity=one.exact_identity or one.identity)
        if one.blocks and one.identity not in others
        else one
        for one in sightings
    ]
