"""The findings of the base revision: from the cache, or from a separate check."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import source_excerpt
from harness.build import toolchain
from harness.build.sources import tree_files
from harness.core.digests import key_of
from harness.core.strict_toml import OWN_FOLDERS
from harness.core.target_model import ORACLE
from harness.judge import baseline
from harness.report.formats import registry as formats
from harness.workflows import check
from harness.workflows.git.checkout import Checkout

if TYPE_CHECKING:
    from harness.judge.baseline import Baseline, BaseRevision
    from harness.plan.request import Request
    from harness.workflows.workbench import Workbench


def findings_of(bench: Workbench, request: Request, base: BaseRevision, *, name: str = "base") -> Baseline:
    """The base's findings with the same targets, suites and tests: from the cache, or from a check in RUN/NAME. The
    cache keeps them under this name.
    """
    cache = bench.cache
    checkout = Checkout(Path(request.server))
    key = key_of([name, *_identity(bench, request, checkout.content(base))])
    with cache.lock(f"base-{key}"):
        entry = cache.entry("bases", key)
        if entry is not None and (stored := baseline.read(entry)) is not None:
            bench.progress.say("using the cached findings of BASE")
            return msgspec.structs.replace(stored, base=base)
        with cache.work(f"base-{key}") as work:
            # The copy keeps the checkout's name, under which messages and the cache know its builds.
            tree = checkout.write(base, work / checkout.path.name)
            of_base = msgspec.structs.replace(request, server=str(tree), run=request.run / name)
            judgement, _ = check.Check(bench.with_new_stages("base: "), of_base, patient=True).run()
        formats.write(of_base.run, judgement)
        found = baseline.of_judgement(base, judgement, source_excerpt.read(of_base.run).sources)
        # The result is not kept if the project's own suites were edited meanwhile.
        if not found.unjudged and key_of([name, *_identity(bench, request, checkout.content(base))]) == key:
            cache.folder("bases", key, lambda into: baseline.write(into, found))
    return found


def _identity(bench: Workbench, request: Request, content: str) -> list[str]:
    """Everything that a base's findings depend on: its content, the request, compilers, and the project's own code."""
    tools = [bench.toolchain_of(bench.catalog.targets[name]) for name in [*request.plan.targets, ORACLE]]
    return [
        content,
        *request.plan.targets,
        *request.plan.suites,
        *request.tests,
        *(toolchain.identity(each) for each in tools),
        *map(tree_files.digest_of, OWN_FOLDERS),
        *map(
            str,
            (
                request.policy,
                request.optimisation,
                request.allocator,
                request.environment,
                request.memory_order,
                request.io,
                request.emulator,
                request.seed,
                request.warnings,
                request.everywhere,
                bench.catalog.timeout_multiplier,
                shlex.join(request.settings.words),
            ),
        ),
    ]
