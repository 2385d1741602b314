"""How soon the fuzzer shows bugs: the lists, a race, and what counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.plan.catalog import Catalog
from harness.run.cell_spec import PeerServer
from harness.workflows.mutation_testing.mutations import mutations
from suites.fuzz.failure import Failure
from tests.support import cells, fakes
from tools.fuzz_bugs import choice, document
from tools.fuzz_bugs.__main__ import due
from tools.fuzz_bugs.document import SCREENING, Bug, BugList, BugRaces, Found, Race
from tools.fuzz_bugs.race import found

if TYPE_CHECKING:
    from pathlib import Path

    from harness.protocol.command_stream import Stream
    from harness.protocol.resp import Reply
    from harness.run.server_process import Guest

GLOBS = Catalog().suites[choice.SUITE].source_globs
SLOW = Bug(name="slow", kind="rule", target="armv5", file="src/sort.c")
FOUND = Found(seconds=1.5, streams=300, commands=7000, shown="difference SORT")
MISSED = Found(seconds=11.0, streams=9000, commands=200_000, shown="")


def races(*runs: tuple[str, int, Found], bug: Bug = SLOW) -> BugRaces:
    return BugRaces(
        lists=[BugList(name="first", seed=1, bugs=[bug])],
        races=[Race(commit=commit, bug=bug.name, seed=seed, found=one) for commit, seed, one in runs],
    )


def taking(*seconds: float, commit: str = "old") -> list[tuple[str, int, Found]]:
    """Races with the seeds 1, 2, …; zero seconds: not found."""
    results = [msgspec.structs.replace(FOUND, seconds=one) if one else MISSED for one in seconds]
    return [(commit, seed, one) for seed, one in enumerate(results, 1)]


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        ("bitop-words", True),
        ("function-call-alignment", True),
        ("rewrite-child-alignment", False),
        ("lcs-table-width", False),
        ("bitcount-overread", False),
        ("role-offset-width", False),
    ],
)
def test_a_planted_bug_is_in_reach_if_commands_may_show_it_on_one_of_the_targets(name: str, *, reached: bool) -> None:
    assert choice.is_in_reach(mutations()[name], GLOBS) is reached


def test_the_stored_lists_share_no_bug_and_have_those_that_the_rule_chose() -> None:
    lists = document.read().lists
    names = [bug.name for one in lists for bug in one.bugs]
    assert len(names) == len(set(names))
    for one in lists:
        assert len(one.bugs) >= 20
    planted = {bug.name for one in lists for bug in one.bugs if bug.kind == "planted"}
    assert planted == {one.name for one in mutations().values() if choice.is_in_reach(one, GLOBS)}


@pytest.mark.parametrize(("failing", "at_once"), [(3, True), (30, False)])
def test_a_race_ends_at_the_first_stream_that_fails(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    runner = fakes.unemulated(Catalog().targets["native"])
    build = fakes.build(tmp_path, target="native")
    fakes.write(build.server_binary, fakes.answering_server(), mode=0o755)
    peers = {"native": PeerServer(runner=runner, build=build)}
    cell = msgspec.structs.replace(cells.spec_of("fuzz", tmp_path, runner), build=build, peers=peers)
    sent: list[Stream] = []

    def fails(_: Guest, __: Guest, stream: Stream, *___: object, **____: object) -> tuple[Failure | None, list[Reply]]:
        sent.append(stream)
        # It takes more processor time than the rounding of a result hides.
        until = time.process_time() + 0.02
        while time.process_time() < until:
            pass
        failure = Failure(index=0, label="GET", wrong_command="", message="wrong", sameness="same", stream=stream)
        return (failure if len(sent) == failing else None), []

    monkeypatch.setattr("suites.fuzz.session.attempt", fails)
    result = found(cell, 60)
    assert (result.streams, result.shown, len(sent)) == (failing, "same", failing)
    assert result.at_once is at_once
    assert result.commands == sum(map(len, sent))
    assert 0 < result.seconds < 20


def test_a_race_without_a_failure_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = fakes.unemulated(Catalog().targets["native"])
    build = fakes.build(tmp_path, target="native")
    fakes.write(build.server_binary, fakes.answering_server(), mode=0o755)
    peers = {"native": PeerServer(runner=runner, build=build)}
    cell = msgspec.structs.replace(cells.spec_of("fuzz", tmp_path, runner), build=build, peers=peers)

    def passes(*_: object, **__: object) -> tuple[None, list[Reply]]:
        sum(range(2_000_000))
        return None, []

    monkeypatch.setattr("suites.fuzz.session.attempt", passes)
    result = found(cell, 0.2)
    assert result.shown == ""
    assert 0.2 <= result.seconds < 5


def test_only_bugs_that_a_way_finds_and_not_always_by_a_committed_stream_are_raced_with_every_seed() -> None:
    first = msgspec.structs.replace(FOUND, at_once=True)
    cases = (
        ((FOUND,), True),
        ((MISSED,), False),
        ((MISSED, FOUND), True),
        ((first,), False),
        ((first, first), False),
        ((MISSED, first), True),
    )
    for screened, raced in cases:
        stored = races(*((str(number), SCREENING, one) for number, one in enumerate(screened)))
        assert document.is_raced(stored, SLOW) is raced
        assert due(stored, SLOW, 1) is raced
    assert due(races(), SLOW, SCREENING)


def test_a_race_without_a_failure_counts_as_its_limit() -> None:
    assert document.seconds(races(*taking(1.0, 3.0, 7.5)), "old", "slow") == 3.0
    assert document.seconds(races(*taking(1.0, 0.0, 7.5)), "old", "slow") == 7.5
    assert document.seconds(races(*taking(1.0, 0.0, 0.0)), "old", "slow") == 8.0
    assert document.seconds(races(*taking(1.0, 3.0)), "old", "slow") is None


def test_the_summary_compares_the_first_commit_with_the_last() -> None:
    screened = [("old", SCREENING, MISSED), ("new", SCREENING, FOUND)]
    stored = races(*screened, *taking(6.0, 0.0, 7.0), *taking(1.0, 2.0, 3.0, commit="new"))
    row = [cell.strip() for cell in document.summary_rows(stored)[-1].strip("|").split("|")]
    assert row == ["first", "1", "0", "0", "1", "1", "1", "7.00 s", "2.00 s", "0.29"]
    unreached = races(("old", SCREENING, MISSED))
    assert document.summary_rows(unreached)[-1].startswith("| first | 1 | 0 | 1 | 0 |")
    other = msgspec.structs.replace(stored.lists[0], name="held-back", bugs=[])
    both = msgspec.structs.replace(stored, lists=[*stored.lists, other])
    assert document.summary_rows(both)[-1] == document.summary_rows(stored)[-1].replace("first", "all")
