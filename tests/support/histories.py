"""Judged runs for histories, with the findings and cells that a test names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.finding import Verdict
from harness.record import run_folder
from tests.support.judgements import cell, judgement
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.core.model import Tier

TARGETS = ("armv5", "sparc64")


def finding(identity: str, *targets: str, suite: str = "bitops", title: str = "", known: str = "") -> Finding:
    """A finding of one suite on these targets."""
    (example,) = judgement().findings
    (witness,) = example.witnesses
    return msgspec.structs.replace(
        example,
        id=identity,
        title=title or f"title of {identity}",
        targets=list(targets),
        known=known,
        witnesses=[msgspec.structs.replace(witness, target=target, suite=suite) for target in targets],
    )


def judged_run(
    parent: Path,
    name: str,
    *findings: Finding,
    server: str = "redis-7.0.15",
    revision: str = "",
    policy: str = "signal",
    targets: Sequence[str] = TARGETS,
    verdict: str = "",
    tier: Tier = "quick",
    tests: Sequence[str] = (),
    settings: Sequence[str] = (),
    left_out: int = 0,
) -> Path:
    """A run folder with its judgement. `verdict`: that of every cell of `bitops`; by default it follows from the
    findings.
    """
    folder = StoredRun(parent / name).finish()
    cells = []
    for target in targets:
        shown = "FAIL" if any(target in one.targets for one in findings) else "PASS"
        cells += [cell(target, "canary", "PASS"), cell(target, "bitops", verdict or shown)]
    whole = msgspec.structs.replace(
        judgement(),
        verdict=Verdict.merge([one.verdict for one in cells]),
        server=server,
        revision=revision,
        policy=policy,
        tier=tier,
        tests=list(tests),
        settings=list(settings),
        left_out=left_out,
        cells=cells,
        findings=list(findings),
        causes=[],
        record=run_folder.read_run(folder).digest,
    )
    (folder / "findings.json").write_bytes(json_codec.encode(whole))
    return folder
