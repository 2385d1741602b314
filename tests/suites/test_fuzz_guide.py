"""The fuzzer's guide prefers methods that found something new, and never abandons a method."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from harness.protocol.command_stream import clients_of, from_text
from suites.fuzz.generate import generate
from suites.fuzz.grammar import grammar
from suites.fuzz.guide import LEAST_KEPT, OPENING, Guide, extend
from suites.fuzz.mutate import LONGEST

if TYPE_CHECKING:
    from harness.protocol.command_stream import Stream

SOME = from_text("SET s:one value\nAPPEND s:one more\nRPUSH list 1 2 3\nGET s:one\n")


def ways_of(guide: Guide, kept: list[Stream], paying: str, *, streams: int) -> dict[str, int]:
    """How often the guide takes each method if only one of them ever finds something."""
    taken = dict.fromkeys(guide.payoffs, 0)
    for _ in range(streams):
        stream = guide.next()
        taken[guide.way] += 1
        found = guide.way == paying
        if found:
            kept.append(stream)
        guide.learn(int(found))
    return taken


def test_at_first_streams_come_from_the_grammar() -> None:
    kept: list[Stream] = []
    assert ways_of(Guide(random.Random(1), kept, themes=False), kept, "nothing", streams=50)["generate"] == 50


def test_the_productive_method_is_used_most_and_the_others_are_still_used() -> None:
    for paying in ("generate", "mutate", "splice", "extend"):
        kept = [SOME] * LEAST_KEPT
        guide = Guide(random.Random(1), kept, themes=False)
        guide.learn(0)
        ways_of(guide, kept, paying, streams=300)
        taken = ways_of(guide, kept, paying, streams=300)
        assert max(taken, key=lambda way: taken[way]) == paying
        assert taken[paying] > 130
        assert min(taken.values()) > 3


def test_the_productive_theme_is_drawn_most_and_the_others_are_still_drawn() -> None:
    guide = Guide(random.Random(1), [], themes=True)
    drawn = []
    for _ in range(1200):
        estimates = any(one.name.startswith("PF") for one in guide.next())
        drawn.append(estimates)
        guide.learn(4 if estimates else 0)
    evenly = sum(any(one.name.startswith("PF") for one in generate(random.Random(seed))) for seed in range(300))
    assert sum(drawn[900:]) > 2 * evenly
    assert not all(drawn[900:])


def test_a_session_begins_with_each_theme_that_stores_values_and_ends_its_opening_with_two_clients() -> None:
    themes = grammar().themes
    guide = Guide(random.Random(1), [SOME] * LEAST_KEPT, themes=True)
    guide.learn(0)
    drawn = []
    while guide.opens_alone:
        drawn.append(guide.next())
        guide.learn(0)
    values = OPENING * sum(bool(theme.fills) for theme in themes.values())
    assert len(drawn) == OPENING * sum(not theme.second for theme in themes.values())
    assert {clients_of(stream) for stream in drawn} == {1}
    assert any(one.name == "SADD" for stream in drawn[:values] for one in stream)
    assert not any(one.name.startswith(("EVAL", "FCALL", "INFO")) for stream in drawn[:values] for one in stream)
    two = []
    for _ in range(OPENING * sum(bool(theme.second) for theme in themes.values())):
        two.append(guide.next())
        assert guide.way == "generate"
        guide.learn(0)
    assert {clients_of(stream) for stream in two} == {2}
    ways = set()
    for _ in range(100):
        guide.next()
        ways.add(guide.way)
        guide.learn(0)
    assert len(ways) > 1


def test_streams_of_two_clients_are_continued_less() -> None:
    costly = from_text("SET k v\n@2 GET k\n")
    guide = Guide(random.Random(1), [SOME, costly] * LEAST_KEPT, themes=False)
    guide.learn(0)
    parents = []
    for _ in range(600):
        guide.next()
        parents += [guide.parent % 2] if guide.parent >= 0 else []
        guide.learn(1)
    assert 0.05 < sum(parents) / len(parents) < 0.35


def test_of_two_equally_productive_methods_the_one_with_shorter_streams_has_the_higher_payoff() -> None:
    long = (SOME * LONGEST)[:LONGEST]
    shares = []
    for stream in (SOME, long):
        guide = Guide(random.Random(1), [stream] * LEAST_KEPT, themes=False)
        guide.learn(0)
        for _ in range(400):
            guide.next()
            guide.learn(1)
        shares.append(guide.payoffs["extend"] / guide.payoffs["generate"])
    assert shares[0] > 1.2 * shares[1]


def test_a_parent_whose_children_find_nothing_is_chosen_less() -> None:
    kept = [SOME] * LEAST_KEPT
    guide = Guide(random.Random(1), kept, themes=False)
    guide.learn(0)
    for _ in range(500):
        guide.next()
        guide.learn(1 if guide.parent == 3 else 0)
    taken = [0] * LEAST_KEPT
    for _ in range(500):
        guide.next()
        if guide.parent >= 0:
            taken[guide.parent] += 1
        guide.learn(1 if guide.parent == 3 else 0)
    assert taken.index(max(taken)) == 3
    assert min(taken) > 0


def test_a_stream_from_elsewhere_is_not_credited_to_a_method() -> None:
    guide = Guide(random.Random(1), [SOME], themes=False)
    before = guide.payoffs
    guide.learn(1000)
    assert guide.payoffs == before


def test_the_same_random_state_gives_the_same_streams() -> None:
    def streams() -> list[Stream]:
        kept = [SOME] * LEAST_KEPT
        guide = Guide(random.Random(7), kept, themes=False)
        made = []
        for number in range(40):
            made.append(guide.next())
            guide.learn(number % 3)
        return made

    assert streams() == streams()


def test_an_extended_stream_continues_with_its_own_keys() -> None:
    dice = random.Random(1)
    again = 0
    for _ in range(200):
        longer = extend(SOME, dice)
        assert longer[0] == SOME[0]
        assert len(longer) <= LONGEST
        begun = next(place for place in range(len(SOME), -1, -1) if longer[:place] == SOME[:place])
        again += any(b"s:one" in one.words or b"list" in one.words for one in longer[begun:])
    assert again > 130
