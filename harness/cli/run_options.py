"""Nested records of the options that commands with a run folder share, and the decorators that add them.

Each option is described in harness.cli.options.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias, TypeVar

from harness.cli import options
from harness.core import json_codec
from harness.core.model import (
    DEFAULT_OPTIMISATION,
    Allocator,
    Flavour,
    GuestEnvironment,
    MemoryOrder,
    Record,
    Transport,
)
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.judge.known import known_list
from harness.workflows import run_folders
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.errors import ExitCode

    Option = Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]

Parameters = ParamSpec("Parameters")
RUNS = Path("runs")
"""The folder that contains the run folders if there is no `--run`."""


def workbench(toolchain: str, *, offline: bool, timeout_multiplier: float = 1.0) -> Workbench:
    """A workbench with a toolchain. For a toolchain other than the default, fetches its compiler and says which targets
    it supports.

    Raises as `Workbench.with_toolchain` does.
    """
    bench = Workbench.default(offline=offline, timeout_multiplier=timeout_multiplier).with_toolchain(toolchain)
    if toolchain != DEFAULT_FAMILY:
        others = ", ".join(name for name in bench.catalog.targets if name != ORACLE)
        bench.progress.say(f"toolchain {toolchain}: of the targets of a group, only {others}")
    return bench


class FolderOptions(Record, frozen=True):
    """The options of every command that writes a run folder. Each is a field here."""

    offline: bool
    install: bool | None
    """None: `may_install` decides."""
    known: Path
    folder: Path | None
    """The run folder; None: a new one, and old ones are removed until `keep` are left."""
    keep: int
    as_json: bool
    timeout_multiplier: float

    def run_folder(self, parent: Path = RUNS) -> Path:
        """The empty run folder that the user named, or a new one. Raises UsageError for a folder with content."""
        return run_folders.empty_run_folder(self.folder) if self.folder else run_folders.new_run_folder(parent)

    def forget_old_runs(self, parent: Path = RUNS) -> None:
        """Remove the oldest run folders, unless the user named one."""
        if self.folder is None:
            run_folders.forget_runs(parent, keep=self.keep)


class ProgramOptions(FolderOptions, frozen=True):
    """The options of commands that run programs other than servers: exec and deb."""

    policy: str
    audited: bool
    annotations: str | None
    memory_order: MemoryOrder
    seed: int | None
    """Of that order. None: it is drawn."""


class RunOptions(FolderOptions, frozen=True):
    """How to run suites: the options that check, premerge, fuzz, audit and port share."""

    optimisation: str
    allocator: Allocator
    toolchain: str
    environment: GuestEnvironment
    memory_order: MemoryOrder
    io: Transport
    emulator: Flavour
    jobs: int
    seed: int | None
    """None: a seed is drawn, or derived from the base revision."""

    @classmethod
    def usual(cls, *, folder: Path | None, seed: int) -> RunOptions:
        """The defaults, for a command that runs a check but does not have its options."""
        return cls(
            optimisation=DEFAULT_OPTIMISATION,
            allocator="libc",
            toolchain=DEFAULT_FAMILY,
            environment="usual",
            memory_order="usual",
            io="unix",
            emulator="pinned",
            jobs=options.DEFAULT_JOBS,
            seed=seed,
            offline=False,
            install=None,
            known=known_list.DEFAULT,
            folder=folder,
            keep=options.KEPT_RUNS,
            as_json=False,
            timeout_multiplier=1.0,
        )

    def workbench(self) -> Workbench:
        """The workbench of the run."""
        return workbench(self.toolchain, offline=self.offline, timeout_multiplier=self.timeout_multiplier)


_Record = TypeVar("_Record", bound=FolderOptions)
_Taking: TypeAlias = "Callable[Concatenate[_Record, Parameters], ExitCode]"


def _adding(
    kind: type[_Record], *described: Option
) -> Callable[[_Taking[_Record, Parameters]], Callable[..., ExitCode]]:
    """A decorator that adds options to a command, and passes their values to it as one record, its first argument."""

    def decorate(command: _Taking[_Record, Parameters]) -> Callable[..., ExitCode]:
        @functools.wraps(command)
        def with_record(*arguments: Parameters.args, **values: Parameters.kwargs) -> ExitCode:
            shared = {field: values.pop(field) for field in kind.__struct_fields__}
            return command(json_codec.convert(shared, kind), *arguments, **values)

        decorated: Callable[..., ExitCode] = with_record
        for option in reversed(described):
            decorated = option(decorated)
        return decorated

    return decorate


_IN_FOLDER = (
    options.offline,
    options.install,
    options.known,
    options.run_folder,
    options.keep,
    options.as_json,
    options.timeout_multiplier,
)
folder_options = _adding(FolderOptions, *_IN_FOLDER)
program_options = _adding(
    ProgramOptions,
    options.policy,
    options.audit,
    options.annotated,
    options.memory_order,
    options.seed,
    *_IN_FOLDER,
)
run_options = _adding(
    RunOptions,
    options.optimisation,
    options.allocator,
    options.toolchain,
    options.environment,
    options.memory_order,
    options.io,
    options.emulator,
    options.jobs,
    options.seed,
    *_IN_FOLDER,
)


def may_install(install: bool | None, *, offline: bool) -> bool:
    """Whether to install packages: as `--install` says. Without that option, only root installs them, and with
    `--offline`, no one does.
    """
    return os.geteuid() == 0 and not offline if install is None else install
