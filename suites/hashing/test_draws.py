"""Random elements of a value belong to it, and unions, intersections and differences equal a model's. The tests draw
from each encoding of sets, hashes and sorted sets, and combine each pair of encodings.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from suites._shared.paired_servers import PairedServers

FEW, MANY = 12, 700
"""Numbers of elements in a compact block and in a table, with the default limits of every release."""
INTEGERS = [0, 1, -1, 127, -128, 32767, -32769, 65536, -(2**31), 2**31, 2**32, -(2**63), 2**63 - 1]
KINDS = ("integers", "few", "many")
"""`integers`: integers of each width, which a set stores as an intset, other types in a compact block."""


def elements(both: PairedServers, kind: str) -> dict[bytes, float]:
    """Names, each with a number that a double holds."""
    names = [b"%d" % one for one in INTEGERS] if kind == "integers" else []
    while len(names) < {"integers": 0, "few": FEW, "many": MANY}[kind]:
        name = both.some_bytes(both.random.randrange(1, 30))
        if name not in names:
            names.append(name)
    return {name: (number - 5) * 0.25 for number, name in enumerate(names)}


ADD: dict[str, Callable[[str, bytes, float], list[Any]]] = {
    "hash": lambda key, name, number: ["HSET", key, name, number],
    "set": lambda key, name, _: ["SADD", key, name],
    "zset": lambda key, name, number: ["ZADD", key, number, name],
}
DRAW = {"hash": ("HRANDFIELD", ["WITHVALUES"]), "set": ("SRANDMEMBER", []), "zset": ("ZRANDMEMBER", ["WITHSCORES"])}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("holder", ADD)
def test_what_is_drawn_belongs_to_the_value(both: PairedServers, holder: str, kind: str) -> None:
    name, pairs = DRAW[holder]
    if not both.has(name):
        pytest.skip(f"{name} came later")
    stored = elements(both, kind)
    both.ask([ADD[holder]("t", each, number) for each, number in stored.items()])
    size = len(stored)
    # A few of the elements, most, all, and more than all. A negative count allows repetitions.
    for count in (0, 1, 2, 3, size // 5, size // 2, size - 1, size, size + 7, -1, -2, -size, -3 * size, -1001):
        drawn, *with_numbers = both.guest.pipeline(
            [[name, "t", count], *([[name, "t", count, *pairs]] if pairs else [])]
        )
        due = -count if count < 0 else min(count, size)
        _check(drawn, due, stored, distinct=count > 0)
        for flat in with_numbers:
            found = _pairs(flat)
            _check([each for each, _ in found], due, stored, distinct=count > 0)
            wrong = {each: number for each, number in found if number != stored[each]}
            assert not wrong, f"{name} {count}: {wrong!s:.200}"
    if pairs and both.has("HELLO"):
        for count in (1, size // 2, size, size + 7, -2, -3 * size):
            found = _nested(both, [name, "t", count, *pairs])
            due = -count if count < 0 else min(count, size)
            _check([each for each, _ in found], due, stored, distinct=count > 0)
            assert all(number == stored[each] for each, number in found), f"{name} {count} in RESP3: {found!s:.200}"
    alone = both.guest.pipeline([[name, "t"]] * 50)
    _check(alone, 50, stored, distinct=False)
    both.expect([[name, "nothing"], [name, "nothing", 3]], [None, []], "an absent key")


def _pairs(flat: Any) -> list[tuple[bytes, float]]:
    return [(each, float(text)) for each, text in zip(flat[::2], flat[1::2], strict=True)]


def _nested(both: PairedServers, request: list[Any]) -> list[tuple[bytes, float]]:
    """The pairs of a reply in RESP3, where each is a separate list."""
    both.guest.command("HELLO", 3)
    try:
        reply: Any = both.guest.command(*request)
    finally:
        both.guest.command("HELLO", 2)
    return [(each, float(number)) for each, number in reply]


def _check(drawn: Any, count: int, stored: dict[bytes, float], *, distinct: bool) -> None:
    assert isinstance(drawn, list)
    assert len(drawn) == count
    assert set(drawn) <= stored.keys(), f"not among the elements: {set(drawn) - stored.keys()!s:.200}"
    if distinct:
        assert len(set(drawn)) == count, "an element was drawn twice"


@pytest.mark.parametrize("holder", ["set", "zset"])
@pytest.mark.parametrize("kinds", list(permutations(KINDS, 2)), ids=" and ".join)
def test_combinations_of_two_encodings_are_what_a_model_says(
    both: PairedServers, kinds: tuple[str, str], holder: str
) -> None:
    if not both.has("ZDIFF"):
        pytest.skip("ZDIFF came with 6.2")
    shared = {b"shared:%d" % number: number * 0.5 for number in range(3)} | {b"-70000": 7.0, b"42": -7.5}
    if holder == "set" and "integers" in kinds:
        # An intset contains only integers.
        shared = {name: number for name, number in shared.items() if not name.startswith(b"shared")}
    first, second = (elements(both, kind) | shared for kind in kinds)
    for key, content, kept in (("a", first, "zset"), ("b", second, holder)):
        both.ask([ADD[kept](key, name, number) for name, number in content.items()])
    # A member of a set has the score 1.
    scores = second if holder == "zset" else dict.fromkeys(second, 1.0)
    union = {name: first.get(name, 0) + scores.get(name, 0) for name in first | scores}
    common = {name: number for name, number in union.items() if name in first and name in scores}
    _expect(both, ["ZUNION", 2, "a", "b"], union)
    _expect(both, ["ZINTER", 2, "a", "b"], common)
    # Servers have two algorithms: one visits the members of the first set, one visits all others' if those are fewer.
    _expect(both, ["ZDIFF", 2, "a", "b"], {name: number for name, number in first.items() if name not in scores})
    _expect(both, ["ZDIFF", 2, "b", "a"], {name: number for name, number in scores.items() if name not in first})
    _expect(both, ["ZDIFF", 5, "a", "b", "b", "b", "none"], {n: s for n, s in first.items() if n not in scores})
    both.expect(
        [["ZUNIONSTORE", "c", 2, "a", "b"], ["ZINTERSTORE", "d", 2, "b", "a"], ["ZDIFFSTORE", "e", 2, "a", "b"]],
        [len(union), len(common), len(first.keys() - scores.keys())],
        "sizes",
    )
    _expect(both, ["ZRANGE", "c", 0, -1], union)


def _expect(both: PairedServers, request: list[Any], scores: dict[bytes, float]) -> None:
    """Require the members with their scores, in the order of the scores and then of the bytes."""
    (flat,) = both.ask([[*request, "WITHSCORES"]])
    found = _pairs(flat)
    due = sorted(scores.items(), key=lambda pair: (pair[1], pair[0]))
    assert found == due, f"{request}: {len(found)} members, the model has {len(due)}"
