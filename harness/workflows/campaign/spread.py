"""A check whose cells run on other machines: from the request to the same judgement that one machine would reach."""

from __future__ import annotations

import contextlib
import datetime
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.core import json_codec
from harness.core.cache import Cache, write_whole
from harness.core.errors import ExitCode, UsageError
from harness.judge import conclusion, merge
from harness.judge.reproducer import stored_at
from harness.report.formats import registry as formats
from harness.workflows.campaign import archive, campaign_page
from harness.workflows.campaign.campaign_folder import CampaignFolder, CampaignRecord, cells_of
from harness.workflows.campaign.drive import Drive
from harness.workflows.campaign.engine.cluster import read_cluster, require_engine
from harness.workflows.campaign.engine.local_machines import LocalMachines
from harness.workflows.campaign.islands import Islands
from harness.workflows.campaign.job import check_jobs, command_jobs
from harness.workflows.campaign.version import harness_version
from harness.workflows.campaign.workers import PATIENCE_SECONDS, STRANGERS_SECONDS
from harness.workflows.preparation.cell_specs import corpora_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.core.progress import Progress
    from harness.judge.findings import Judgement
    from harness.plan.request import Request
    from harness.workflows.campaign.campaign_folder import JobReport
    from harness.workflows.campaign.engine.cluster import Cluster
    from harness.workflows.workbench import Workbench


def check_on(
    bench: Workbench, request: Request, *, on: str, insecure: bool, command: Sequence[str] = ()
) -> tuple[Judgement, ExitCode]:
    """Run a request, or the missing part of it, on the machines that `--on` names, and join the results.

    `command`: the words that the user typed. Raises what `harness.workflows.campaign.drive.Drive.run` raises.
    """
    require_engine()
    cluster = read_cluster(on, insecure=insecure)
    tree, tree_name, trees = "", "", {}
    if request.server not in bench.catalog.servers:
        packed, tree_name = packed_tree(bench, request.server)
        tree = archive.digest_of_archive(packed)
        trees[tree] = packed
    seconds = _seconds_before(bench.cache)
    if (request.run / "campaign.json").is_file():
        # It is divided into the same jobs as when it began.
        seconds = CampaignFolder.read(request.run).record.seconds
    jobs = check_jobs(
        bench.catalog,
        request,
        version=harness_version(),
        known=_text_of(request.known),
        tree=tree,
        tree_name=tree_name,
        offline=bench.offline,
        seconds=seconds,
    )
    record = CampaignRecord(
        command=list(command),
        seed=request.seed,
        jobs=jobs,
        begun=_now(),
        order=request.plan.cells,
        seconds=dict(seconds),
    )
    folder = CampaignFolder.begin(request.run, record)
    corpora = corpora_of(bench, request)
    islands = Islands(folder, corpora, bench.progress.say) if request.learns else None
    patience = bench.catalog.timeout_multiplier
    carry_out(bench.progress, folder, cluster, trees=trees, islands=islands, timeout_multiplier=patience)
    judgement = joined(folder)
    if trees:
        path = Path(request.server).expanduser().resolve()
        place = conclusion.folder_in_repository(path, Path.cwd())
        judgement = msgspec.structs.replace(judgement, server=str(path), place=place)
    if not request.learns:
        # A run that learns lasts as long as requested, so its duration predicts nothing.
        _remember(bench.cache, judgement)
    return judgement, conclusion.exit_code(judgement.verdict)


def commands_on(
    progress: Progress,
    commands: Mapping[str, Sequence[str]],
    folder: Path,
    *,
    on: str,
    insecure: bool,
    expected_seconds: float,
    command: Sequence[str] = (),
    tree: tuple[bytes, str] = (b"", ""),
    timeout_multiplier: float = 1.0,
    deadline_seconds: float | None = None,
    read_document: Callable[[str, str], object] = lambda _, __: None,
    failures: dict[str, JobReport] | None = None,
) -> dict[str, JobReport]:
    """Carry out `plumb` commands that print a document, each a separate job. Returns how each ended, by its name.

    `folder`: the campaign's, new or begun before. `timeout_multiplier`: how many times longer than usual a command may
    take; `deadline_seconds`: how long usually; None: by the expected time. `tree`: what `packed_tree` returns for the
    server that is a path; the commands have the word `SERVER` of harness.workflows.campaign.job for it. `read_document`
    gets the name and the document of a command, and raises InconclusiveError if another worker is to repeat it.
    `failures` takes the commands that end without a document on every machine; None if they are an error. Raises what
    `harness.workflows.campaign.drive.Drive.run` raises.
    """
    require_engine()
    cluster = read_cluster(on, insecure=insecure)
    version = harness_version()
    content, tree_name = tree
    digest = archive.digest_of_archive(content) if content else ""
    jobs = command_jobs(
        commands,
        expected_seconds=expected_seconds,
        version=version,
        tree=digest,
        tree_name=tree_name,
        timeout_multiplier=timeout_multiplier,
        deadline_seconds=deadline_seconds,
    )
    record = CampaignRecord(command=list(command), seed=0, jobs=jobs, begun=_now())
    campaign = CampaignFolder.begin(folder, record, read_document)
    trees = {digest: content} if content else None
    carry_out(progress, campaign, cluster, trees=trees, timeout_multiplier=timeout_multiplier, failures=failures)
    arrived = campaign.arrived()
    return {name: arrived[name] for name in commands if name not in (failures or {})}


def packed_tree(bench: Workbench, server: str) -> tuple[bytes, str]:
    """The source of a server that is a path, and its name: what the compiler sees, and its list of known findings."""
    opened = bench.open_server(server)
    return archive.pack(opened.content, [*_files(opened.content), *_own_list(opened.path, opened.content)]), opened.name


def carry_out(
    progress: Progress,
    folder: CampaignFolder,
    cluster: Cluster,
    *,
    trees: dict[str, bytes] | None = None,
    islands: Islands | None = None,
    timeout_multiplier: float = 1.0,
    failures: dict[str, JobReport] | None = None,
) -> None:
    """Run the missing part of a campaign, and keep its page up to date. `failures`: as of `Drive`.

    `timeout_multiplier`: how many times longer than usual to wait for the scheduler of a cluster on the host, and
    for workers.
    """
    missing = len(folder.jobs) - len(folder.arrived())
    if not missing:
        return
    where = cluster.address or f"{cluster.local} local workers"
    with (
        _machines(cluster, timeout_multiplier) as (reached, restart_ended),
        progress.stage("suites", f"running {missing} jobs on {where}") as stage,
    ):
        page = campaign_page.PageWriter(folder)
        drive = Drive(
            folder,
            reached,
            progress.say,
            trees=trees,
            islands=islands,
            restart_ended=restart_ended,
            watch=page.write_if_due,
            patience_seconds=timeout_multiplier * PATIENCE_SECONDS,
            strangers_seconds=timeout_multiplier * STRANGERS_SECONDS,
            failures=failures,
        )
        stage.shows(drive.state)
        try:
            drive.run()
        finally:
            page.write()


@contextlib.contextmanager
def _machines(cluster: Cluster, timeout_multiplier: float) -> Iterator[tuple[Cluster, Callable[[], list[str]]]]:
    if not cluster.local:
        yield cluster, list
        return
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as private,
        LocalMachines(Path(private), cluster.local, timeout_multiplier=timeout_multiplier) as machines,
    ):
        yield machines.cluster, machines.restart_ended


def joined(folder: CampaignFolder) -> Judgement:
    """The judgement of all jobs, with paths from the campaign's folder on."""
    place = {(cell.target, cell.suite): number for number, cell in enumerate(folder.record.order)}

    def first_of(name: str) -> int:
        """The position of the job in the plan. Other jobs also contain its canaries."""
        cells = folder.jobs[name].cells
        return min(place.get((cell.target, cell.suite), 0) for cell in [*cells[1:], cells[-1]])

    names = sorted(folder.arrived(), key=first_of)
    judgements = [
        _moved(formats.read(run), folder, run, more=number > 0)
        for name in names
        for number, run in enumerate(folder.runs_of(name))
    ]
    # Jobs have the tree that they were given, in a folder of their worker.
    planned = [msgspec.structs.replace(cell, server=judgements[0].server) for cell in cells_of(folder.record)]
    # All jobs have the request's seed.
    tests = next(iter(folder.jobs.values())).tests
    judgement = merge.join(judgements, planned=planned, tests=tests)
    return msgspec.structs.replace(judgement, run=str(folder.path), remarks=[*judgement.remarks, *_remarks(folder)])


def _moved(judgement: Judgement, folder: CampaignFolder, run: Path, *, more: bool) -> Judgement:
    """A job's judgement, whose run folder is here now and not where its worker wrote it. `more`: it is a further result
    of the job, so that what it counted is counted already.
    """
    findings = []
    for finding in judgement.findings:
        here = stored_at(run, finding.replay)
        witnesses = [
            msgspec.structs.replace(witness, evidence=f"{run.relative_to(folder.path)}/{witness.evidence}")
            if witness.evidence
            else witness
            for witness in finding.witnesses
        ]
        replay = f"plumb replay {shlex.quote(str(here))}" if here is not None else finding.replay
        findings.append(msgspec.structs.replace(finding, replay=replay, witnesses=witnesses))
    if more:
        judgement = msgspec.structs.replace(judgement, counters={}, kernel_counters={}, left_out=0, stages={})
    # A job that learns has its own seed, which is made from this one.
    return msgspec.structs.replace(judgement, findings=findings, seed=folder.record.seed)


def _remarks(folder: CampaignFolder) -> list[str]:
    """Remarks for readers of the verdict: jobs that ran twice with different results."""
    return [
        f"the job {entry.job} ran twice, and the failures of both results count: {entry.why}"
        for entry in folder.journal()
        if entry.what == "again" and entry.why
    ]


def _files(tree: Path) -> list[Path]:
    return [path.relative_to(tree) for path in tree.rglob("*")]


def _own_list(tree: Path, copy: Path) -> list[Path]:
    """Copy the tree's own list of known findings beside the sources, if there is one."""
    place = Path(".plumbline") / "known.toml"
    if not (tree / place).is_file() or tree == copy:
        return []
    (copy / place).parent.mkdir(exist_ok=True)
    shutil.copy2(tree / place, copy / place)
    return [place.parent, place]


def _text_of(known: Path) -> str:
    try:
        return known.read_text("utf-8")
    except OSError as error:
        raise UsageError("the file cannot be read", where=str(known), because=str(error.strerror)) from error


def _now() -> str:
    return datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds")


def _seconds_before(cache: Cache) -> Mapping[str, float]:
    """Cell → how long it took in the last campaign that had it."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return json_codec.decode(cache.path("campaigns", "seconds.json").read_bytes(), dict[str, float])
    return {}


def _remember(cache: Cache, judgement: Judgement) -> None:
    path = cache.path("campaigns", "seconds.json")
    took = {f"{cell.target}/{cell.suite}": cell.seconds for cell in judgement.cells}
    # Only an estimate: a cache that cannot be written loses nothing else.
    with contextlib.suppress(OSError), cache.lock("campaigns-seconds"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json_codec.encode({**_seconds_before(cache), **took}))
