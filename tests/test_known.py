"""The known list matches by globs, only where it says, and only until its last day."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.errors import UsageError
from harness.known import DEFAULT, KnownFinding, KnownList, load_known, match, remarks
from harness.load import Catalog
from tests import fakes

if TYPE_CHECKING:
    from pathlib import Path

TODAY = datetime.date(2026, 11, 21)
ARM = ("armv5", "armv6", "armv7")
ENTRY = 'id = "a"\nserver = "b"\nreason = "c"\nexpires = 2027-01-01\n'


def listed(
    *, name: str = "alignment-bitop*", server: str = "redis-3.*", targets: tuple[str, ...] = ARM, days: int = 0
) -> KnownList:
    found = KnownFinding(
        id=name, server=server, targets=list(targets), reason="why", expires=TODAY + datetime.timedelta(days=days)
    )
    return KnownList(findings=[found])


@pytest.mark.parametrize(
    ("finding", "server", "targets", "matches"),
    [
        ("alignment-bitopCommand-load", "redis-3.2.6", ["armv5"], True),
        ("alignment-bitopCommand-load", "redis-3.2.6", ["armv5", "armv6"], True),
        ("alignment-bitopCommand-load", "redis-3.2.6", ["armv5", "sparc64"], False),
        ("alignment-bitopCommand-load", "redis-7.0.15", ["armv5"], False),
        ("alignment-murmur32-load", "redis-3.2.6", ["armv5"], False),
    ],
)
def test_an_entry_covers_a_finding_only_where_all_of_it_matches(
    finding: str, server: str, targets: list[str], *, matches: bool
) -> None:
    assert matches == (match(listed(), finding, server, targets, TODAY) is not None)


@pytest.mark.parametrize(
    ("suites", "matches"),
    [(["bitops"], True), (["bitops", "bitops"], True), (["bitops", "sds"], False), (["sds"], False)],
)
def test_an_entry_of_one_suite_covers_nothing_that_another_shows(suites: list[str], *, matches: bool) -> None:
    (entry,) = listed().findings
    known = KnownList(findings=[msgspec.structs.replace(entry, suite="bitops")])
    found = match(known, "alignment-bitop-load", "redis-3.2.6", ["armv5"], TODAY, suites=suites)
    assert matches == (found is not None)


@pytest.mark.parametrize(
    ("narrowed", "meant"),
    [
        ("", ["aarch64", "armv5", "sparc32plus", "sparc64"]),
        ("targets = ['*64', 'armv*']", ["aarch64", "armv5", "sparc64"]),
        ("width_bits = 32", ["armv5", "sparc32plus"]),
        ("endianness = 'big'", ["sparc32plus", "sparc64"]),
        ("targets = ['sparc*']\nwidth_bits = 64\nendianness = 'big'", ["sparc64"]),
        ("targets = ['mips*']", []),
    ],
)
def test_an_entry_is_for_targets_by_name_width_and_order_of_bytes(
    tmp_path: Path, narrowed: str, meant: list[str]
) -> None:
    machines = {name: Catalog().targets[name] for name in ("aarch64", "armv5", "sparc32plus", "sparc64")}
    path = fakes.write(tmp_path / "known.toml", f"[[findings]]\n{ENTRY}{narrowed}\n")
    assert [entry.targets for entry in load_known(path, machines).findings] == [meant]


@pytest.mark.parametrize(("days", "counts"), [(-1, False), (0, True), (1, True)])
def test_the_last_day_is_included(days: int, *, counts: bool) -> None:
    assert counts == (match(listed(days=days), "alignment-bitop-load", "redis-3.2.6", ["armv5"], TODAY) is not None)


def test_remarks_concern_only_this_runs_server_and_targets() -> None:
    assert remarks(listed(days=-1), [], "redis-7.0.15", ["armv5"], TODAY) == []
    assert remarks(listed(days=-1), [], "redis-3.2.6", ["sparc64"], TODAY) == []
    assert 1 == len(remarks(listed(days=-1), [], "redis-3.2.6", ["armv5"], TODAY))  # noqa: SIM300


def test_a_seen_entry_is_not_remarked() -> None:
    assert remarks(listed(), ["alignment-bitop-load"], "redis-3.2.6", ["armv5"], TODAY) == []


def test_an_entry_of_one_suite_is_not_missed_by_a_run_without_it() -> None:
    of_suite = KnownList(findings=[msgspec.structs.replace(listed().findings[0], suite="protocol")])
    assert remarks(of_suite, [], "redis-3.2.6", ["armv5"], TODAY, suites=["canary", "bitops"]) == []
    assert len(remarks(of_suite, [], "redis-3.2.6", ["armv5"], TODAY, suites=["canary", "protocol"])) == 1


def test_an_entry_is_not_missed_where_only_a_part_of_the_tests_was_run() -> None:
    assert remarks(listed(), [], "redis-3.2.6", ["armv5"], TODAY, part=True) == []
    assert "expired" in remarks(listed(days=-1), [], "redis-3.2.6", ["armv5"], TODAY, part=True)[0]


def test_the_projects_own_list_is_valid() -> None:
    """And none of its entries is for machines that there are not."""
    assert all(entry.targets for entry in load_known(DEFAULT, Catalog().targets).findings)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("findigns = []\n", "'findings' is the nearest known key"),
        ('[[findings]]\nid = "a"\nserver = "b"\ntargets = []\nreason = "c"\n', "expires"),
        (f"[[findings]]\n{ENTRY}width_bits = 16\n", "16"),
        (f"[[findings]]\n{ENTRY}endianness = 'middle'\n", "middle"),
        (
            '[[findings]]\nid = "a"\nserver = "b"\ntargets = []\nreason = "c"\nexpires = "soon"\n',
            "expires",
        ),
    ],
)
def test_a_list_that_is_not_valid_is_a_usage_error_that_names_the_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_known(fakes.write(tmp_path / "known.toml", text), {})
    assert told in str(caught.value)


def test_what_chance_shows_is_not_missed() -> None:
    (entry,) = listed().findings
    known = KnownList(findings=[msgspec.structs.replace(entry, seldom=True)])
    assert remarks(known, [], "redis-3.2.6", ["armv5"], TODAY) == []
