"""A stored run is judged by its own records, independently of the checkout."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis import source_excerpt
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import InconclusiveError
from harness.isa.rules import recorded_policies
from harness.judge import baseline, conclusion
from harness.plan.catalog import Catalog
from harness.record import run_folder, run_record, stored_run
from harness.workflows.rejudge import rejudge
from tests.support import fakes
from tests.support.stored import StoredRun, a_fault

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.target_model import Policy

STORED = fakes.DATA / "stored_runs"
"""Runs of format 2, and the results of judging them (described in the README.md there)."""
NAMES = ["audit", "crashes", "premerge"]


def copy(name: str, tmp_path: Path) -> Path:
    shutil.copytree(STORED / name, tmp_path / name)
    return tmp_path / name


def document(folder: Path, tmp_path: Path) -> str:
    """findings.json of a folder."""
    judgement, _ = rejudge(Cache(tmp_path / "cache"), fakes.quiet(), folder, STORED / "known.toml")
    # The digest differs if a test rewrites the record.
    text = json_codec.pretty(msgspec.structs.replace(judgement, record="")).decode()
    # In commands, a path may be quoted, as shlex.quote does.
    quoted, plain = (
        re.escape(json_codec.encode(path).decode()[1:-1]) for path in (str(folder).replace("'", "'\"'\"'"), str(folder))
    )
    return re.sub(plain, "RUN", re.sub(f"'{quoted}([^']*)'", r"RUN\1", text))


def forgiving() -> dict[str, Policy]:
    """The policies of another checkout, under which the hardware permits every access and the kernel repairs none."""
    return {
        name: msgspec.structs.replace(policy, demand="none", fixup=(), ignore=(), effective_policy={})
        for name, policy in Catalog().policies.items()
    }


def recorded(name: str, tmp_path: Path) -> Path:
    """An old stored run, with the policies and the digest that a current run records."""
    folder = copy(name, tmp_path)
    record = run_folder.read_run(folder)
    used = recorded_policies(Catalog().policies, record.policy, record.machines.values())
    run_folder.write_run(folder, msgspec.structs.replace(record, policies=used, version=run_record.VERSION))
    if inherited := baseline.read(folder):
        baseline.keep(folder, inherited)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_is_judged_as_before(tmp_path: Path, name: str) -> None:
    assert (STORED / f"{name}.json").read_text("utf-8") == document(copy(name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_recorded_its_policies_opens_no_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = recorded(name, tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("judging opened the catalogue")

    monkeypatch.setattr(Catalog, "__init__", refuse)
    assert (STORED / f"{name}.json").read_text("utf-8") == document(folder, tmp_path)


def test_a_changed_policy_changes_no_judgement_of_a_run_that_recorded_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = copy("audit", tmp_path / "before"), recorded("audit", tmp_path / "now")
    expected = (STORED / "audit.json").read_text("utf-8")
    changed = forgiving()
    monkeypatch.setattr(Catalog, "policies", changed)
    assert document(now, tmp_path) == expected
    # The change has an effect: a run without recorded policies is judged by those of the checkout.
    assert document(before, tmp_path) != expected


def test_a_run_without_a_policy_that_it_needs_is_inconclusive(tmp_path: Path, run: StoredRun) -> None:
    a_fault(run)
    folder = run.finish()
    whole = run_folder.read_run(folder)
    for name in [*whole.policies, ""]:
        left = {one: policy for one, policy in whole.policies.items() if one != name} if name else {}
        run_folder.write_run(folder, msgspec.structs.replace(whole, policies=left))
        with pytest.raises(InconclusiveError, match=f"it lacks .*{name or 'ignore'}"):
            conclusion.conclude(stored_run.read(folder), STORED / "known.toml", fakes.quiet())


@pytest.mark.usefixtures("fake_symbols")
def test_excerpts_come_from_the_source_that_the_run_recorded(tmp_path: Path, run: StoredRun) -> None:
    """It is an entry of the cache. A path may now hold another tree, and judging a run fetches nothing."""
    a_fault(run)
    folder = run.finish()
    cache = Cache(tmp_path / "cache")

    def fill(tree: Path) -> None:
        fakes.write(tree / "src" / "bitops.c", "".join(f"line {number}\n" for number in range(1, 200)))

    cache.folder("sources", "redis-3.2.6-0123", fill)
    for source, found in (("", set()), ("another", set()), ("redis-3.2.6-0123", {"src/bitops.c"})):
        run_folder.write_run(folder, msgspec.structs.replace(run_folder.read_run(folder), source=source))
        rejudge(cache, fakes.quiet(), folder, STORED / "known.toml")
        assert source_excerpt.read(folder).sources.keys() == found
