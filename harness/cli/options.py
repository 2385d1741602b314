"""Options that several commands share, each described once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from harness.cli.parameters import completion
from harness.cli.parameters.value_types import CompilerFlags, Duration, MakeVariable
from harness.core.model import (
    DEFAULT_OPTIMISATION,
    Allocator,
    CompilerWarnings,
    Everywhere,
    Flavour,
    GuestEnvironment,
    MemoryOrder,
    Tier,
    Transport,
)
from harness.core.processes.timeouts import LARGEST_MULTIPLIER
from harness.core.strict_toml import read_text
from harness.core.target_model import DEFAULT_FAMILY
from harness.judge.known import known_list
from harness.plan.catalog import DEFAULT_SERVER, DEFAULT_TARGETS
from harness.run.cell_spec import LARGEST_SEED

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from harness.core.errors import ExitCode


KERNEL_TARGETS = ("kernel",)
KEPT_RUNS = 20
DEFAULT_JOBS = min(64, (5 * (os.cpu_count() or 1) + 1) // 2)
"""A cell's client and its server wait for each other. On two processors, five cells at a time took 8 % less time than
three, with 8 % more processor time."""
LEVELS = ("O0", "O1", "O2", "O3", "Os", "Oz", "O2-lto", "O3-lto")

target = click.option(
    "--target",
    "targets",
    multiple=True,
    default=DEFAULT_TARGETS,
    show_default=True,
    help="Target, glob or group; repeat for more.",
    shell_complete=completion.targets,
)
kernel_target = click.option(
    "--target",
    "targets",
    multiple=True,
    default=KERNEL_TARGETS,
    show_default=True,
    help="Target of the kernel tier, glob or group; repeat for more.",
)
board = click.option(
    "--board",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Use the machine that this file describes (plumb board), in place of --target.",
)
server = click.option(
    "--server",
    default=DEFAULT_SERVER,
    show_default=True,
    help="The name of a release, or the path of a source tree; check, fuzz and audit also take debian:SUITE/PACKAGE.",
    shell_complete=completion.servers,
)


def servers(*default: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """`--server` for commands that take several."""
    return click.option(
        "--server",
        "servers",
        multiple=True,
        default=default,
        show_default=True,
        help="The name of a release, or the path of a source tree; repeat for more.",
        shell_complete=completion.servers,
    )


suite = click.option(
    "--suite",
    "suites",
    multiple=True,
    help="Suite or glob, of any tier; repeat for more. Default: the suites of the tier.",
    shell_complete=completion.suites,
)
premerge_suite = click.option(
    "--suite",
    "suites",
    multiple=True,
    help="Suite or glob; repeat for more. Default: the suites that the changed files select.",
    shell_complete=completion.suites,
)
tier = click.option(
    "--tier",
    type=click.Choice(get_args(Tier)),
    default="quick",
    show_default=True,
    help="How much to run.",
)
seed = click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=None,
    help="Seed for all random choices. Without it, a seed is drawn and reported.",
)
offline = click.option(
    "--offline", is_flag=True, help=("Use only the cache; if anything is missing from it, list that and fail.")
)
trust = click.option(
    "--trust", is_flag=True, help="Run a reproducer that was not made on this host. It runs with your permissions."
)
run_folder = click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    default=None,
    help="The run folder, new or empty.  [default: runs/TIME]",
)
keep = click.option(
    "--keep",
    type=click.IntRange(1),
    default=KEPT_RUNS,
    show_default=True,
    help="Number of runs to keep under runs/.",
)
jobs = click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=DEFAULT_JOBS,
    show_default="three for two processors",
    help="Number of cells to run at a time. As many again may run if their suites mostly wait.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")


class KnownFile(click.ParamType[Path]):
    """A readable known-findings file: an hour's run must not end with an error in this file."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ARG002
        """Its path. Raises UsageError, with file and line, if the file is invalid."""
        path = Path(value)
        if ctx is None or not ctx.resilient_parsing:
            known_list.entries_of(read_text(path), path)
        return path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of files."""
        return click.Path().shell_complete(ctx, param, incomplete)


known = click.option(
    "--known",
    type=KnownFile(),
    default=known_list.DEFAULT,
    help="The known-findings file.",
    show_default="ci/known.toml",
)
emulator = click.option(
    "--emulator",
    type=click.Choice(get_args(Flavour)),
    default="pinned",
    show_default=True,
    help="The pinned QEMU, or the distribution's, which enforces less; its canaries show how much.",
)
policy = click.option(
    "--policy",
    default="signal",
    show_default=True,
    help="The effect of a misaligned access; `plumb list policies` lists all policies.",
    shell_complete=completion.policies,
)
optimisation = click.option(
    "--optimisation",
    type=click.Choice(LEVELS),
    default=DEFAULT_OPTIMISATION,
    show_default=True,
    help="Compiler optimisation level.",
)
annotated = click.option(
    "--annotations",
    type=click.Choice(["github"]),
    default=None,
    help="Also print findings on standard error in a format that the CI system shows on the diff.",
)
allocator = click.option(
    "--allocator",
    type=click.Choice(get_args(Allocator)),
    default="libc",
    show_default=True,
    help="The server's memory allocator; makefile: the one that its makefile chooses for the target; guard: guard "
    "pages and minimal alignment.",
)
environment = click.option(
    "--environment",
    type=click.Choice(get_args(GuestEnvironment)),
    default="usual",
    show_default=True,
    help="Environment of the servers; musl-stack: musl's small thread stacks; debian-service: the system call filter "
    "of Debian's service.",
)
memory_order = click.option(
    "--memory-order",
    type=click.Choice(get_args(MemoryOrder)),
    default="usual",
    show_default=True,
    help="Order in which the servers' threads see one another's stores; usual: the host's; weak: as the target's "
    "architecture allows, delayed at random by the seed.",
)
io = click.option(
    "--io",
    type=click.Choice(get_args(Transport)),
    default="unix",
    show_default=True,
    help="How the suites' clients connect to the servers: over Unix sockets, or over TCP on loopback.",
)
toolchain = click.option(
    "--toolchain",
    default=DEFAULT_FAMILY,
    show_default=True,
    help="Compiler, with its own C library if it has one; `plumb list toolchains` lists the targets of each.",
    shell_complete=completion.families,
)
warnings = click.option(
    "--warnings",
    type=click.Choice(get_args(CompilerWarnings)),
    default="note",
    show_default=True,
    help="Compiler warnings that occur only on the target: note them, report them as findings, or switch them off.",
)
everywhere = click.option(
    "--everywhere",
    type=click.Choice(get_args(Everywhere)),
    default="note",
    show_default=True,
    help="Findings that the native build shows as well: note them, fail because of them, or do not ask it.",
)
audit = click.option(
    "--audit", "audited", is_flag=True, help="List misaligned accesses with their counts, and enforce nothing."
)
install = click.option(
    "--install/--no-install",
    default=None,
    help="Install missing packages (the default for root, except with --offline).",
)
timeout_multiplier = click.option(
    "--timeout-multiplier",
    type=click.FloatRange(1, LARGEST_MULTIPLIER),
    default=1,
    show_default=True,
    metavar="N",
    help="On a slow machine, wait N times longer before a program counts as hanging.",
)
test = click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="NAME",
    help="Only tests whose names contain this text or match this glob; repeat for more.",
)
mixed = click.option(
    "--mixed",
    is_flag=True,
    help="In the suite `upstream`, alternate between the selected targets for servers that talk to each other.",
)
target_clients = click.option(
    "--target-clients",
    is_flag=True,
    help="In the suite `upstream`, run redis-cli and redis-benchmark on the target, too.",
)
flush = click.option(
    "--flush",
    is_flag=True,
    help="With a board whose server runs already: allow that all of its keys are deleted.",
)
insecure = click.option(
    "--insecure",
    is_flag=True,
    help="Allow a scheduler without TLS on a network, where anyone who can reach it can run programs; with --board, "
    "requests to a server at an `address` on a network.",
)
on = click.option(
    "--on",
    default="",
    metavar="CLUSTER",
    help="Run the cells on workers: local:N for N workers on this host, a scheduler's address, or a cluster's file. "
    "With --run FOLDER of an earlier campaign, run only its missing jobs.",
)
fail_fast = click.option(
    "--fail-fast", is_flag=True, help="End each cell at its first failed test, even if its finding is known."
)


def time(description: str) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """`--time`, the time limit of open-ended suites, with a description for the command."""
    return click.option("--time", "limit_seconds", type=Duration(), default=None, help=description)


cflags = click.option(
    "--cflags",
    type=CompilerFlags(),
    default=(),
    help="Compiler flags that your distribution adds, as one argument.",
)
make_variables = click.option(
    "--make",
    "make_variables",
    type=MakeVariable(),
    multiple=True,
    metavar="NAME=VALUE",
    help="A make variable that your distribution sets; repeat for more.",
)
