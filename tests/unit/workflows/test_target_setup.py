"""Setting up a run: a build failure that also occurs natively is not blamed on the target."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.sources.server_package import PackageUnavailableError, ServerPackages
from harness.build.sources.source_tree import open_tree
from harness.build.unit_drivers import Units
from harness.build.workshop.build_failure import BuildFailedError
from harness.core.cache import Cache
from harness.core.errors import ExitCode, InconclusiveError, InfrastructureError
from harness.core.model import ServerPackage, SourceTree
from harness.core.strict_toml import ROOT
from harness.core.target_model import ORACLE
from harness.judge.known.known_list import DEFAULT
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.run.cell_spec import PeerServer
from harness.workflows.git.checkout import revision_of
from harness.workflows.preparation import run_setup as run_setup_module
from harness.workflows.preparation.cell_specs import CellSpecs
from harness.workflows.preparation.prepared_run import BuiltTarget, PreparedRun, PreparedTarget, UnbuiltTarget
from harness.workflows.preparation.run_record import run_record
from harness.workflows.preparation.run_setup import RunSetup
from harness.workflows.preparation.suite_programs import SuitePrograms
from harness.workflows.target_setup import TargetSetup
from harness.workflows.workbench import Workbench
from tests.support import fakes
from tests.support.repositories import commit, git

if TYPE_CHECKING:
    from harness.core.model import Allocator, Build, Program
    from harness.core.target_model import Target, Toolchain

MAKEFILE = """
redis-server: first second
first:
\t@if test -z '{machine}' -o $(uname_M) = '{machine}'; then echo '{first}'; exit 1; fi
second:
\t@echo 'y.c:9:9: error: another'; exit 1
"""
"""Two errors. The first occurs only on the named machine, if there is one. Normally make stops at one of them."""


@pytest.fixture
def bench(plain_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    from harness.build import toolchain

    toolchain.version.cache_clear()
    fakes.fake_compiler(tmp_path / "bin", monkeypatch)
    return Workbench(catalog=Catalog(), cache=Cache(plain_path / "cache"), progress=fakes.quiet(), offline=True)


def run_setup(bench: Workbench, tree: SourceTree) -> RunSetup:
    plan = make_plan(bench.catalog, targets=["armv5"], server="tree", suites=["bitops"])
    request = fakes.quick_request(plan, server="tree", known=DEFAULT, run=tree.path / "run")
    return RunSetup(bench, request, tree)


def set_up(bench: Workbench, name: str) -> TargetSetup:
    """A target without its emulator, which these tests do not run."""
    return TargetSetup(bench=bench, target=bench.catalog.targets[name], programs={"arm": Path("qemu-arm")})


def failed(bench: Workbench, tree: SourceTree) -> dict[str, BuiltTarget | UnbuiltTarget]:
    """One target for which the tree does not compile, and one for which it does."""
    target = bench.catalog.targets["armv5"]
    with pytest.raises(BuildFailedError) as caught:
        bench.builder.build(fakes.build_plan(tree, target))
    runner = fakes.unemulated(target)
    return {
        "armv5": UnbuiltTarget(
            setup=set_up(bench, "armv5"),
            runner=runner,
            problem=str(caught.value),
            complaints=caught.value.complaints,
        ),
        "sparc64": BuiltTarget(setup=set_up(bench, "sparc64"), runner=runner, build=fakes.build(tree.path)),
    }


def unbuilt(target: PreparedTarget) -> UnbuiltTarget:
    assert isinstance(target, UnbuiltTarget)
    return target


def tree_that_says(tmp_path: Path, first: str, *, machine: str) -> SourceTree:
    path = fakes.server_tree(tmp_path / "redis-7.0.15")
    fakes.write(path / "src" / "Makefile", MAKEFILE.format(first=first, machine=machine))
    return open_tree(path)


def test_a_tree_that_also_fails_natively_is_not_blamed_on_the_target(tmp_path: Path, bench: Workbench) -> None:
    tree = tree_that_says(tmp_path, "x.c:3:5: error: boom", machine="")
    prepared = failed(bench, tree)
    blamed = run_setup(bench, tree).without_blame(prepared)
    assert blamed["sparc64"] is prepared["sparc64"]
    assert unbuilt(blamed["armv5"]).blameless
    assert unbuilt(blamed["armv5"]).problem.startswith("it does not compile natively either: ")


def test_an_error_of_only_the_target_is_a_finding_though_another_one_occurs_natively(
    tmp_path: Path, bench: Workbench
) -> None:
    tree = tree_that_says(tmp_path, "x.c:3:5: error: of ARM alone", machine="armv5tel")
    prepared = failed(bench, tree)
    # With one job at a time, make would reach only this error.
    prepared["armv5"] = msgspec.structs.replace(
        prepared["armv5"], complaints=frozenset({"x.c:3:5: error: of ARM alone"})
    )
    blamed = run_setup(bench, tree).without_blame(prepared)
    assert not unbuilt(blamed["armv5"]).blameless, blamed["armv5"]


def test_all_native_errors_are_compared_and_not_only_the_first(tmp_path: Path, bench: Workbench) -> None:
    tree = tree_that_says(tmp_path, "x.c:3:5: error: boom", machine="")
    prepared = failed(bench, tree)
    prepared["armv5"] = msgspec.structs.replace(prepared["armv5"], complaints=frozenset({"y.c:9:9: error: another"}))
    assert unbuilt(run_setup(bench, tree).without_blame(prepared)["armv5"]).blameless


@pytest.mark.parametrize("needs_native", [True, False])
def test_the_native_build_comes_first_and_stops_a_run_that_needs_it(
    tmp_path: Path, bench: Workbench, *, needs_native: bool
) -> None:
    fakes.write(tmp_path / "bin" / "gcc", "#!/bin/sh\necho 'gcc 1.0'\n", mode=0o755)
    setup = run_setup(bench, tree_that_says(tmp_path, "x.c:3:5: error: boom", machine=""))
    setup.request = msgspec.structs.replace(setup.request, needs_native=needs_native)
    # A run that continues needs the emulators, which do not exist here.
    with pytest.raises(InconclusiveError if needs_native else InfrastructureError) as caught:
        setup.prepare()
    assert "building redis-7.0.15 for native -O2 …" in fakes.printed(bench.progress)
    if needs_native:
        assert caught.value.what == "redis-7.0.15 does not compile natively"
        assert "error: " in caught.value.because
        assert caught.value.remedy == "fix it and run again: nothing was checked"
        assert (caught.value.exit_code, caught.value.log.endswith(".log")) == (ExitCode.INCONCLUSIVE, True)


def test_a_kernel_tier_target_runs_the_builds_of_its_userland_and_any_other_its_own(bench: Workbench) -> None:
    userlands = {name: set_up(bench, name).userland.name for name in ("armv5-kernel", "armv7-on-arm64-kernel", "armv5")}
    assert userlands == {"armv5-kernel": "armv5", "armv7-on-arm64-kernel": "armv7", "armv5": "armv5"}


def test_a_target_without_its_own_kernel_has_no_machine(tmp_path: Path, bench: Workbench) -> None:
    setup = set_up(bench, "armv5")
    assert setup.server_image(fakes.build(tmp_path), [], bench.catalog.policies["signal"]) is None


def test_an_inner_run_has_its_own_stages(bench: Workbench) -> None:
    inner = bench.with_new_stages("base: ")
    with inner.progress.stage("build", "building"):
        pass
    assert (list(inner.progress.stages), list(bench.progress.stages)) == (["build"], [])
    assert " base: building …" in fakes.printed(inner.progress)
    assert (inner.catalog, inner.cache, inner.offline) == (bench.catalog, bench.cache, bench.offline)


def test_only_two_modules_set_up_targets() -> None:
    makers = r"\b(Builder|Emulators|Fetcher|Kernels|VmImage|build_module|build_program)\("
    making = {
        str(path.relative_to(ROOT))
        for folder in ("harness/workflows", "harness/cli")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(makers, path.read_text("utf-8"))
    }
    assert making == {"harness/workflows/target_setup.py", "harness/workflows/workbench.py"}


def packaged(tmp_path: Path, bench: Workbench, monkeypatch: pytest.MonkeyPatch, *, lacking: set[str]) -> RunSetup:
    """A run of a package on two targets. The archive lacks the packages of the targets in `lacking`."""
    package = ServerPackage(suite="trixie", name="redis-server", version="5:8.0.2-3")
    tree = SourceTree(name=package.title, family="redis", version=(8, 0), path=tmp_path, digest="0", package=package)

    def build(_: ServerPackages, tree: SourceTree, toolchain: Toolchain, target: Target) -> Build:
        if target.name in lacking:
            raise PackageUnavailableError(f"{tree.name} cannot be fetched for {toolchain.debian_architecture}")
        return fakes.build(tmp_path)

    monkeypatch.setattr(ServerPackages, "build", build)
    targets = {name: set_up(bench, name) for name in ("armv5", "armv6")}
    monkeypatch.setattr(run_setup_module, "set_up_targets", lambda *_, **__: targets)
    plan = make_plan(bench.catalog, targets=list(targets), server=package.title, suites=["bitops"])
    request = fakes.quick_request(plan, server=package.title, known=DEFAULT, run=tmp_path / "run")
    return RunSetup(bench, request, tree)


def test_the_self_tests_of_a_sampled_suite_are_compiled_when_their_cell_begins(
    tmp_path: Path, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def units(setup: TargetSetup, kind: Program, *_: object) -> Units:
        compiled.append(f"{kind} of {setup.target.name}")
        return Units(program=None, absent={}, broken={}, kind=kind)

    monkeypatch.setattr(TargetSetup, "units", units)
    tree = fakes.opened(fakes.server_tree(tmp_path / "tree"))
    plan = make_plan(bench.catalog, targets=["armv5"], server="tree", suites=["units", "selftests"])
    request = fakes.quick_request(plan, server="tree", known=DEFAULT, run=tmp_path / "run")
    suites = [bench.catalog.suites[name] for name in ("units", "selftests")]
    armv5, native = set_up(bench, "armv5"), set_up(bench, ORACLE)
    assert {*SuitePrograms(request, tree, suites, []).units(armv5, "libc")} == {"units", "selftests"}
    late = SuitePrograms(request, tree, suites, [], late=["selftests"])
    assert {*late.units(native, "libc")} == {"units", "selftests"}, "every target's are compared with the oracle's"
    compiled.clear()
    target = BuiltTarget(
        setup=armv5,
        runner=fakes.unemulated(armv5.target),
        build=fakes.build(tmp_path),
        units=late.units(armv5, "libc"),
    )
    assert compiled == ["units of armv5"]
    prepared = PreparedRun(tree=tree, targets={"armv5": target}, peers={})
    specs = CellSpecs(bench, request, prepared, sockets=tmp_path, without=[])
    spec = specs.of(next(cell for cell in plan.cells if cell.suite == "selftests"))
    assert spec.units is not None
    assert spec.units.kind == "selftests"
    assert compiled == ["units of armv5", "selftests of armv5"]


def test_the_other_targets_are_checked_when_one_targets_package_is_not_in_the_archive(
    tmp_path: Path, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = packaged(tmp_path, bench, monkeypatch, lacking={"armv5"})
    prepared = setup.prepare()
    assert set(prepared.built) == {"armv6"}
    assert set(prepared.peers) == {ORACLE, "armv6"}
    specs = CellSpecs(bench, setup.request, prepared, sockets=tmp_path, without=[])
    cells = {cell.target: cell for cell in setup.request.plan.cells}
    record = specs.missing(cells["armv5"])
    assert record is not None
    assert "cannot be fetched for armel" in record.problem
    # This is not a finding, because the package is missing, not wrong.
    assert record.problem_kind == "crash"
    assert specs.missing(cells["armv6"]) is None


def test_a_run_ends_when_no_targets_package_is_in_the_archive(
    tmp_path: Path, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PackageUnavailableError):
        packaged(tmp_path, bench, monkeypatch, lacking={"armv5", "armv6"}).prepare()


def test_a_repository_around_the_cache_does_not_give_a_package_its_revision(
    tmp_path: Path, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: every run of a package recorded the commit of a home folder that was a repository."""
    setup = packaged(tmp_path, bench, monkeypatch, lacking=set())
    prepared = setup.prepare()
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    assert revision_of(prepared.tree.path)
    assert run_record(bench, setup.request, prepared, []).revision == ""


def test_a_run_of_a_package_records_the_allocator_that_it_was_built_with(
    tmp_path: Path, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: every such run recorded libc."""
    setup = packaged(tmp_path, bench, monkeypatch, lacking=set())
    prepared = setup.prepare()

    def recorded(**allocators: Allocator) -> str:
        targets = {
            name: msgspec.structs.replace(
                built, build=msgspec.structs.replace(built.build, allocator=allocators.get(name, "jemalloc"))
            )
            for name, built in prepared.built.items()
        }
        oracle = prepared.peers[ORACLE]
        native = msgspec.structs.replace(oracle, build=msgspec.structs.replace(oracle.build, allocator="jemalloc"))
        shipped = msgspec.structs.replace(prepared, targets=targets, peers={**prepared.peers, ORACLE: native})
        return run_record(bench, setup.request, shipped, []).allocator

    assert recorded() == "jemalloc"
    assert recorded(armv5="libc") == "makefile"


def test_a_run_names_the_oracles_program_if_the_native_target_has_none(tmp_path: Path, bench: Workbench) -> None:
    tree = open_tree(fakes.server_tree(tmp_path / "redis-7.0.15"))
    setup = run_setup(bench, tree)
    runner, oracle = fakes.unemulated(bench.catalog.targets[ORACLE]), fakes.build(tmp_path, target=ORACLE)
    native = UnbuiltTarget(setup=set_up(bench, ORACLE), runner=runner, problem="jemalloc does not compile")
    prepared = PreparedRun(tree=tree, targets={ORACLE: native}, peers={ORACLE: PeerServer(runner=runner, build=oracle)})
    assert run_record(bench, setup.request, prepared, []).binaries == {ORACLE: str(oracle.server_binary)}


def test_a_run_records_the_factor_of_its_deadlines(tmp_path: Path, bench: Workbench) -> None:
    tree = open_tree(fakes.server_tree(tmp_path / "redis-7.0.15"))
    setup = run_setup(bench, tree)
    prepared = PreparedRun(tree=tree, targets={}, peers={})
    recorded = [run_record(each, setup.request, prepared, []) for each in (bench, bench.with_timeouts(20))]
    assert [record.timeout_multiplier for record in recorded] == [1, 20]


def test_a_suite_whose_module_does_not_fit_the_header_is_unknown_and_the_others_run(
    tmp_path: Path, bench: Workbench
) -> None:
    tree = open_tree(fakes.server_tree(tmp_path / "redis-7.0.15"))
    plan = make_plan(bench.catalog, targets=["armv5"], server="tree", suites=["bitops", "moduleapi"])
    request = fakes.quick_request(plan, server="tree", known=DEFAULT, run=tree.path / "run")
    runner = fakes.unemulated(bench.catalog.targets["armv5"])
    built = BuiltTarget(
        setup=set_up(bench, "armv5"),
        runner=runner,
        build=fakes.build(tree.path),
        misfits={"moduleapi": "the module moduleapi does not compile: moduleapi.c:9:1: error: no such event"},
    )
    oracle = PeerServer(runner=runner, build=fakes.build(tmp_path, target=ORACLE))
    prepared = PreparedRun(tree=tree, targets={"armv5": built}, peers={ORACLE: oracle})
    specs = CellSpecs(bench, request, prepared, sockets=tmp_path, without=[])
    records = {cell.suite: specs.missing(cell) for cell in plan.cells}
    misfit = records["moduleapi"]
    assert misfit is not None
    assert "no such event" in misfit.problem
    assert misfit.problem_kind == "crash"
    assert records["bitops"] is None
