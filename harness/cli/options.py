"""Options that several commands share, each described once, and the record of those that every run has."""

from __future__ import annotations

import functools
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, get_args

import click

from harness.cli import completion
from harness.core import json_codec
from harness.core.model import (
    DEFAULT_OPTIMISATION,
    Allocator,
    CompilerWarnings,
    Flavour,
    GuestEnvironment,
    Record,
    Tier,
    Transport,
)
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.judge import known_findings
from harness.plan.catalog import DEFAULT_SERVER, DEFAULT_TARGETS
from harness.run.cell_spec import LARGEST_SEED
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.errors import ExitCode


Parameters = ParamSpec("Parameters")
NO_LIMIT = -1
KEPT_RUNS = 20
DEFAULT_JOBS = min(64, (3 * (os.cpu_count() or 1) + 1) // 2)
"""A cell's client and its server wait for each other."""
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
    default=("kernel",),
    show_default=True,
    help="Target of the kernel tier, glob or group; repeat for more.",
)
server = click.option(
    "--server",
    default=DEFAULT_SERVER,
    show_default=True,
    help="A release's name, or the path of a source tree. check, fuzz, audit: debian:SUITE/PACKAGE, too.",
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
        help="A release's name, or the path of a source tree; repeat for more.",
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
offline = click.option("--offline", is_flag=True, help="Use only the cache; fail with a list of what it lacks.")
trust = click.option(
    "--trust", is_flag=True, help="Run a reproducer that no check on this machine made, with your own permissions."
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
    help="Cells to run at a time. As many again run beside them if their suites mostly wait.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
known = click.option(
    "--known",
    type=click.Path(path_type=Path),
    default=known_findings.DEFAULT,
    help="The known-findings file.",
    show_default="ci/known.toml",
)
emulator = click.option(
    "--emulator",
    type=click.Choice(get_args(Flavour)),
    default="pinned",
    show_default=True,
    help="The pinned QEMU, or the distribution's, which enforces less; its canaries say how much.",
)
policy = click.option(
    "--policy",
    default="signal",
    show_default=True,
    help="What happens on a misaligned access; `plumb list policies` lists them.",
    shell_complete=completion.policies,
)
optimisation = click.option(
    "--optimisation",
    type=click.Choice(LEVELS),
    default=DEFAULT_OPTIMISATION,
    show_default=True,
    help="Optimisation level of the compiler.",
)
annotated = click.option(
    "--annotations",
    type=click.Choice(["github"]),
    default=None,
    help="Also print findings on standard error in the CI system's format, which it shows on the diff.",
)
allocator = click.option(
    "--allocator",
    type=click.Choice(get_args(Allocator)),
    default="libc",
    show_default=True,
    help="Memory allocator of the server; makefile: what its makefile chooses for the target; guard: guard pages and "
    "minimal alignment.",
)
environment = click.option(
    "--environment",
    type=click.Choice(get_args(GuestEnvironment)),
    default="usual",
    show_default=True,
    help="What surrounds the servers: musl's small stacks of threads, or Debian's filter of system calls.",
)
io = click.option(
    "--io",
    type=click.Choice(get_args(Transport)),
    default="unix",
    show_default=True,
    help="How the suites' clients reach the servers: by Unix sockets, or by TCP on loopback.",
)
toolchain = click.option(
    "--toolchain",
    default=DEFAULT_FAMILY,
    show_default=True,
    help="Another compiler, or C library, too; `plumb list toolchains` says which targets it has.",
    shell_complete=completion.families,
)
warnings = click.option(
    "--warnings",
    type=click.Choice(get_args(CompilerWarnings)),
    default="note",
    show_default=True,
    help="Compiler warnings that occur on the target only: noted, failing findings, or off.",
)
install = click.option("--install/--no-install", default=None, help="Install missing packages (the default for root).")
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
    help="In the suite `upstream`, servers that talk to each other run on the selected targets by turns.",
)
target_clients = click.option(
    "--target-clients",
    is_flag=True,
    help="In the suite `upstream`, redis-cli and redis-benchmark run on the target, too.",
)
insecure = click.option(
    "--insecure", is_flag=True, help="Accept a scheduler without TLS on a network: whoever reaches it can run programs."
)
on = click.option(
    "--on",
    default="",
    metavar="CLUSTER",
    help="Run the cells on workers: local:N on this machine, an address, or a cluster's file. With --run FOLDER of an "
    "earlier one, only what is missing is run.",
)
fail_fast = click.option(
    "--fail-fast", is_flag=True, help="End each cell at its first failed test, even if its finding is known."
)


class Duration(click.ParamType[float]):
    """A duration as `90`, `90s`, `10m` or `2h`, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds. Fails with examples of what is accepted."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", str(value))
        if found is None or not float(found[1]):
            self.fail(f"'{value}' is not a duration such as 90s, 10m or 2h", param, ctx)
        return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


class Age(click.ParamType[float]):
    """An age as `30d` or `12h`, in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds. Fails with examples of what is accepted."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(h|d)", str(value))
        if found is None:
            self.fail(f"'{value}' is not an age such as 12h or 30d", param, ctx)
        return float(found[1]) * {"h": 3600, "d": 86400}[found[2]]


class Size(click.ParamType[int]):
    """A size as `500MiB` or `20GiB`, in bytes; `none` is -1."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes. Fails with examples of what is accepted."""
        if value == "none" or isinstance(value, int):
            return value if isinstance(value, int) else NO_LIMIT
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(MiB|GiB)", str(value))
        if found is None:
            self.fail(f"'{value}' is not a size such as 500MiB or 20GiB, nor none", param, ctx)
        return int(float(found[1]) * {"MiB": 1 << 20, "GiB": 1 << 30}[found[2]])


class Percentage(click.ParamType[float]):
    """A percentage as `3%` or `0.5%`, as a share of 1."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share. Fails with examples of what is accepted."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)%", str(value))
        if found is None:
            self.fail(f"'{value}' is not a percentage such as 3% or 0.5%", param, ctx)
        return float(found[1]) / 100


def time(description: str) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """`--time`, the time limit of open-ended suites, with the command's own description."""
    return click.option("--time", "limit_seconds", type=Duration(), default=None, help=description)


class CompilerFlags(click.ParamType[tuple[str, ...]]):
    """A distribution's compiler flags in one word, quoted as a shell quotes."""

    name = "flags"
    TAKEN: ClassVar = {
        r"-O.*": "the level is part of a build's name: --optimisation O3",
        r"-flto.*": "a level includes it: --optimisation O2-lto",
        r"-[cESo]|-o.+|-M.*": "the makefile says what is made: leave it out",
        r"-g0|-s|-fomit-frame-pointer": "findings need names, lines and stacks: leave it out",
    }
    """Pattern of flags that are Plumbline's to give -> why, and what to type."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The flags one by one. Fails with what to type for words that are no flags, and for flags that are taken."""
        if isinstance(value, tuple):
            return value
        try:
            words = tuple(shlex.split(str(value)))
        except ValueError as error:
            self.fail(f"{value!r} is not quoted as in a shell: {str(error).lower()}", param, ctx)
        if not words or not words[0].startswith("-"):
            self.fail(f"{value!r} is not compiler flags such as '-D_FORTIFY_SOURCE=2 -fno-plt'", param, ctx)
        for word in words:
            for pattern, why in self.TAKEN.items():
                if re.fullmatch(pattern, word):
                    self.fail(f"{word}: {why}", param, ctx)
        return words


class MakeVariable(click.ParamType[str]):
    """A variable of make's command line."""

    name = "variable"
    TAKEN: ClassVar = {
        "CC": "--target says the compiler",
        "CXX": "--target says the compiler",
        "MALLOC": "use --allocator",
        "OPTIMIZATION": "use --optimisation",
        "V": "the log always has whole command lines",
        "uname_M": "--target says the machine",
        "uname_S": "every target runs Linux",
    }
    """Name of a variable that is Plumbline's to give -> what to do instead."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The variable as it was given. Fails with what to type for another form, and for a variable that is taken."""
        found = re.fullmatch(r"(\w+)=(.*)", str(value))
        if found is None:
            self.fail(f"{value!r} is not NAME=VALUE, such as USE_SYSTEMD=yes or 'LDFLAGS=-Wl,-z,now'", param, ctx)
        if found[1] in self.TAKEN:
            self.fail(f"{found[1]} is given to every build: {self.TAKEN[found[1]]}", param, ctx)
        return str(value)


cflags = click.option(
    "--cflags",
    type=CompilerFlags(),
    default=(),
    help="Compiler flags that your distribution adds, in one word.",
)
make_variables = click.option(
    "--make",
    "make_variables",
    type=MakeVariable(),
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable that your distribution gives to make; repeat for more.",
)


def workbench(toolchain: str, *, offline: bool) -> Workbench:
    """A workbench with a toolchain. Fetches the compiler of another than the default, and says which targets that has.

    Raises as `Workbench.with_toolchain` does.
    """
    bench = Workbench.default(offline=offline).with_toolchain(toolchain)
    if toolchain != DEFAULT_FAMILY:
        others = ", ".join(name for name in bench.catalog.targets if name != ORACLE)
        bench.progress.say(f"toolchain {toolchain}: of the targets of a group, only {others}")
    return bench


class RunOptions(Record, frozen=True):
    """How a run is carried out: the options that check, premerge, fuzz, audit and port share. Each is a field here."""

    optimisation: str
    allocator: Allocator
    toolchain: str
    environment: GuestEnvironment
    io: Transport
    emulator: Flavour
    jobs: int
    seed: int | None
    """None: a seed is drawn, or derived from the base revision."""
    offline: bool
    install: bool | None
    """None: `may_install` decides."""
    known: Path
    folder: Path | None
    """The run folder; None: a new one, and old ones are removed until `keep` are left."""
    keep: int
    as_json: bool

    @classmethod
    def usual(cls, *, folder: Path | None, seed: int) -> RunOptions:
        """The defaults, for a command that runs a check without having its options."""
        return cls(
            optimisation=DEFAULT_OPTIMISATION,
            allocator="libc",
            toolchain=DEFAULT_FAMILY,
            environment="usual",
            io="unix",
            emulator="pinned",
            jobs=DEFAULT_JOBS,
            seed=seed,
            offline=False,
            install=None,
            known=known_findings.DEFAULT,
            folder=folder,
            keep=KEPT_RUNS,
            as_json=False,
        )

    def workbench(self) -> Workbench:
        """The workbench of the run."""
        return workbench(self.toolchain, offline=self.offline)


_RUN_OPTIONS = (
    optimisation,
    allocator,
    toolchain,
    environment,
    io,
    emulator,
    jobs,
    click.option(
        "--seed",
        type=click.IntRange(0, LARGEST_SEED),
        default=None,
        help="Seed of everything random. Without it, a seed is drawn and reported.",
    ),
    offline,
    install,
    known,
    run_folder,
    keep,
    as_json,
)


def run_options(command: Callable[Concatenate[RunOptions, Parameters], ExitCode]) -> Callable[..., ExitCode]:
    """Add the options of RunOptions to a command, and pass their values to it as one record, its first argument."""

    @functools.wraps(command)
    def with_record(*arguments: Parameters.args, **values: Parameters.kwargs) -> ExitCode:
        shared = {field: values.pop(field) for field in RunOptions.__struct_fields__}
        return command(json_codec.convert(shared, RunOptions), *arguments, **values)

    decorated: Callable[..., ExitCode] = with_record
    for option in reversed(_RUN_OPTIONS):
        decorated = option(decorated)
    return decorated


def may_install(install: bool | None) -> bool:
    """Whether to install packages: as `--install` says; without it, only root does."""
    return os.geteuid() == 0 if install is None else install
