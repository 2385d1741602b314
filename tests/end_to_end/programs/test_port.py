"""`plumb port` on a known bad release, and on a tree that does not compile for the target."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from harness.build.sources.archives import Fetcher
from harness.build.sources.server_tree import open_server
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.core.progress import Progress
from harness.plan.catalog import Catalog
from harness.workflows.porting import page
from tests.end_to_end.report.test_page_in_browser import measured
from tests.end_to_end.support.browser import DESKTOP, LOOKS, PHONE, look
from tests.end_to_end.support.plumb_runs import document, run
from tests.support.judgements import HOSTILE, judgement, run_folder
from tests.unit.workflows.test_port import report

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end
PORT = ("port", "--target", "sparc64", "--suite", "bitops", "--seed", "1", "--json")


def of_rank(read: dict[str, Any], rank: str) -> list[dict[str, Any]]:
    return [item for item in read["items"] if item["rank"] == rank]


@pytest.mark.slow(instead="tests/unit/workflows/test_port.py; test_the_page_fits_is_legible_and_reachable")
def test_a_report_about_a_bad_release_has_what_a_porter_needs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ended = run(*PORT, "--server", "redis-3.2.6", "--run", folder)
    read = document(ended)
    assert (ended.returncode, read["verdict"]) == (ExitCode.FINDINGS, "FAIL"), ended.stderr
    (port,) = read["targets"]
    assert [(step["name"], step["result"]) for step in port["steps"]] == [
        ("configure", "none"),
        ("compile", "ok"),
        ("link", "ok"),
        ("start", "ok"),
    ]
    assert {"misaligned load in bitopCommand", "misaligned load in redisBitpos"} <= {
        item["title"] for item in of_rank(read, "fault")
    }
    assert read["items"][0]["rank"] == "fault"
    hashed = next(item for item in read["items"] if item["title"] == "misaligned load in dictGenHashFunction")
    assert (hashed["place"], hashed["source"]) == ("src/dict.c:117", "uint32_t k = *(uint32_t*)data;")
    hints = {(hint["file"], hint["line"]) for hint in port["hints"] if hint["seen"]}
    assert ("src/dict.c", 117) in hints
    regions = {(one["file"], one["topic"]): one["compiled"] for one in port["regions"]}
    assert regions["src/solarisfixes.h", "Solaris"] is False
    assert regions["src/cluster.c", "Solaris"] is True
    rows = {row["policy"]: row for row in port["xmemalign"]}
    assert len(rows) == 15
    assert (rows["solaris-1s"]["signal"], rows["solaris-8i"]["signal"]) == (0, 0)
    assert rows["solaris-8s"]["signal"] == rows["solaris-8i"]["repaired"] > 2
    assert json.loads((folder / "port.json").read_text("utf-8")) == read
    assert (folder / "port.md").read_text("utf-8").startswith("# Porting redis-3.2.6 to sparc64: ❌ FAIL\n")
    for size in (DESKTOP, PHONE):
        rendered, console = look(folder / "port.html", size=size)
        assert console == []
        assert "It dies in the default workload" in rendered


@pytest.mark.parametrize(("size", "dark"), LOOKS)
def test_the_page_fits_is_legible_and_reachable(tmp_path: Path, size: tuple[int, int], *, dark: bool) -> None:
    path = tmp_path / "port.html"
    path.write_text(page.render(run_folder(tmp_path), report(), judgement(title=HOSTILE)), "utf-8")
    layout = measured(path, size=size, dark=dark)
    assert (layout["overflow"], layout["scripts"], layout["faint"], layout["unreachable"]) == (0, 0, [], [])


@pytest.mark.slow(instead="tests/unit/workflows/test_port.py")
def test_a_tree_that_does_not_compile_for_the_target_gets_a_report(tmp_path: Path) -> None:
    """The tree has two errors, which occur only with a distribution's additions. make alone would report just one."""
    tree = tmp_path / "broken"
    shutil.copytree(open_server(Catalog(), Fetcher(Cache.default(), Progress()), "redis-3.2.6").path, tree)
    for name in ("sds.c", "util.c"):
        source = tree / "src" / name
        text = source.read_text("utf-8")
        source.write_text(f"#ifdef DISTRIBUTED\nint {name[0]} = no_such_thing;\n#endif\n{text}", "utf-8")
    folder = tmp_path / "run"
    ended = run(*PORT, "--server", tree, "--run", folder, "--cflags=-DDISTRIBUTED", "--make=SOME_VARIABLE=yes")
    read = document(ended)
    assert (ended.returncode, read["verdict"]) == (ExitCode.FINDINGS, "FAIL"), ended.stderr
    assert read["settings"] == {"cflags": ["-DDISTRIBUTED"], "make": ["SOME_VARIABLE=yes"]}
    compiled = next(step for step in read["targets"][0]["steps"] if step["name"] == "compile")
    assert compiled["result"] == "failed"
    assert compiled["detail"].startswith("2 errors, the first at src/")
    assert sorted(line.partition(":")[0] for line in compiled["lines"]) == ["src/sds.c", "src/util.c"]
    assert any(line.startswith("src/util.c:2  int u = no_such_thing;  ") for line in compiled["lines"])
    (problem,) = of_rank(read, "build")[:1]
    assert problem["title"] == "it does not compile"
    assert set(compiled["lines"]) <= set(problem["detail"])
    assert read["targets"][0]["regions"], "the report must have what the source alone shows"
    assert read["targets"][0]["xmemalign"] == [], "nothing ran, so nothing is known to be right"
    assert (folder / "port.html").is_file()
