"""Reproducers of checks on this host are run. Foreign ones are run only with --trust, and never completely."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cli.options import LEVELS
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.judge import provenance
from harness.judge.conclusion import conclude
from harness.judge.reproducer import Reproducer, read_reproducer
from harness.record import cell_events, run_folder, stored_run
from harness.record.transcript import Chunk
from harness.workflows.replay.replay_result import Replay
from tests.support import fakes
from tests.support.stored import BITOP, StoredRun, a_fault, judged, known_file, reproducer

if TYPE_CHECKING:
    from tests.support.fakes import Plumb

SENT = Chunk(connection=1, direction="request", data=base64.b64encode(BITOP).decode())


def made(**of: Any) -> dict[str, Any]:
    """The fields of a valid reproducer, with changes."""
    usual = Reproducer(
        finding="alignment-bitopCommand-load",
        kind="alignment",
        function="bitopCommand",
        server="redis-3.2.6",
        target="armv5",
        policy="signal",
        optimisation="O2",
        emulator="pinned",
        chunks=[SENT],
    )
    return {**json_codec.decode(json_codec.encode(usual), dict), **of}


@pytest.mark.parametrize("level", LEVELS)
def test_a_reproducer_of_every_level_is_read(level: str) -> None:
    assert json_codec.convert(made(optimisation=level), Reproducer).optimisation == level


@pytest.fixture
def come(tmp_path: Path) -> Path:
    """A run folder with one reproducer."""
    folder = tmp_path / "run" / "reproducers"
    folder.mkdir(parents=True)
    return folder / "one.json"


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[Reproducer]:
    """The reproducers that would have been sent to a server."""
    came: list[Reproducer] = []

    def replay(*given: Any, **_: Any) -> Replay:
        came.append(given[1])
        return Replay(outcome="gone", reason="", machine=False, text="")

    monkeypatch.setattr("harness.workflows.replay.replay.replay", replay)
    return came


def test_a_foreign_reproducer_is_not_run_unless_it_is_trusted(
    plumb: Plumb, come: Path, carried_out: list[Reproducer]
) -> None:
    come.write_text(json.dumps(made(options=["--databases", "16"], files={"dump.rdb": ""})), "utf-8")
    code, _, err = plumb("replay", come)
    assert (code, carried_out) == (ExitCode.USAGE, [])
    assert f"error: no check on this host made the reproducer ({come})" in err
    asks = "It sends BITOP 1× to redis-3.2.6, started with --databases 16, and the files dump.rdb"
    assert asks in err
    assert "try: if you trust its author: the same command with --trust" in err
    assert plumb("replay", come, "--bisect")[0] == 255
    assert plumb("shell", "armv5", "--run", come)[0] == ExitCode.USAGE
    assert carried_out == []
    assert plumb("replay", come, "--trust")[0] == ExitCode.PASS
    assert len(carried_out) == 1


def test_a_reproducer_of_a_check_on_this_host_is_run_and_a_changed_one_is_not(
    plumb: Plumb, come: Path, carried_out: list[Reproducer]
) -> None:
    come.write_text(json.dumps(made(server="/home/somebody/redis")), "utf-8")
    provenance.seal_all(Cache.default(), come.parent.parent)
    assert plumb("replay", come)[0] == ExitCode.PASS
    assert [one.server for one in carried_out] == ["/home/somebody/redis"]
    sealed = come.read_bytes()
    come.write_bytes(sealed.replace(b"somebody", b"nobodyyy"))
    assert plumb("replay", come)[0] == ExitCode.USAGE
    come.write_text(json.dumps(json.loads(sealed), indent=1), "utf-8")
    code, _, err = plumb("replay", come)
    assert (code, "error: no check on this host made the reproducer" in err) == (ExitCode.USAGE, True)
    assert len(carried_out) == 1


def test_a_reproducer_with_another_machines_seal_is_foreign(plumb: Plumb, come: Path, tmp_path: Path) -> None:
    come.write_text(json.dumps(made()), "utf-8")
    provenance.seal_all(Cache(tmp_path / "other"), come.parent.parent)
    provenance.seal_all(Cache.default(), tmp_path / "nothing")
    assert plumb("replay", come)[0] == ExitCode.USAGE
    assert read_reproducer(str(come)).finding == "alignment-bitopCommand-load"


def test_only_the_user_can_read_the_key(plumb: Plumb, come: Path) -> None:
    del plumb
    come.write_text(json.dumps(made()), "utf-8")
    provenance.seal_all(Cache.default(), come.parent.parent)
    (key,) = Cache.default().path("keys", "reproducers").parent.iterdir()
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777, key.stat().st_size) == (0o600, 0o700, 32)


def test_without_a_writable_cache_nothing_is_sealed_and_nothing_fails(come: Path, tmp_path: Path) -> None:
    come.write_text(json.dumps(made()), "utf-8")
    before = come.read_bytes()
    provenance.seal_all(Cache(fakes.write(tmp_path / "file", "") / "cache"), come.parent.parent)
    assert come.read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [
        ["--dir", "x"],
        ["--unixsocket", "x"],
        ["--port", "7777"],
        ["--bind", "x"],
        ["--loadmodule", "x"],
        ["--logfile", "x"],
        ["--pidfile", "x"],
        ["--aclfile", "x"],
        ["--include", "x"],
        ["--databases", "../x"],
        ["--databases", "/x"],
        ["conf"],
        ["sentinel.conf", "--sentinel"],
        ["conf", "--databases", "16"],
        ["--databases", "16\ndir"],
    ],
)
def test_no_option_of_a_foreign_reproducer_names_a_file_or_a_port(
    plumb: Plumb, come: Path, carried_out: list[Reproducer], options: list[str]
) -> None:
    come.write_text(json.dumps(made(options=options)), "utf-8")
    code, _, err = plumb("replay", come, "--trust")
    assert (code, carried_out) == (ExitCode.USAGE, [])
    assert "with an option that is not allowed" in err


@pytest.mark.parametrize("settings", [{"cflags": ["-fplugin=./x.so"]}, {"make": ["SHELL=/tmp/x"]}])
def test_a_foreign_reproducer_adds_nothing_to_command_lines_of_make_and_compilers(
    plumb: Plumb, come: Path, carried_out: list[Reproducer], settings: dict[str, list[str]]
) -> None:
    come.write_text(json.dumps(made(settings=settings)), "utf-8")
    code, _, err = plumb("replay", come, "--trust", "--server", "redis-7.0.15")
    assert (code, carried_out) == (ExitCode.USAGE, [])
    assert "an untrusted reproducer adds to the build's command lines" in err


def test_the_user_names_a_tree_and_not_a_foreign_reproducer(
    plumb: Plumb, come: Path, carried_out: list[Reproducer]
) -> None:
    come.write_text(json.dumps(made(server="/srv/evil")), "utf-8")
    code, _, err = plumb("replay", come, "--trust")
    assert (code, carried_out) == (ExitCode.USAGE, [])
    assert (
        "because: the makefile of /srv/evil would run with your permissions\n  try: name the tree "
        "yourself: --server PATH"
    ) in err
    assert plumb("replay", come, "--trust", "--server", "redis-7.0.15")[0] == ExitCode.PASS


def test_a_package_is_named_by_the_user_and_not_called_a_tree(
    plumb: Plumb, come: Path, carried_out: list[Reproducer]
) -> None:
    package = "debian:bookworm/redis-server=5:7.0.15-1~deb12u7"
    come.write_text(json.dumps(made(server=package, optimisation="")), "utf-8")
    code, _, err = plumb("replay", come, "--trust")
    assert (code, carried_out) == (ExitCode.USAGE, [])
    assert (
        f"error: an untrusted reproducer names a distribution's package ({come})\n  because: {package} would be "
        f"downloaded and would run with your permissions\n  try: name the package yourself: --server '{package}'\n"
    ) in err
    assert plumb("replay", come, "--trust", "--server", package)[0] == ExitCode.PASS


@pytest.mark.parametrize("name", ["../x", "/etc/cron.d/x", "a/../../x", ".ssh/x", "a//b", "a\n", ""])
def test_no_file_is_outside_of_the_guests_folder(
    plumb: Plumb, come: Path, carried_out: list[Reproducer], name: str
) -> None:
    come.write_text(json.dumps(made(files={name: ""})), "utf-8")
    code, _, err = plumb("replay", come, "--trust")
    assert (code, carried_out) == (ExitCode.USAGE, [])
    assert "error: not a reproducer" in err


@pytest.mark.parametrize(
    "field",
    [
        {"optimisation": "O2 -fplugin=x.so"},
        {"optimisation": "fplugin=x.so"},
        {"unit": "../x"},
        {"again": {"target": "armv5", "requests": [], "wrong": "", "file": "../../etc/passwd"}},
    ],
)
def test_no_other_field_accepts_additional_words(plumb: Plumb, come: Path, field: dict[str, Any]) -> None:
    come.write_text(json.dumps(made(**field)), "utf-8")
    code, _, err = plumb("replay", come, "--trust")
    assert (code, "error: not a reproducer" in err) == (ExitCode.USAGE, True)


@pytest.mark.usefixtures("fake_symbols")
def test_judging_a_run_again_keeps_seals_and_adds_none(plumb: Plumb, run: StoredRun, tmp_path: Path) -> None:
    """Otherwise a foreign run would count as ours after it was judged here."""
    a_fault(run)
    listed = known_file(tmp_path)
    judgement, _ = conclude(stored_run.read(run.finish()), listed, fakes.quiet())
    path = Path(shlex.split(judgement.findings[0].replay)[-1])
    assert not provenance.is_ours(Cache.default(), path.read_bytes())
    conclude(stored_run.read(run.folder), listed, fakes.quiet(), made_here=True)
    assert provenance.is_ours(Cache.default(), path.read_bytes())
    plumb("judge", run.folder)
    assert provenance.is_ours(Cache.default(), path.read_bytes())
    # A changed transcript makes the reproducer foreign.
    transcript = run.folder / "armv5" / "bitops" / "guest-1" / "transcript-0.jsonl"
    transcript.write_bytes(transcript.read_bytes() * 2)
    plumb("judge", run.folder)
    assert not provenance.is_ours(Cache.default(), path.read_bytes())


@pytest.mark.usefixtures("fake_symbols")
def test_a_finding_of_an_audit_is_replayed_under_the_audits_policy(run: StoredRun) -> None:
    """In an audit misaligned accesses succeed. A crash in it does not occur under a policy that ends the server at such
    an access.
    """
    run.audited.add(("armv5", "bitops"))
    audit = run.cell("armv5", "bitops") / run_folder.AUDIT
    (audit / "guest-1").mkdir(parents=True)
    died = cell_events.GuestEvent(name="guest-1", end="signal", detail="killed by SIGABRT", test="test_a")
    run.add("armv5", f"bitops/{run_folder.AUDIT}", died)
    lost = cell_events.TestEvent(name="test_a", outcome="failed", seconds=0.1, message="gone", guest="guest-1")
    run.add("armv5", f"bitops/{run_folder.AUDIT}", lost)
    failed = cell_events.TestEvent(name="test_b", outcome="failed", seconds=0.1, message="1 != 2")
    run.add("armv5", f"bitops/{run_folder.AUDIT}", failed)
    run.test("armv5", "bitops", "test_c", outcome="failed", message="1 != 2")
    findings = {finding.id: reproducer(finding) for finding in judged(run)[0]}
    assert {name: kept.policy for name, kept in findings.items()} == {
        "crash-test_a": "audit",
        "wrong-result-test_b": "audit",
        "wrong-result-test_c": "signal",
    }
    assert findings["crash-test_a"].detail == "killed by SIGABRT"
