"""`python -m tests.chaos.repetition --times 20 --busy 4` runs a check once, then again and again on a busy machine.

Each repetition must say what the first run said: verdicts, numbers of tests, findings and how each is handled. The exit
status is 1 if one differs. With `--ledger FILE`, repetitions that were interrupted go on.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.core.processes import process
from harness.core.strict_toml import ROOT
from tests.chaos.rounds import counts
from tests.end_to_end.support.plumb_runs import PLUMB

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITES = ("bitops", "network", "life", "threads")
"""Suites that compare replies, count connections, set time limits, and depend on the order of threads."""
LOOP = "while True: pass"


def said_by(document: dict[str, Any]) -> dict[str, Any]:
    """What a judgement says, without times and places."""
    findings = {
        one["id"]: {
            "targets": sorted(one["targets"]),
            "scope": one["scope"],
            "known": one["known"],
            "tests": sorted({witness["test"] for witness in one["witnesses"]}),
        }
        for one in document["findings"]
    }
    return {"verdict": document["verdict"], "cells": counts(document), "findings": findings}


def differences(first: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Where two of these differ, for the reader."""
    found = (
        [f"verdict {other['verdict']} instead of {first['verdict']}"] if first["verdict"] != other["verdict"] else []
    )
    for part in ("cells", "findings"):
        for name in sorted(first[part].keys() | other[part].keys()):
            before, after = first[part].get(name), other[part].get(name)
            if before != after:
                found.append(f"{name}: {after} instead of {before}")
    return found


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes compute all the time."""
    running = [process.start([sys.executable, "-c", LOOP]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in running:
            process.kill_group(one)


def _check(words: tuple[str, ...], folder: Path, number: int) -> dict[str, Any]:
    run = folder / f"run-{number:03}"
    command = [*PLUMB, "check", *words, "--seed", "1", "--offline", "--json", "--run", str(run)]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    # JSON makes lists of tuples, and the ledger's are lists.
    said: dict[str, Any] = json.loads(json.dumps(said_by(json.loads(output))))
    return said


@click.command()
@click.option("--times", default=20, show_default=True, help="How many checks to run on the busy machine.")
@click.option("--busy", "processes", default=4, show_default=True, help="How many processes keep it busy.")
@click.option("--server", default="redis-7.0.15", show_default=True, help="The release to check.")
@click.option("--target", default="armv5", show_default=True, help="The target to check it on.")
@click.option("--suite", "suites", multiple=True, default=SUITES, show_default=True, help="A suite; repeat for more.")
@click.option("--test", "tests", multiple=True, help="Only tests whose names contain this text; repeat for more.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Go on with the repetitions of this file.")
def main(
    *,
    times: int,
    processes: int,
    server: str,
    target: str,
    suites: tuple[str, ...],
    tests: tuple[str, ...],
    ledger: Path | None,
) -> None:
    """Compare repeated checks on a busy machine with one on the machine as it is."""
    process.stop_on_signals()
    words: tuple[str, ...] = ("--server", server, "--target", target)
    words += tuple(word for name in suites for word in ("--suite", name))
    words += tuple(word for name in tests for word in ("--test", name))
    lines = ledger.read_text("utf-8").splitlines() if ledger is not None and ledger.is_file() else []
    said: list[dict[str, Any]] = [json.loads(line) for line in lines]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="plumbline-again-", ignore_cleanup_errors=True) as folder:
        for number in range(len(said), times + 1):
            began = time.monotonic()
            with busy(processes if number else 0):
                said.append(_check(words, Path(folder), number))
            if ledger is not None:
                with ledger.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(said[-1]) + "\n")
            click.echo(f"{number:3}: {said[-1]['verdict']} in {time.monotonic() - began:.0f} s")
    for number, each in enumerate(said[1:], 1):
        found = differences(said[0], each)
        wrong += bool(found)
        for line in found:
            click.echo(f"{number:3}: {line}")
    click.echo(f"{len(said) - 1} checks on a busy machine, {wrong} of them differ from the first; {said[0]['cells']}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
