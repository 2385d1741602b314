"""The commands that judge, report, join and replay runs: exit codes, and one document on standard output."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest

from harness.core import json_codec
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.judge import merge
from harness.plan.plan import read_plan
from harness.workflows.replay import replay as replay_workflow
from harness.workflows.replay.replay_result import Replay
from tests.support import fakes
from tests.support.judgements import HOSTILE
from tests.support.stored import StoredRun, entry, known_file

if TYPE_CHECKING:
    from harness.workflows.replay.recurrence import Outcome
    from tests.support.fakes import Plumb


@pytest.mark.parametrize(
    ("of", "why"),
    [
        ({"unit": "sha1"}, "it is one of the unit sha1, which"),
        ({"upstream": "unit/sort::SORT GET"}, "it is one of the release's own test unit/sort::SORT GET, which starts"),
    ],
    ids=["unit", "upstream"],
)
def test_a_reproducer_without_a_server_of_the_shell_has_nothing_to_send(
    plumb: Plumb, tmp_path: Path, of: dict[str, str], why: str
) -> None:
    read = replay_workflow.from_stream(
        fakes.write(tmp_path / "a.stream", "PING\n"), target="armv5", server="redis-7.0.15"
    )
    path = tmp_path / "unit.json"
    path.write_bytes(json_codec.encode(msgspec.structs.replace(read, **of)))
    code, _, err = plumb("shell", "armv5", "--run", path, "--trust")
    assert code == ExitCode.USAGE
    assert f"error: the reproducer has no requests (--run)\n  because: {why}" in err


def answering(outcome: Outcome, *, machine: bool = False) -> Replay:
    return Replay(outcome=outcome, reason="why" if outcome == "unknown" else "", machine=machine, text="what happened")


@pytest.mark.parametrize(
    ("replayed", "plain", "bisecting"),
    [
        (answering("reproduced"), 1, 1),
        (answering("gone"), 0, 0),
        (answering("unknown"), 6, 125),
        (answering("unknown", machine=True), 6, 255),
    ],
)
def test_a_replay_has_three_results_and_a_bisection_skips_an_inconclusive_tree(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replayed: Replay, plain: int, bisecting: int
) -> None:
    monkeypatch.setattr("harness.workflows.replay.replay.replay", lambda *_, **__: replayed)
    stream = fakes.write(tmp_path / "a.stream", "PING\n")
    code, out, _ = plumb("replay", stream, "--target", "armv5")
    first_lines = {
        "reproduced": "reproduced: a.stream",
        "gone": "not reproduced: a.stream",
        "unknown": "could not tell: a.s",
    }
    assert (code, first_lines[replayed.outcome] in out, "  because: why" in out) == (
        plain,
        True,
        replayed.outcome == "unknown",
    )
    assert plumb("replay", stream, "--target", "armv5", "--bisect")[0] == bisecting
    code, out, _ = plumb("replay", stream, "--target", "armv5", "--json")
    answer = json.loads(out)
    assert (code, answer["outcome"], answer["reason"]) == (plain, replayed.outcome, replayed.reason)
    assert answer["reproduced"] == (replayed.outcome == "reproduced")


@pytest.mark.parametrize(
    "error",
    [
        InfrastructureError("the disk is full"),
        UsageError("not a source tree"),
        OSError(28, "No space left on device"),
        ZeroDivisionError(),
        KeyboardInterrupt(),
        process.StoppedError(),
    ],
)
def test_a_bisection_stops_at_an_error_that_is_not_the_trees_fault(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("harness.workflows.replay.replay.replay", fails)
    stream = fakes.write(tmp_path / "a.stream", "PING\n")
    assert plumb("replay", stream, "--target", "armv5", "--bisect")[:2] == (255, "")


def test_a_bisection_skips_a_tree_that_is_refused(plumb: Plumb, tmp_path: Path) -> None:
    """Regression: one commit with a link out of the tree ended the bisection of a whole history."""
    tree = fakes.server_tree(tmp_path / "tree", version="7.0.15")
    (tree / "secret").symlink_to("/etc/passwd")
    stream = fakes.write(tmp_path / "a.stream", "PING\n")
    code, _, err = plumb("replay", stream, "--target", "armv5", "--server", tree, "--bisect")
    assert (code, "leads out of it" in err) == (125, True), err


def test_a_bisection_stops_without_its_reproducer(plumb: Plumb) -> None:
    code, _, err = plumb("replay", "absent.json", "--bisect")
    assert code == 255
    assert "no such reproducer" in err


@pytest.fixture
def stored(tmp_path: Path) -> StoredRun:
    run = StoredRun(tmp_path / "run")
    run.canary("armv5")
    return run


def test_judge_exits_0_for_pass(plumb: Plumb, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop")
    assert plumb("judge", stored.finish())[0] == ExitCode.PASS


def test_judge_exits_1_for_findings_and_rewrites_the_report(plumb: Plumb, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    code, out, _ = plumb("judge", stored.finish())
    assert code == ExitCode.FINDINGS
    assert "wrong-result-test_bitop" in out
    for name in ("findings.json", "findings.sarif", "junit.xml", "report.html", "summary.md"):
        assert (stored.folder / name).is_file(), name


def test_judge_exits_6_for_silence(plumb: Plumb, stored: StoredRun) -> None:
    assert plumb("judge", stored.finish())[0] == ExitCode.INCONCLUSIVE


def test_judge_as_json_prints_one_document_the_same_as_the_file(plumb: Plumb, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    code, out, err = plumb("judge", stored.finish(), "--json")
    assert code == ExitCode.FINDINGS
    assert json.loads((stored.folder / "findings.json").read_text("utf-8")) == json.loads(out)
    assert "judging" in err


def test_annotations_go_to_standard_error_and_leave_the_document_alone(plumb: Plumb, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    code, out, err = plumb("judge", stored.finish(), "--json", "--annotations", "github")
    assert code == ExitCode.FINDINGS
    json.loads(out)
    encoded = "wrong-result-test_bitop on armv5 (1×)%0Aplumb replay "
    replay = encoded + shlex.quote(f"{stored.folder}/reproducers/wrong-result-test_bitop.json")
    assert [line for line in err.splitlines() if line.startswith("::")] == [
        f"::error title=test_bitop%3A 1 != 2::{replay}"
    ]


def test_report_rewrites_every_file_and_judges_nothing(plumb: Plumb, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    plumb("judge", stored.finish())
    before = (stored.folder / "findings.json").read_bytes()
    files = ["findings.json", "summary.md", "junit.xml", "findings.sarif", "report.html"]
    for name in files[1:]:
        (stored.folder / name).unlink()
    (stored.folder / "armv5" / "bitops" / "events.jsonl").unlink()
    code, out, err = plumb("report", stored.folder)
    assert (code, err, out.splitlines()) == (0, "", [str(stored.folder / name) for name in files])
    assert before == (stored.folder / "findings.json").read_bytes()
    assert "wrong-result-test_bitop" in (stored.folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("json", "{"),
        ("sarif", "{"),
        ("junit", "<?xml"),
        ("markdown", "# redis-3.2.6: "),
        ("html", "<!doctype html>"),
        ("github", "::error title=test_bitop%3A 1 != 2::"),
        ("throughput", "# Throughput of the suites\n"),
        ("processor-time", "# Processor time\n"),
        ("flame-graph", "<svg xmlns="),
        ("upstream-tests", "# The release's own tests\n"),
    ],
)
def test_report_prints_one_document(plumb: Plumb, stored: StoredRun, form: str, start: str) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    plumb("judge", stored.finish())
    (stored.folder / "report.html").unlink()
    code, out, err = plumb("report", stored.folder, "--format", form)
    assert (code, err, out[: len(start)]) == (0, "", start)
    assert not (stored.folder / "report.html").exists()


def test_report_of_a_run_that_was_not_judged_names_the_command(plumb: Plumb, stored: StoredRun) -> None:
    code, out, err = plumb("report", stored.finish())
    assert (code, out) == (ExitCode.USAGE, "")
    assert f"error: no judgement to report ({stored.folder})" in err
    assert f"try: plumb judge {shlex.quote(str(stored.folder))}" in err


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1}'])
def test_report_of_a_damaged_judgement_is_exit_4(plumb: Plumb, stored: StoredRun, text: str) -> None:
    fakes.write(stored.finish() / "findings.json", text)
    code, _, err = plumb("report", stored.folder)
    assert code == ExitCode.USAGE
    assert "error: the judgement is damaged (" in err


@pytest.mark.parametrize("command", ["report", "findings", "join", "show"])
def test_a_judgement_of_another_schema_is_refused(plumb: Plumb, stored: StoredRun, command: str) -> None:
    """Regression: another version's verdict was believed, and joined with others."""
    plumb("judge", stored.finish())
    path = stored.folder / "findings.json"
    document = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**document, "schema": 2}), "utf-8")
    code, _, err = plumb(command, stored.folder, *(["x"] if command == "show" else []))
    assert (code, "its schema is 2, and this one reads 1" in err) == (ExitCode.USAGE, True), err


def test_a_finding_without_a_witness_is_damage(plumb: Plumb, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    plumb("judge", stored.finish())
    path = stored.folder / "findings.json"
    document = json.loads(path.read_text("utf-8"))
    document["findings"][0]["witnesses"] = []
    path.write_text(json.dumps(document), "utf-8")
    code, _, err = plumb("report", stored.folder)
    assert (code, "error: the judgement is damaged" in err, "has no witness" in err) == (ExitCode.USAGE, True, True)


def test_a_judgement_of_another_run_is_refused(plumb: Plumb, tmp_path: Path) -> None:
    clean, broken = (judged(plumb, tmp_path / word, "armv5", word) for word in ("passed", "failed"))
    (broken / "findings.json").write_bytes((clean / "findings.json").read_bytes())
    for words in (["report"], ["report", "--format", "junit"], ["findings"], ["join", clean]):
        code, out, err = plumb(*words, broken)
        assert (code, out) == (ExitCode.USAGE, ""), words
        assert f"error: the judgement is of another run ({broken})" in err
        assert f"judge {shlex.quote(str(broken))}" in err
    assert plumb("history", broken, "--output", tmp_path / "site")[0] == ExitCode.USAGE
    # A judgement that does not name its run is refused too.
    unnamed = json.loads((clean / "findings.json").read_text("utf-8")) | {"record": ""}
    (broken / "findings.json").write_text(json.dumps(unnamed), "utf-8")
    code, _, err = plumb("join", clean, broken)
    assert (code, "the judgement does not say which run it is of" in err) == (ExitCode.USAGE, True)
    assert plumb("judge", broken)[0] == ExitCode.FINDINGS
    assert plumb("report", broken)[0] == ExitCode.PASS
    # A judgement without its run, as CI jobs may keep it, is read.
    (clean / "run.json").unlink()
    assert plumb("join", clean)[0] == ExitCode.PASS


def test_annotations_name_files_from_the_repositorys_top(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's tree is in a folder of the checkout in which CI works."""
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    run = StoredRun(tmp_path / "run", server=str(tmp_path / "here" / "vendor" / "redis"))
    run.canary("armv5")
    run.fault("armv5", "bitops", "guest-1", fakes.fault(pc=run.place("armv5", "bitopCommand")))
    run.test("armv5", "bitops", "test_a", outcome="failed", guest="guest-1", faults=(0, 1))
    plumb("judge", run.finish())
    assert "::error file=vendor/redis/src/bitops.c,line=93," in plumb("report", run.folder, "--format", "github")[1]


@pytest.fixture
def three(plumb: Plumb, tmp_path: Path) -> Path:
    """A judged run with three findings, one of which is known."""
    run = StoredRun(tmp_path / "run", targets=("armv5", "sparc64"), suites=("canary", "bitops", "sds"))
    for target in run.targets:
        run.canary(target)
        run.test(target, "bitops", "test_bitop", outcome="failed", message="1 != 2\nguest 1")
        run.test(target, "sds", "test_fine")
    run.test("armv5", "sds", "test_setrange", outcome="failed", message="2 != 3")
    run.test("sparc64", "sds", "test_append", outcome="failed", message="3 != 4")
    known = known_file(tmp_path, entry("wrong-result-test_setrange"))
    assert plumb("judge", run.finish(), "--known", known)[0] == ExitCode.FINDINGS
    return run.folder


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ((), ["test_append", "test_bitop", "test_setrange"]),
        (("--new",), ["test_append", "test_bitop"]),
        (("--target", "sparc64"), ["test_append", "test_bitop"]),
        (("--suite", "sds"), ["test_append", "test_setrange"]),
        (("--suite", "sds", "--target", "armv*"), ["test_setrange"]),
        (("--suite", "sds", "--suite", "bitops", "--new", "--target", "armv5"), ["test_bitop"]),
        (("--kind", "wrong-*"), ["test_append", "test_bitop", "test_setrange"]),
        (("--suite", "canary"), []),
    ],
)
def test_findings_lists_the_findings_that_match_all_filters(
    plumb: Plumb, three: Path, words: tuple[str, ...], listed: list[str]
) -> None:
    code, out, err = plumb("findings", three, *words)
    assert (code, err) == (0, f"{len(listed)} of 3 findings\n")
    assert sorted(line.split()[0] for line in out.splitlines()) == [f"wrong-result-{name}" for name in listed]
    document = json.loads(plumb("findings", three, *words, "--json")[1])
    assert sorted(finding["id"] for finding in document) == [f"wrong-result-{name}" for name in listed]


def test_a_line_has_id_kind_targets_place_title_and_the_reason_of_a_known_finding(plumb: Plumb, three: Path) -> None:
    lines = {line.split()[0]: re.split(r"  +", line) for line in plumb("findings", three)[1].splitlines()}
    assert lines["wrong-result-test_bitop"] == [
        "wrong-result-test_bitop",
        "wrong-result",
        "armv5,sparc64",
        "test_bitop",
        "test_bitop: 1 != 2",
    ]
    assert lines["wrong-result-test_setrange"][-1] == "known: issue 3273"


@pytest.mark.parametrize("option", ["kind", "target", "suite"])
def test_a_filter_without_a_match_is_refused_with_the_existing_values(plumb: Plumb, three: Path, option: str) -> None:
    code, out, err = plumb("findings", three, f"--{option}", "nonsense")
    has = {"kind": "wrong-result", "target": "armv5, sparc64", "suite": "bitops, canary, sds"}[option]
    assert (code, out) == (ExitCode.NOTHING_SELECTED, "")
    assert err == f"error: no {option} of the run matches 'nonsense' (--{option})\n  try: the run has: {has}\n"


@pytest.mark.parametrize("name", ["wrong-result-test_setrange", "wrong-result-test_s", "*setrange", "*test_[s]*"])
def test_show_prints_one_complete_finding(plumb: Plumb, three: Path, name: str) -> None:
    code, out, err = plumb("show", three, name)
    assert (code, err) == (0, "")
    replay = f"plumb replay {shlex.quote(f'{three}/reproducers/wrong-result-test_setrange.json')}"
    for words in ("wrong-result-test_setrange", "known        issue 3273", replay, "2 != 3"):
        assert words in out, out
    assert json.loads(plumb("show", three, name, "--json")[1])["id"] == "wrong-result-test_setrange"


def test_show_prints_every_witness_its_evidence_and_the_tests_whole_message(plumb: Plumb, three: Path) -> None:
    out = plumb("show", three, "wrong-result-test_bitop")[1]
    for words in ("armv5/bitops", "sparc64/bitops", "test         test_bitop", "1 != 2", "guest 1"):
        assert words in out, out


def test_show_names_the_reproducers_current_path(plumb: Plumb, tmp_path: Path, three: Path) -> None:
    """The run came from another machine, or its folder is given by a different path."""
    moved = three.rename(tmp_path / "moved")
    (line,) = [line for line in plumb("show", moved, "*bitop")[1].splitlines() if " replay " in line]
    assert Path(shlex.split(line)[-1]).is_file(), line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong-result-test", "'wrong-result-test' matches 3 findings"),
        ("wrong-*", "'wrong-*' matches 3 findings"),
        ("wrong-result-test_bitpo", "did you mean wrong-result-test_bitop"),
        ("nonsense", "no finding 'nonsense'"),
    ],
)
def test_an_id_that_does_not_name_one_finding_is_exit_4_and_lists_near_ones(
    plumb: Plumb, three: Path, name: str, message: str
) -> None:
    code, out, err = plumb("show", three, name)
    assert (code, out, message in err) == (ExitCode.USAGE, "", True), err
    assert "  try: " in err


def test_a_hostile_server_gets_one_line_for_each_finding(plumb: Plumb, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message=HOSTILE)
    plumb("judge", stored.finish())
    for words in (("findings", stored.folder), ("show", stored.folder, "wrong*")):
        out = plumb(*words)[1]
        assert [each for each in out if unicodedata.category(each) in {"Cc", "Cf"} and each != "\n"] == []
        assert [line for line in out.splitlines() if line.strip().startswith("::")] == []
    assert len(plumb("findings", stored.folder)[1].splitlines()) == 1


def test_schema_prints_the_published_schema(plumb: Plumb) -> None:
    code, out, _ = plumb("schema")
    assert (code, out) == (0, (ROOT / "docs" / "schema" / "findings-1.json").read_text("utf-8"))


def test_a_missing_known_list_is_exit_4(plumb: Plumb, stored: StoredRun) -> None:
    code, _, err = plumb("judge", stored.finish(), "--known", "absent.toml")
    assert code == ExitCode.USAGE, err
    assert "absent.toml" in err


def test_a_run_whose_record_is_damaged_is_exit_6_and_names_the_file(plumb: Plumb, stored: StoredRun) -> None:
    fakes.write(stored.finish() / "run.json", "{")
    code, _, err = plumb("judge", stored.folder)
    assert code == ExitCode.INCONCLUSIVE, err
    assert "run.json" in err


@pytest.mark.parametrize("text", ["", "{}", "not JSON"])
def test_a_file_that_is_not_a_reproducer_is_exit_4(plumb: Plumb, tmp_path: Path, text: str) -> None:
    code, _, err = plumb("replay", fakes.write(tmp_path / "file.json", text))
    assert code == ExitCode.USAGE
    assert err.startswith("error: not a reproducer (")


def test_a_reproducer_whose_requests_are_damaged_is_exit_4(plumb: Plumb, tmp_path: Path) -> None:
    stream = fakes.write(tmp_path / "a.stream", "PING\n")
    whole = replay_workflow.from_stream(stream, target="armv5", server="redis-7.0.15")
    damaged = [msgspec.structs.replace(whole.chunks[0], data="A")]
    path = tmp_path / "a.json"
    path.write_bytes(json_codec.encode(msgspec.structs.replace(whole, chunks=damaged)))
    code, _, err = plumb("replay", path, "--trust")
    assert (code, "error: not a reproducer" in err, "base 64" in err) == (ExitCode.USAGE, True, True), err


def judged(plumb: Plumb, folder: Path, target: str, outcome: Literal["passed", "failed"]) -> Path:
    stored = StoredRun(folder, targets=(target,))
    stored.canary(target)
    stored.test(target, "bitops", "test_bitop", outcome=outcome, message="" if outcome == "passed" else "1 != 2")
    plumb("judge", stored.finish())
    return folder


def test_join_exits_like_a_single_check_and_writes_the_files_that_ci_systems_read(plumb: Plumb, tmp_path: Path) -> None:
    good = judged(plumb, tmp_path / "good", "armv5", "passed")
    bad = judged(plumb, tmp_path / "bad", "sparc64", "failed")
    into = tmp_path / "joined"
    code, out, err = plumb("join", good, bad, "--into", into, "--json", "--annotations", "github")
    assert (code, err.count("::error ")) == (ExitCode.FINDINGS, 1)
    assert {cell["target"] for cell in json.loads(out)["cells"]} == {"armv5", "sparc64"}
    assert sorted(path.name for path in into.iterdir()) == [
        "findings.json",
        "findings.sarif",
        "junit.xml",
        "summary.md",
    ]
    assert plumb("join", good)[0] == ExitCode.PASS
    words = ("plan", "--target", "armv[56]", "--suite", "bitops", "--json")
    plan = fakes.write(tmp_path / "plan", plumb(*words, "--server", "redis-3.2.6")[1])
    code, out, _ = plumb("join", good, "--plan", plan)
    assert code == ExitCode.INCONCLUSIVE
    assert "no run contains it" in out
    other = fakes.write(tmp_path / "other", plumb(*words)[1])
    code, _, err = plumb("join", good, "--plan", other)
    assert (code, "the plan is for another server" in err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("lie", ["passes", "is known"])
def test_join_believes_no_judgement_that_the_evidence_beside_it_contradicts(
    plumb: Plumb, tmp_path: Path, lie: str
) -> None:
    """Regression: `findings.json` with another verdict passed."""
    bad = judged(plumb, tmp_path / "bad", "armv5", "failed")
    document = json.loads((bad / "findings.json").read_bytes())
    if lie == "passes":
        document.update(verdict="PASS", findings=[], causes=[])
        changes = {"verdict": "PASS", "passed": 1, "failed": 0}
    else:
        document["findings"][0]["known"] = "it is always so"
        document["verdict"] = "XFAIL"
        changes = {"verdict": "XFAIL"}
    for cell in document["cells"]:
        if cell["verdict"] == "FAIL":
            cell.update(changes)
    (bad / "findings.json").write_text(json.dumps(document), "utf-8")
    code, _, err = plumb("join", bad)
    assert (code, f"error: a judgement contradicts its evidence ({bad})" in err) == (ExitCode.INCONCLUSIVE, True)
    for seal in bad.rglob("seal.json"):
        seal.unlink()
    code, out, _ = plumb("join", bad, "--json")
    notes = json.loads(out)["remarks"]
    assert f"the evidence of {bad} is not here: its findings.json was believed" in notes


def test_join_takes_the_known_list_of_the_checks(plumb: Plumb, tmp_path: Path, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitpos")
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    bad = stored.finish()
    plumb("judge", bad)
    (finding,) = json.loads((bad / "findings.json").read_bytes())["findings"]
    listed = tmp_path / "listed.toml"
    words = ("--reason", "it is so", "--file", listed)
    assert plumb("known", "add", bad, finding["id"], *words)[0] == ExitCode.PASS
    assert plumb("judge", bad, "--known", listed)[0] == ExitCode.PASS
    assert plumb("join", bad, "--known", listed)[0] == ExitCode.PASS
    assert plumb("join", bad)[0] == ExitCode.INCONCLUSIVE


def test_join_does_not_change_the_runs_own_reports(plumb: Plumb, tmp_path: Path) -> None:
    good, bad = (judged(plumb, tmp_path / word, "armv5", word) for word in ("passed", "failed"))
    before = (good / "findings.json").read_bytes()
    code, _, err = plumb("join", good, bad, "--into", good)
    assert (code, f"error: the folder is a run folder ({good})" in err) == (ExitCode.USAGE, True)
    assert (good / "findings.json").read_bytes() == before


def test_a_report_that_is_a_link_to_evidence_does_not_change_the_evidence(plumb: Plumb, stored: StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop")
    folder = stored.finish()
    (folder / "summary.md").symlink_to("run.json")
    assert plumb("judge", folder)[0] == ExitCode.PASS
    assert plumb("judge", folder)[0] == ExitCode.PASS
    assert not (folder / "summary.md").is_symlink()


def test_join_knows_the_tier_and_the_options_of_a_plan(plumb: Plumb, tmp_path: Path) -> None:
    """A run of the stored kind has no tier."""
    words = ("plan", "--target", "armv5", "--suite", "bitops", "--server", "redis-3.2.6", "--json")
    run = judged(plumb, tmp_path / "run", "armv5", "passed")
    plan = fakes.write(tmp_path / "plan.json", plumb(*words, "--tier", "full")[1])
    code, out, _ = plumb("join", run, "--plan", plan)
    assert (code, "planned in the tier full" in out) == (ExitCode.INCONCLUSIVE, True)
    for other in (
        "--toolchain clang-musl",
        "--policy fixup",
        "--audit",
        "--optimisation O3",
        "--allocator jemalloc",
        "--environment musl-stack",
        "--io tcp",
    ):
        fakes.write(plan, plumb(*words, *other.split())[1])
        code, _, err = plumb("join", run, "--plan", plan)
        assert (code, f"it plans {other}" in err) == (ExitCode.USAGE, True)
    fakes.write(plan, plumb(*words, "--cflags", "-g -Dx", "--make", "A=1")[1])
    code, _, err = plumb("join", run, "--plan", plan)
    assert code == ExitCode.USAGE
    assert "because: it plans '--cflags=-g -Dx' --make=A=1, and the runs have neither --cflags nor --make\n" in err
    assert plumb("join", run, "--plan", fakes.write(plan, plumb(*words)[1]))[0] == ExitCode.INCONCLUSIVE
    assert read_plan(plan).options.keys() == merge.OPTIONS.keys()


def test_report_prints_a_steps_outputs(plumb: Plumb, tmp_path: Path) -> None:
    bad = judged(plumb, tmp_path / "bad", "sparc64", "failed")
    assert plumb("report", bad, "--format", "outputs") == (
        0,
        f"verdict=FAIL\nfindings=1\nrun={bad}\nreport={bad}/report.html\n",
        "",
    )
