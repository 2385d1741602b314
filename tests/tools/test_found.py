"""The data in docs/found agree with the pages, with existing files, and with the stored answers of releases."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from harness.build.sources.archives import Fetcher
from harness.core import json_codec
from harness.core.errors import ExitCode, UsageError
from harness.core.finding import Finding, Occasion, Verdict, Witness
from harness.judge.findings import Judgement
from harness.judge.verdict import CellVerdict
from harness.workflows.mutation_testing.mutations import Edit
from tests.support import fakes
from tools import bugs, found

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.finding import Scope

KNOWN = bugs.read_bugs()
STORED = bugs.read_answers()
CHECK = bugs.BugCheck(
    target="armv7", suite="life", finding="wrong-result-life_*_limit*", tests=("limit of 4",), said="*cut*"
)
BUG = bugs.Bug(
    name="cut-limit",
    title="a limit is cut",
    section="answers",
    kind="width",
    scope="machine",
    found=datetime.date(2026, 11, 23),
    has=("redis-7.0.15",),
    lacks=("redis-6.2.14",),
    by_source=("valkey-8.1.1",),
    checks=(CHECK,),
)
TOML = """
title = "a limit is cut"
section = "answers"
kind = "width"
scope = "machine"
found = 2026-11-23
has = ["redis-7.0.15"]
lacks = ["redis-6.2.14"]

[[checks]]
target = "armv7"
suite = "life"
finding = "wrong-result-life_*"
"""


STREAM = """
[[streams]]
target = "armv7"
file = "suites/fuzz/corpus/none.stream"
"""


PATCH = bugs.Patch(
    server="redis-7.0.15", edits=(Edit(file="src/networking.c", anchor="size_t limit", replacement="uint64_t limit"),)
)
FIXED = msgspec.structs.replace(BUG, patches=(PATCH,))


def page(bug: bugs.Bug) -> str:
    return (bugs.FOLDER / f"{bug.name}.md").read_text("utf-8")


def answer(server: str, given: bugs.Answer, bug: bugs.Bug = BUG) -> bugs.StoredAnswer:
    return bugs.StoredAnswer(
        bug=bug.name,
        server=server,
        command=bug.checks[0].command(server),
        answer=given,
        reason="wrong-result-life_x_limit",
        commit="0123456789ab",
        date=datetime.date(2026, 11, 24),
    )


def test_every_page_has_data_and_all_data_have_a_page() -> None:
    assert {path.stem for path in bugs.FOLDER.glob("*.md")} == KNOWN.keys()


@pytest.mark.parametrize("bug", KNOWN.values(), ids=KNOWN.keys())
def test_the_data_agree_with_the_page(bug: bugs.Bug) -> None:
    text = page(bug)
    assert text.startswith(f"# {bug.title}\n")
    # Releases appear in ranges such as `redis-6.2.14 to 8.0.6`, so only releases with a place must appear in full.
    assert all(place.server.rpartition("-")[2] in text for place in bug.places)
    words = " ".join(text.split())
    assert [place for place in bug.places if place.file and place.file.rpartition("/")[2] not in words] == []
    assert [place for place in bug.places if place.function not in words] == []
    assert [place.line for place in bug.places if place.line and not re.search(rf"\b{place.line}\b", words)] == []
    assert [target for target in bug.targets if target not in words and target != "native"] == []
    assert bug.command in text
    assert [stream.file for stream in bug.streams if stream.file not in text] == []
    cited = set(re.findall(r"https://[^)\s]+|CVE-\d+-\d+", text))
    assert set(bug.references) == cited


@pytest.mark.parametrize("bug", KNOWN.values(), ids=KNOWN.keys())
def test_a_check_names_what_shows_the_bug(bug: bugs.Bug) -> None:
    """Any finding of the test counted as the bug: one check had `*`."""
    assert [check for check in bug.checks if not check.finding.strip("*?-")] == []


@pytest.mark.parametrize("stored", STORED.answers, ids=lambda one: f"{one.bug}-{one.server}")
def test_a_releases_stored_answer_agrees_with_the_data(stored: bugs.StoredAnswer) -> None:
    bug = KNOWN.get(stored.bug)
    assert bugs.out_of_date(bug, stored) == ""
    assert bug is not None
    assert bugs.contradiction(bug, stored) == ""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("has =", "has_ =", "'has' is the nearest known key"),
        ('"redis-7.0.15"', '"redis-7.0.51"', "no server 'redis-7.0.51'"),
        ('"armv7"', '"armv77"', "no target 'armv77'"),
        ('"life"', '"live"', "no suite 'live'"),
        ('"redis-6.2.14"', '"redis-7.0.15"', "both has and lacks"),
        ('"width"', '"breadth"', "Invalid enum value 'breadth'"),
        ("[[checks]]", "[[places]]", "unknown field `target`"),
        (TOML[TOML.index("[[checks]]") :], "", "nothing says how to reproduce the bug"),
        ("2026-11-23", "yesterday", "not valid TOML"),
    ],
)
def test_invalid_data_are_refused_with_a_clear_message(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert TOML.count(old) == 1
    (tmp_path / "cut-limit.toml").write_text(TOML.replace(old, new), "utf-8")
    with pytest.raises(UsageError) as error:
        bugs.read_bugs(tmp_path)
    assert words in str(error.value)
    assert "cut-limit.toml" in str(error.value)


def test_a_missing_stream_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut-limit.toml").write_text(TOML + STREAM, "utf-8")
    with pytest.raises(UsageError, match=r"no file 'suites/fuzz/corpus/none.stream'"):
        bugs.read_bugs(tmp_path)


def test_a_stream_is_replayed_like_a_check(tmp_path: Path) -> None:
    (tmp_path / "cut-limit.toml").write_text(TOML[: TOML.index("[[checks]]")] + STREAM.replace("none", "bits"), "utf-8")
    known = bugs.read_bugs(tmp_path)
    command = "plumb replay suites/fuzz/corpus/bits.stream --target armv7 --server redis-7.0.15"
    assert [one.key[2] for one in found.questions(known, (), ("redis-7.0.15",))] == [command]
    stored = msgspec.structs.replace(answer("redis-7.0.15", "there"), command=command)
    assert bugs.out_of_date(known["cut-limit"], stored) == ""


def test_a_checks_command_names_only_unusual_settings() -> None:
    assert CHECK.command("redis-7.0.15") == (
        "plumb check --server redis-7.0.15 --target armv7 --suite life --test 'limit of 4'"
    )
    special = msgspec.structs.replace(CHECK, tests=(), tier="full", policy="strict", toolchain="clang-musl")
    assert special.command("redis-7.0.15").endswith("life --tier full --policy strict --toolchain clang-musl")


@pytest.mark.parametrize(
    ("server", "given", "words"),
    [
        ("redis-7.0.15", "there", ""),
        ("redis-7.0.15", "unclear", ""),
        ("redis-7.0.15", "gone", "does not show the bug cut-limit"),
        ("valkey-8.1.1", "gone", "does not show the bug cut-limit"),
        ("redis-6.2.14", "gone", ""),
        ("redis-6.2.14", "unclear", ""),
        ("redis-6.2.14", "there", "`lacks` in docs/found/cut-limit.toml lists it"),
        ("redis-8.0.6", "there", ""),
    ],
)
def test_an_answer_that_contradicts_the_data_is_reported(server: str, given: bugs.Answer, words: str) -> None:
    problem = bugs.contradiction(BUG, answer(server, given))
    assert words in problem
    assert bool(problem) == bool(words)


def test_one_of_two_checks_may_be_silent_where_the_bug_is() -> None:
    two = msgspec.structs.replace(BUG, checks=(CHECK, msgspec.structs.replace(CHECK, target="armv5")))
    assert bugs.contradiction(two, answer("redis-7.0.15", "gone")) == ""


def test_an_answer_to_a_different_command_is_out_of_date() -> None:
    old = answer("redis-7.0.15", "there")
    assert bugs.out_of_date(BUG, old) == ""
    changed = msgspec.structs.replace(BUG, checks=(msgspec.structs.replace(CHECK, tests=("other",)),))
    assert "python -m tools.found --server redis-7.0.15 cut-limit" in bugs.out_of_date(changed, old)
    assert "no page of docs/found" in bugs.out_of_date(None, old)


def judgement(
    cells: list[tuple[str, str, Verdict]], findings: list[tuple[str, str, str]], reason: str = ""
) -> Judgement:
    """A judgement with cells (target, suite and verdict) and findings (id, target and message)."""
    return Judgement(
        schema=1,
        verdict=max(verdict for _, _, verdict in cells),
        server="redis-7.0.15",
        seed=1,
        run="run",
        policy="signal",
        optimisation="O2",
        cells=[
            CellVerdict(
                target=target, suite=suite, verdict=verdict, seconds=1.0, reason=reason, passed=3, failed=0, skipped=0
            )
            for target, suite, verdict in cells
        ],
        findings=[finding(*one) for one in findings],
        remarks=[],
        stages={},
    )


def finding(identity: str, target: str, said: str) -> Finding:
    occasion = Occasion(test="life/t.py::limit", command="", title="a test failed", said=said, functions=())
    witness = json_codec.convert(
        {
            **{field.encode_name: _empty(field) for field in msgspec.structs.fields(Witness) if field.required},
            "target": target,
            "occasions": [msgspec.to_builtins(occasion)],
        },
        Witness,
    )
    given = {field.encode_name: _empty(field) for field in msgspec.structs.fields(Finding) if field.required}
    whole = json_codec.convert({**given, "id": identity, "kind": "wrong-result"}, Finding)
    return msgspec.structs.replace(whole, witnesses=[witness], targets=[target])


def _empty(field: msgspec.structs.FieldInfo) -> object:
    """A placeholder for a field that the judgement of an answer does not read."""
    text = str(field.type)
    return [] if "list" in text or "tuple" in text else 0 if "int" in text else "x" if "Annotated" in text else ""


PASSED = [("armv7", "canary", Verdict.PASS), ("armv7", "life", Verdict.PASS)]
FAILED = [("armv7", "canary", Verdict.PASS), ("armv7", "life", Verdict.FAIL)]
SHOWN = ("wrong-result-life_test_limit", "armv7", "the limit is cut")


@pytest.mark.parametrize(
    ("cells", "findings", "expected"),
    [
        (FAILED, [SHOWN], "there"),
        ([("armv7", "canary", Verdict.PASS), ("armv7", "life", Verdict.XFAIL)], [SHOWN], "there"),
        (PASSED, [], "gone"),
        # Another machine, another failure of the test, and another finding.
        (FAILED, [(SHOWN[0], "native", SHOWN[2])], "unclear"),
        (FAILED, [(SHOWN[0], "armv7", "timed out")], "unclear"),
        (FAILED, [("exit-start", "armv7", SHOWN[2])], "unclear"),
        ([("armv7", "canary", Verdict.PASS), ("armv7", "life", Verdict.XFAIL)], [], "unclear"),
        ([("armv7", "canary", Verdict.PASS), ("armv7", "life", Verdict.SKIP)], [], "unclear"),
        ([("armv7", "canary", Verdict.PASS), ("armv7", "life", Verdict.UNKNOWN)], [], "unclear"),
        ([("armv7", "canary", Verdict.FAIL), ("armv7", "life", Verdict.PASS)], [], "unclear"),
        ([("armv7", "canary", Verdict.PASS)], [], "unclear"),
    ],
)
def test_only_a_test_that_passed_is_an_absence(
    cells: list[tuple[str, str, Verdict]], findings: list[tuple[str, str, str]], expected: str
) -> None:
    assert found.judged(CHECK, judgement(cells, findings))[0] == expected


@pytest.mark.parametrize(("tests", "expected"), [(("limit of 4",), "unclear"), ((), "gone")])
def test_where_a_named_test_was_skipped_its_bug_is_not_absent(tests: tuple[str, ...], expected: str) -> None:
    whole = judgement(PASSED, [])
    some = [msgspec.structs.replace(cell, skipped=1) if cell.suite == "life" else cell for cell in whole.cells]
    check = msgspec.structs.replace(CHECK, tests=tests)
    assert found.judged(check, msgspec.structs.replace(whole, cells=some))[0] == expected


@pytest.mark.parametrize(
    ("cell", "expected"), [("armv7/life", "there"), ("armv5/life", "unclear"), ("armv7/width", "unclear")]
)
def test_a_targets_effect_on_another_machines_server_shows_in_the_targets_cell(cell: str, expected: str) -> None:
    shown = finding(SHOWN[0], "native", SHOWN[2])
    witness = msgspec.structs.replace(shown.witnesses[0], cells=[cell])
    shown = msgspec.structs.replace(shown, witnesses=[witness])
    whole = msgspec.structs.replace(judgement(FAILED, []), findings=[shown])
    assert found.judged(CHECK, whole)[0] == expected


def test_releases_that_cannot_be_tested_are_not_tested() -> None:
    unasked = bugs.Unasked(servers=("redis-7.0.15",), reason="the server does not start there")
    several = msgspec.structs.replace(BUG, unasked=(unasked,))
    asked = found.questions({BUG.name: several}, (), ())
    assert [one.server for one in asked] == ["redis-6.2.14", "valkey-8.1.1"]
    with pytest.raises(UsageError, match="the server does not start there"):
        found.questions({BUG.name: several}, (BUG.name,), ("redis-7.0.15",))
    assert found.questions({BUG.name: BUG}, (), ("redis-8.0.6",)) == []
    assert len(found.questions({BUG.name: BUG}, (BUG.name,), ("redis-8.0.6",))) == 1
    assert found.questions({BUG.name: BUG}, (), (), ("armv5",)) == []
    usual_first = found.questions({BUG.name: BUG}, (), ())
    assert [one.server for one in usual_first] == ["redis-7.0.15", "redis-6.2.14", "valkey-8.1.1"]


def test_an_unknown_bug_is_refused_with_the_nearest_name() -> None:
    result = CliRunner().invoke(found.main, ["output-limit-cutt"])
    assert result.exit_code == 4
    assert "output-limit-cut" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--server", "redis-7.0.51"],
            "no server 'redis-7.0.51' can be asked (--server)\n  try: one of these: redis-7",
        ),
        (["--server", "NONSENSE"], "no server 'NONSENSE' can be asked (--server)\n  try: one of these: redis-"),
        (["--target", "NONSENSE"], "no target 'NONSENSE' can be asked (--target)\n  try: one of these: aarch64"),
        (["--patched", "--server", "NONSENSE"], "no server 'NONSENSE' can be asked"),
        (["functions-memory", "--target", "m68k"], "nothing can be asked"),
        (["--target", "m68k", "--server", "redis-2.8.17"], "nothing can be asked (redis-2.8.17, m68k)"),
    ],
)
def test_an_impossible_selection_is_refused(words: list[str], message: str) -> None:
    result = CliRunner().invoke(found.main, ["--plan", *words])
    assert result.exit_code == ExitCode.USAGE, result.output
    assert f"error: {message}" in result.output


def test_a_plan_names_the_commands_and_runs_none(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    one = KNOWN["functions-memory"]
    words = ["--plan", "--missing", "--answers", str(path), one.name]
    whole = CliRunner().invoke(found.main, words).output.splitlines()
    assert whole == [
        f"{one.name}: {one.checks[0].command(server)}" for server in ("redis-7.0.15", "redis-8.0.6", "valkey-9.1.2")
    ]
    bugs.write_answers(bugs.StoredAnswers(answers=(answer("redis-8.0.6", "gone", one),)), path)
    assert len(CliRunner().invoke(found.main, words).output.splitlines()) == 2


def test_a_new_answer_replaces_its_predecessor_and_outdated_ones(tmp_path: Path) -> None:
    stale = msgspec.structs.replace(answer("redis-6.2.14", "gone"), command="plumb check")
    stored = bugs.StoredAnswers(answers=(answer("redis-7.0.15", "unclear"), stale, answer("valkey-8.1.1", "there")))
    after = found.stored_with(stored, answer("redis-7.0.15", "there"), {BUG.name: BUG})
    bugs.write_answers(after, tmp_path / "answers.json")
    read = bugs.read_answers(tmp_path / "answers.json")
    assert [(one.server, one.answer) for one in read.answers] == [("redis-7.0.15", "there"), ("valkey-8.1.1", "there")]


def test_the_table_prefers_stored_answers_to_the_page() -> None:
    unasked = bugs.Unasked(servers=("valkey-8.1.1",), reason="the server does not start there")
    known = {
        BUG.name: msgspec.structs.replace(BUG, unasked=(unasked,)),
        "newer": msgspec.structs.replace(BUG, name="newer", found=datetime.date(2026, 11, 24), checks=()),
    }
    heading, _, first, second = bugs.release_rows(known, bugs.StoredAnswers(answers=(answer("redis-7.0.15", "there"),)))
    columns = [cell.strip() for cell in heading.split("|")]
    newer, older = (dict(zip(columns, map(str.strip, row.split("|")), strict=True)) for row in (first, second))
    assert newer["bug"] == "[newer](found/newer.md)"
    assert newer["redis-7.0.15"] == "has, n/a"
    assert older["redis-7.0.15"] == "**there**"
    assert older["redis-6.2.14"] == "lacks"
    assert older["valkey-8.1.1"] == "source, n/a"
    assert older["redis-8.0.6"] == ""


def test_several_answers_are_as_clear_as_the_clearest_that_shows_the_bug() -> None:
    stored = [answer("redis-7.0.15", each) for each in ("gone", "unclear", "there")]
    ask = [bugs.answer_of(bugs.StoredAnswers(answers=tuple(stored[:n])), BUG.name, "redis-7.0.15") for n in range(4)]
    assert ask == [None, "gone", "unclear", "there"]


def test_lists_are_by_class_and_newest_first() -> None:
    rows = bugs.section_rows(KNOWN, "answers")
    headings = [row for row in rows if row.endswith(":")]
    assert headings == ["Machines differ:", "On every machine:"]
    for heading, scope in zip(headings, ("machine", "everywhere"), strict=True):
        after = rows[rows.index(heading) + 2 :]
        links = after[: after.index("")] if "" in after else after
        listed = [KNOWN[row.rpartition("found/")[2].removesuffix(".md)")] for row in links]
        assert {bug.scope for bug in listed} == {scope}
        dates = [bug.found for bug in listed]
        assert dates == sorted(dates, reverse=True)
        assert len(dates) > 10


def seen_scope(scope: Scope, *targets: str) -> bugs.StoredScope:
    return bugs.StoredScope(
        bug=BUG.name,
        server="redis-7.0.15",
        targets=targets,
        scope=scope,
        findings=("wrong-result-life_x_limit",),
        date=datetime.date(2026, 11, 29),
    )


@pytest.mark.parametrize(
    ("said", "seen", "targets", "wrong"),
    [
        ("machine", "machine", ("armv7", "sparc64"), False),
        ("machine", "everywhere", ("armv7", "sparc64"), True),
        ("machine", "everywhere", ("armv7",), False),
        ("everywhere", "everywhere", ("armv7",), False),
        ("everywhere", "machine", ("armv7",), False),
    ],
)
def test_a_class_that_contradicts_the_page_is_told(
    said: Scope, seen: Scope, targets: tuple[str, ...], *, wrong: bool
) -> None:
    bug = msgspec.structs.replace(BUG, scope=said, targets=("armv7",))
    assert bool(bugs.wrong_scope(bug, seen_scope(seen, *targets))) is wrong


def test_a_run_tells_the_class_of_each_bug_and_the_findings_without_a_page() -> None:
    told = judgement(
        [("armv7", "life", Verdict.FAIL)],
        [("wrong-result-life_x_limit", "armv7", "it was cut"), ("wrong-result-life_other", "armv7", "other")],
    )
    witness = msgspec.structs.replace(told.findings[0].witnesses[0], suite="life")
    for scope in ("everywhere", "machine"):
        first = msgspec.structs.replace(told.findings[0], witnesses=[witness], scope=scope)
        whole = msgspec.structs.replace(told, findings=[first, told.findings[1]])
        (seen,), others = found.scopes_of(whole, {BUG.name: BUG}, "0123456789ab")
        assert (seen.bug, seen.server, seen.scope, seen.targets) == (BUG.name, "redis-7.0.15", scope, ("armv7",))
        assert seen.findings == ("wrong-result-life_x_limit",)
        assert others == ["machine: wrong-result-life_other"]
    rows = bugs.scope_rows({BUG.name: BUG}, bugs.StoredAnswers(scopes=(seen_scope("everywhere", "armv7"), seen)))
    assert [row.split("|")[2].strip() for row in rows[2:]] == ["machine", "everywhere"]


def test_the_stored_classes_do_not_contradict_the_pages() -> None:
    assert [
        bugs.wrong_scope(KNOWN[one.bug], one) for one in STORED.scopes if bugs.wrong_scope(KNOWN[one.bug], one)
    ] == []
    assert {one.server for one in STORED.scopes} == {"redis-8.0.6", "valkey-9.1.2"}


PATCHED_TOML = """
[[patches]]
server = "SERVER"

[[patches.edits]]
file = "src/networking.c"
anchor = "size_t limit"
replacement = "uint64_t limit"
"""


def test_a_patch_must_be_for_a_release_that_has_the_bug(tmp_path: Path) -> None:
    path = tmp_path / "cut-limit.toml"
    path.write_text(TOML + PATCHED_TOML.replace("SERVER", "redis-7.0.15"), "utf-8")
    assert bugs.read_bugs(tmp_path)["cut-limit"].patches == (PATCH,)
    for server in ("redis-6.2.14", "redis-8.0.6"):
        path.write_text(TOML + PATCHED_TOML.replace("SERVER", server), "utf-8")
        with pytest.raises(UsageError, match=f"the patch for {server} cannot be proved"):
            bugs.read_bugs(tmp_path)


def proof(given: bugs.Answer, *, whole: bool = False, patch: bugs.Patch = PATCH) -> bugs.StoredAnswer:
    command = FIXED.proofs(PATCH)[whole].command("redis-7.0.15")
    return msgspec.structs.replace(answer("redis-7.0.15", given), command=command, patch=patch.digest)


def test_a_patch_is_proved_by_the_bugs_check_and_by_its_whole_suite() -> None:
    asked = found.patched({BUG.name: FIXED}, (), (), ())
    assert [(one.check.command(one.server), one.patch) for one in asked] == [
        ("plumb check --server redis-7.0.15 --target armv7 --suite life --test 'limit of 4'", PATCH),
        ("plumb check --server redis-7.0.15 --target armv7 --suite life", PATCH),
    ]
    commands = [one.check.command(one.server) for one in asked]
    assert bugs.unproved(FIXED, bugs.StoredAnswers()) == commands
    assert bugs.unproved(FIXED, bugs.StoredAnswers(answers=(proof("gone"),))) == commands[1:]
    assert (
        bugs.unproved(FIXED, bugs.StoredAnswers(answers=(proof("gone"), proof("unclear", whole=True)))) == commands[1:]
    )
    assert bugs.unproved(FIXED, bugs.StoredAnswers(answers=(proof("gone"), proof("gone", whole=True)))) == []


def test_the_proof_of_another_patch_or_of_the_release_itself_proves_nothing() -> None:
    other = msgspec.structs.replace(PATCH, edits=(*PATCH.edits, *PATCH.edits))
    plain = msgspec.structs.replace(proof("gone"), patch="")
    both = bugs.StoredAnswers(answers=(proof("gone", patch=other), plain))
    assert len(bugs.unproved(FIXED, both)) == 2
    assert "has changed" in bugs.out_of_date(FIXED, proof("gone", patch=other))
    assert bugs.out_of_date(FIXED, proof("gone", whole=True)) == ""


def test_the_answer_of_a_patched_release_does_not_count_for_the_release_itself() -> None:
    stored = bugs.StoredAnswers(answers=(proof("gone"), answer("redis-7.0.15", "there", FIXED)))
    assert bugs.answer_of(stored, BUG.name, "redis-7.0.15") == "there"
    assert bugs.answer_of(bugs.StoredAnswers(answers=(proof("gone"),)), BUG.name, "redis-7.0.15") is None
    assert bugs.contradiction(FIXED, proof("gone")) == ""
    assert "correct the patch" in bugs.contradiction(FIXED, proof("there"))
    after = found.stored_with(stored, proof("unclear"), {BUG.name: FIXED})
    assert [one.answer for one in after.answers] == ["there", "unclear"]


OTHER_BUG = msgspec.structs.replace(
    BUG, name="other", checks=(bugs.BugCheck(target="armv5", suite="life", finding="wrong-result-life_other"),)
)
OTHER = ("wrong-result-life_other", "armv7", "another limit is cut")


def with_failures(cell: CellVerdict) -> CellVerdict:
    return msgspec.structs.replace(cell, failed=1) if cell.verdict is Verdict.FAIL else cell


@pytest.mark.parametrize(
    ("cells", "findings", "expected"),
    [
        (PASSED, [], "gone"),
        (FAILED, [OTHER], "gone"),
        (FAILED, [SHOWN], "there"),
        (FAILED, [SHOWN, OTHER], "there"),
        (FAILED, [("wrong-result-life_new", "armv7", "news")], "unclear"),
        (FAILED, [], "unclear"),
        ([("armv7", "canary", Verdict.FAIL), *FAILED[1:]], [OTHER], "unclear"),
        ([*PASSED[:1], ("armv7", "life", Verdict.UNKNOWN)], [OTHER], "unclear"),
        (FAILED[:1], [OTHER], "unclear"),
    ],
)
def test_a_patched_release_may_show_only_other_bugs(
    cells: list[tuple[str, str, Verdict]], findings: list[tuple[str, str, str]], expected: str
) -> None:
    question = found.Question(bug=FIXED, check=FIXED.proofs(PATCH)[1], server="redis-7.0.15", patch=PATCH)
    judged = judgement(cells, findings)
    judged = msgspec.structs.replace(judged, cells=list(map(with_failures, judged.cells)))
    # `finding` does not set their suites.
    shown = [
        msgspec.structs.replace(one, witnesses=[msgspec.structs.replace(each, suite="life") for each in one.witnesses])
        for one in judged.findings
    ]
    judged = msgspec.structs.replace(judged, findings=shown)
    assert found.judged_patched(question, judged, {BUG.name: FIXED, "other": OTHER_BUG})[0] == expected
    # A finding of another check of the same bug excuses nothing.
    both = msgspec.structs.replace(FIXED, checks=(*FIXED.checks, *OTHER_BUG.checks))
    if expected == "gone" and findings:
        assert found.judged_patched(question, judged, {BUG.name: both})[0] == "unclear"


@pytest.mark.parametrize("bug", [bug for bug in KNOWN.values() if bug.patches], ids=lambda bug: str(bug.name))
def test_every_patch_is_proved(bug: bugs.Bug) -> None:
    assert bugs.unproved(bug, STORED) == [], f"python -m tools.found --patched {bug.name}"
    assert f"`python -m tools.found --diff {bug.name}`" in page(bug)


def test_the_table_of_patches_names_the_passing_checks() -> None:
    stored = bugs.StoredAnswers(answers=(proof("gone"), proof("gone", whole=True)))
    row = bugs.patch_rows({BUG.name: FIXED}, stored)[-1]
    assert row.startswith(
        "| [cut-limit](found/cut-limit.md) | redis-7.0.15 | src/networking.c | 1 | armv7 --suite life"
    )


def test_a_patch_is_printed_as_a_diff_of_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "networking.c").write_text("before\nsize_t limit = 1;\nafter\n", "utf-8")
    monkeypatch.setattr(Fetcher, "server", lambda *_: fakes.opened(tree))
    assert found.difference("cut-limit", PATCH).splitlines() == [
        "--- a/src/networking.c",
        "+++ b/src/networking.c",
        "@@ -1,3 +1,3 @@",
        " before",
        "-size_t limit = 1;",
        "+uint64_t limit = 1;",
        " after",
    ]
    assert "size_t limit" in (tree / "src" / "networking.c").read_text("utf-8").split("\n")[1]
    with found.with_patch("cut-limit", PATCH) as (_, copy):
        assert copy.is_dir()
    assert not copy.exists()
