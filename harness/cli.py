"""The command line: reads it, calls one function, prints what it returns, exits with the documented code."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console

from harness import agree as agreeing
from harness import alignment, codec, completion, options, process, runs
from harness import bench as benchmarking
from harness import caches as caching
from harness import check as checking
from harness import doctor as doctoring
from harness import emulator as emulating
from harness import join as joining
from harness import mutate as mutating
from harness import port as porting
from harness import premerge as premerging
from harness import price as pricing
from harness import replay as replaying
from harness import report as reporting
from harness import shell as shelling
from harness import tax as taxing
from harness.build import Builder
from harness.cell import LARGEST_SEED
from harness.console import Progress
from harness.errors import ExitCode, PlumblineError, UsageError
from harness.fetch import Fetcher
from harness.load import DEFAULT_SERVER, Catalog, read_toml, select, target_groups
from harness.plan import make_plan, read_plan
from harness.report import terminal
from harness.report.schema import schema as findings_schema
from harness.store import Store, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.judge import Judgement
    from harness.model import Target

    Judged = tuple[Judgement, ExitCode]
    Work = Callable[[Catalog, Store, Progress, checking.Request], Judged]

RUNS = Path("runs")
FUZZ_SECONDS = 600.0
UNLIMITED_SECONDS = 7 * 86400.0


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
@click.version_option(package_name="plumbline", prog_name="plumb")
def plumb(debug: bool) -> None:
    """Find alignment and byte-order faults in Redis and Valkey, before hardware does."""
    del debug  # read by main(), which owns how errors are shown


@plumb.command()
@options.target
@options.emulator
@options.as_json
@click.option("--install", is_flag=True, help="Install what is missing.")
@click.option(
    "--for-tests", is_flag=True, help="And what the project's own tests need: a browser, and Go for actionlint."
)
def doctor(targets: tuple[str, ...], emulator: str, as_json: bool, install: bool, for_tests: bool) -> ExitCode:
    """Tell what this machine lacks for the selected targets, and the command that mends it."""
    catalog = Catalog()
    chosen = select("target", targets, catalog.targets, target_groups(catalog.targets))
    diagnosis = doctoring.diagnose(catalog, chosen, emulator=emulator, for_tests=for_tests)
    if as_json:
        _print_json(diagnosis)
    if install:
        doctoring.mend(diagnosis, Progress(), install=True)
        return ExitCode.PASS
    if not as_json:
        click.echo(
            f"missing: {' '.join(diagnosis.packages)}\n{diagnosis.command}"
            if diagnosis.packages
            else "nothing is missing"
        )
    return ExitCode.INFRASTRUCTURE if diagnosis.packages else ExitCode.PASS


@plumb.command("list")
@click.argument("what", type=click.Choice(["targets", "toolchains", "servers", "suites", "policies"]))
@options.as_json
def list_(what: str, as_json: bool) -> ExitCode:
    """List targets, toolchains, servers, suites or policies."""
    catalog = Catalog()
    nouns: dict[str, Any] = getattr(catalog, what)
    if as_json:
        _print_json(list(nouns.values()))
        return ExitCode.PASS
    for name, noun in nouns.items():
        about = getattr(noun, "title", "") or getattr(noun, "note", "") or getattr(noun, "triple", "")
        groups = f"  [{', '.join(noun.groups)}]" if hasattr(noun, "groups") else ""
        click.echo(f"{name:<28} {about}{groups}")
    return ExitCode.PASS


@plumb.command()
@options.target
@options.server
@options.suite
@options.tier
@options.as_json
def plan(targets: tuple[str, ...], server: str, suites: tuple[str, ...], tier: str, as_json: bool) -> ExitCode:
    """Show the cells that a check would run; with --json also how to spread them over machines, and what to cache."""
    catalog = Catalog()
    checking.known_server(catalog, server)
    planned = make_plan(catalog, targets=targets, server=server, suites=suites, tier=tier)
    if as_json:
        kept = caching.caches(catalog, Store.default(), planned.targets, server)
        _print_json({**msgspec.structs.asdict(planned), "caches": kept})
    else:
        click.echo("\n".join(cell.identity for cell in planned.cells))
    return ExitCode.PASS


@plumb.command()
@options.server
@options.offline
@options.as_json
def fetch(server: str, offline: bool, as_json: bool) -> ExitCode:
    """Fetch a server's source and QEMU's into the cache, checked by hash."""
    catalog, progress = Catalog(), Progress()
    fetcher = Fetcher(Store.default(), progress, offline=offline)
    tree = checking.open_server(catalog, fetcher, server)
    qemu = read_toml(emulating.QEMU_FOLDER / "qemu.toml", emulating.Qemu)
    fetcher.tree(f"qemu-{qemu.version}", qemu.sha256, qemu.places)
    if as_json:
        _print_json(tree)
    else:
        click.echo(f"{tree.name}: {tree.path}")
    return ExitCode.PASS


@plumb.command()
@options.target
@options.server
@options.optimisation
@options.emulator
@options.offline
@options.install
@options.as_json
def build(
    targets: tuple[str, ...],
    server: str,
    optimisation: str,
    emulator: str,
    offline: bool,
    install: bool | None,
    as_json: bool,
) -> ExitCode:
    """Build the emulators and the server for the selected targets."""
    catalog, progress, store = Catalog(), Progress(), Store.default()
    chosen = select("target", targets, catalog.targets, target_groups(catalog.targets))
    checking.known_server(catalog, server)
    doctoring.mend(doctoring.diagnose(catalog, chosen, emulator=emulator), progress, install=_may_install(install))
    fetcher = Fetcher(store, progress, offline=offline)
    flavour: emulating.Flavour = "distro" if emulator == "distro" else "pinned"
    emulating.Emulators(store, fetcher, progress, flavour=flavour).prepare(
        [catalog.targets[name].emulator for name in chosen]
    )
    tree = checking.open_server(catalog, fetcher, server)
    made = []
    for name in chosen:
        target = catalog.targets[name]
        made.append(Builder(store, progress).build(tree, target, catalog.toolchain_of(target), optimisation))
        if not as_json:
            click.echo(f"{name}: {made[-1].server_binary}")
    if as_json:
        _print_json(made)
    return ExitCode.PASS


@plumb.command()
@options.run_options
@options.policy
def check(**options: Any) -> ExitCode:
    """Build, run and judge: the main job."""
    return _make_run(**options)


@plumb.command()
@options.run_options
@options.policy
def audit(policy: str, **options: Any) -> ExitCode:
    """List every misaligned site that the suites reach, with its count: accesses are reported, and succeed."""
    return _make_run(policy=alignment.audit_name(policy), **options)


@plumb.command()
@options.fuzz_options
@options.policy
@click.option(
    "--time",
    "limit_seconds",
    type=options.Duration(),
    default=None,
    help="How long to fuzz each target: 90s, 10m, 2h.  [default: 10m, or no limit with --count]",
)
@click.option("--count", "limit_count", type=click.IntRange(1), default=None, help="How many streams to try at most.")
def fuzz(limit_seconds: float | None, limit_count: int | None, **options: Any) -> ExitCode:
    """Send random streams of commands for as long as you like: a check of the suite `fuzz` that learns as it goes."""
    if limit_seconds is None:
        limit_seconds = FUZZ_SECONDS if limit_count is None else UNLIMITED_SECONDS
    return _make_run(
        suites=("fuzz",),
        tier="thorough",
        limit_seconds=limit_seconds,
        limit_count=limit_count,
        learns=True,
        **options,
    )


@plumb.command()
@options.port_options
def port(run_folder: Path | None, keep: int, as_json: bool, **options: Any) -> ExitCode:
    """Tell a porter what a tree needs on a target: build, start, misaligned sites, wrong bytes, what to fix first."""
    catalog = Catalog()
    porting.portable_targets(catalog, options["targets"])
    request = _requested(catalog, run_folder, policy=porting.AUDITED_POLICY, **options)
    with _unless_empty(request.run):
        report, judgement = porting.make_report(catalog, Store.default(), Progress(), request)
    reporting.write(request.run, judgement)
    written = porting.write(request.run, report, judgement)
    if as_json:
        _print_json(report)
    else:
        click.echo(written[1].read_text("utf-8"), nl=False)
        click.echo(f"\n{written[2]}", err=True)
    if run_folder is None:
        runs.forget_runs(RUNS, keep=keep)
    return {"FAIL": ExitCode.FINDINGS, "UNKNOWN": ExitCode.INCONCLUSIVE}.get(report.verdict, ExitCode.PASS)


@plumb.command()
@options.premerge_options
@options.policy
@click.option(
    "--server",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default=True,
    help="A server's git checkout; what is not committed yet counts too.",
)
@click.option(
    "--since",
    metavar="REVISION",
    default="",
    help="Compare with where HEAD left this one.  [default: the default branch of origin, else HEAD]",
)
@click.option("--explain", is_flag=True, help="Tell the suites of each changed file, and why; run nothing.")
def premerge(
    server: Path, since: str, explain: bool, suites: tuple[str, ...], run_folder: Path | None, **options: Any
) -> ExitCode:
    """Check what a checkout changes, by suites that the changed files choose; blame what its base does not show too."""
    catalog, progress = Catalog(), Progress()
    premerging.refuse_inside(run_folder, server)
    planned = premerging.explain(
        catalog, server, since=since, targets=options["targets"], suites=suites, allocator=options["allocator"]
    )
    if explain or not planned.suites:
        if options["as_json"]:
            _print_json(planned)
        else:
            click.echo(premerging.text_of(planned) if explain else premerging.summary(planned))
        return ExitCode.PASS
    progress.say(f"BASE is {planned.base}")
    progress.say(premerging.summary(planned))
    seed = options.pop("seed")
    return _make_run(
        work=functools.partial(premerging.run, premerge=planned),
        progress=progress,
        # In the checkout, runs would be changes.
        parent=Store.default().path("premerge", f"{Path(planned.server).name}-{key_of([planned.server])}"),
        server=planned.server,
        suites=planned.suites,
        tier="quick",
        seed=planned.seed if seed is None else seed,
        run_folder=run_folder,
        **options,
    )


def _check(catalog: Catalog, store: Store, progress: Progress, request: checking.Request) -> Judged:
    return checking.Check(catalog, store, progress, request).run()


def _make_run(
    *,
    run_folder: Path | None,
    keep: int,
    annotations: str | None,
    as_json: bool,
    work: Work = _check,
    progress: Progress | None = None,
    parent: Path = RUNS,
    **options: Any,
) -> ExitCode:
    catalog = Catalog()
    request = _requested(catalog, run_folder, parent=parent, **options)
    folder = request.run
    with _unless_empty(folder):
        judgement, code = work(catalog, Store.default(), progress or Progress(), request)
    reporting.write(folder, judgement)
    _show(judgement, as_json=as_json)
    _annotate(folder, judgement, annotations)
    if run_folder is None:
        runs.forget_runs(parent, keep=keep)
    return code


@contextlib.contextmanager
def _unless_empty(folder: Path) -> Iterator[None]:
    """Keep a run folder, unless nothing came of it."""
    try:
        yield
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _requested(catalog: Catalog, run_folder: Path | None, *, parent: Path = RUNS, **options: Any) -> checking.Request:
    """What a run is asked for, checked before any work is done, with a folder and a seed."""
    make_plan(
        catalog,
        targets=options["targets"],
        server=options["server"],
        suites=options["suites"],
        tier=options["tier"],
    )
    checking.known_server(catalog, options["server"])
    folder = runs.empty_run_folder(run_folder) if run_folder else runs.new_run_folder(parent)
    seed = options.pop("seed")
    asked = {
        **options,
        "seed": random.randint(0, LARGEST_SEED) if seed is None else seed,
        "install": _may_install(options["install"]),
        "run": folder,
    }
    return codec.convert(asked, checking.Request)


@plumb.command()
@click.argument("reproducer")
@click.option(
    "--server",
    default="",
    help="Another release or tree than the recorded one.",
    shell_complete=completion.servers,
)
@click.option("--target", default="", help="Of a .stream file: where to send it.", shell_complete=completion.targets)
@click.option(
    "--bisect",
    is_flag=True,
    help="For `git bisect run`: exit 125 where the tree cannot tell, 255 for what is no fault of it.",
)
@options.offline
@options.as_json
def replay(reproducer: str, server: str, target: str, bisect: bool, offline: bool, as_json: bool) -> int:
    """Show a finding again, or send a .stream file, and compare with the native build.

    Exit 1: it is still there; 0: it is gone.
    """
    if bisect:
        return replaying.bisecting(lambda: _replay(reproducer, server, target, offline=offline, as_json=as_json))
    return _replay(reproducer, server, target, offline=offline, as_json=as_json)


def _replay(reproducer: str, server: str, target: str, *, offline: bool, as_json: bool) -> ExitCode:
    if reproducer.endswith(".stream"):
        if not target:
            raise UsageError("a stream does not say for which target", where=reproducer, remedy="--target armv5")
        read = replaying.from_stream(Path(reproducer), target=target, server=server or DEFAULT_SERVER)
    elif target:
        raise UsageError("a reproducer says itself for which target it is", where="--target")
    else:
        read = replaying.read_reproducer(reproducer)
    seen = replaying.replay(Catalog(), Store.default(), Progress(), read, server=server, offline=offline)
    if as_json:
        _print_json({"finding": read.finding, "reproduced": seen.reproduced, "text": seen.text})
    else:
        click.echo(f"{seen.text}\n{'reproduced' if seen.reproduced else 'not reproduced'}: {read.finding}")
    return ExitCode.FINDINGS if seen.reproduced else ExitCode.PASS


@plumb.command()
@click.argument("target", shell_complete=completion.targets)
@click.argument("gdb", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--server",
    default="",
    help="A release's name, or the path of a source tree.  [default: the reproducer's, or redis-7.0.15]",
    shell_complete=completion.servers,
)
@click.option("--run", "reproducer", default="", help="Send this reproducer, or .stream file, once the server answers.")
@click.option("--running", is_flag=True, help="Let the server run at once, instead of stopping it in main.")
@click.option(
    "--policy",
    default="",
    help="What a misaligned access does.  [default: the reproducer's, or signal]",
    shell_complete=completion.policies,
)
@click.option(
    "--optimisation",
    type=click.Choice(["", *options.LEVELS]),
    default="",
    help="Compiler's level.  [default: the reproducer's, or O2]",
)
@options.offline
@options.install
def shell(target: str, reproducer: str, install: bool | None, **options: Any) -> ExitCode:
    """Open gdb on a running server, its sources found. Words behind -- are gdb's: -- -batch -ex continue -ex bt."""
    catalog = Catalog()
    shelling.debuggable(catalog, target)
    session = codec.convert({**options, "target": target, "install": _may_install(install)}, shelling.Session)
    read = None
    if reproducer.endswith(".stream"):
        read = replaying.from_stream(Path(reproducer), target=target, server=session.server or DEFAULT_SERVER)
    elif reproducer:
        read = replaying.read_reproducer(reproducer)
    shelling.open_shell(catalog, Store.default(), Progress(), session, read)
    return ExitCode.PASS


@plumb.command()
@click.argument("run", type=click.Path(path_type=Path))
@options.known
@options.annotated
@options.as_json
def judge(run: Path, known: Path, annotations: str | None, as_json: bool) -> ExitCode:
    """Judge a stored run again, and write its report anew."""
    progress = Progress()
    tree = checking.stored_tree(Catalog(), Store.default(), run, progress)
    judgement, code = runs.conclude(run, known, progress, tree=tree)
    reporting.write(run, judgement)
    _show(judgement, as_json=as_json)
    _annotate(run, judgement, annotations)
    return code


@plumb.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(reporting.FORMATS),
    default=None,
    help="Print this one document instead; `github` are annotations, `throughput` is a table of commands a second.",
)
def report(run: Path, form: str | None) -> ExitCode:
    """Write the report of a judged run anew, or print one of its documents. Nothing is judged: exit 0."""
    judgement = reporting.read(run)
    if form:
        click.echo(reporting.render(run, judgement, form), nl=False)
        return ExitCode.PASS
    for path in reporting.write(run, judgement):
        click.echo(path)
    return ExitCode.PASS


@plumb.command()
@click.argument("folders", metavar="RUN…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    default=None,
    help="What `plumb plan --json` printed: its cells that no run has are UNKNOWN.",
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Write findings.json, summary.md, junit.xml and findings.sarif of all into this folder.",
)
@options.annotated
@options.as_json
def join(
    folders: tuple[Path, ...], plan_file: Path | None, into: Path | None, annotations: str | None, as_json: bool
) -> ExitCode:
    """Join judged runs, as those of a CI system's jobs, into one judgement, and exit as one check of all would."""
    planned = read_plan(plan_file) if plan_file else []
    judgement = joining.join([reporting.read(folder) for folder in folders], planned=planned)
    if into:
        into.mkdir(parents=True, exist_ok=True)
        reporting.write(into, judgement, forms=reporting.DOCUMENTS)
    _show(judgement, as_json=as_json)
    _annotate(into or folders[0], judgement, annotations)
    return runs.exit_code(judgement)


@plumb.command()
def schema() -> ExitCode:
    """Print the JSON schema of findings.json, which `check --json` prints too."""
    _print_json(findings_schema())
    return ExitCode.PASS


@plumb.command("completion")
@click.argument("shell", type=click.Choice(completion.SHELLS))
def completion_(shell: str) -> ExitCode:
    """Print what makes a shell complete plumb's words: eval "$(plumb completion bash)"."""
    click.echo(completion.script(plumb, shell))
    return ExitCode.PASS


@plumb.command()
@options.target
@options.server
@click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="Interleaved rounds; the median counts."
)
@options.as_json
def bench(targets: tuple[str, ...], server: str, rounds: int, as_json: bool) -> ExitCode:
    """Measure what enforcement, audit and coverage cost, in throughput and memory, over the same QEMU unchecked."""
    catalog, progress, store = Catalog(), Progress(), Store.default()
    fetcher = Fetcher(store, progress)
    emulators = emulating.Emulators(store, fetcher, progress)
    trees = [checking.open_server(catalog, fetcher, name) for name in (server, benchmarking.MISALIGNED_SERVER)]
    names = select("target", targets, catalog.targets, target_groups(catalog.targets))
    chosen = [catalog.targets[name] for name in names if catalog.targets[name].emulator.kind == "user"]
    programs = emulators.prepare([target.emulator for target in chosen])
    builder = Builder(store, progress)
    # Compilers would be most of the noise: everything is built before anything is measured.
    builds = {t.name: [builder.build(tree, t, catalog.toolchain_of(t), "O2") for tree in trees] for t in chosen}
    load_before = benchmarking.load()
    throughput: list[benchmarking.Ratio] = []
    memory: list[benchmarking.Memory] = []
    reports: list[benchmarking.ReportPrice] = []
    for target in chosen:

        def runner_for(policy: str, target: Target = target) -> emulating.Runner:
            chosen_policy = alignment.policy_for(catalog.policies, policy, target)
            return emulators.runner(target, catalog.toolchain_of(target), chosen_policy, programs)

        asked, misaligned = builds[target.name]
        ratios, taken = benchmarking.measure(asked, runner_for, trees[0], progress, rounds=rounds)
        throughput += ratios
        memory += taken
        reports.append(benchmarking.measure_reports(misaligned, runner_for, trees[1], progress, rounds=rounds))
    costs = benchmarking.Costs(
        server=trees[0].name,
        rounds=rounds,
        processors=os.cpu_count() or 1,
        load_before=load_before,
        load_after=benchmarking.load(),
        throughput=throughput,
        memory=memory,
        reports=reports,
    )
    if as_json:
        _print_json(costs)
    else:
        click.echo(benchmarking.text_of(costs))
    return ExitCode.PASS


@plumb.command()
@options.kernel_target
@options.offline
@options.install
@options.as_json
def agree(targets: tuple[str, ...], offline: bool, install: bool | None, as_json: bool) -> ExitCode:
    """Compare the user tier with real kernels: every access, offset and mode. Exit 1: a difference nobody explains."""
    catalog, progress, store = Catalog(), Progress(), Store.default()
    chosen = select("target", targets, catalog.targets, target_groups(catalog.targets))
    needed = doctoring.diagnose(
        catalog, [*chosen, *(alignment.userland(catalog.targets[name]) for name in chosen)], emulator="pinned"
    )
    doctoring.mend(needed, progress, install=_may_install(install))
    rows = agreeing.agree(catalog, store, Fetcher(store, progress, offline=offline), progress, chosen)
    strange = agreeing.unexplained(rows)
    if as_json:
        _print_json(rows)
        return ExitCode.FINDINGS if strange else ExitCode.PASS
    click.echo("\n".join(agreeing.summary(rows)))
    for reason in dict.fromkeys(row.reason for row in rows if row.reason):
        click.echo(f"\nexplained: {reason}")
    cases = sum(len(row.offsets) for row in rows)
    agreed = sum(len(row.offsets) for row in rows if row.agrees)
    explained = sum(len(row.offsets) for row in rows if row.reason)
    click.echo(f"\n{agreed} of {cases} agree, {explained} differ for a known reason, {len(strange)} rows unexplained")
    for row in strange:
        click.echo(f"unexplained: {row.target} {row.policy} {row.access} at {row.offsets}: {row.user} / {row.kernel}")
    return ExitCode.FINDINGS if strange else ExitCode.PASS


@plumb.command()
@options.kernel_target
@click.option(
    "--server",
    "servers",
    multiple=True,
    default=taxing.SERVERS,
    show_default=True,
    help="A release's name, or the path of a source tree; repeat for more.",
)
@options.optimisation
@options.offline
@options.install
@options.as_json
def tax(
    targets: tuple[str, ...],
    servers: tuple[str, ...],
    optimisation: str,
    offline: bool,
    install: bool | None,
    as_json: bool,
) -> ExitCode:
    """Measure what a kernel's fixup of a misaligned access costs, and what servers pay of it, in instructions."""
    catalog, progress, store = Catalog(), Progress(), Store.default()
    chosen = select("target", targets, catalog.targets, target_groups(catalog.targets))
    for name in chosen:
        checking.machine_target(catalog, name)
    for name in servers:
        checking.known_server(catalog, name)
    doctoring.mend(doctoring.diagnose(catalog, chosen, emulator="pinned"), progress, install=_may_install(install))
    fetcher = Fetcher(store, progress, offline=offline)
    measured = taxing.Taxation(catalog, store, fetcher, progress, optimisation=optimisation).measure(chosen, servers)
    if as_json:
        _print_json(measured)
    else:
        click.echo("\n".join(pricing.summary(measured)))
    return ExitCode.PASS


@plumb.command()
@click.argument("names", nargs=-1)
@click.option(
    "--target", "targets", multiple=True, help="Only these of the targets that must show it; repeat for more."
)
@options.offline
@options.install
@options.as_json
def mutate(
    names: tuple[str, ...], targets: tuple[str, ...], offline: bool, install: bool | None, as_json: bool
) -> ExitCode:
    """Plant bugs in a clean release, one at a time, and see that each is found. Exit 1: one was missed."""
    may_install = _may_install(install)
    rows = [
        # Each with a progress of its own: a run's record has the times of its own stages.
        mutating.mutate(
            Catalog(), Store.default(), Progress(), one, targets=targets, offline=offline, install=may_install
        )
        for one in mutating.chosen(names)
    ]
    if as_json:
        _print_json(rows)
    else:
        click.echo(mutating.text_of(rows))
    return ExitCode.PASS if all(row.caught for row in rows) else ExitCode.FINDINGS


@plumb.command()
@click.option("--yes", is_flag=True, help="Remove it; without it only sizes are shown.")
@options.as_json
def clean(yes: bool, as_json: bool) -> ExitCode:
    """Show what the cache holds, or remove it."""
    root = Store.default().root
    sizes = {}
    for entry in sorted(root.iterdir()) if root.is_dir() else []:
        sizes[str(entry)] = sum(f.stat().st_size for f in entry.rglob("*") if f.is_file() and not f.is_symlink())
        if not as_json:
            click.echo(f"{sizes[str(entry)] / 2**20:8.0f} MiB  {entry}")
        if yes:
            shutil.rmtree(entry)
    if as_json:
        _print_json([{"folder": folder, "bytes": size} for folder, size in sizes.items()])
    return ExitCode.PASS


def _may_install(asked: bool | None) -> bool:
    return os.geteuid() == 0 if asked is None else asked


def _print_json(value: Any) -> None:
    click.echo(codec.pretty(value).decode(), nl=False)


def _show(judgement: Judgement, *, as_json: bool) -> None:
    if as_json:
        _print_json(judgement)
    else:
        console = Console(
            highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 140
        )
        terminal.show(console, judgement)


def _annotate(folder: Path, judgement: Judgement, system: str | None) -> None:
    """On standard error, which CI systems read as well: standard output may be a document."""
    if system:
        told = reporting.render(folder, judgement, system)
        click.echo(told, nl=False, err=True)


def main(arguments: list[str] | None = None) -> None:
    """The console script."""
    process.stop_on_signals()
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(
        _guarded(lambda: plumb.main(args=words, prog_name="plumb", standalone_mode=False), debug="--debug" in words)
    )


def _guarded(call: Callable[[], Any], *, debug: bool) -> int:
    """Run a command; turn whatever it raises into a message and the documented exit code."""
    try:
        return int(call() or 0)
    except PlumblineError as error:
        if debug:
            traceback.print_exc()
        click.echo(str(error), err=True)
        return int(error.exit_code)
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        click.echo("  try: plumb --help", err=True)
        return int(ExitCode.USAGE)
    except (KeyboardInterrupt, click.Abort, process.StoppedError):
        click.echo("interrupted; everything of ours has been stopped", err=True)
        return int(ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, the shell gets the documented code
        if debug:
            traceback.print_exc()
        click.echo(f"error: a bug in Plumbline: {type(error).__name__}: {error}", err=True)
        click.echo("  try: the same with --debug first: plumb --debug …", err=True)
        return int(ExitCode.HARNESS_BUG)


if __name__ == "__main__":
    main()
