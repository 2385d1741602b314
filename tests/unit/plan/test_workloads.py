"""Workloads are parsed strictly, and requests that cannot be sent are refused before any server starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.core.errors import UsageError
from harness.plan.catalog import Catalog
from harness.plan.workloads import BenchWorkload, read_workloads
from harness.protocol.workload_requests import WorkloadRequests
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

HEAD = 'title = "A document"\nsource = "There it stands."\n'
PLAIN = '[[workloads]]\nname = "one"\ntitle = "One"\ncommands = [["SET", "key:{key}", "{value}"]]\nrequests = 100\n'


def workload_of(folder: Path, extra: str = "", *, text: str = PLAIN) -> dict[str, BenchWorkload]:
    return read_workloads([fakes.write(folder / "document.toml", HEAD + text + extra)])


def test_every_workload_of_the_catalog_can_be_sent_and_has_its_source() -> None:
    workloads = Catalog().workloads
    assert {"pi-1-plain", "pi-2-pipelined", "pi-3-aof", "pi-4-aof-rewrite"} <= workloads.keys()
    assert {one.payload_bytes for name, one in workloads.items() if name.startswith("pi5-set")} == {64, 512, 4096}
    assert all(one.title for one in workloads.values())


def test_a_complete_workload_has_the_declared_values(tmp_path: Path) -> None:
    one = workload_of(tmp_path, "pipeline = 10\nspread = 0.02\n")["one"]
    assert (one.requests, one.pipeline, one.spread, one.needs) == (100, 10, 0.02, {"set"})
    assert not one.shown_by_request
    assert workload_of(tmp_path)["one"].shown_by_request


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("pipelines = 8\n", "'pipeline' is the nearest"),
        ("pipeline = 0\n", "below 1"),
        ("pipeline = 3\n", "not a multiple of 3"),
        ("connections = 7\n", "not a multiple of 7"),
        ("warm_up = 5\npipeline = 10\n", "not a multiple of 10"),
        ("spread = 1.5\n", "spread"),
        ('during = "lunch"\n', "lunch"),
        ("new_connections = true\nconnections = 2\n", "both"),
        (PLAIN, "defined twice"),
    ],
)
def test_an_impossible_workload_is_refused_with_its_line(tmp_path: Path, extra: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        workload_of(tmp_path, extra)
    assert message in str(caught.value)
    assert "document.toml" in caught.value.where


@pytest.mark.parametrize("commands", ["[]", "[[]]", '[["PING"], []]'])
def test_a_workload_without_commands_is_refused(tmp_path: Path, commands: str) -> None:
    with pytest.raises(UsageError, match="no commands"):
        workload_of(tmp_path, text=PLAIN.replace('[["SET", "key:{key}", "{value}"]]', commands))


def test_a_workload_requires_its_preparing_and_its_counted_commands(tmp_path: Path) -> None:
    one = workload_of(tmp_path, 'prepare = [["XADD", "stream", "*", "field", "{value}"]]\n')["one"]
    assert one.needs == {"set", "xadd"}


@pytest.mark.parametrize(("at_once", "sizes"), [(2, [2, 2, 2]), (4, [4, 2]), (9, [6])])
def test_every_request_that_prepares_is_in_one_pipeline_in_order(at_once: int, sizes: list[int]) -> None:
    prepare = (("SET", "key:{key}", "one"), ("INCR", "{number}"))
    workload = BenchWorkload(name="two", title="", commands=(("PING",),), prepare=prepare, keys=3, requests=1)
    pipelines = list(WorkloadRequests(workload).prepared(at_once=at_once))
    assert [len(pipeline) for pipeline in pipelines] == sizes
    numbers = [f"{key:012d}".encode() for key in range(3)]
    whole = [words for number in numbers for words in ([b"SET", b"key:" + number, b"one"], [b"INCR", number])]
    assert [words for pipeline in pipelines for words in pipeline] == whole
