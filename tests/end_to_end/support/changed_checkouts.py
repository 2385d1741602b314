"""A release as a repository, and a premerge of it on one target."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Any

from harness.build.sources.archives import Fetcher
from harness.core.cache import Cache
from harness.plan.catalog import Catalog
from harness.workflows.mutation_testing import mutations
from tests.end_to_end.support.plumb_runs import document, run
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

OF = ("--base", "HEAD", "--server")
UNITS = ("--suite", "units")
"""The fastest suite that finds the planted bugs."""


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=unstable"]
    subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True)


def commit(folder: Path) -> None:
    """Commit all changes. The time in the message makes each commit of the same tree different, so that its seed and
    its kept cells also differ.
    """
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", f"more at {time.time_ns()}")


def edit(path: Path, anchor: str, replacement: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(anchor) == 1, f"{anchor} in {path}"
    path.write_text(text.replace(anchor, replacement), "utf-8")


def release_as_repository(tmp_path: Path) -> Path:
    """A release as a repository of one commit. The compiler's cache knows its files."""
    catalog = Catalog()
    planted = mutations.mutations()["bitcount-alignment"]
    original = Fetcher(Cache.default(), fakes.quiet()).server(catalog.servers[planted.server])
    path = tmp_path / "my-redis"
    mutations.plant(planted, original.path, path)
    bug = (path / "src" / "bitops.c").read_bytes()
    (path / "src" / "bitops.c").write_bytes((original.path / "src" / "bitops.c").read_bytes())
    git(path, "init", "--quiet")
    commit(path)
    (tmp_path / "bug.c").write_bytes(bug)
    return path


def premerge(checkout: Path, folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    finished = run(
        "premerge", "--server", checkout, "--base", "HEAD", "--target", "armv5", "--run", folder, "--json", *words
    )
    return finished.returncode, document(finished), finished.stderr


def unentered(judged: dict[str, Any]) -> set[str]:
    """The functions that differ from those of the base and that no test has entered."""
    begin = "these functions differ from BASE, but no test is known to enter them: "
    (remark,) = [remark.removeprefix(begin) for remark in judged["remarks"] if remark.startswith(begin)]
    return set(remark.partition(" on armv5")[0].split(", "))
