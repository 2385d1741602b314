"""A replay notices that a distribution's package has other libraries than in the finding's run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.sources.server_package import CONTENTS, packages_of
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.model import ServerPackage
from harness.core.target_model import ORACLE
from harness.judge import conclusion
from harness.judge.reproducer import read_reproducer, stored_at
from harness.plan.catalog import Catalog
from harness.record import run_folder, stored_run
from harness.workflows.debug.debug_shell import DebugSession, open_shell
from harness.workflows.replay import replay as replay_workflow
from harness.workflows.replay.package_change import difference, unless_changed
from harness.workflows.replay.recurrence import Recurrence
from harness.workflows.replay.tree_replay import TreeReplay
from harness.workflows.workbench import Workbench
from tests.support import fakes
from tests.support.reproducers import reproducer
from tests.support.stored import StoredRun
from tests.unit.build.test_server_package import whole_root

if TYPE_CHECKING:
    from pathlib import Path

    from harness.workflows.replay.replay_result import Replay

BEFORE = {"libssl3_3.0.11_armel.deb": "a", "redis-server_7.0.15_armel.deb": "b"}


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (BEFORE, ""),
        (
            {**BEFORE, "libssl3_3.0.11_armel.deb": "other"},
            "libssl3_3.0.11_armel.deb has other content",
        ),
        (
            {"libssl3_3.0.17_armel.deb": "c", "redis-server_7.0.15_armel.deb": "b"},
            "libssl3_3.0.17_armel.deb instead of libssl3_3.0.11_armel.deb",
        ),
        ({"redis-server_7.0.15_armel.deb": "b"}, "libssl3_3.0.11_armel.deb is missing"),
        ({**BEFORE, "libz_1_armel.deb": "d"}, "libz_1_armel.deb is new"),
        (
            {**BEFORE, **{f"lib{n}_1_armel.deb": "d" for n in range(6)}},
            "; ".join(f"lib{n}_1_armel.deb is new" for n in range(5)) + "; and 1 more",
        ),
    ],
    ids=["same", "content", "version", "missing", "new", "many"],
)
def test_sets_of_packages_differ_in_files_and_their_content(here: dict[str, str], said: str) -> None:
    assert difference(BEFORE, here) == said


@pytest.mark.parametrize("outcome", ["reproduced", "unknown"])
def test_only_an_absent_finding_is_in_doubt(outcome: str) -> None:
    ended = Recurrence(outcome=outcome, reason="why")  # type: ignore[arg-type]
    assert unless_changed(ended, "they differ") == ended
    assert unless_changed(Recurrence(outcome="gone"), "") == Recurrence(outcome="gone")
    assert unless_changed(Recurrence(outcome="gone"), "they differ").outcome == "unknown"


PACKAGE = ServerPackage(suite="bookworm", name="redis-server", version="5:7.0.15-1")


def on_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """A workbench whose server is a package that was unpacked from the files of BEFORE."""
    cache = Cache(tmp_path / "cache")

    def unpack(into: Path) -> None:
        whole_root(into / "root-0")
        fakes.write(into / CONTENTS, json_codec.encode(BEFORE).decode())

    cache.folder("packages", "bookworm-redis-server-5_7.0.15-1-amd64-root", unpack)
    tree = msgspec.structs.replace(fakes.opened(tmp_path), name=PACKAGE.title, package=PACKAGE)
    # Its source is fetched.
    monkeypatch.setattr(Workbench, "open_server", lambda *_, **__: tree)
    return Workbench(catalog=Catalog(), cache=cache, progress=fakes.quiet(), offline=True)


def replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, dict[str, str]], *, other: str = ""
) -> Replay:
    """The replay of a finding that does not come."""
    bench = on_package(tmp_path, monkeypatch)
    # Its server runs for long.
    monkeypatch.setattr(TreeReplay, "run", lambda *_, **__: (Recurrence(outcome="gone"), "it answers"))
    seen = reproducer(server=other or PACKAGE.title, target=ORACLE, packages=recorded)
    return replay_workflow.replay(bench, seen, server="")


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        ({ORACLE: BEFORE}, ""),
        (
            {ORACLE: {**BEFORE, "libssl3_3.0.11_armel.deb": "z"}},
            "the packages are not those of the run: on native, libssl3_3.0.11_armel.deb has other content",
        ),
        ({}, "the run did not record its packages, which may be others than these"),
    ],
    ids=["same", "other", "not-recorded"],
)
def test_a_finding_that_does_not_recur_with_other_packages_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, dict[str, str]], reason: str
) -> None:
    """Regression: it reported `not reproduced` for a finding that an older library may have caused."""
    result = replayed(tmp_path, monkeypatch, recorded)
    assert (result.outcome, result.reason) == ("unknown" if reason else "gone", reason)
    assert reason in result.text


def test_packages_of_another_server_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(tmp_path, monkeypatch, {}, other=f"{PACKAGE.title}+deb12u1").outcome == "gone"


@pytest.mark.parametrize(
    ("target", "recorded", "said"),
    [
        (ORACLE, {ORACLE: BEFORE}, ""),
        (
            ORACLE,
            {ORACLE: {**BEFORE, "libssl3_3.0.11_armel.deb": "z"}},
            "the packages are not those of the run: on native, libssl3_3.0.11_armel.deb has other content.",
        ),
        (ORACLE, {}, "the run did not record its packages, which may be others than these"),
        ("armv5", {"armv5": {}}, ""),
    ],
    ids=["same", "other", "not-recorded", "another-target"],
)
def test_a_shell_tells_that_it_has_other_packages_than_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, recorded: dict[str, dict[str, str]], said: str
) -> None:
    """Who debugged a finding of an older library saw another program, and nothing said so."""
    bench = on_package(tmp_path, monkeypatch)
    fakes.write(tmp_path / "bin" / "gdb", "#!/bin/sh\n", mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    seen = reproducer(server=PACKAGE.title, target=target, packages=recorded)
    session = DebugSession(target=ORACLE, server="", policy="", optimisation="", running=True, install=False, gdb=())
    open_shell(bench, session, seen)
    # A console of any width may break its lines.
    shown = " ".join(fakes.printed(bench.progress).split())
    assert said in shown
    assert ("alignment-bitopCommand-load may not come" in shown) == bool(said)


def test_a_compiled_server_has_no_packages(tmp_path: Path) -> None:
    assert packages_of(fakes.build(tmp_path)) == {}


def test_a_reproducer_has_the_packages_of_its_target_and_of_the_native_build(tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"))
    for target in stored.targets:
        stored.canary(target)
        stored.test(
            target, "bitops", "test_bitop", outcome="failed" if target == "armv5" else "passed", message="1 != 2"
        )
    folder = stored.finish()
    packages = {name: {f"libc6_{name}.deb": "0"} for name in ("armv5", "sparc64", ORACLE)}
    run_folder.write_run(folder, msgspec.structs.replace(run_folder.read_run(folder), packages=packages))
    known = fakes.write(tmp_path / "known.toml", "findings = []\n")
    judgement, _ = conclusion.conclude(stored_run.read(folder), known, fakes.quiet())
    path = stored_at(folder, judgement.findings[0].replay)
    assert path is not None
    assert read_reproducer(str(path)).packages == {name: packages[name] for name in ("armv5", ORACLE)}
