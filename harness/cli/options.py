"""Options of the command line that several commands share, each described once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from harness.cli import completion
from harness.core.model import Allocator, CompilerWarnings
from harness.judge import known_findings as knowing
from harness.plan.catalog import DEFAULT_SERVER, DEFAULT_TARGETS
from harness.run.cell_spec import LARGEST_SEED

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.errors import ExitCode


KEPT_RUNS = 20
LEVELS = ("O0", "O1", "O2", "O3", "Os")

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
    default=("kernel",),
    show_default=True,
    help="Target of the kernel tier, glob or group; repeat for more.",
)
server = click.option(
    "--server",
    default=DEFAULT_SERVER,
    show_default=True,
    help="A release's name, or the path of a source tree.",
    shell_complete=completion.servers,
)
suite = click.option(
    "--suite",
    "suites",
    multiple=True,
    help="Suite or glob, of whatever tier; repeat for more. Default: the tier's.",
    shell_complete=completion.suites,
)
tier = click.option(
    "--tier",
    type=click.Choice(["quick", "full", "thorough", "kernel"]),
    default="quick",
    show_default=True,
    help="How much to run.",
)
offline = click.option("--offline", is_flag=True, help="Use the cache alone; say what it lacks.")
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
known = click.option(
    "--known",
    type=click.Path(path_type=Path),
    default=knowing.DEFAULT,
    help="The known-findings file.",
    show_default="ci/known.toml",
)
emulator = click.option(
    "--emulator",
    type=click.Choice(["pinned", "distro"]),
    default="pinned",
    show_default=True,
    help="Our QEMU, or the distribution's (weaker: its canaries say so).",
)
policy = click.option(
    "--policy",
    default="signal",
    show_default=True,
    help="What a misaligned access does: `plumb list policies`.",
    shell_complete=completion.policies,
)
optimisation = click.option(
    "--optimisation",
    type=click.Choice(LEVELS),
    default="O2",
    show_default=True,
    help="Compiler's level.",
)
annotated = click.option(
    "--annotations",
    type=click.Choice(["github"]),
    default=None,
    help="Also say findings to the CI system, on standard error, in the words that it puts on a diff.",
)
allocator = click.option(
    "--allocator",
    type=click.Choice(get_args(Allocator)),
    default="libc",
    show_default=True,
    help="What gives the server its memory; guard: pages nobody may touch, least alignment.",
)
warnings = click.option(
    "--warnings",
    type=click.Choice(get_args(CompilerWarnings)),
    default="note",
    show_default=True,
    help="What a compiler warns of on a target alone: noted, findings that fail, or not asked for.",
)
install = click.option("--install/--no-install", default=None, help="Install missing packages (the default for root).")
test = click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="NAME",
    help="Only tests with this in their names, or that a glob fits; repeat for more.",
)
fail_fast = click.option("--fail-fast", is_flag=True, help="End each cell with its first failed test.")


class Duration(click.ParamType[float]):
    """A time as `90`, `90s`, `10m`, `2h`: seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds; fails with what would have been right."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", str(value))
        if found is None or not float(found[1]):
            self.fail(f"'{value}' is not a time; as 90s, 10m or 2h", param, ctx)
        return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def time(told: str) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """`--time`: how long what has no end of its own goes on, as each command explains it."""
    return click.option("--time", "limit_seconds", type=Duration(), default=None, help=told)


_RUN_OPTIONS = [
    target,
    server,
    suite,
    tier,
    optimisation,
    allocator,
    emulator,
    click.option(
        "--jobs",
        type=click.IntRange(1, 64),
        default=os.cpu_count() or 1,
        show_default="processors",
        help="Cells at a time; beside them run some of suites that mostly wait.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, LARGEST_SEED),
        default=None,
        help="Seed of everything random; drawn and reported if not given.",
    ),
    fail_fast,
    offline,
    install,
    known,
    warnings,
    click.option(
        "--run",
        "run_folder",
        type=click.Path(path_type=Path),
        default=None,
        help="The run folder, new or empty.  [default: runs/TIME]",
    ),
    click.option(
        "--keep",
        type=click.IntRange(1),
        default=KEPT_RUNS,
        show_default=True,
        help="How many runs to keep under runs/.",
    ),
    annotated,
    as_json,
]


def run_options(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """The options of every command that makes a run."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


def fuzz_options(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """The same, but for what is settled when fuzzing."""
    for option in reversed(_RUN_OPTIONS):
        command = command if option in {suite, tier} else option(command)
    return command


def port_options(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """The same, but for what a CI system is told, and warnings, of which the report has its own."""
    for option in reversed(_RUN_OPTIONS):
        command = command if option in {annotated, warnings} else option(command)
    return command


def premerge_options(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """The same, but for the server, which is a checkout, the tier, and an end before everything has been seen."""
    for option in reversed(_RUN_OPTIONS):
        command = command if option in {server, tier, fail_fast} else option(command)
    return command


def may_install(asked: bool | None) -> bool:
    """Whether packages are installed: as asked for, else for root alone."""
    return os.geteuid() == 0 if asked is None else asked
