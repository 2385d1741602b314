"""Commands about a developer's own source tree or programs: plumb premerge, port, exec, deb, env."""

from __future__ import annotations

import contextlib
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import options, output
from harness.cli.invocation import runnable
from harness.cli.parameters import completion
from harness.cli.run_command import carry_out, drawn_unless, planned_request, unless_empty
from harness.cli.run_options import may_install, program_options, run_options
from harness.core.digests import key_of
from harness.core.errors import ExitCode, UsageError
from harness.core.model import BuildSettings
from harness.isa import rules
from harness.judge import conclusion
from harness.plan.plan import make_plan
from harness.plan.request import CheckSettings
from harness.report.formats import registry as formats
from harness.workflows.porting import survey
from harness.workflows.premerge import change_selection, premerge_check, selection_text
from harness.workflows.programs import build_system, debian_package, execution
from harness.workflows.programs.cross_environment import as_shell, cross_environment, failing_shell
from harness.workflows.target_setup import emulated_target
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.cli.run_options import ProgramOptions, RunOptions
    from harness.core.model import CompilerWarnings, Everywhere, Tier
    from harness.judge.findings import Judgement


@click.command()
@options.target
@options.premerge_suite
@options.policy
@click.option(
    "--server",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default=True,
    help="A server's git checkout, or a folder in it. Uncommitted changes are included.",
)
@click.option(
    "--base",
    "--since",
    "base_name",
    metavar="REVISION",
    default="",
    help="Compare with the merge base of HEAD and this revision.  "
    "[default: the branch's upstream, or the nearest of all remotes' branches]",
)
@click.option(
    "--all-tests",
    is_flag=True,
    help=(
        "Run all tests of the selected suites on all targets, including those that ended as expected "
        "in an earlier run and that the change cannot reach."
    ),
)
@click.option("--explain", is_flag=True, help="List the suites of each changed file with the reason; run nothing.")
@options.time("Start no suite after this time, such as 5m, and end those that run: their verdict is UNKNOWN.")
@options.warnings
@options.everywhere
@options.cflags
@options.make_variables
@options.annotated
@run_options
def premerge(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    suites: tuple[str, ...],
    policy: str,
    server: Path,
    base_name: str,
    all_tests: bool,
    explain: bool,
    limit_seconds: float | None,
    warnings: CompilerWarnings,
    everywhere: Everywhere,
    cflags: tuple[str, ...],
    make_variables: tuple[str, ...],
    annotations: str | None,
) -> ExitCode:
    """Check your change and report only new findings.

    The changed files select the suites. Findings that the base revision also has do not fail the check.
    """
    bench = run.workbench()
    planned, plan = change_selection.explain(
        bench.catalog, server, base_name=base_name, targets=targets, suites=suites, allocator=run.allocator
    )
    change_selection.refuse_inside(run.folder, Path(planned.server))
    change_selection.refuse_own_list(run.known, Path(planned.server))
    if explain or not planned.suites:
        if run.as_json:
            output.print_json(planned)
        else:
            # If nothing runs, the likeliest reason is a wrong base.
            text = f"BASE  {planned.base}\n{selection_text.summary(planned)}"
            click.echo(selection_text.text_of(planned) if explain else text)
        return ExitCode.PASS if explain or not planned.unchecked else ExitCode.INCONCLUSIVE
    bench.progress.say(f"BASE is {planned.base}")
    bench.progress.say(selection_text.summary(planned))
    # A run folder in the checkout would be a change of it.
    parent = bench.cache.path("premerge", f"{Path(planned.server).name}-{key_of([planned.server])}")
    request = planned_request(
        bench.catalog,
        run,
        plan,
        CheckSettings(
            server=planned.server,
            tier="quick",
            policy=policy,
            warnings=warnings,
            everywhere=everywhere,
            settings=BuildSettings(cflags=cflags, make=make_variables),
        ),
        seed=planned.seed,
        parent=parent,
    )
    seconds = math.inf if limit_seconds is None else limit_seconds
    work = functools.partial(premerge_check.run, premerge=planned, all_tests=all_tests, seconds=seconds)
    return carry_out(bench, request, run, annotations=annotations, work=work, parent=parent)


@click.command()
@options.target
@options.server
@options.suite
@options.tier
@options.fail_fast
@options.cflags
@options.make_variables
@run_options
def port(
    run: RunOptions,
    *,
    targets: tuple[str, ...],
    server: str,
    suites: tuple[str, ...],
    tier: Tier,
    fail_fast: bool,
    cflags: tuple[str, ...],
    make_variables: tuple[str, ...],
) -> ExitCode:
    """Report what a source tree needs to run on a target.

    The report covers the build, the start, misaligned accesses and wrong bytes, and says what to fix first.
    """
    bench = run.workbench()
    survey.portable_targets(bench.catalog, targets)
    request = planned_request(
        bench.catalog,
        run,
        make_plan(bench.catalog, targets=targets, server=server, suites=suites, tier=tier),
        CheckSettings(
            server=server,
            tier=tier,
            policy=survey.AUDITED_POLICY,
            fail_fast=fail_fast,
            # The report has a separate section for them.
            warnings="off",
            settings=BuildSettings(cflags=cflags, make=make_variables),
        ),
    )
    with unless_empty(request.run):
        report, judgement = survey.make_report(bench, request)
    formats.write(request.run, judgement)
    written = survey.write(request.run, report, judgement)
    if run.as_json:
        output.print_json(report)
    else:
        click.echo(runnable(written[1].read_text("utf-8")), nl=False)
        click.echo(f"\n{written[2]}", err=True)
    run.forget_old_runs()
    return conclusion.exit_code(report.verdict)


def _only(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> str:
    """The only target that is named. With several, only the last one would be checked, and the others would silently
    pass.
    """
    if len(names) > 1:
        raise UsageError(
            f"one target at a time, not {len(names)}",
            where=f"--target {names[-1]}",
            remedy="run the command once per target",
        )
    return names[0]


one_target = click.option(
    "--target",
    required=True,
    multiple=True,
    callback=_only,
    help="The target whose programs are emulated.",
    shell_complete=completion.targets,
)


sysroot_option = click.option(
    "--sysroot",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    default=None,
    metavar="FOLDER",
    help="The target's root folder, which contains its dynamic loader and libraries, such as Buildroot's "
    "output/target.  [default: the cross compiler's]",
)


with_option = click.option(
    "--with",
    "libraries",
    multiple=True,
    metavar="PACKAGE",
    help="Fetch this package of Debian for the target, with all that it needs, and compile and run with it: "
    "--with libevent-dev. May be repeated.",
)


def _only_one_root(sysroot: Path | None, libraries: tuple[str, ...]) -> None:
    """Raise UsageError if two root folders are asked for."""
    if sysroot is not None and libraries:
        raise UsageError(
            "two root folders for the target's programs",
            where=f"--with {libraries[0]}",
            because="the packages are unpacked into a root folder of their own, and --sysroot names another",
            remedy="leave out one of the two",
        )


@click.command(name="exec", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="PROGRAM [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@one_target
@sysroot_option
@with_option
@program_options
def exec_(
    run: ProgramOptions, words: tuple[str, ...], *, target: str, sysroot: Path | None, libraries: tuple[str, ...]
) -> ExitCode:
    """Run any command with a target's programs emulated.

    PROGRAM is a target program, or a host command that runs target programs: -- make check. CC and the other variables
    in the command's environment make build systems compile for the target. With --json, the command's output goes to
    standard error.
    """
    bench = Workbench.default(offline=run.offline, timeout_multiplier=run.timeout_multiplier)
    _only_one_root(sysroot, libraries)
    asked = _execution(run, target, list(words), Path.cwd(), sysroot, libraries)
    return _carried_out(run, asked, lambda: execution.execute(bench, asked))


def _execution(
    run: ProgramOptions,
    target: str,
    words: list[str],
    folder: Path,
    sysroot: Path | None,
    libraries: tuple[str, ...],
) -> execution.Execution:
    """A command to execute in a folder, with an empty run folder. Raises UsageError for a run folder in use."""
    return execution.Execution(
        target=target,
        policy=rules.audit_name(run.policy) if run.audited else run.policy,
        words=words,
        folder=folder,
        run=run.run_folder(),
        known=run.known,
        install=may_install(run.install, offline=run.offline),
        prints_document=run.as_json,
        sysroot=sysroot,
        libraries=libraries,
        memory_order=run.memory_order,
        seed=drawn_unless(run.seed) if run.memory_order != "usual" else 0,
    )


def _carried_out(
    run: ProgramOptions, asked: execution.Execution, execute: Callable[[], tuple[Judgement, ExitCode]]
) -> ExitCode:
    """Execute a command, write and print the result of its run, and remove old runs."""
    with unless_empty(asked.run):
        judgement, code = execute()
    formats.write(asked.run, judgement)
    output.show(judgement, as_json=asked.prints_document)
    output.annotate(asked.run, judgement, run.annotations)
    run.forget_old_runs()
    return code


@click.command()
@click.argument("package")
@one_target
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=None,
    help="The folder for the package's tree, new or empty.  [default: PACKAGE-VERSION-TARGET]",
)
@click.option(
    "--configure",
    "options_",
    multiple=True,
    metavar="OPTION",
    help="Also pass this to its configure script, meson setup or cmake: --configure --without-curses. May be repeated.",
)
@click.option(
    "--make",
    "make_words",
    multiple=True,
    metavar="WORD",
    help="Also pass this to make when it builds and tests: a goal or a variable of debian/rules. May be repeated.",
)
@sysroot_option
@with_option
@click.option(
    "--build-system",
    "system",
    type=click.Choice(build_system.NAMES),
    default=None,
    help="How to build the tree.  [default: the first that it has]",
)
@program_options
def deb(
    run: ProgramOptions,
    package: str,
    *,
    target: str,
    into: Path | None,
    options_: tuple[str, ...],
    make_words: tuple[str, ...],
    sysroot: Path | None,
    libraries: tuple[str, ...],
    system: str | None,
) -> ExitCode:
    """Build a Debian source package for a target and run its tests.

    PACKAGE is [SUITE/]NAME[=VERSION], such as zlib or bookworm/zlib. Its own build system configures, builds and tests
    it under `plumb exec`, which emulates every target program.
    """
    bench = Workbench.default(offline=run.offline, timeout_multiplier=run.timeout_multiplier)
    _only_one_root(sysroot, libraries)
    # Before anything is unpacked: a library may not exist.
    execution.root_with(bench, emulated_target(bench.catalog, target), libraries)
    prepared = debian_package.prepare(
        bench, package, target, into=into, here=Path.cwd(), system=system or "", options=options_, make=make_words
    )
    asked = _execution(run, target, prepared.words, prepared.tree, sysroot, libraries)
    return _carried_out(run, asked, lambda: debian_package.execute(bench, prepared, asked))


class _ShellCommand(click.Command):
    """A command whose output a shell evaluates, which fails if the command does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words after the command's name."""
        with _failing_in_shell("--json" in args):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function."""
        with _failing_in_shell(ctx.params["as_json"]):
            return super().invoke(ctx)


@contextlib.contextmanager
def _failing_in_shell(prints_document: bool) -> Iterator[None]:
    try:
        yield
    except click.exceptions.Exit:
        # Of --help.
        raise
    except BaseException:
        if not prints_document:
            click.echo(failing_shell(), nl=False)
        raise


@click.command(cls=_ShellCommand)
@one_target
@with_option
@options.offline
@options.as_json
def env(*, target: str, libraries: tuple[str, ...], offline: bool, as_json: bool) -> ExitCode:
    """Print environment variables for compiling for a target.

    The output is commands for a POSIX shell: eval "$(plumb env --target armv5)". If the command fails, it prints
    commands that unset the variables and fail.
    """
    bench = Workbench.default(offline=offline)
    chosen = emulated_target(bench.catalog, target)
    root = execution.root_with(bench, chosen, libraries)
    variables = cross_environment(bench.cache, chosen, bench.catalog.toolchain_of(chosen), root)
    if as_json:
        output.print_json(variables)
    else:
        click.echo(as_shell(variables), nl=False)
    return ExitCode.PASS
