"""Reproducers: the shortest requests that show a finding, with the server's options and files."""

from __future__ import annotations

import pytest

from tests.support.fakes import fault
from tests.support.stored import BITOP, StoredRun, a_fault, judged, reproducer

pytestmark = pytest.mark.usefixtures("fake_symbols")


def test_a_reproducer_holds_the_requests_and_all_that_a_replay_needs(run: StoredRun) -> None:
    a_fault(run)
    (finding,) = judged(run)[0]
    kept = reproducer(finding)
    assert (
        kept.kind,
        kept.function,
        kept.server,
        kept.target,
        kept.policy,
        kept.optimisation,
        kept.emulator,
    ) == ("alignment", "bitopCommand", "redis-3.2.6", "armv5", "signal", "O2", "pinned")
    assert [chunk.content for chunk in kept.chunks] == [BITOP]
    assert finding.replay.startswith("plumb replay ")


def test_a_sighting_with_requests_is_preferred_to_one_without(run: StoredRun) -> None:
    pc = run.place("armv5", "bitopCommand")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc))
    run.fault("armv5", "bitops", "guest-2", fault(pc=pc))
    run.test(
        "armv5",
        "bitops",
        "test_b",
        outcome="failed",
        message="closed",
        guest="guest-2",
        faults=(0, 1),
        transcript=BITOP,
    )
    run.guest("armv5", "bitops", "guest-2", end="signal", detail="killed by SIGBUS", test="test_b")
    (finding,) = judged(run)[0]
    assert [chunk.content for chunk in reproducer(finding).chunks] == [BITOP]


def test_of_several_transcripts_the_shortest_is_the_reproducer(run: StoredRun) -> None:
    pc = run.place("armv5", "bitopCommand")
    for number, requests in ((1, BITOP * 9), (2, BITOP), (3, BITOP * 5)):
        run.fault("armv5", "bitops", f"guest-{number}", fault(pc=pc))
        run.test(
            "armv5",
            "bitops",
            f"test_{number}",
            outcome="failed",
            message="closed",
            guest=f"guest-{number}",
            faults=(0, 1),
            transcript=requests,
        )
        run.guest("armv5", "bitops", f"guest-{number}", end="signal", detail="SIGBUS", test=f"test_{number}")
    (finding,) = judged(run)[0]
    assert [chunk.content for chunk in reproducer(finding).chunks] == [BITOP]
