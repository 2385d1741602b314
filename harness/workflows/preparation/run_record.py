"""The record of a prepared run: its request, and everything that is needed to judge its evidence later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build.sources.archives import archive_name
from harness.build.sources.server_package import packages_of
from harness.core.target_model import ORACLE
from harness.isa import rules
from harness.judge.change import unchecked_changes
from harness.record.run_record import RunRecord
from harness.workflows.git.checkout import revision_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.core.model import Allocator, Build, SourceTree
    from harness.plan.request import Request
    from harness.record.run_record import CellRecord
    from harness.workflows.preparation.prepared_run import BuiltTarget, PreparedRun
    from harness.workflows.workbench import Workbench


def run_record(bench: Workbench, request: Request, prepared: PreparedRun, records: list[CellRecord]) -> RunRecord:
    """The record of a run. `records`: those of the cells that have ended."""
    catalog, tree = bench.catalog, prepared.tree
    oracle = catalog.targets[ORACLE]
    machines = {oracle.name: oracle, **{name: each.target for name, each in prepared.targets.items()}}
    # The oracle may crash too, and as a rule is not among the targets.
    oracles = {ORACLE: prepared.peers[ORACLE].build} if prepared.has_oracle else {}
    builds = {**oracles, **{name: each.build for name, each in prepared.built.items()}}
    # The addresses of another program than the one that was built have other names here.
    ours = {
        name: build for name, build in builds.items() if name not in prepared.built or _is_copied(prepared.built[name])
    }
    is_release = request.server in catalog.servers
    return RunRecord(
        server=_server_name(request.server, tree, is_release=is_release),
        family=tree.family,
        policy=request.policy,
        optimisation="" if tree.package else request.optimisation,
        emulator=request.emulator,
        seed=request.seed,
        targets=request.plan.targets,
        suites=request.plan.suites,
        binaries={name: str(build.server_binary) for name, build in ours.items()},
        triples={name: catalog.toolchain_of(machine).prefix for name, machine in machines.items()},
        machines=machines,
        stages=bench.progress.stages,
        cells=records,
        allocator=_allocator(request, tree, builds.values()),
        toolchain=catalog.family,
        timeout_multiplier=catalog.timeout_multiplier,
        environment=request.environment,
        memory_order=request.memory_order,
        io=request.io,
        tests=request.tests,
        tier=request.tier,
        release=".".join(map(str, tree.version)),
        development=tree.development,
        warnings=request.warnings,
        everywhere=request.everywhere,
        mixed=request.mixed,
        target_clients=request.target_clients,
        boards={name: each.facts for name, each in prepared.built.items() if each.facts is not None},
        beside=unchecked_changes.digests(request.run),
        policies=rules.recorded_policies(catalog.policies, request.policy, machines.values()),
        source=archive_name(tree.name, tree.digest) if is_release else "",
        settings=request.settings,
        packages={name: files for name, build in builds.items() if (files := packages_of(build))},
        # The source of a package is in the cache, and a checkout around that says nothing about it.
        revision="" if is_release or tree.package is not None else revision_of(tree.path),
    )


def _is_copied(target: BuiltTarget) -> bool:
    """Whether the server that was built is the one that runs: a board may have one of its own."""
    board = target.board.board if target.board is not None else None
    return board is None or not (board.program or board.runs_already)


def _allocator(request: Request, tree: SourceTree, builds: Iterable[Build]) -> Allocator:
    """The allocator of a run's servers: the requested one, or the one with which the distribution built its packages.

    If those of several machines differ, the choice is the distribution's makefiles'.
    """
    shipped = {build.allocator for build in builds} if tree.package is not None else set()
    return "makefile" if len(shipped) > 1 else next(iter(shipped), request.allocator)


def _server_name(name: str, tree: SourceTree, *, is_release: bool) -> str:
    """What `--server` would take to have the same server again."""
    if tree.package is not None:
        return tree.package.title
    return name if is_release else str(tree.path)
