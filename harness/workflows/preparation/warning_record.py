"""Records the warnings of compilers, so that those of a target can be compared with those of the native build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build.workshop import build_warnings
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.target_model import DEFAULT_FAMILY, ORACLE
from harness.judge import warning_findings
from harness.record import compiler_warnings
from harness.record.compiler_warnings import CompilerReport
from harness.workflows.target_setup import oracle_setup

if TYPE_CHECKING:
    from harness.plan.request import Request
    from harness.workflows.preparation.prepared_run import PreparedRun
    from harness.workflows.workbench import Workbench


def record_warnings(bench: Workbench, request: Request, prepared: PreparedRun) -> None:
    """Store the warnings of each target's compiler, and of the oracle's, with the evidence."""
    builds = {
        name: each.build
        for name, each in prepared.built.items()
        if name != ORACLE and not each.setup.toolchain.family and warning_findings.looked_at(each.target)
    }
    # Only warnings of the same compiler can be compared.
    if (
        prepared.tree.package is not None
        or bench.catalog.family != DEFAULT_FAMILY
        or request.warnings == "off"
        or not builds
    ):
        return
    reports = {name: build_warnings.read(build) for name, build in builds.items()}
    for name, report in {**reports, ORACLE: _of_oracle(bench, request, prepared)}.items():
        compiler_warnings.write(request.run, name, report)


def _of_oracle(bench: Workbench, request: Request, prepared: PreparedRun) -> CompilerReport:
    """The warnings of the native build's compiler, if it compiles the same files, which depend on the allocator."""
    problem = "the tree does not compile natively"
    if prepared.has_oracle:
        oracle, optimisation = oracle_setup(bench), request.optimisation
        linked = oracle.plan(prepared.tree, optimisation, request.allocator).linked
        try:
            return build_warnings.read(oracle.build(prepared.tree, optimisation, linked))
        except BuildFailedError as error:
            problem = error.what
    return CompilerReport(warnings=[], problem=problem)
