"""An untrusted run: none of its content is executed, and no path in it leads out of its folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.core import json_codec
from harness.core.errors import ExitCode
from harness.core.finding import Reproduction
from harness.record import cell_events, run_folder, run_record, stored_run
from tests.support import fakes
from tests.support.stored import StoredRun, a_fault, judged

if TYPE_CHECKING:
    from tests.support.fakes import Plumb

OUTSIDE = ["../x", "/etc/passwd", "a/../../b", "..", ".hidden", "-rf", "a\n", "a b", "a\\b"]


def with_record(folder: Path, **changed: Any) -> Path:
    """A stored run whose record an attacker has changed, with a matching digest."""
    record = json.loads((folder / "run.json").read_text("utf-8"))
    (folder / "run.json").write_bytes(run_folder.signed(json.dumps({**record, **changed, "digest": ""}).encode()))
    return folder


def planted(folder: Path) -> tuple[Path, Path]:
    """The attacker's program that would run as PREFIX-addr2line, and the file that it would create."""
    trace = folder / "was-run"
    program = fakes.write(folder / "x-addr2line", f"#!/bin/sh\ntouch {trace}\n", mode=0o755)
    return program, trace


@pytest.mark.usefixtures("fake_symbols")
def test_judging_starts_no_program_named_by_a_run(plumb: Plumb, run: StoredRun, tmp_path: Path) -> None:
    a_fault(run)
    _, trace = planted(tmp_path)
    folder = with_record(run.finish(), triples={"armv5": str(tmp_path / "x")})
    code, out, _ = plumb("judge", folder)
    assert code == ExitCode.FINDINGS
    assert not trace.exists()
    assert "note: armv5: no toolchain has tools named" in out


@pytest.mark.usefixtures("fake_symbols")
def test_a_binary_elsewhere_is_not_opened_and_the_report_says_so(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may belong to another user of the host. A run from another host is judged, but without any names."""
    run = StoredRun(tmp_path / "run")
    run.canary("armv5")
    monkeypatch.setattr(StoredRun, "binary", lambda _, target: tmp_path / "private" / target / "redis-server")
    a_fault(run)
    opened = []
    real = Path.open

    def watched(self: Path, *words: Any, **more: Any) -> Any:
        opened.append(self)
        return real(self, *words, **more)

    monkeypatch.setattr(Path, "open", watched)
    code, out, _ = plumb("judge", run.finish())
    assert code == ExitCode.FINDINGS
    assert [path for path in opened if "private" in path.parts] == []
    assert "alignment-??-load" in out
    assert f"note: armv5: its binary is not here: findings have neither names nor lines ({tmp_path}" in out


@pytest.mark.usefixtures("fake_symbols")
def test_a_binary_of_the_cache_is_used(run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(StoredRun, "binary", lambda _, target: tmp_path / "cache" / "builds" / target / "redis-server")
    a_fault(run)
    (finding,) = judged(run)[0]
    assert finding.function == "bitopCommand"
    assert stored_run.remarks(stored_run.read(run.folder), [finding]) == []


@pytest.mark.parametrize("path", ["/home/x/server", "relative/server", "/usr/../etc/shadow", "/usr\x00", ""])
def test_a_rejected_path_is_replaced_by_one_that_cannot_exist(run: StoredRun, path: str) -> None:
    kept = stored_run.read(with_record(run.finish(), binaries={"armv5": path})).record.binaries["armv5"]
    assert kept.startswith(f"{os.devnull}/")
    assert not Path(kept).exists()


@pytest.mark.parametrize("word", ["judge", "report", "join"])
@pytest.mark.parametrize("kind", ["link to a file", "link to a folder", "dangling link", "link to itself", "pipe"])
def test_a_link_that_leads_out_of_the_folder_is_refused(plumb: Plumb, run: StoredRun, word: str, kind: str) -> None:
    run.test("armv5", "bitops", "test_a")
    plumb("judge", run.finish())
    secret = fakes.write(run.folder.parent / "secret" / "file", "secret\n")
    place = run.folder / "armv5" / "bitops" / "log"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        links = {"link to a file": secret, "link to a folder": secret.parent, "link to itself": Path("log")}
        place.symlink_to(links.get(kind, Path("../../../gone")))
    code, out, err = plumb(word, run.folder)
    assert (code, out) == (ExitCode.USAGE, "")
    assert f"error: a run folder may contain only files ({place})" in err


def test_a_link_within_the_folder_is_followed(plumb: Plumb, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_a")
    (run.finish() / "latest").symlink_to("armv5")
    assert plumb("judge", run.folder)[0] == ExitCode.PASS


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize(
    "record",
    [
        run_record.CellRecord(target="a", suite="b", seconds=0),
        cell_events.GuestEvent(name="a", end="stopped", target="b", transcript="c"),
        cell_events.TestEvent(name="a", outcome="passed", seconds=0, guest="b", transcript="c"),
        Reproduction(target="a", requests=(), wrong="", file="b", guest="c"),
    ],
)
def test_no_name_in_a_record_leads_out_of_the_folder(record: msgspec.Struct, name: str) -> None:
    """All names that become part of a path are covered. The name of a test does not."""
    free = {"outcome", "seconds", "end", "detail", "message", "test", "problem", "requests", "wrong"}
    free |= {"name"} if isinstance(record, cell_events.TestEvent) else set()
    text = [key for key, value in msgspec.to_builtins(record).items() if isinstance(value, str)]
    assert set(text) - free - _UNUSED
    for key in set(text) - free - _UNUSED:
        with pytest.raises(msgspec.ValidationError):
            json_codec.decode(json_codec.encode({**msgspec.to_builtins(record), key: name}), type(record))


_UNUSED = {
    "type",
    "seal",
    "audit_seal",
    "doubt",
    "problem_kind",
    "audit",
    "unit",
    "program",
    "wrong_line",
    "asked",
    "asserted",
    "upstream",
}
"""Fields that never become part of a path."""


def test_a_cells_name_cannot_leave_the_folder(plumb: Plumb, run: StoredRun) -> None:
    folder = run.finish()
    cells = [{"target": "../../etc", "suite": "x", "seconds": 1}]
    code, _, err = plumb("judge", with_record(folder, cells=cells))
    assert code == ExitCode.INCONCLUSIVE
    assert "error: the run's record is damaged" in err


@pytest.mark.usefixtures("fake_symbols")
@pytest.mark.parametrize("key", ["binaries", "triples"])
def test_a_record_without_binaries_or_tools_loses_only_the_names(plumb: Plumb, run: StoredRun, key: str) -> None:
    a_fault(run)
    run.test("armv5", "bitops", "test_b", outcome="failed", message="gone", guest="guest-2")
    run.guest("armv5", "bitops", "guest-2", end="signal", detail="killed by SIGABRT", test="test_b")
    fakes.write(
        run.cell("armv5", "bitops") / "guest-2" / "log",
        "7:M 1 Jan 10:00:00.000 # === ASSERTION FAILED ===\n7:M 1 Jan 10:00:00.000 # ==> x.c:1 'a' is not true\n",
    )
    code, _, err = plumb("judge", with_record(run.finish(), **{key: {}}))
    assert (code, "error" in err) == (ExitCode.FINDINGS, False), err


@pytest.mark.parametrize(
    ("key", "said"), [("machines", "it lacks the machine of armv5"), ("demand", "$.machines[...]")]
)
def test_a_record_without_a_machine_is_damaged(plumb: Plumb, run: StoredRun, key: str, said: str) -> None:
    run.test("armv5", "bitops", "test_a")
    record = json.loads((run.finish() / "run.json").read_text("utf-8"))
    machine = {**record["machines"]["armv5"], "demand": {"word": 0}}
    code, _, err = plumb("judge", with_record(run.folder, machines={} if key == "machines" else {"armv5": machine}))
    assert (code, "the run's record is damaged" in err, said in err) == (ExitCode.INCONCLUSIVE, True, True), err


def test_a_peer_that_the_record_lacks_is_named(plumb: Plumb, run: StoredRun) -> None:
    run.test("armv5", "bitops", "test_a")
    run.add("armv5", "bitops", cell_events.GuestEvent(name="guest-2", end="signal", target="mars"))
    fakes.write(run.finish() / "armv5" / "bitops" / "peers" / "evil" / "guest-1" / "log", "hello\n")
    code, out, _ = plumb("judge", run.folder)
    assert (code, "peers/evil/guest-1/log was not there" in out) == (ExitCode.INCONCLUSIVE, True)
    assert "a guest ran on mars, which the run's record does not have" in out


def test_forbidden_content_of_a_run_is_removed_and_the_rest_remains(tmp_path: Path) -> None:
    folder = tmp_path / "guest-1"
    kept = fakes.write(folder / "appendonlydir" / "base.rdb", "data")
    (folder / "inside").symlink_to(kept)
    (folder / "appendonlydir" / "temp.incr").symlink_to("/dev/full")
    os.mkfifo(folder / "pipe")
    stored_run.remove_ways_out(folder)
    assert list(stored_run.ways_out(folder)) == []
    assert sorted(path.name for path in folder.rglob("*")) == ["appendonlydir", "base.rdb", "inside"]
    assert Path("/dev/full").exists()
