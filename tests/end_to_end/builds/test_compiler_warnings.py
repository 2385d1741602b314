"""Real compilers warn about planted casts and shifts that are right only on the host."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from harness.build.server_build import Builder
from harness.build.sources.archives import Fetcher
from harness.build.sources.source_tree import open_tree
from harness.build.workshop import build_warnings
from harness.build.workshop.build_plan import BuildPlan
from harness.core.cache import Cache
from harness.plan.catalog import Catalog
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

PLANTED = """
unsigned long long planted(char *place) {
    return (unsigned long long)place + *(int *)(place + 1) + (1UL << 40);
}
"""


def test_a_32_bit_machine_with_strict_alignment_has_warnings_that_the_host_does_not_have(tmp_path: Path) -> None:
    catalog, cache = Catalog(), Cache.default()
    release = Fetcher(cache, fakes.quiet()).server(catalog.servers["redis-7.0.15"])
    shutil.copytree(release.path, tmp_path / release.name)
    source = tmp_path / release.name / "src" / "intset.c"
    before = len(source.read_text("utf-8").splitlines())
    source.write_text(source.read_text("utf-8") + PLANTED, "utf-8")
    tree = open_tree(tmp_path / release.name)
    builder = Builder(cache, fakes.quiet())
    kinds = {}
    for name in ("native", "armv5"):
        target = catalog.targets[name]
        words = build_warnings.read(
            builder.build(BuildPlan(tree=tree, target=target, tools=catalog.toolchain_of(target), optimisation="O2"))
        )
        assert words.problem == ""
        kinds[name] = {one.warning for one in words.warnings if one.function == "planted" and one.line == before + 3}
    assert kinds == {"native": set(), "armv5": {"cast-align", "pointer-to-int-cast", "shift-count-overflow"}}
