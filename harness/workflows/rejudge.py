"""Judges a stored run again, from its records alone.

A run in the current format needs no catalogue, so the checkout's policies, targets and servers may have changed since.
A run of format 2 recorded neither policies nor the source of its server: this module takes them from the catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.build.sources.archives import archive_name
from harness.judge import conclusion
from harness.plan.catalog import Catalog
from harness.record import stored_run

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.cache import Cache
    from harness.core.errors import ExitCode
    from harness.core.progress import Progress
    from harness.judge.findings import Judgement
    from harness.record.run_record import RunRecord
    from harness.record.stored_run import TrustedRun


def rejudge(cache: Cache, progress: Progress, folder: Path, known: Path) -> tuple[Judgement, ExitCode]:
    """Judge a run folder with a known list. Raises UsageError for a folder that is not a run or leads out of itself."""
    stored_run.refuse_ways_out(folder)
    stored = opened(folder)
    source = stored.record.source
    tree = cache.entry("sources", source) if source else None
    return conclusion.conclude(stored, known, progress, tree=tree)


def opened(folder: Path) -> TrustedRun:
    """Read a run for judging. Raises what `stored_run.read` raises."""
    stored = stored_run.read(folder)
    if stored.record.version == FORMAT_WITHOUT_POLICIES:
        return msgspec.structs.replace(stored, record=_completed(stored.record, Catalog()))
    return stored


FORMAT_WITHOUT_POLICIES = 2


def _completed(record: RunRecord, catalog: Catalog) -> RunRecord:
    server = catalog.servers.get(record.server)
    source = archive_name(server.name, server.sha256) if server else ""
    return msgspec.structs.replace(record, policies=catalog.policies, source=source)
