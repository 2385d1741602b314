"""Judgements for tests of reports: runs with a finding, a cell of each verdict, and a hostile server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core.finding import Finding, Frame, Verdict, Witness
from harness.judge.findings import Judgement
from harness.judge.verdict import CellVerdict
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>alert(1)</script> ]]> \x1b[31m \x00 \u202e ::error::x \r\n::stop-commands::y | `` ![](http://x) @me"
"""A hostile reply: HTML, XML, terminal, bidirectional, workflow and Markdown commands."""
FRAMES = [
    Frame(function=name, file="src/bitops.c", line=line, origin="server", pc=1)
    for name, line in (("bitopCommand", 452), ("call", 9), ("main", 1))
]


def cell(target: str, suite: str, verdict: str, reason: str = "") -> CellVerdict:
    failed = int(verdict in {"FAIL", "XFAIL"})
    return CellVerdict(
        target=target,
        suite=suite,
        verdict=Verdict(verdict),
        seconds=1.5,
        reason=reason,
        passed=3,
        failed=failed,
        skipped=2,
    )


def judgement(*, title: str = "misaligned load in bitopCommand", reason: str = "its canaries misbehaved") -> Judgement:
    witness = Witness(
        target="armv5",
        suite="bitops",
        file="src/bitops.c",
        line=452,
        instruction="ldr r1, [r3]",
        access="load of 4 bytes at 1 mod 4",
        test="test_bitop",
        evidence="armv5/bitops/guest-1/faults.jsonl",
        backtrace=FRAMES,
    )
    finding = Finding(
        id="alignment-bitopCommand-load",
        kind="alignment",
        title=title,
        function="bitopCommand",
        file="src/bitops.c",
        line=452,
        instruction="ldr r1, [r3]",
        access="load of 4 bytes at 1 mod 4",
        origin="server",
        targets=["armv5"],
        command="BITOP AND c a b",
        replay="plumb replay /run/reproducers/alignment-bitopCommand-load.json",
        known="",
        witnesses=[witness],
        occurrences=2,
    )
    return Judgement(
        schema=1,
        verdict=Verdict.FAIL,
        server="redis-3.2.6",
        seed=7,
        run="/run",
        policy="signal",
        optimisation="O2",
        cells=[
            cell("armv5", "canary", "PASS"),
            cell("armv5", "bitops", "FAIL", "1 finding"),
            cell("sparc64", "canary", "UNKNOWN", "1 canary did not behave"),
            cell("sparc64", "bitops", "UNKNOWN", reason),
            cell("armv6", "bitops", "XFAIL", "known: why"),
        ],
        findings=[finding],
        remarks=["known finding x expired"],
        stages={"build": 2.0},
    )


def run_folder(tmp_path: Path) -> Path:
    """A run folder that has not been judged."""
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64", "armv6"))
    return stored.finish()


def only_canaries() -> Judgement:
    """The judgement of a run that did not end and skipped all suites. It is UNKNOWN, although no cell is."""
    cells = [cell("armv5", "canary", "PASS"), msgspec.structs.replace(cell("armv5", "bitops", "SKIP"), passed=0)]
    return msgspec.structs.replace(
        judgement(), verdict=Verdict.UNKNOWN, findings=[], remarks=[], cells=cells, unchecked=["the run did not end"]
    )


def several_findings() -> Judgement:
    """A judgement whose findings differ in target, kind and status, and one of which has a long id."""
    whole = judgement()
    (load,) = whole.findings
    dump = msgspec.structs.replace(
        load,
        id="wrong-result-protocol_keyspace.testsuite_keyspace_with_a_long_name_1.4-and-parameters-that-go-on-and-on",
        kind="wrong-result",
        title="DUMP's checksum is 0 on big-endian machines" + ", and so on" * 30,
        targets=["sparc64", "sparc32plus"],
    )
    start = msgspec.structs.replace(
        load, id="exit-start", kind="exit", title="the server exits", targets=["sparc64"], known="issue 3273"
    )
    return msgspec.structs.replace(whole, findings=[load, dump, start])
