"""Jobs: the units of work that a worker runs one at a time. Each is a `plumb` command with a run folder, as a CI
system's job is.

A target's short suites share a job, because every job runs the target's canaries and sets the target up.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.model import Cell, Name, Record
from harness.isa import rules
from harness.judge.warning_findings import looked_at
from harness.plan.plan import make_jobs
from harness.run.cell_spec import LARGEST_SEED
from harness.workflows.cell_process import CELL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.plan.catalog import Catalog
    from harness.plan.plan import Job
    from harness.plan.request import Request

RUN, KNOWN, SERVER, CORPORA = "{run}", "{known}", "{server}", "{corpora}"
FOLDER, DISCARDED = "{folder}", "{discarded}"
"""Words that the worker replaces with its own paths. The last two are a new folder for what the command makes, and a
run folder that is not sent: both end with the job.
"""
LEARNED = "learned"
"""The folder in a run folder for the job's additions to the corpora."""
SECONDS_OF_TIER = {"quick": 25.0, "full": 420.0, "thorough": 1500.0}
"""Tier of a suite → the assumed length of its cell if no run has measured it."""
SHARED_SECONDS = 60.0
"""Suites of one target share a job until it is expected to take so long."""
ISLAND_SECONDS = 60.0
"""The maximum time for which a job fuzzes before it shares what it has learned."""
SET_UP_SECONDS = 3600.0
"""How long a worker may take to build what a job needs, before its deadline begins to count."""


class CampaignJob(Record, frozen=True):
    """One command for one worker."""

    name: Name
    """Also its folder in the campaign's."""
    words: list[str]
    """The words after `plumb`."""
    cells: list[Cell]
    """The required content of its run folder."""
    expected_seconds: float
    deadline_seconds: float
    version: str
    """The Plumbline that must carry it out."""
    known: str = ""
    """The text of the list of known findings."""
    tree: str = ""
    """Digest of the archive with the server's source; empty for a release, which the worker fetches by hash."""
    tree_name: str = ""

    @property
    def learns(self) -> bool:
        """Whether it receives what other jobs have learned, and returns what it learns itself."""
        return CORPORA in self.words

    @property
    def tests(self) -> list[str]:
        """Its `--test` patterns."""
        return [word for option, word in itertools.pairwise(self.words) if option == "--test"]

    @property
    def tree_folder(self) -> str:
        """The folder in a worker's cache that contains the server's source, below the one of all sources."""
        return self.tree[:32]

    def is_of_server(self, server: str) -> bool:
        """Whether a run's server is the job's: the release, or the tree in a worker's cache."""
        if self.tree:
            return PurePath(server).parts[-2:] == (self.tree_folder, self.tree_name)
        return server in {cell.server for cell in self.cells}

    @property
    def key(self) -> str:
        """Its content address: the same work has the same key at any time and for every requester."""
        described = msgspec.structs.replace(self, name="job", expected_seconds=0.0, deadline_seconds=0.0)
        return hashlib.sha256(json_codec.encode(described)).hexdigest()[:32]


def check_jobs(
    catalog: Catalog,
    request: Request,
    *,
    version: str,
    known: str,
    tree: str = "",
    tree_name: str = "",
    offline: bool = False,
    seconds: Mapping[str, float] | None = None,
) -> list[CampaignJob]:
    """The jobs of a check, the longest first. `seconds`: cell (`TARGET/SUITE`) → how long it took before.

    `tree`: the digest of the packed source where the server is a path.
    """
    jobs: list[CampaignJob] = []
    warned: set[str] = set()
    islands = _islands(request)
    for number, part in itertools.product(range(islands), list(_parts(catalog, request, seconds or {}))):
        # Compiler warnings are collected once per target, and not in each of its jobs, so each counts once.
        looks = request.warnings != "off" and any(
            looked_at(catalog.targets[name]) and name not in warned for name in part.targets
        )
        warned |= set(part.targets) if looks else set()
        cells = _cells(catalog, request, part)
        words = _words(
            catalog, _island(request, len(jobs), islands), part, warnings=request.warnings if looks else "off"
        )
        jobs.append(
            CampaignJob(
                name=f"{part.name}-{number + 1:03}" if islands > 1 else part.name,
                words=[*words, *(["--offline"] if offline else [])],
                cells=cells,
                # The jobs of all targets alternate: the others try what one target has learned.
                expected_seconds=ISLAND_SECONDS
                if islands > 1
                else sum(_expected(catalog, cell, seconds or {}) for cell in cells),
                deadline_seconds=_deadline_seconds(catalog, request, cells),
                version=version,
                known=known,
                tree=tree,
                tree_name=tree_name,
            )
        )
    return sorted(jobs, key=lambda job: -job.expected_seconds)


def command_jobs(
    commands: Mapping[str, Sequence[str]],
    *,
    expected_seconds: float,
    version: str,
    tree: str = "",
    tree_name: str = "",
    timeout_multiplier: float = 1.0,
    deadline_seconds: float | None = None,
) -> list[CampaignJob]:
    """A job for each of the commands, which make no run folder, by its name. `tree`: as of `check_jobs`.

    `timeout_multiplier`: how many times longer than usual each may take. `deadline_seconds`: how long at most; None: by
    the expected time.
    """
    return [
        CampaignJob(
            name=name,
            words=list(words),
            cells=[],
            expected_seconds=expected_seconds,
            deadline_seconds=timeout_multiplier * (deadline_seconds or SET_UP_SECONDS + 10 * expected_seconds),
            version=version,
            tree=tree,
            tree_name=tree_name,
        )
        for name, words in commands.items()
    ]


def _cells(catalog: Catalog, request: Request, part: Job) -> list[Cell]:
    """The cells of a job: those of its canaries first."""
    suites = list(dict.fromkeys([catalog.canary, *part.suites]))
    return [Cell(target=target, server=request.server, suite=suite) for target in part.targets for suite in suites]


def _deadline_seconds(catalog: Catalog, request: Request, cells: Sequence[Cell]) -> float:
    """How long a worker may take for a job's cells, one after the other, after all that they require is built."""
    deadlines = [catalog.suites[cell.suite].deadline_seconds or CELL_SECONDS[request.tier] for cell in cells]
    open_ended = 2 * (request.limit_seconds or 0) * len(cells)
    return catalog.timeout_multiplier * (SET_UP_SECONDS + sum(deadlines)) + open_ended


def _islands(request: Request) -> int:
    """How many short runs a long one of a suite that learns is cut into, for each target."""
    if not request.learns or request.limit_seconds is None or request.limit_count is not None:
        return 1
    return math.ceil(request.limit_seconds / ISLAND_SECONDS)


def _island(request: Request, at: int, islands: int) -> Request:
    """The request of one job. Jobs that learn have a seed each: what one of them drew, the others need not draw."""
    if not request.learns:
        return request
    seconds = request.limit_seconds and request.limit_seconds / islands
    return msgspec.structs.replace(request, seed=(request.seed + at) % (LARGEST_SEED + 1), limit_seconds=seconds)


def _parts(catalog: Catalog, request: Request, seconds: Mapping[str, float]) -> Iterator[Job]:
    """The jobs of `plumb plan --json`, of which those of one target are cut into pieces."""
    for job in make_jobs(catalog, request.plan, request.tier):
        suites = [name for name in job.suites if name != catalog.canary]
        if len(job.targets) > 1 or not suites:
            yield job
            continue
        piece: list[str] = []
        length = 0.0
        for suite in suites:
            cell = Cell(target=job.targets[0], server=request.server, suite=suite)
            expected = _expected(catalog, cell, seconds)
            if piece and length + expected > SHARED_SECONDS:
                yield _piece(job, piece)
                piece, length = [], 0.0
            piece.append(suite)
            length += expected
        yield _piece(job, piece)


def _piece(job: Job, suites: list[str]) -> Job:
    return msgspec.structs.replace(job, name=f"{job.targets[0]}-{suites[0]}", suites=suites)


def _expected(catalog: Catalog, cell: Cell, seconds: Mapping[str, float]) -> float:
    return seconds.get(f"{cell.target}/{cell.suite}", SECONDS_OF_TIER[catalog.suites[cell.suite].tier])


def _words(catalog: Catalog, request: Request, part: Job, *, warnings: str) -> list[str]:
    # A run that learns is `plumb fuzz`, whose suites and tier are its own.
    if request.learns:
        begin = ["fuzz", "--corpus", CORPORA]
    else:
        begin = ["audit" if rules.is_audit(request.policy) else "check", "--tier", request.tier]
        begin += ["--everywhere", request.everywhere]
        begin += [word for suite in part.suites for word in ("--suite", suite)]
    words = [*begin, *(word for target in part.targets for word in ("--target", target))]
    words += ["--server", SERVER, "--policy", rules.base_name(request.policy), "--optimisation", request.optimisation]
    words += ["--toolchain", catalog.family, "--allocator", request.allocator]
    words += ["--timeout-multiplier", f"{catalog.timeout_multiplier:g}"]
    words += ["--environment", request.environment, "--memory-order", request.memory_order]
    words += request.settings.words
    words += ["--io", request.io, "--emulator", request.emulator, "--seed", str(request.seed)]
    words += ["--warnings", warnings, "--known", KNOWN, "--run", RUN, "--jobs", "1"]
    words += [word for test in request.tests for word in ("--test", test)]
    words += ["--time", f"{request.limit_seconds:g}s"] if request.limit_seconds is not None else []
    words += ["--count", str(request.limit_count)] if request.limit_count is not None else []
    words += ["--fail-fast"] if request.fail_fast else []
    words += ["--mixed"] if request.mixed else []
    words += ["--target-clients"] if request.target_clients else []
    return [*words, "--install" if request.install else "--no-install"]
