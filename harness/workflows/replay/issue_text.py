"""Gathers what a bug report needs beyond a stored finding: the fewest commands, releases, the distribution's QEMU."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import source_excerpt
from harness.core.errors import PlumblineError, UsageError
from harness.core.target_model import DEFAULT_FAMILY
from harness.isa import rules
from harness.judge.provenance import open_reproducer
from harness.judge.reproducer import stored_at
from harness.plan.name_selection import select
from harness.protocol.command_stream import text_of
from harness.record import stored_run
from harness.report import issue
from harness.report.finding import frame_in_tree
from harness.workflows.replay import shortening
from harness.workflows.replay.replay import replay
from harness.workflows.replay.reruns.server import AGAIN, DIFFERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.finding import Finding
    from harness.core.target_model import Target
    from harness.judge.findings import Judgement
    from harness.judge.reproducer import Reproducer
    from harness.plan.catalog import Catalog
    from harness.record.run_record import RunRecord
    from harness.workflows.replay.replay_result import Replay
    from harness.workflows.workbench import Workbench

ANSWERS = {"reproduced": "has it", "gone": "does not have it", "unknown": "unknown"}


def issue_text(
    bench: Workbench, folder: Path, judgement: Judgement, finding: Finding, *, releases: Sequence[str], trust: bool
) -> str:
    """The text about a finding of a run. It starts servers to shorten the commands, and to find out which releases have
    the bug.

    `releases`: names and globs of those to replay the finding on. `trust`: replay a reproducer that no check on this
    host made. Raises UsageError for a finding without a stored reproducer, and for a release that does not exist.
    """
    catalog = bench.catalog
    names = select("server", releases, catalog.servers) if releases else []
    path = stored_at(folder, finding.replay)
    if path is None:
        raise UsageError(
            f"{finding.id} has no reproducer in the run",
            where=str(folder),
            remedy=f"plumb show {shlex.quote(str(folder))} {shlex.quote(finding.id)} shows the available evidence",
        )
    run = stored_run.read(folder).record
    reproducer = open_reproducer(bench.cache, catalog.servers, str(path), server="", trust=trust)
    bench.progress.say(f"shortening {finding.id}")
    shortened = shortening.shorten(bench, reproducer)
    shown = replay(bench, shortened.reproducer, server="")
    place = frame_in_tree(finding)
    facts = issue.IssueFacts(
        machines={name: catalog.targets[name].title for name in run.targets if name in catalog.targets},
        server=run.server,
        target=reproducer.target,
        stream=text_of(shortened.stream) if shortened.stream else "",
        commands_before=shortened.commands_before,
        why_not_shorter=shortened.why_not,
        options=reproducer.options,
        files=sorted(reproducer.files),
        releases=[
            _told(name, shown) if name == reproducer.server else _answer(bench, shortened.reproducer, name)
            for name in names
        ],
        stock=_stock(bench, shortened.reproducer),
        source=source_excerpt.read(folder).sources.get(place.file, {}) if place else {},
        differences=[line for line in shown.text.splitlines() if line.startswith((DIFFERS, AGAIN))],
        command=_check_command(run, reproducer, finding),
    )
    return issue.render(judgement, finding, facts)


def _answer(bench: Workbench, reproducer: Reproducer, release: str) -> issue.ReleaseAnswer:
    bench.progress.say(f"replaying {reproducer.finding} on {release}")
    try:
        result = replay(bench, reproducer, server=release)
    except PlumblineError as error:
        return issue.ReleaseAnswer(release=release, answer=ANSWERS["unknown"], why=error.what)
    return _told(release, result)


def _told(release: str, result: Replay) -> issue.ReleaseAnswer:
    return issue.ReleaseAnswer(release=release, answer=ANSWERS[result.outcome], why=result.reason)


def _stock(bench: Workbench, reproducer: Reproducer) -> issue.StockEmulation:
    """Whether the finding also occurs under the distribution's emulator, according to a replay."""
    target = bench.catalog.targets[reproducer.target]
    if not target.emulator.is_qemu_user:
        return issue.StockEmulation(shows=False, why_not=f"{target.name} is no machine of its user-mode emulator")
    has_family = reproducer.toolchain != DEFAULT_FAMILY or bench.catalog.toolchain_of(target).family
    if reproducer.unit or reproducer.upstream or has_family:
        return issue.StockEmulation(shows=False, why_not="it takes more than a server, its compiler and a client")
    tree = bench.open_server(reproducer.server, reproducer.settings, packages=True)
    if tree.package is not None:
        return issue.StockEmulation(shows=False, why_not=f"not tried, {tree.package.title} is not compiled")
    # The distribution's emulator knows no policies, and writes no fault log: only the signal's effect shows.
    stock = msgspec.structs.replace(reproducer, emulator="distro")
    try:
        result = replay(bench, stock, server="")
    except PlumblineError as error:
        return issue.StockEmulation(shows=False, why_not=f"not tried, {error.what}")
    if result.outcome != "reproduced":
        return issue.StockEmulation(shows=False, why_not=result.reason or "it answers as the native build does")
    return issue.StockEmulation(shows=True, commands=_stock_commands(bench.catalog, target, tree.family, reproducer))


def _stock_commands(catalog: Catalog, target: Target, family: str, reproducer: Reproducer) -> list[str]:
    tools = catalog.toolchain_of(target)
    compiler = shlex.join([f"{tools.triple}-gcc", *target.compiler_flags])
    cpu = ["-cpu", target.emulator.cpu] if target.emulator.cpu else []
    root = next(iter(tools.sysroot.values()), f"/usr/{tools.triple}/lib").rpartition("/")[0]
    words = [f"qemu-{target.emulator.qemu}-static", *cpu, "-L", root, f"src/{family}-server", *reproducer.options]
    return [
        f"make -C src {family}-server CC={shlex.quote(compiler)} MALLOC=libc uname_S=Linux uname_M={target.machine}",
        f"{shlex.join(words)} --port 6379 &",
        f"{family}-cli < bug.stream",
    ]


def _check_command(run: RunRecord, reproducer: Reproducer, finding: Finding) -> str:
    """The command of a check of the suite that shows the finding on the reproducer's target."""
    witness = next((one for one in finding.witnesses if one.target == reproducer.target), finding.witnesses[0])
    words = ["check", "--server", run.server, "--target", reproducer.target, "--suite", witness.suite]
    for option, value, default in (
        ("--tier", run.tier, "quick"),
        ("--toolchain", run.toolchain, DEFAULT_FAMILY),
        ("--policy", "" if rules.is_audit(run.policy) else run.policy, "signal"),
        ("--allocator", run.allocator, "libc"),
        ("--environment", run.environment, "usual"),
        ("--memory-order", run.memory_order, "usual"),
        ("--io", run.io, "unix"),
        ("--optimisation", run.optimisation, "O2"),
    ):
        words += [option, value] if value not in {"", default} else []
    # The seed determines what tests draw.
    return shlex.join([*words, *run.settings.words, "--seed", str(run.seed)])
