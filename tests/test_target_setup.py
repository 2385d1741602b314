"""What cells need of a target: a tree that fails for this machine as well is not the target's fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.server_build import BuildFailedError
from harness.build.sources.archives import Fetcher
from harness.build.sources.source_tree import open_tree
from harness.core.cache import Cache
from harness.judge.known_findings import DEFAULT
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.workflows.target_setup import Preparation, PreparedTarget
from tests import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.model import SourceTree

MAKEFILE = """
redis-server: first second
first:
\t@if test -z '{machine}' -o $(uname_M) = '{machine}'; then echo '{first}'; exit 1; fi
second:
\t@echo 'y.c:9:9: error: another'; exit 1
"""
"""Two errors: the first comes for one machine alone, if that is named; make stops at one of them, as a rule."""


@pytest.fixture
def preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preparation:
    from harness.build import toolchain

    toolchain.version.cache_clear()
    fakes.fake_compiler(tmp_path / "bin", monkeypatch)
    catalog, store, progress = Catalog(), Cache(tmp_path / "cache"), fakes.quiet()
    request = Request(
        targets=["armv5"],
        server="tree",
        suites=["bitops"],
        tier="quick",
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        jobs=2,
        seed=1,
        offline=True,
        install=False,
        known=DEFAULT,
        run=tmp_path / "run",
    )
    plan = make_plan(catalog, targets=["armv5"], server="tree", suites=["bitops"])
    return Preparation(catalog, store, progress, Fetcher(store, progress, offline=True), request, plan)


def failed(preparation: Preparation, tree: SourceTree) -> dict[str, PreparedTarget]:
    """What came of preparing a target that the tree does not compile for."""
    target = preparation.catalog.targets["armv5"]
    with pytest.raises(BuildFailedError) as caught:
        preparation.builder.build(tree, target, fakes.toolchain(), "O2")
    runner = fakes.unemulated(target)
    return {
        "armv5": PreparedTarget(
            target=target, runner=runner, build=None, problem=str(caught.value), complaints=caught.value.complaints
        ),
        "sparc64": PreparedTarget(
            target=preparation.catalog.targets["sparc64"], runner=runner, build=fakes.build(tree.path)
        ),
    }


def tree_that_says(tmp_path: Path, first: str, *, machine: str) -> SourceTree:
    path = fakes.server_tree(tmp_path / "redis-7.0.15")
    fakes.write(path / "src" / "Makefile", MAKEFILE.format(first=first, machine=machine))
    return open_tree(path)


def test_a_tree_that_fails_for_this_machine_too_is_no_fault_of_the_targets(
    tmp_path: Path, preparation: Preparation
) -> None:
    tree = tree_that_says(tmp_path, "x.c:3:5: error: boom", machine="")
    prepared = failed(preparation, tree)
    blamed = preparation.blamed(tree, prepared)
    assert blamed["sparc64"] is prepared["sparc64"]
    assert blamed["armv5"].blameless
    assert blamed["armv5"].problem.startswith("it does not compile for this machine either: ")


def test_what_fails_for_the_target_alone_is_its_finding_though_something_else_fails_for_this_machine(
    tmp_path: Path, preparation: Preparation
) -> None:
    tree = tree_that_says(tmp_path, "x.c:3:5: error: of ARM alone", machine="armv5tel")
    prepared = failed(preparation, tree)
    # One job at a time would meet this one alone.
    prepared["armv5"] = msgspec.structs.replace(
        prepared["armv5"], complaints=frozenset({"x.c:3:5: error: of ARM alone"})
    )
    blamed = preparation.blamed(tree, prepared)
    assert not blamed["armv5"].blameless, blamed["armv5"]


def test_all_that_fails_for_this_machine_is_looked_at_and_not_its_first_error_alone(
    tmp_path: Path, preparation: Preparation
) -> None:
    tree = tree_that_says(tmp_path, "x.c:3:5: error: boom", machine="")
    prepared = failed(preparation, tree)
    prepared["armv5"] = msgspec.structs.replace(prepared["armv5"], complaints=frozenset({"y.c:9:9: error: another"}))
    assert preparation.blamed(tree, prepared)["armv5"].blameless
