"""Reads the catalog: targets, toolchains, servers, suites, workloads.

Strict: an unknown key, type or name is a usage error. There is no inheritance, and no default comes from another file:
a TOML file is complete.
"""

from __future__ import annotations

import copy
import platform
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.model import CANARY_SUITE, Record, Server, Suite
from harness.core.strict_toml import PACKAGE, ROOT, nearest_key, read_toml
from harness.core.target_model import (
    DEFAULT_FAMILY,
    ORACLE,
    CompilerPackage,
    EmulatorSpec,
    KernelSpec,
    Policy,
    Target,
    Toolchain,
    ToolchainFamily,
)
from harness.plan.name_selection import require_known, select, target_groups
from harness.plan.workloads import read_workloads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.core.model import Program
    from harness.plan.board import Board
    from harness.plan.workloads import BenchWorkload

DEFAULT_SERVER = "redis-7.0.15"
DEFAULT_TARGETS = ("required",)
RUN_BY_THE_HOST = ", run by the host"
"""The end of a title that is not true of a board."""


class PolicyFamily(Record, frozen=True):
    """harness/plan/policies/FAMILY.toml: policies whose documentation is the same."""

    source: str
    policies: list[dict[str, Any]]


class Catalog:
    """Everything that can be selected, by name. Each table is read on first use."""

    def __init__(self, root: Path = ROOT, package: Path = PACKAGE, *, timeout_multiplier: float = 1.0) -> None:
        self.root = root
        self.package = package
        self.timeout_multiplier = timeout_multiplier
        """How many times longer than usual everything waits that uses its targets and toolchains."""
        self.family = DEFAULT_FAMILY
        """The toolchains that compile: those that the targets name, or a family's."""
        self.lacking: frozenset[str] = frozenset()
        """The targets for which the family does not compile."""

    @cached_property
    def targets(self) -> dict[str, Target]:
        """targets/*.toml."""
        patience = self.timeout_multiplier
        found = {
            path.stem: read_toml(path, Target, name=path.stem, timeout_multiplier=patience)
            for path in _tomls(self.root / "targets")
        }
        for name, target in found.items():
            if target.emulator.runs_here and not target.emulator.hosts:
                # No file records which machine that is.
                found[name] = _of_machine(target, platform.machine(), found)
        for target in found.values():
            self._check_target(target, found)
        return found

    def _check_target(self, target: Target, targets: Mapping[str, Target]) -> None:
        """Raise UsageError if a target names something that is not there, or a variant in a target's place."""
        where = f"targets/{target.name}.toml"
        require_known("toolchain", target.toolchain, self.toolchains, where)
        require_known("policy", target.kernel, self.policies, where)
        require_known("target", target.userland or target.name, targets, where)
        require_known("target", target.variant_of or target.name, targets, where)
        if any(targets[name].variant_of for name in (target.variant_of, target.userland) if name):
            raise UsageError(
                "a variant is named where a target is expected",
                where=where,
                because="policies and tables of instructions would not know the machine",
                remedy="name the target that is itself no variant",
            )
        if target.emulator.is_board:
            raise UsageError("a target is no board", where=where, remedy='kind = "user", and plumb check --board FILE')
        if target.emulator.has_kernel:
            require_known("kernel", target.emulator.machine, self.kernels, where)

    def select_targets(self, patterns: Sequence[str]) -> list[str]:
        """Names of the targets that any name, glob or group selects, in catalog order. Raises as `select` does.

        A group or a glob omits targets whose programs cannot run on this host. Such a target is an error if it is
        named.
        """
        if named := self.lacking.intersection(patterns):
            raise UsageError(
                f"{self.family} does not compile for {', '.join(sorted(named))}",
                where="--toolchain",
                remedy=f"leave out the target, or choose one of: {', '.join(self.targets)}",
            )
        foreign = {name for name, target in self.targets.items() if not _runs_here(target)}
        chosen = select("target", patterns, self.targets, target_groups(self.targets))
        possible = [name for name in chosen if name not in foreign]
        if unusable := foreign.intersection(patterns if possible else chosen):
            raise UsageError(
                f"the host cannot run programs for {', '.join(sorted(unusable))}",
                where="--target",
                because=f"no emulator runs them, and its processor is {platform.machine()}",
                remedy="leave out the target; plumb list targets names others",
            )
        return possible

    def with_timeouts(self, multiplier: float) -> Catalog:
        """The catalog whose targets and toolchains wait at least this many times longer than usual.

        It has the targets' own toolchains: a family's come after it.
        """
        if multiplier <= self.timeout_multiplier:
            return self
        assert self.family == DEFAULT_FAMILY
        return Catalog(self.root, self.package, timeout_multiplier=multiplier)

    @property
    def board_targets(self) -> list[Target]:
        """The targets that a machine of the user's can be, and for which programs are compiled here."""
        return [each for each in self.targets.values() if each.emulator.can_be_board and _runs_here(each)]

    def on_board(self, board: Board, path: Path) -> Catalog:
        """The catalog in which a board runs the programs of its target. `path`: the board's file, for messages.

        Raises UsageError for a target that no other machine can be: the host itself, one with an emulated kernel, and
        one with a detector.
        """
        require_known("target", board.target, self.targets, str(path))
        target = self.targets[board.target]
        if target not in self.board_targets:
            raise UsageError(
                f"a board cannot be the target {board.target}",
                where=f"{path}: target",
                because="no machine that you can have is what it imitates, or nothing here compiles for it",
                remedy=f"one of {', '.join(each.name for each in self.board_targets)}",
            )
        other = copy.copy(self)
        other.targets = dict(self.targets)
        other.targets[target.name] = msgspec.structs.replace(
            target,
            title=f"{target.title.removesuffix(RUN_BY_THE_HOST)}, the machine of {path.name}",
            emulator=EmulatorSpec(kind="board", qemu=target.emulator.qemu),
        )
        return other

    def family_named(self, name: str) -> ToolchainFamily:
        """The family of toolchains of a name. Raises as `select` does."""
        return self.families[select("toolchain", [name], self.families)[0]]

    def planned_for(self, toolchain: str) -> Catalog:
        """The catalog of the targets of a toolchain, without its compiler: for plans. Raises as `select` does."""
        return self if toolchain == DEFAULT_FAMILY else self.through(self.family_named(toolchain), "")

    def through(
        self, family: ToolchainFamily, compilers: str, libraries: Mapping[str, tuple[str, ...]] | None = None
    ) -> Catalog:
        """The catalog of the targets that a family compiles for, and of `native`, which the host's GCC compiles for.

        `compilers`: the folder of the family's commands. `libraries`: target -> what its programs are linked with.
        """
        other = Catalog(self.root, self.package, timeout_multiplier=self.timeout_multiplier)
        other.family = family.name
        other.targets = {ORACLE: self.targets[ORACLE]}
        other.toolchains, other.families = dict(self.toolchains), self.families
        for name in (name for name in self.targets if name in family.targets):
            target = self.targets[name]
            tools = msgspec.structs.replace(
                _compiled_by(family, self.toolchains[target.toolchain], (libraries or {}).get(name, ())),
                name=f"{family.name}-{name}",
                compilers=compilers,
            )
            other.toolchains[tools.name] = tools
            flags = [*family.flags, *family.targets[name].flags]
            other.targets[name] = msgspec.structs.replace(target, toolchain=tools.name, compiler_flags=flags)
        other.lacking = frozenset(self.targets.keys() - other.targets.keys())
        return other

    @cached_property
    def toolchains(self) -> dict[str, Toolchain]:
        """toolchains/*.toml."""
        patience = self.timeout_multiplier
        found = {
            path.stem: read_toml(path, Toolchain, name=path.stem, timeout_multiplier=patience)
            for path in _tomls(self.root / "toolchains")
        }
        here = platform.machine()
        return {
            name: msgspec.structs.replace(
                tools, debian_architecture=tools.debian_hosts.get(here, tools.debian_architecture)
            )
            for name, tools in found.items()
        }

    @cached_property
    def families(self) -> dict[str, ToolchainFamily]:
        """toolchains/families/*/family.toml."""
        paths = sorted((self.root / "toolchains" / "families").glob("*/family.toml"))
        names = [(path, path.parent.name) for path in paths]
        found = {name: read_toml(path, ToolchainFamily, name=name, folder=path.parent) for path, name in names}
        for path, name in names:
            require_known("compiler", found[name].compiler, self.compilers, str(path))
            for target in found[name].targets:
                require_known("target", target, self.targets, str(path))
        return found

    @cached_property
    def compilers(self) -> dict[str, CompilerPackage]:
        """toolchains/families/*.toml."""
        paths = _tomls(self.root / "toolchains" / "families")
        return {path.stem: read_toml(path, CompilerPackage, name=path.stem) for path in paths}

    @cached_property
    def kernels(self) -> dict[str, KernelSpec]:
        """toolchains/kernels/*.toml."""
        folder = self.root / "toolchains" / "kernels"
        found = {path.stem: read_toml(path, KernelSpec, name=path.stem) for path in _tomls(folder)}
        for kernel in found.values():
            require_known("toolchain", kernel.toolchain, self.toolchains, f"toolchains/kernels/{kernel.name}.toml")
        return found

    @cached_property
    def servers(self) -> dict[str, Server]:
        """harness/plan/servers/*.toml."""
        return {
            path.stem: read_toml(path, Server, name=path.stem) for path in _tomls(self.package / "plan" / "servers")
        }

    @cached_property
    def policies(self) -> dict[str, Policy]:
        """harness/plan/policies/*.toml: each file a family with one source."""
        found: dict[str, Policy] = {}
        for path in _tomls(self.package / "plan" / "policies"):
            family = read_toml(path, PolicyFamily)
            for raw in family.policies:
                policy = _policy(raw, path, family.source)
                if policy.name in found:
                    raise UsageError(f"policy '{policy.name}' is defined twice", where=str(path))
                found[policy.name] = policy
        for policy in found.values():
            for name in policy.effective_policy.values():
                require_known("policy", name, found, f"harness/plan/policies: effective_policy of {policy.name}")
        return found

    @cached_property
    def suites(self) -> dict[str, Suite]:
        """suites/*/suite.toml."""
        paths = sorted((self.root / "suites").glob("*/suite.toml"))
        found = {path.parent.name: read_toml(path, Suite, name=path.parent.name, path=path.parent) for path in paths}
        for suite in found.values():
            for other in suite.tests_of:
                require_known("suite", other, found, f"{suite.path / 'suite.toml'}: tests_of")
        return found

    @cached_property
    def workloads(self) -> dict[str, BenchWorkload]:
        """suites/bench/*.toml: the requests of `plumb measure`."""
        return read_workloads(_tomls(self.root / "suites" / "bench"))

    @cached_property
    def canary(self) -> str:
        """The name of the suite that proves that a target enforces alignment. Raises UsageError for any but one."""
        names = [name for name, suite in self.suites.items() if suite.role == "canary"]
        if names != [CANARY_SUITE]:
            raise UsageError(
                f"the suite with the role `canary` must be {CANARY_SUITE}",
                where="suites/*/suite.toml",
                because=f"the role belongs to: {', '.join(names) or 'no suite'}",
            )
        return CANARY_SUITE

    def suite_of_program(self, program: Program) -> Suite:
        """The suite that runs a program instead of a server. Raises UsageError if none does."""
        for suite in self.suites.values():
            if suite.program == program:
                return suite
        raise UsageError(f"no suite has the program `{program}`", where="suites/*/suite.toml")

    def toolchain_of(self, target: Target) -> Toolchain:
        """How to compile for a target."""
        return self.toolchains[target.toolchain]


def _runs_here(target: Target) -> bool:
    """Whether the host, or an emulator on it, runs a target's programs."""
    return not target.emulator.hosts or platform.machine() in target.emulator.hosts


def _of_machine(native: Target, machine: str, targets: Mapping[str, Target]) -> Target:
    """A native target on a machine with this processor. The files have x86-64's instructions, and what they demand.

    Elsewhere they are those of the target that is named like the processor.
    """
    like = targets.get(machine, native)
    return msgspec.structs.replace(
        native, machine=machine, isa=like.isa, demand=like.demand, demand_sources=like.demand_sources
    )


def _compiled_by(family: ToolchainFamily, own: Toolchain, added: tuple[str, ...]) -> Toolchain:
    """A target's own toolchain with a family's compiler. `added`: libraries that programs are linked with."""
    if family.is_static:
        return msgspec.structs.replace(
            own, has_lto=family.has_lto, sysroot={}, libraries=added, is_static=True, debian_architecture=""
        )
    return msgspec.structs.replace(own, has_lto=family.has_lto, libraries=(*added, *own.libraries))


def _policy(raw: dict[str, Any], path: Path, source: str) -> Policy:
    try:
        return json_codec.convert({"source": source.strip(), **raw}, Policy)
    except msgspec.ValidationError as error:
        raise UsageError(
            "not a valid policy",
            where=f"{path}: {raw.get('name', 'without a name')}",
            because=str(error),
            remedy=nearest_key(str(error), Policy),
        ) from error


def _tomls(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"))
