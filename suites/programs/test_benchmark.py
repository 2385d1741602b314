"""The benchmark sends the requested number of requests, and reports that number, on every machine."""

from __future__ import annotations

import csv
import math
import re
from typing import TYPE_CHECKING

import pytest

from suites._shared.keyspace import server
from suites._shared.programs import address

if TYPE_CHECKING:
    from harness.run.server_process import Guest
    from suites._shared.programs import Programs

REQUESTS = 1000
ROW = re.compile(r"([\d.]+)% <= ([\d.]+) milliseconds \(cumulative count (\d+)\)")
TESTS = "ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset,xadd"
WAYS = {
    "as it is": ["-c", "5"],
    "pipelines": ["-c", "5", "-P", "16"],
    "threads": ["-c", "8", "--threads", "3"],
    # LRANGE fetches a hundred elements.
    "large values": ["-c", "5", "-d", "20000", "-n", "100"],
    "resp3": ["-c", "5", "-3"],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_it_sends_what_it_is_told_and_measures_it(programs: Programs, oracle: Guest, way: list[str]) -> None:
    if lacking := [
        option for option in ("--threads", "-3") if option in way and not programs.offers("benchmark", option)
    ]:
        pytest.skip(f"the benchmark has no {lacking[0]}")
    # The option came with the percentiles.
    has_percentiles = programs.offers("benchmark", "--precision")
    with server.client(oracle) as client:
        client.command("FLUSHALL")
        words = [*address(oracle), "-n", str(REQUESTS), *way]
        output = programs.run("benchmark", *words, "-t", TESTS, "--csv").text
        rows = [row for row in csv.reader(output.splitlines()) if len(row) > 1 and row[0] != "test"]
        rates = {row[0]: float(row[1]) for row in rows}
        assert len(rates) >= 15, output
        # The program divides by whole milliseconds: requests that take less than one have an infinite rate.
        assert all(10 < rate < 1e7 or rate == math.inf for rate in rates.values()), output
        if has_percentiles:
            for row in rows:
                _, _, average, least, p50, p95, p99, most = row
                latencies = [float(word) for word in (least, p50, p95, p99, most)]
                assert latencies == sorted(latencies), output
                assert float(least) <= float(average) <= float(most), output
        size = int(way[way.index("-d") + 1]) if "-d" in way else 3
        assert client.command("STRLEN", "key:__rand_int__") == size
        # A pipeline or several threads may send a few more.
        requests = int(way[way.index("-n") + 1]) if "-n" in way else REQUESTS
        assert requests <= int(client.command("GET", "counter:__rand_int__")) <= requests + 8 * 16  # type: ignore[arg-type]


def test_its_random_keys_fill_their_range(programs: Programs, oracle: Guest) -> None:
    with server.client(oracle) as client:
        client.command("FLUSHALL")
        words = [*address(oracle), "-n", "2000", "-r", "100", "-q"]
        programs.run("benchmark", *words, "SET", "k:__rand_int__", "v")
        names = sorted(client.command("KEYS", "*"))  # type: ignore[arg-type,type-var]
    assert names == [b"k:%012d" % number for number in range(100)]


def test_its_report_adds_up(programs: Programs, oracle: Guest) -> None:
    if not programs.offers("benchmark", "--precision"):
        pytest.skip("the report has no percentiles")
    with server.client(oracle) as client:
        client.command("FLUSHALL")
        words = [*address(oracle), "-n", str(REQUESTS), "-c", "5", "--dbnum", "3", "-k", "0"]
        output = programs.run("benchmark", *words, "--precision", "3", "-t", "set,incr", "-d", "1000").text
        client.command("SELECT", 3)
        assert client.command("STRLEN", "key:__rand_int__") == 1000
        assert client.command("GET", "counter:__rand_int__") == b"%d" % REQUESTS
    reports = re.split(r"====== (\w+) ======", output)[1:]
    assert reports[::2] == ["SET", "INCR"], output
    for report in reports[1::2]:
        assert f"  {REQUESTS} requests completed in " in report, report
        assert "  5 parallel clients" in report, report
        assert "  1000 bytes payload" in report, report
        for part in ("Latency by percentile distribution:", "Cumulative distribution of latencies:"):
            numbers = [tuple(map(float, row)) for row in ROW.findall(report.partition(part)[2].partition("\n\n")[0])]
            assert numbers, report
            for column in zip(*numbers, strict=True):
                assert list(column) == sorted(column), report
            assert numbers[-1][0] == 100, report
            assert numbers[-1][2] == REQUESTS, report
            if part.startswith("Cumulative"):
                assert all(share == pytest.approx(100 * count / REQUESTS) for share, _, count in numbers), report
        # The order is: average, least, 50 %, 95 %, 99 %, most.
        average, *percentiles = (float(word) for word in report.split("max\n")[1].split()[:6])
        assert percentiles == sorted(percentiles), report
        assert percentiles[0] <= average <= percentiles[-1], report
        rate = re.search(r"throughput summary: ([\d.]+) requests per second", report)
        assert rate is not None, report
        assert 10 < float(rate[1]) < 1e7, report


def test_its_last_argument_comes_from_the_standard_input(programs: Programs, oracle: Guest) -> None:
    if not programs.offers("benchmark", "-x"):
        pytest.skip("the benchmark has no -x")
    # The benchmark ends an argument at the first NUL.
    content = bytes(range(1, 256)) * 300
    with server.client(oracle) as client:
        client.command("FLUSHALL")
        words = [*address(oracle), "-n", "10", "-c", "2", "-q", "-x", "RPUSH", "list"]
        programs.run("benchmark", *words, sent=content)
        stored = client.command("LRANGE", "list", 0, -1)
    assert stored == [content] * 10
