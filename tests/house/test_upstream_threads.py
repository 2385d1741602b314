"""docs/upstream-threads.md: every verdict about a thread has evidence, and every command exists."""

from __future__ import annotations

import re
import shlex

import pytest

from harness.cli.checks import check
from harness.cli.own_trees import port
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from tools import bugs

PAGE = ROOT / "docs" / "upstream-threads.md"
TEXT = PAGE.read_text("utf-8")
ROWS = re.findall(
    r"^\| \[([\w-]+#\d+)\]\((https://github\.com/\S+)\) \| .+? \| ([a-z ]+) \| (.+) \|$", TEXT, re.MULTILINE
)
OFFERED = {"check": check, "port": port}
COMMANDS = re.findall(r"^plumb .+$", TEXT, re.MULTILINE)


def test_every_required_thread_has_a_section() -> None:
    names = [name for name, *_ in ROWS]
    asked = {"redis#13671", "redis#15185", "redis#15769", "valkey#3254", "valkey#3812", "valkey#4547"}
    assert set(names) == asked
    assert len(names) == len(asked)
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == [*names, "Threads of other programs"]


@pytest.mark.parametrize(("name", "address", "verdict", "releases"), ROWS, ids=[row[0] for row in ROWS])
def test_a_verdict_has_its_evidence(name: str, address: str, verdict: str, releases: str) -> None:
    family, _, number = name.partition("#")
    assert f"/{family}/" in address
    assert address.endswith(f"/{number}")
    assert verdict in {"reproduced", "not seen", "by source"}
    page = re.search(r"\(found/([\w-]+)\.md\)", releases)
    assert (page is not None) == (verdict == "reproduced"), "exactly the reproduced ones have a page"
    if page is not None:
        bug = bugs.read_bugs()[page[1]]
        assert address in bug.references
        assert all(release in bug.has for release in re.findall(r"(?:redis|valkey)-[\d.]+\d", releases))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_and_its_names_are_in_the_catalog(command: str) -> None:
    _, name, *words = shlex.split(command)
    # click caches the help option of the first context, so that its names must be those of the whole command line.
    given = OFFERED[name].make_context(name, words, help_option_names=["-h", "--help"]).params
    plan = make_plan(
        Catalog(), targets=given["targets"], server=given["server"], suites=given["suites"], tier=given["tier"]
    )
    assert plan.cells
