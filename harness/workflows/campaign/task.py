"""A worker's side of a job: it runs `plumb` in its own process group, and packs the run folder.

Only plain values come in and go out: a worker of another version must be able to read enough to refuse.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.digests import files_below
from harness.core.errors import ExitCode, PlumblineError, is_machine_fault, machine_fault
from harness.core.processes import process
from harness.core.target_model import DEFAULT_FAMILY
from harness.plan.catalog import Catalog
from harness.workflows.campaign import archive, job, shared_store
from harness.workflows.campaign.campaign_folder import JobReport
from harness.workflows.campaign.version import harness_version, resource_of
from harness.workflows.ci_cache import ci_cache_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLUMB = (sys.executable, "-m", "harness.cli")
POLL_SECONDS = 1.0
SHOWN_LINES = 40
JUDGED = {ExitCode.PASS, ExitCode.FINDINGS, ExitCode.INCONCLUSIVE}
"""The exit codes of a command that judged."""
SHARED = ("archives", "builds", "emulators", "kernels")
"""The kinds of cache entries that workers share. Everything else in the cache takes only seconds to make."""
MOST_WITHDRAWN_SECONDS = 600.0
"""The longest time for which a worker takes no job because its machine could not carry the last one out."""


class WorkerSettings:
    """How this worker runs jobs. The process that becomes a worker fills it in."""

    program: Sequence[str] = PLUMB
    scratch: Path | None = None
    """Where run folders are written; None: with the other temporary files."""
    store: str = ""
    name: str = ""
    cells: int = 1
    withdrawn_seconds: float = 20.0
    """How long it takes no job after one that its machine could not carry out; then twice as long, and so on."""
    worker: Any = None
    """The engine's worker; None if a test calls `carry_out` itself."""


class _UnwantedError(Exception):
    """The job's result is no longer wanted."""


def carry_out(described: bytes, tree: bytes | None, corpora: bytes | None = None) -> tuple[bytes, bytes]:
    """Carry out a job. Returns a JobReport as JSON, and the packed run folder unless the shared store has it.

    `tree`: the packed source of a server that is not a release. `corpora`: what other jobs have learned, packed, of a
    job that learns. The exit code of a job that says nothing about the server is that of its error; this function
    raises nothing.
    """
    given = json_codec.decode(described, job.CampaignJob)
    started = time.monotonic()
    try:
        here = harness_version()
        if here != given.version:
            _Withdrawal.begin()
            return _report(
                given,
                started,
                ExitCode.INFRASTRUCTURE,
                problem=f"this worker has {here}, the job needs {given.version}",
            )
        return _carried_out(given, tree, corpora, started)
    except _UnwantedError:
        return _report(given, started, ExitCode.INTERRUPTED, problem="its result is no longer needed")
    except PlumblineError as error:
        if error.exit_code is ExitCode.INFRASTRUCTURE:
            _Withdrawal.begin()
        return _report(given, started, error.exit_code, problem=str(error))
    except Exception as error:
        if not is_machine_fault(error):
            raise
        _Withdrawal.begin()
        return _report(given, started, ExitCode.INFRASTRUCTURE, problem=str(machine_fault(error)))


def _carried_out(
    given: job.CampaignJob, tree: bytes | None, corpora: bytes | None, started: float
) -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory(prefix="job-", dir=WorkerSettings.scratch) as scratch:
        folder, run, known = Path(scratch), Path(scratch) / "run", Path(scratch) / "known.toml"
        known.write_text(given.known, "utf-8")
        server = str(_tree(given, tree)) if given.tree else "".join(cell.server for cell in given.cells[:1])
        learned = _Learned(folder / "corpora", corpora)
        places = {job.RUN: str(run), job.KNOWN: str(known), job.SERVER: server, job.CORPORA: str(learned.folder)}
        places |= {job.FOLDER: str(folder / "made"), job.DISCARDED: str(folder / "discarded")}
        words = [places.get(word, word) for word in given.words]
        output = folder / "output"
        cache, parts = Cache.default(), _parts(given, server)
        store = shared_store.SharedStore(WorkerSettings.store) if WorkerSettings.store else None
        if store is not None:
            store.take(cache, parts)
        result = process.run(
            # The shell's `exec` separates the streams, which process.run would write to one place.
            ["/bin/sh", "-c", 'exec "$@" >"$0"', output, *WorkerSettings.program, *words],
            deadline_seconds=given.deadline_seconds,
            environment=dict(os.environ),
            watch=_refuse_unwanted(given.key),
            watch_seconds=POLL_SECONDS,
        )
        text = output.read_text("utf-8", "replace")
        shown = "\n".join(result.text.splitlines()[-SHOWN_LINES:])
        is_judged = job.RUN not in given.words or (run / "findings.json").is_file()
        if result.expired or result.code not in JUDGED or not is_judged:
            code, problem = _failure(result, shown)
            return _report(given, started, code, problem=problem, messages=shown)
        if given.learns:
            learned.write_new(run / job.LEARNED)
        content = archive.pack(run) if run.is_dir() else b""
        _Withdrawal.end()
        digest = archive.digest_of_archive(content) if content else ""
        if store is not None:
            store.share(cache, parts)
        if store is not None and content:
            store.put("results", digest, content)
            content = b""
        return _report(
            given, started, ExitCode(result.code), messages=shown, output=text, digest=digest, content=content
        )


def _failure(result: process.Result, shown: str) -> tuple[ExitCode, str]:
    """The exit code and the problem of a command that gave no judgement. `shown`: the end of its messages.

    If the machine may be at fault, it takes no job for a while, unless the command merely took too long.
    """
    if result.expired:
        return ExitCode.INFRASTRUCTURE, f"it did not end within {result.seconds:.0f} s"
    # A signal, or an exit code that is not a judgement.
    code = ExitCode(result.code) if result.code in set(ExitCode) - JUDGED else ExitCode.INFRASTRUCTURE
    if code is ExitCode.INFRASTRUCTURE:
        _Withdrawal.begin()
    return code, _error_in(shown) or f"status {result.code}"


def _parts(given: job.CampaignJob, server: str) -> list[tuple[str, str]]:
    """Kind and key of entries that take minutes to make or to fetch for a job: those that CI systems keep from job to
    job.
    """
    # A family's toolchains are files that the worker would have to fetch to name what they build.
    own_toolchain = _option(given, "--toolchain", DEFAULT_FAMILY) == DEFAULT_FAMILY
    if not WorkerSettings.store or not given.cells or not own_toolchain:
        return []
    cache = Cache.default()
    level = _option(given, "--optimisation", "O2")
    catalog = Catalog()
    targets = sorted({cell.target for cell in given.cells if cell.target in catalog.targets})
    kept = ci_cache_entries(catalog, cache, targets, server, optimisation=level)
    paths = [Path(path).relative_to(cache.root) for entry in kept.values() for path in entry.paths]
    return [(path.parts[0], path.parts[1]) for path in paths if path.parts[0] in SHARED and path.suffix != ".seal"]


def _option(given: job.CampaignJob, name: str, default: str) -> str:
    """The word behind an option of a job's command; the default without the option."""
    return given.words[given.words.index(name) + 1] if name in given.words else default


class _Learned:
    """The corpora that a job begins with, and what it adds to them."""

    def __init__(self, folder: Path, corpora: bytes | None) -> None:
        self.folder = folder
        if corpora is not None:
            archive.unpack(corpora, archive.digest_of_archive(corpora), folder)
        self._given = self._files()

    def write_new(self, into: Path) -> None:
        """Copy the files that are new or have changed."""
        for name, content in self._files().items():
            if self._given.get(name) != content:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (into / name).write_bytes(content)

    def _files(self) -> dict[str, bytes]:
        return {name: path.read_bytes() for name, path, _ in files_below(self.folder) if not path.is_symlink()}


def _tree(given: job.CampaignJob, tree: bytes | None) -> Path:
    """The server's source, unpacked once into the cache."""
    cache = Cache.default()

    def fill(folder: Path) -> None:
        content = tree
        if content is None:
            content = shared_store.SharedStore(WorkerSettings.store).get("trees", given.tree)
        archive.unpack(content, given.tree, folder / given.tree_name)

    return cache.folder("campaign-trees", given.tree_folder, fill) / given.tree_name


def _refuse_unwanted(key: str) -> Callable[[], None]:
    """A check whether the job's result is still wanted: the campaign may have been stopped, or its machine lost.

    The engine cancels only what has not begun. For a running task, the worker only records that it is no longer wanted.
    """
    worker = WorkerSettings.worker
    if worker is None:
        return lambda: None
    task = worker.get_current_task()

    def refuse() -> None:
        state = worker.state.tasks.get(task)
        if state is None or state.state == "cancelled" or worker.status.name not in {"running", "paused"}:
            raise _UnwantedError(key)

    return refuse


def _report(
    given: job.CampaignJob,
    started: float,
    code: ExitCode,
    *,
    problem: str = "",
    messages: str = "",
    output: str = "",
    digest: str = "",
    content: bytes = b"",
) -> tuple[bytes, bytes]:
    report = JobReport(
        key=given.key,
        worker=WorkerSettings.name,
        exit_code=code,
        seconds=round(time.monotonic() - started, 2),
        output=output,
        messages=messages,
        archive=digest,
        problem=problem,
    )
    return json_codec.encode(report), content


def _error_in(text: str) -> str:
    """The output from the last error message on."""
    _, error, rest = text.rpartition("error: ")
    return f"{error}{rest}".strip()


class _Withdrawal:
    """While its machine lacks something, a worker takes no job: it would fail one after the other."""

    times = 0
    lock = threading.Lock()

    @classmethod
    def begin(cls) -> None:
        with cls.lock:
            cls.times += 1
            seconds = min(WorkerSettings.withdrawn_seconds * 2 ** (cls.times - 1), MOST_WITHDRAWN_SECONDS)
        offer(0)
        timer = threading.Timer(seconds, offer, [WorkerSettings.cells])
        timer.daemon = True
        timer.start()

    @classmethod
    def end(cls) -> None:
        cls.times = 0


def offer(cells: int) -> None:
    """Tell the engine how many cells this worker runs at a time from now on."""
    worker = WorkerSettings.worker
    if worker is None:
        return
    from distributed.worker_state_machine import UnpauseEvent  # noqa: PLC0415 - a worker has loaded it

    # The current version: after an update, the worker takes jobs of the new version.
    offered = {**dict.fromkeys(worker.state.total_resources, 0.0), resource_of(harness_version()): float(cells)}

    async def tell() -> None:
        await worker.set_resources(**offered)
        # A job that arrived while the worker took none is looked at again only when something happens to the worker.
        worker.handle_stimulus(UnpauseEvent(stimulus_id=f"plumbline-offers-{cells}-{time.time()}"))

    worker.loop.add_callback(tell)


def clean(scratch: Path) -> None:
    """Remove what killed workers left in a scratch folder."""
    for left in scratch.glob("job-*"):
        shutil.rmtree(left, ignore_errors=True)
