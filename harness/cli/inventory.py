"""Commands that set up and maintain: plumb doctor, self-test, list, plan, fetch, build, clean, completion, board."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from harness.build import host_packages
from harness.build.emulators.qemu_source import pinned_qemu, unpacked_source
from harness.build.sources import server_tree
from harness.cli import options, output
from harness.cli.parameters import completion, value_types
from harness.cli.run_command import unless_empty
from harness.cli.run_options import folder_options, may_install
from harness.core.cache import Cache
from harness.core.ci_streams import write_commands
from harness.core.errors import ExitCode, UsageError
from harness.core.model import BuildSettings
from harness.core.progress import Progress
from harness.core.target_model import Toolchain, ToolchainFamily
from harness.core.untrusted_text import one_line
from harness.isa import rules
from harness.plan.catalog import Catalog
from harness.plan.name_selection import LISTS, require_known
from harness.plan.plan import make_jobs, make_plan
from harness.report.formats import registry as formats
from harness.run.boards.board_probe import compile_probe
from harness.workflows import cache_upkeep
from harness.workflows.boards import board_check, new_board
from harness.workflows.canaries import self_test as installation
from harness.workflows.ci_cache import ci_cache_entries
from harness.workflows.git.checkout import revision_of
from harness.workflows.target_setup import set_up_targets
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.cli.run_options import FolderOptions
    from harness.core.model import Flavour
    from harness.workflows.cache_upkeep import CacheEntry, Holding


Listed = TypeVar("Listed")


@click.command()
@options.target
@options.emulator
@options.as_json
@click.option("--install", is_flag=True, help="Install the missing packages.")
@click.option(
    "--for-tests",
    is_flag=True,
    help="Include the packages that the project's own tests need: a browser, a debugger, and Go for actionlint.",
)
def doctor(targets: tuple[str, ...], emulator: str, as_json: bool, install: bool, for_tests: bool) -> ExitCode:
    """List missing packages and how to install them.

    Exit 7: a package that the selected targets need is missing.
    """
    catalog = Catalog()
    chosen = catalog.select_targets(targets)
    diagnosis = host_packages.diagnose(catalog, chosen, emulator=emulator, for_tests=for_tests)
    if as_json:
        output.print_json(diagnosis)
    if install:
        host_packages.install_missing(host_packages.with_useful(diagnosis), Progress(), install=True)
        return ExitCode.PASS
    if not as_json:
        click.echo(
            f"missing: {' '.join(diagnosis.packages)}\n{diagnosis.command}"
            if diagnosis.packages
            else "nothing is missing"
        )
        if diagnosis.useful:
            click.echo(f"for Valkey 9's self-tests (suite selftests): {' '.join(diagnosis.useful)}")
        click.echo(_cache_size(Cache.default()))
    return ExitCode.INFRASTRUCTURE if diagnosis.packages else ExitCode.PASS


def _cache_size(cache: Cache) -> str:
    """How much of the disk the cache takes, in a sentence."""
    limit = cache_upkeep.limit(cache)
    of = "" if limit is None else f", of at most {cache_upkeep.gibibytes(limit)}"
    return f"the cache holds {cache_upkeep.gibibytes(cache_upkeep.measure(cache).bytes)}{of}: {cache.root}"


@click.command("self-test")
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="Target, glob or group, built if necessary; repeat for more.  [default: those whose emulators are built]",
    shell_complete=completion.targets,
)
@options.jobs
@folder_options
def self_test(run: FolderOptions, targets: tuple[str, ...], *, jobs: int) -> ExitCode:
    """Test this installation with the emulators' canaries.

    A canary makes every access of a machine's instruction set. Each access must behave as on the machine: load, store,
    or raise a signal. The command lists targets whose emulators are not built. Without --target it downloads nothing.
    """
    # Without names of targets, the command tests the targets that are available here.
    bench = Workbench.default(offline=run.offline or not targets, timeout_multiplier=run.timeout_multiplier)
    selection = installation.select(bench, targets)
    folder = run.run_folder()
    with unless_empty(folder):
        judgement, code = installation.prove(
            bench, selection, folder, known=run.known, install=may_install(run.install, offline=run.offline), jobs=jobs
        )
    formats.write(folder, judgement)
    output.show(judgement, as_json=run.as_json)
    run.forget_old_runs()
    return code


@click.command("list")
@click.argument("what", required=False, type=click.Choice(tuple(LISTS.values())))
@options.as_json
def list_(what: str | None, as_json: bool) -> ExitCode:
    """List targets, toolchains, servers, suites and more.

    It also lists `policies` and `workloads`. Without an argument, it lists everything.
    """
    catalog = Catalog()
    lists = {kind: _LISTS[kind](catalog) for kind in ([what] if what else _LISTS)}
    if as_json:
        documents = {kind: list(records.values()) for kind, (records, _) in lists.items()}
        output.print_json(documents[what] if what else documents)
    elif what:
        click.echo("\n".join(lists[what][1]))
    else:
        click.echo("\n\n".join("\n".join([f"{kind}:", *lines]) for kind, (_, lines) in lists.items()))
    return ExitCode.PASS


def _listed(records: Mapping[str, Listed], describe: Callable[[Listed], str]) -> tuple[Mapping[str, Listed], list[str]]:
    return records, [f"{name:<28} {describe(record)}" for name, record in records.items()]


def _toolchain(one: ToolchainFamily | Toolchain) -> str:
    """The title and the targets of a family, for `--toolchain`; for a target's own toolchain, its prefix."""
    return f"{one.title}  [{', '.join(one.targets)}]" if isinstance(one, ToolchainFamily) else one.triple


_LISTS: dict[str, Callable[[Catalog], tuple[Mapping[str, Any], list[str]]]] = {
    "targets": lambda catalog: _listed(catalog.targets, lambda one: f"{one.title}  [{', '.join(one.groups)}]"),
    "toolchains": lambda catalog: _listed({**catalog.families, **catalog.toolchains}, _toolchain),
    "servers": lambda catalog: _listed(catalog.servers, lambda one: one.note),
    "suites": lambda catalog: _listed(catalog.suites, lambda one: one.title),
    "policies": lambda catalog: _listed(catalog.policies, lambda one: one.title),
    "workloads": lambda catalog: _listed(catalog.workloads, lambda one: one.title),
}
"""Kind -> its records by name, and a line for each."""


@click.command()
@options.target
@options.server
@options.suite
@options.tier
@options.policy
@options.audit
@options.optimisation
@options.allocator
@options.toolchain
@options.environment
@options.memory_order
@options.io
@options.cflags
@options.make_variables
@options.as_json
def plan(
    targets: tuple[str, ...],
    server: str,
    suites: tuple[str, ...],
    *,
    tier: str,
    policy: str,
    audited: bool,
    optimisation: str,
    allocator: str,
    toolchain: str,
    environment: str,
    memory_order: str,
    io: str,
    cflags: tuple[str, ...],
    make_variables: tuple[str, ...],
    as_json: bool,
) -> ExitCode:
    """List the cells that a check would run.

    With --json, the plan also says how to split the cells across machines and which folders to cache.
    `plumb join --plan` refuses runs with other options than the plan's.
    """
    catalog = Catalog().planned_for(toolchain)
    known = server_tree.known_server(catalog, server, tell=Progress().say)
    require_known("policy", policy, catalog.policies, "--policy")
    planned = make_plan(catalog, targets=targets, server=server, suites=suites, tier=tier)
    if as_json:
        jobs = make_jobs(catalog, planned, tier)
        entries = ci_cache_entries(catalog, Cache.default(), planned.targets, server, optimisation=optimisation)
        settings = BuildSettings(cflags=cflags, make=make_variables)
        asked = {
            "tier": tier,
            "toolchain": catalog.family,
            "policy": rules.audit_name(policy) if audited else policy,
            "optimisation": optimisation,
            "allocator": allocator,
            "environment": environment,
            "memory_order": memory_order,
            "io": io,
            "settings": settings.words,
            "revision": revision_of(known) if isinstance(known, Path) else "",
        }
        output.print_json({**msgspec.structs.asdict(planned), **asked, "jobs": jobs, "caches": entries})
    else:
        click.echo("\n".join(cell.identity for cell in planned.cells))
    return ExitCode.PASS


@click.command()
@options.server
@options.offline
@options.as_json
def fetch(server: str, offline: bool, as_json: bool) -> ExitCode:
    """Download the sources of a server and of QEMU.

    The archives are verified by hash and kept in the cache.
    """
    bench = Workbench.default(offline=offline)
    tree = bench.open_server(server)
    qemu = pinned_qemu()
    unpacked_source(bench.fetcher, qemu)
    if as_json:
        output.print_json(tree)
    else:
        click.echo(f"{tree.name}: {tree.path}")
    return ExitCode.PASS


@click.command()
@options.target
@options.server
@options.optimisation
@options.emulator
@options.offline
@options.install
@options.timeout_multiplier
@options.as_json
def build(
    targets: tuple[str, ...],
    server: str,
    optimisation: str,
    emulator: Flavour,
    offline: bool,
    install: bool | None,
    timeout_multiplier: float,
    as_json: bool,
) -> ExitCode:
    """Build the emulators and a server.

    Only what the selected targets need is built.
    """
    bench = Workbench.default(offline=offline, timeout_multiplier=timeout_multiplier)
    catalog = bench.catalog
    chosen = catalog.select_targets(targets)
    server_tree.known_server(catalog, server)
    host_packages.install_missing(
        host_packages.diagnose(catalog, chosen, emulator=emulator),
        bench.progress,
        install=may_install(install, offline=offline),
    )
    setups = set_up_targets(bench, [catalog.targets[name] for name in chosen], flavour=emulator)
    tree = bench.open_server(server)
    made = []
    for name, setup in setups.items():
        made.append(setup.build(tree, optimisation))
        if not as_json:
            click.echo(f"{name}: {made[-1].server_binary}")
    if as_json:
        output.print_json(made)
    return ExitCode.PASS


@click.command()
@click.option("--yes", is_flag=True, help="Remove everything that no running command uses.")
@click.option(
    "--older-than",
    "older_seconds",
    type=value_types.Age(),
    default=None,
    help="Remove entries that no command has used for this long: 12h, 30d.",
)
@click.option(
    "--keep-releases",
    is_flag=True,
    help="With --older-than: keep the sources of the releases that `plumb list servers` names, and their builds.",
)
@click.option("--server", default="", metavar="NAME", help="Remove what belongs to this server.")
@click.option("--target", default="", metavar="NAME", help="Remove what belongs to this target.")
@click.option(
    "--limit",
    "limit_bytes",
    type=value_types.Size(),
    default=None,
    help="Keep the cache below this size from now on: 500MiB, 20GiB, none. Each command that adds to the cache removes "
    "the least recently used entries.  [default: 10GiB]",
)
@options.as_json
def clean(
    *,
    yes: bool,
    older_seconds: float | None,
    keep_releases: bool,
    server: str,
    target: str,
    limit_bytes: int | None,
    as_json: bool,
) -> ExitCode:
    """Show the contents of the cache, or remove some or all.

    An entry must fit --older-than, --server and --target if several are given. Entries that a running command uses are
    kept.
    """
    if keep_releases and older_seconds is None:
        raise UsageError("--keep-releases has no effect here", where="--keep-releases", remedy="--older-than 30d")
    if yes and (server or target or older_seconds is not None):
        raise UsageError("--yes removes everything", where="--yes", remedy="leave --yes out")
    cache = Cache.default()
    if limit_bytes is not None:
        cache_upkeep.set_limit(cache, None if limit_bytes == value_types.NO_LIMIT else limit_bytes)
    holding, limit = cache_upkeep.look(cache), cache_upkeep.limit(cache)
    kinds = {str(cache.root / kind): size for kind, size in holding.by_kind().items()}
    of = "without a limit" if limit is None else f"of at most {cache_upkeep.gibibytes(limit)}"
    shown = [
        *(f"{size / 2**20:8.0f} MiB  {folder}" for folder, size in kinds.items()),
        f"{holding.bytes / 2**20:8.0f} MiB  in all, {of}",
    ]
    if yes:
        chosen = holding.entries
    elif older_seconds is not None or server or target:
        old = _unused_for(holding, older_seconds or 0, keep_releases=keep_releases)
        chosen = cache_upkeep.of_builds(old, Catalog().targets, server=server, target=target)
    else:
        chosen = cache_upkeep.beyond_limit(holding, limit) if limit is not None else []
    gone = cache_upkeep.remove(cache, chosen)
    freed = sum(entry.bytes for entry in gone)
    if yes and len(gone) == len(chosen):
        freed += cache_upkeep.remove_others(cache)
    if yes or chosen:
        shown.append(f"removed: {len(gone)} entries, {cache_upkeep.gibibytes(freed)}")
    if left := len(chosen) - len(gone):
        shown.append(f"not removed, because a running command may use them: {left}")
    if as_json:
        output.print_json([{"folder": folder, "bytes": size} for folder, size in kinds.items()])
    else:
        click.echo("\n".join(shown))
    return ExitCode.PASS


def _unused_for(holding: Holding, seconds: float, *, keep_releases: bool) -> list[CacheEntry]:
    """The entries that no command has used for so long. `keep_releases`: without those of the named releases."""
    releases = tuple(f"{name}-" for name in Catalog().servers) if keep_releases else ()
    return cache_upkeep.unused_for(holding, seconds, keep=lambda entry: entry.key.startswith(releases))


@click.command("completion")
@click.argument("shell", type=click.Choice(completion.SHELLS))
def completion_(shell: str) -> ExitCode:
    """Print a completion script for bash, zsh or fish.

    Enable it in the current shell: eval "$(plumb completion bash)".
    """
    plumb = click.get_current_context().find_root().command
    assert isinstance(plumb, click.Group)
    write_commands(f"{completion.script(plumb, shell)}\n", err=False)
    return ExitCode.PASS


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--new",
    type=(click.Choice(["ssh"]), str),
    default=None,
    metavar="ssh USER@HOST",
    help="Write a file for a machine that ssh reaches, by default HOST.toml.",
)
@click.option("--target", default="", help="With --new: what the machine is.  [default: what its uname says]")
@options.as_json
def board(file: Path | None, *, new: tuple[str, str] | None, target: str, as_json: bool) -> ExitCode:
    """Check step by step how your machine is reached.

    With --new, write a file for one instead. FILE describes the machine for `plumb check --board FILE`. Exit 7: a step
    does not work.
    """
    if new is not None:
        place = new[1]
        path = file or Path(f"{place.rpartition('@')[2].replace('/', '-')}.toml")
        if path.exists():
            raise new_board.exists_already(path)
        told = new_board.asked(place)
        chosen = new_board.target_for(Catalog(), told.machine, target, path)
        text = new_board.ssh_board(place, chosen, forwards_sockets=told.forwards_sockets)
        new_board.write(path, text)
        named = shlex.quote(str(path))
        click.echo(f"{path}: plumb board {named} checks it, and plumb check --board {named} uses it")
        return ExitCode.PASS
    if file is None or target:
        what = "--target has no effect here" if target else "no board is named"
        raise UsageError(what, where="plumb board", remedy="plumb board FILE, or plumb board --new ssh USER@HOST")
    bench = Workbench.default().on_board(file)
    assert bench.board is not None
    machine = bench.catalog.targets[bench.board.board.target]

    def compile_here() -> Path:
        return compile_probe(bench.cache, machine, bench.toolchain_of(machine))

    steps = []
    for step in board_check.check(bench.board, machine, compile_here):
        steps.append(step)
        if not as_json:
            click.echo(f"{'works' if step.works else 'FAILS':6}{step.name:9}{one_line(step.detail)}")
            if step.remedy:
                click.echo(f"      try      {step.remedy}")
    if as_json:
        output.print_json([step._asdict() for step in steps])
    return ExitCode.PASS if all(step.works for step in steps) else ExitCode.INFRASTRUCTURE
