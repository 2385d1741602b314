"""The 64-bit Mersenne Twister, and the judge of a server's implementation.

T. Nishimura, Tables of 64-bit Mersenne Twisters (2000); the parameters are those of the C++ standard, [rand.predef].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suites.units.values import bits_of, exactly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BITS = (1 << 64) - 1
_SIZE, _SHIFT, _LOW = 312, 156, 31
_MATRIX = 0xB5026F5AA96619E9
_FACTOR = 6364136223846793005
_FIRST = 19650218
"""The seed of the state into which several keys are mixed."""
_KEYED, _LAST = 3935559000370003845, 2862933555777941757


def from_seed(seed: int) -> list[int]:
    """The state that a seed determines."""
    state = [seed & _BITS]
    for at in range(1, _SIZE):
        before = state[-1]
        state.append((_FACTOR * (before ^ before >> 62) + at) & _BITS)
    return state


def from_keys(keys: Sequence[int]) -> list[int]:
    """The state that several keys determine."""
    state = from_seed(_FIRST)
    at, key = 1, 0
    for _ in range(max(_SIZE, len(keys))):
        before = state[at - 1]
        state[at] = ((state[at] ^ (before ^ before >> 62) * _KEYED) + keys[key] + key) & _BITS
        at, key = at + 1, (key + 1) % len(keys)
        if at == _SIZE:
            state[0], at = state[-1], 1
    for _ in range(_SIZE - 1):
        before = state[at - 1]
        state[at] = ((state[at] ^ (before ^ before >> 62) * _LAST) - at) & _BITS
        at += 1
        if at == _SIZE:
            state[0], at = state[-1], 1
    state[0] = 1 << 63
    return state


def numbers(state: list[int]) -> Iterator[int]:
    """The numbers that a state generates."""
    low = (1 << _LOW) - 1
    while True:
        for at in range(_SIZE):
            mixed = state[at] & ~low | state[(at + 1) % _SIZE] & low
            state[at] = state[(at + _SHIFT) % _SIZE] ^ mixed >> 1 ^ (_MATRIX if mixed & 1 else 0)
        for word in state:
            number = word ^ word >> 29 & 0x5555555555555555
            number ^= number << 17 & 0x71D67FFFEDA60000
            number ^= number << 37 & 0xFFF7EEE000000000
            yield (number ^ number >> 43) & _BITS


def judge(key: str, values: list[str]) -> str:
    """64-bit numbers; or a 63-bit number and two fractions in turn, each from the next number."""
    what, _, seed = key.split()
    state = from_keys([0x12345, 0x23456, 0x34567, 0x45678]) if seed == "keys" else None
    made = numbers(state or from_seed(int(seed)))
    if what == "numbers":
        return exactly(values, [str(next(made)) for _ in range(2 * 312 + 16)])
    forms = (
        lambda number: number >> 1,
        lambda number: bits_of((number >> 11) / (1 << 53)),
        lambda number: bits_of(((number >> 12) + 0.5) / (1 << 52)),
    )
    return exactly(values, [str(form(next(made))) for _ in range(20) for form in forms])
