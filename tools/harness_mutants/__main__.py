"""`python -m tools.harness_mutants`: which mutants of the harness the project's own tests kill.

It needs a clean checkout, and continues where it was interrupted: what it knows of a commit is kept in
build/harness_mutants.
"""

from __future__ import annotations

import difflib
import re
import time

import click

from harness.core import json_codec
from harness.core.processes import process
from tools.harness_mutants.document import STORED, document, shares
from tools.harness_mutants.journal import Journal
from tools.harness_mutants.operators import mutants_in
from tools.harness_mutants.sample import draw
from tools.harness_mutants.stages import Stages, changed_files
from tools.harness_mutants.trial import Checkout, commit_of


@click.command(help=__doc__)
@click.option("--seed", type=int, default=62, show_default=True, help="Draw the sample with this seed.")
@click.option("--minutes", type=float, default=60.0, show_default=True, help="Begin no mutant after this time.")
@click.option("--only", metavar="REGEX", default="", help="Only mutants in whose names this occurs.")
@click.option("--commit", default="", help="Try this commit's tests and mutants instead of those of HEAD.")
@click.option("--end-to-end", "files", metavar="FILE", multiple=True, help="Then the tests of these files of tests/.")
@click.option("--slow", is_flag=True, help="Of those files the tests that only `ci/test --all` runs.")
@click.option("--show", is_flag=True, help="Print the changes, and run nothing.")
@click.option("--store", is_flag=True, help="Write measurements/harness-mutants.json, and run nothing.")
def main(
    seed: int, minutes: float, only: str, commit: str, files: tuple[str, ...], slow: bool, show: bool, store: bool
) -> None:
    """Run the stages, and print the shares."""
    process.stop_on_signals()
    until = time.monotonic() + 60 * minutes
    checkout = Checkout(commit or commit_of())
    checkout.provide()
    drawn = draw(mutants_in(checkout.root), checkout.root, seed)
    sample = [one for one in drawn if re.search(only, one.name)]
    journal = Journal(checkout.state / f"seed-{seed}.jsonl")
    if show:
        for one in sample:
            old = (checkout.root / one.file).read_text("utf-8").splitlines()
            new = changed_files(checkout.root, [one])[one.file].decode().splitlines()
            diff = list(difflib.unified_diff(old, new, one.name, one.name, lineterm="", n=2))
            click.echo("\n".join(diff[1:]))
        return
    if not store:
        stages = Stages(checkout, journal, until, click.echo)
        executions = stages.measure_quick()
        stages.covering(sample, executions)
        if time.monotonic() < until:
            stages.quick(sample, executions)
        stages.end_to_end(sample, files, slow=slow)
    found = document(checkout.commit, seed, drawn, journal)
    if store:
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_bytes(json_codec.pretty(found))
    click.echo("\n".join(shares(found)))


if __name__ == "__main__":
    main()
