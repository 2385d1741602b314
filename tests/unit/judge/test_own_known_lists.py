"""A tree's own list of known findings applies to its tree, is judged from the run's copy, and excuses no change."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis import source_excerpt
from harness.core.cache import Cache
from harness.core.errors import ExitCode, UsageError
from harness.core.finding import Occasion, Witness
from harness.judge.change import unchecked_changes
from harness.judge.conclusion import conclude
from harness.judge.known import known_list, matching, tree_list
from harness.judge.known.known_list import EMPTY, KnownFinding, Settings, concerns, entries_of, load_known
from harness.judge.known.tree_list import IN_TREE
from harness.plan.catalog import Catalog
from harness.record import run_folder, stored_run
from harness.workflows.known_entries import exact_entries
from tests.support import fakes
from tests.support.judgements import judgement
from tests.support.stored import StoredRun, a_fault, entry, known_file

if TYPE_CHECKING:
    from pathlib import Path

    from harness.judge.findings import Judgement
    from tests.support.fakes import Plumb

pytestmark = pytest.mark.usefixtures("fake_symbols")

FAULT = "alignment-bitopCommand-load"
OWN = '[[findings]]\nid = "{id}"\nreason = "{reason}"\nexpires = {expires}\n'
LATER = datetime.datetime.now(tz=datetime.UTC).date() + datetime.timedelta(days=100)


def own(identity: str = FAULT, *, reason: str = "our own", expires: datetime.date = LATER, more: str = "") -> str:
    return OWN.format(id=identity, reason=reason, expires=expires) + more


@pytest.fixture
def tree_run(tmp_path: Path) -> StoredRun:
    """A run on a checkout, with one finding."""
    run = StoredRun(tmp_path / "run", server=str(fakes.server_tree(tmp_path / "checkout")))
    run.canary("armv5")
    a_fault(run)
    run.test("armv5", "bitops", "test_bitpos")
    return run


def recorded(run: StoredRun, of_tree: str, of_base: str | None = None, *, release: str = "7.0.15") -> Path:
    """The run's folder after a check that found these lists."""
    folder = run.finish()
    tree_list.record(folder, of_tree, of_base)
    record = msgspec.structs.replace(
        run_folder.read_run(folder), beside=unchecked_changes.digests(folder), release=release
    )
    run_folder.write_run(folder, record)
    return folder


def judged(folder: Path, tmp_path: Path, *entries: str) -> tuple[Judgement, ExitCode]:
    return conclude(stored_run.read(folder), known_file(tmp_path, *entries), fakes.quiet())


def test_the_recorded_list_applies_without_the_tree_and_has_a_remark(tmp_path: Path, tree_run: StoredRun) -> None:
    judgement, code = judged(recorded(tree_run, own()), tmp_path)
    assert (code, [finding.known for finding in judgement.findings]) == (ExitCode.PASS, ["our own"])
    assert f".plumbline/known.toml of the tree excuses {FAULT}" in judgement.remarks


def test_without_a_list_nothing_is_excused_and_there_is_no_remark(tmp_path: Path, tree_run: StoredRun) -> None:
    judgement, code = judged(recorded(tree_run, ""), tmp_path)
    assert (code, judgement.findings[0].known, judgement.remarks) == (ExitCode.FINDINGS, "", [])


def test_both_lists_count_together(tmp_path: Path, tree_run: StoredRun) -> None:
    tree_run.test("armv5", "bitops", "test_wrong", outcome="failed", message="1 != 2")
    folder = recorded(tree_run, own("wrong-result-test_wrong"))
    in_force = f'id = "{FAULT}"\nserver = "*/checkout"\nreason = "theirs"\nexpires = {LATER}'
    judgement, code = judged(folder, tmp_path, in_force)
    assert (code, {finding.known for finding in judgement.findings}) == (ExitCode.PASS, {"our own", "theirs"})
    (remark,) = [one for one in judgement.remarks if "of the tree excuses" in one]
    assert remark.endswith("excuses wrong-result-test_wrong"), "the other entry is not the tree's"
    assert judged(folder, tmp_path)[1] == ExitCode.FINDINGS


def test_an_expired_or_unseen_entry_of_its_own_list_has_a_remark(tmp_path: Path, tree_run: StoredRun) -> None:
    old = own(expires=LATER - datetime.timedelta(days=200)) + own("alignment-gone-load")
    judgement, code = judged(recorded(tree_run, old), tmp_path)
    assert code == ExitCode.FINDINGS
    assert [remark.partition(" (")[0] for remark in judgement.remarks] == [
        f"known finding {FAULT}",
        "known finding alignment-gone-load",
    ]


@pytest.mark.parametrize("name", [tree_list.OF_TREE, tree_list.OF_BASE])
@pytest.mark.parametrize("change", ["edited", "gone"])
def test_a_recorded_list_that_was_changed_later_excuses_nothing_and_makes_the_run_unknown(
    tmp_path: Path, tree_run: StoredRun, name: str, change: str
) -> None:
    folder = recorded(tree_run, own(), own())
    assert judged(folder, tmp_path)[1] == ExitCode.PASS
    if change == "gone":
        (folder / name).unlink()
    else:
        (folder / name).write_text(own() + own("*"), "utf-8")
    judgement, code = judged(folder, tmp_path)
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")
    assert any(left.startswith(f"NOT CHECKED: {name}, which ") for left in judgement.unchecked)


def test_a_list_that_the_run_did_not_record_excuses_nothing(tmp_path: Path, tree_run: StoredRun) -> None:
    folder = recorded(tree_run, "")
    (folder / tree_list.OF_TREE).write_text(own(), "utf-8")
    judgement, code = judged(folder, tmp_path)
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")


def test_an_entry_that_only_the_change_has_excuses_nothing_and_has_a_remark(
    tmp_path: Path, tree_run: StoredRun
) -> None:
    judgement, code = judged(recorded(tree_run, own(), ""), tmp_path)
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")
    assert judgement.remarks[:2] == [
        "the change edits .plumbline/known.toml",
        f"it adds {FAULT} (our own; until {LATER}); entries that a change adds excuse none of its findings",
    ]


def test_an_entry_that_the_change_widens_counts_as_new_and_the_bases_as_removed(
    tmp_path: Path, tree_run: StoredRun
) -> None:
    narrow = own(more='suite = "sds"\n')
    judgement, code = judged(recorded(tree_run, own(), narrow), tmp_path)
    assert code == ExitCode.FINDINGS
    assert [remark.partition(" alignment")[0] for remark in judgement.remarks[1:3]] == ["it adds", "it removes"]


def test_an_entry_that_both_have_excuses_and_one_that_the_change_removes_does_not(
    tmp_path: Path, tree_run: StoredRun
) -> None:
    judgement, code = judged(recorded(tree_run, own(), own()), tmp_path)
    assert (code, [remark for remark in judgement.remarks if "the change" in remark]) == (ExitCode.PASS, [])
    commented, code = judged(recorded(tree_run, "# why\n" + own(), own()), tmp_path)
    assert (code, commented.remarks[0]) == (
        ExitCode.PASS,
        "the change edits .plumbline/known.toml; no entry changes",
    )
    judgement, code = judged(recorded(tree_run, "", own()), tmp_path)
    assert (code, judgement.findings[0].known) == (ExitCode.FINDINGS, "")
    assert f"it removes {FAULT} (our own; until {LATER})" in judgement.remarks


# The server to which an entry applies.


@pytest.mark.parametrize(
    ("release", "server", "counts_as", "fits"),
    [
        ("redis >=7.0, <7.2", "/checkouts/redis", "redis-7.0.15", True),
        ("redis >=7.0, <7.2", "/checkouts/redis", "redis-7.2.0", False),
        ("redis >=7.0, <7.2", "/checkouts/redis", "redis-6.2.14", False),
        ("redis >=7.0,<7.2", "/checkouts/valkey", "valkey-7.0.15", False),
        ("redis >=7.0, <7.2", "redis-7.0.15", "", True),
        ("redis >=7.0, <7.2", "redis-7.2.4", "", False),
        ("redis ==7.0.15", "redis-7.0.15", "redis-7.0.15", True),
        ("redis ==7.0", "redis-7.0.15", "", False),
        ("redis ==7", "/checkouts/redis", "redis-7.0.0", True),
        ("redis >7.0, <=7.0.15", "redis-7.0.15", "", True),
        ("redis <10", "redis-9.1.2", "", True),
        ("valkey", "/checkouts/valkey", "valkey-9.1.2", True),
        ("valkey", "redis-9.1.2", "", False),
        # A tree in a run that did not record its release.
        ("redis >=2", "/checkouts/redis", "", False),
        ("", "/checkouts/redis", "", True),
    ],
)
def test_an_entry_for_a_range_of_releases_applies_to_trees_and_releases(
    release: str, server: str, counts_as: str, *, fits: bool
) -> None:
    one = KnownFinding(id="a", release=release, reason="b", expires=LATER)
    assert concerns(one, server, counts_as) == fits


def test_a_shared_list_can_name_a_release_that_a_checkout_counts_as(tmp_path: Path, tree_run: StoredRun) -> None:
    """Regression: a checkout of 7.0 had two findings that the list excuses only for redis-7.0.15."""
    entry_of = 'id = "{}"\nrelease = "redis >=7.0, <7.2"\nreason = "waits for upstream"\nexpires = {}'
    line = entry_of.format(FAULT, LATER)
    assert judged(recorded(tree_run, "", release="7.0.15"), tmp_path, line)[1] == ExitCode.PASS
    assert judged(recorded(tree_run, "", release="7.2.0"), tmp_path, line)[1] == ExitCode.FINDINGS


@pytest.mark.parametrize(
    ("release", "known"), [("redis-7.0.15", True), ("redis-7.2.0", False), ("valkey-7.0.15", False)]
)
def test_the_projects_own_list_covers_a_checkout_of_the_release(release: str, *, known: bool) -> None:
    entries = load_known(known_list.DEFAULT, {"armv5": Catalog().targets["armv5"]}, Settings())
    said = "---- errorInfo: ERR client-id should be greater than 0\n"
    occasion = Occasion(test="protocol/tracking", command="", title="", said=said, functions=())
    whole = judgement().findings[0]
    witness = msgspec.structs.replace(whole.witnesses[0], suite="protocol", occasions=[occasion])
    identity = "wrong-result-protocol_tracking.testsuite_tracking_3.7"
    finding = msgspec.structs.replace(whole, id=identity, witnesses=[witness])
    today = datetime.date(2026, 11, 22)
    assert bool(matching.match(entries, finding, "/checkouts/redis", today, release=release)) == known
    assert matching.match(entries, finding, "redis-7.0.15", today)


# Damage.


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("# a\n\nfindings = [\n", 3, "not valid TOML"),
        (own() + own() + 'said = "a"\nseldom = true\n', 10, "nearest known key; all of them: allocator"),
        (own() + '\n[[findings]]\nid = "b"\nreason = "c"\n', 6, "expires"),
        (own() + own(more='targets = "armv5"\n'), 9, "Expected `array`"),
        (own(more='release = "redis 7.0"\n'), 5, "release = 'redis >=7.0, <7.2.4'"),
        (own(more='release = "keydb >=7"\n'), 5, "a family, and conditions"),
    ],
)
def test_a_damaged_list_is_an_error_with_file_and_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    tree = tmp_path / "tree"
    path = fakes.write(tree / IN_TREE, text)
    for read in (lambda: tree_list.text_in(tree), lambda: load_known(path, {}, Settings())):
        with pytest.raises(UsageError) as caught:
            read()
        assert f"({path}:{line})" in str(caught.value)
        assert message in str(caught.value)


# The entries of `plumb known add`, read again.


@pytest.fixture
def occasions(tmp_path: Path) -> StoredRun:
    """A run on a checkout: a fault on two targets, and a wrong result whose message has random parts."""
    run = StoredRun(
        tmp_path / "run", targets=("armv5", "sparc64"), server=str(fakes.server_tree(tmp_path / "checkout"))
    )
    for target in run.targets:
        run.canary(target)
        a_fault(run, target=target)
        run.test(target, "bitops", "test_bitpos")
    wrong = "it said '71:M 22 Nov 2026 02:00:00.000 # [a*b?] at 0xbeef in /tmp/xy/plumbline.so'\nguest 1, native 2"
    run.test("armv5", "bitops", "bitops/test_bitops.py::test_get[one]", outcome="failed", message=wrong)
    return run


def ids(folder: Path) -> dict[str, str]:
    read = json.loads((folder / "findings.json").read_text("utf-8"))
    return {finding["id"]: finding["known"] for finding in read["findings"]}


def add_all(plumb: Plumb, folder: Path, path: Path) -> None:
    for identity in ids(folder):
        code, out, err = plumb("known", "add", folder, identity, "--reason", "issue 1", "--file", path)
        assert (code, err) == (0, ""), err
        assert identity in out


def test_an_added_finding_is_known_when_judged_again_and_in_the_trees_next_run(
    plumb: Plumb, tmp_path: Path, occasions: StoredRun
) -> None:
    listed = known_file(tmp_path)
    assert plumb("judge", occasions.finish(), "--known", listed)[0] == ExitCode.FINDINGS
    path = tmp_path / "checkout" / IN_TREE
    add_all(plumb, occasions.folder, path)
    assert plumb("judge", occasions.folder, "--known", path)[0] == ExitCode.PASS
    assert set(ids(occasions.folder).values()) == {"issue 1"}
    recorded(occasions, tree_list.text_in(tmp_path / "checkout"))
    assert plumb("judge", occasions.folder, "--known", listed)[0] == ExitCode.PASS


@pytest.mark.parametrize(
    "unusual", [{"environment": "musl-stack"}, {"policy": "strict"}, {"policy": "audit-strict"}, {"allocator": "guard"}]
)
def test_a_finding_added_from_an_unusual_run_is_new_in_a_usual_one(
    plumb: Plumb, tmp_path: Path, occasions: StoredRun, unusual: dict[str, str]
) -> None:
    occasions.targets = (*occasions.targets, "native")
    occasions.canary("native")
    occasions.test("native", "bitops", "test_bitpos")
    occasions.test("native", "bitops", "bitops/test_bitops.py::test_get[one]", outcome="failed", message="guest 1")
    path, folder = tmp_path / "checkout" / IN_TREE, occasions.finish()
    usual = {name: getattr(run_folder.read_run(folder), name) for name in unusual}

    def judge_with(settings: dict[str, str]) -> ExitCode:
        run_folder.write_run(folder, msgspec.structs.replace(run_folder.read_run(folder), **settings))
        return ExitCode(plumb("judge", folder, "--known", path if path.is_file() else known_file(tmp_path))[0])

    assert judge_with(unusual) == ExitCode.FINDINGS
    assert ["armv5", "native"] in [finding.targets for finding in judged(folder, tmp_path)[0].findings]
    add_all(plumb, folder, path)
    assert judge_with(unusual) == ExitCode.PASS
    assert judge_with(usual) == ExitCode.FINDINGS
    assert set(ids(folder).values()) == {""}


def test_another_line_of_a_function_is_new(plumb: Plumb, tmp_path: Path, occasions: StoredRun) -> None:
    """An identity names only the function. An added entry must not excuse all accesses of that function."""
    path, folder = tmp_path / "checkout" / IN_TREE, occasions.finish()
    judgement, _ = judged(folder, tmp_path)
    (witness, *_) = judgement.findings[0].witnesses

    def judge_with(line: str) -> ExitCode:
        sources = {witness.file: {witness.line: line}}
        kept = source_excerpt.Excerpts(sources=sources)
        source_excerpt.keep(folder, kept)
        return ExitCode(plumb("judge", folder, "--known", path if path.is_file() else known_file(tmp_path))[0])

    assert judge_with("    while (*lp[0]++ != b[?]);") == ExitCode.FINDINGS
    add_all(plumb, folder, path)
    assert judge_with("  while (*lp[0]++ != b[?]);") == ExitCode.PASS
    assert judge_with("    while (*lp[1]++ != b[?]);") == ExitCode.FINDINGS
    assert judge_with("") == ExitCode.FINDINGS
    assert ids(folder)[FAULT] == ""


@pytest.mark.parametrize(
    ("kind", "detector", "line"),
    [
        ("alignment", "signal", "x += y;"),
        ("sigsegv", "signal", "x += y;"),
        ("assertion", "process", "x += y;"),
        ("wrong-result", "suite", "*"),
        ("warning-cast-align", "compiler", "*"),
    ],
)
def test_an_entry_has_the_line_of_a_fault(
    tmp_path: Path, occasions: StoredRun, kind: str, detector: str, line: str
) -> None:
    """Regression: only misaligned accesses had one, so a second crash or assertion in the function counted as known."""
    (finding, *_) = judged(occasions.finish(), tmp_path)[0].findings
    (witness, *_) = finding.witnesses
    finding = msgspec.structs.replace(
        finding, kind=kind, witnesses=[msgspec.structs.replace(witness, detector=detector)]
    )
    sources = {witness.file: {witness.line: "    x += y;"}}
    entries = exact_entries(
        finding, server={}, settings=Settings(), sources=sources, reason="why", expires=datetime.date(2999, 1, 1)
    )
    assert {entry.line for entry in entries} == {line}


OTHERS = ["a target", "a suite", "a test", "a command", "a message"]


@pytest.mark.parametrize("other", OTHERS)
def test_another_occasion_of_the_same_id_is_still_new(
    plumb: Plumb, tmp_path: Path, occasions: StoredRun, other: str
) -> None:
    listed, path = known_file(tmp_path), tmp_path / "checkout" / IN_TREE
    plumb("judge", occasions.finish(), "--known", listed)
    add_all(plumb, occasions.folder, path)
    entries = entries_of(path.read_text("utf-8"), path)
    judgement, _ = judged(occasions.folder, tmp_path)
    today = LATER - datetime.timedelta(days=100)
    for finding in judgement.findings:
        witness = finding.witnesses[0]
        occasion = witness.occasions[0]
        changed = {
            "a target": msgspec.structs.replace(witness, target="armv6"),
            "a suite": msgspec.structs.replace(witness, suite="sds"),
            "a test": _with(witness, msgspec.structs.replace(occasion, test=f"{occasion.test}2")),
            "a command": _with(witness, msgspec.structs.replace(occasion, command="SETRANGE k 1 x")),
            "a message": _with(witness, msgspec.structs.replace(occasion, said="guest 2, native 2", title="x")),
        }[other]
        known = known_list.KnownList(findings=entries)
        again = msgspec.structs.replace(finding, witnesses=[*finding.witnesses, changed])
        assert matching.match(known, finding, "x", today)
        assert not matching.match(known, again, "x", today), f"{finding.id}: {other}"


def _with(witness: Witness, occasion: Occasion) -> Witness:
    return msgspec.structs.replace(witness, occasions=[occasion])


def test_random_parts_of_a_message_do_not_make_it_new_but_other_figures_do(
    plumb: Plumb, tmp_path: Path, occasions: StoredRun
) -> None:
    path = tmp_path / "checkout" / IN_TREE
    plumb("judge", occasions.finish(), "--known", known_file(tmp_path))
    add_all(plumb, occasions.folder, path)
    known = known_list.KnownList(findings=entries_of(path.read_text("utf-8"), path))
    (finding,) = [one for one in judged(occasions.folder, tmp_path)[0].findings if one.kind == "wrong-result"]
    (witness,) = finding.witnesses
    for message, fits in (
        ("it said '9:M 1 Dec 2027 12:34:56.789 # [a*b?] at 0x1 in /var/zy/plumbline.so'\nguest 1, native 2", True),
        ("it said '9:M 1 Dec 2027 12:34:56.789 # [a*b?] at 0x1 in /var/zy/plumbline.so'\nguest 1, native 3", False),
        ("it said '9:M 1 Dec 2027 12:34:56.789 # [axb!] at 0x1 in /var/zy/plumbline.so'\nguest 1, native 2", False),
    ):
        again = _with(witness, msgspec.structs.replace(witness.occasions[0], said=message))
        found = msgspec.structs.replace(finding, witnesses=[again])
        assert bool(matching.match(known, found, "x", LATER)) == fits, message


def test_an_added_entry_does_not_change_the_rest_of_the_file(plumb: Plumb, tmp_path: Path, tree_run: StoredRun) -> None:
    plumb("judge", tree_run.finish(), "--known", known_file(tmp_path))
    old = "# Why this list is here.\n\n" + own("another", more='said = "a"   # as it was\n')
    path = fakes.write(tmp_path / "checkout" / IN_TREE, old)
    words = ("known", "add", tree_run.folder, FAULT, "--file", path, "--expires", LATER, "--reason")
    assert plumb(*words, 'a "quoted"\treason \u202e\\')[0] == 0
    text = path.read_text("utf-8")
    assert text.startswith(old)
    added = entries_of(text, path)[1]
    assert (added.id, added.targets, added.suite, added.expires) == (FAULT, ["armv5"], "bitops", LATER)
    assert (added.reason, added.server, added.release) == ('a "quoted"\treason \u202e\\', "*", "")
    assert "\u202e" not in text, "an editor would show the line in a different order"
    # Add the same entry again.
    code, _, err = plumb(*words, "again")
    assert (code, f"error: the list already contains {FAULT} ({path})" in err) == (ExitCode.USAGE, True), err
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize("line", ["    x += y;", ""])
def test_an_entry_for_an_access_without_its_line_has_a_remark(
    plumb: Plumb, tmp_path: Path, tree_run: StoredRun, line: str
) -> None:
    plumb("judge", tree_run.finish(), "--known", known_file(tmp_path))
    (witness, *_) = judged(tree_run.folder, tmp_path)[0].findings[0].witnesses
    kept = source_excerpt.Excerpts(sources={witness.file: {witness.line: line}})
    source_excerpt.keep(tree_run.folder, kept)
    plumb("judge", tree_run.folder, "--known", known_file(tmp_path))
    path = tmp_path / "checkout" / IN_TREE
    out = plumb("known", "add", tree_run.folder, FAULT, "--file", path, "--reason", "why")[1]
    (entry,) = entries_of(path.read_text("utf-8"), path)
    assert entry.line == (line.strip() or "*")
    assert ("The source line is not recorded" in out) is not bool(line)


@pytest.mark.parametrize("old", [EMPTY, "# none yet\n" + EMPTY, None])
def test_the_first_entry_of_a_list_is_added(plumb: Plumb, tmp_path: Path, tree_run: StoredRun, old: str | None) -> None:
    plumb("judge", tree_run.finish(), "--known", known_file(tmp_path))
    path = tmp_path / "checkout" / IN_TREE
    if old is not None:
        fakes.write(path, old)
    assert plumb("known", "add", tree_run.folder, FAULT, "--file", path, "--reason", "why")[0] == 0
    assert [one.id for one in entries_of(path.read_text("utf-8"), path)] == [FAULT]
    assert ("# none yet" in path.read_text("utf-8")) == ("none" in (old or ""))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("alignment-nothing", "--reason", "why"), "no finding 'alignment-nothing' ("),
        (("alignment-nothing", "--reason", "why"), f"because: the run has: {FAULT}"),
        ((FAULT,), "Missing option '--reason'"),
        ((FAULT, "--reason", " "), "an entry needs a reason (--reason)"),
        ((FAULT, "--reason", "why", "--expires", "2020-01-01"), "the last day is in the past (--expires)"),
        ((FAULT, "--reason", "why", "--expires", "soon"), "--expires"),
    ],
)
def test_a_wrong_request_adds_nothing(
    plumb: Plumb, tmp_path: Path, tree_run: StoredRun, words: tuple[str, ...], message: str
) -> None:
    plumb("judge", tree_run.finish(), "--known", known_file(tmp_path))
    path = tmp_path / "list.toml"
    code, out, err = plumb("known", "add", tree_run.folder, *words, "--file", path)
    assert (code, out, message in err) == (ExitCode.USAGE, "", True), err
    assert not path.exists()


def test_the_runs_own_tree_gets_the_entry_and_a_run_from_elsewhere_needs_a_file(
    plumb: Plumb, tmp_path: Path, tree_run: StoredRun
) -> None:
    words = ("known", "add", tree_run.folder, FAULT, "--reason", "why")
    plumb("judge", tree_run.finish(), "--known", known_file(tmp_path))
    code, _, err = plumb(*words)
    assert (code, "--file TREE/.plumbline/known.toml" in err) == (ExitCode.USAGE, True), err
    assert not (tmp_path / "checkout" / IN_TREE).exists()
    # A check on this host records its tree in this way.
    conclude(stored_run.read(tree_run.folder), known_file(tmp_path), fakes.quiet(), made_here=True)
    assert Cache.default().root == tmp_path / "cache"
    assert plumb(*words)[0] == 0
    assert (tmp_path / "checkout" / IN_TREE).is_file()


def test_a_shared_list_names_the_release(plumb: Plumb, tmp_path: Path, tree_run: StoredRun) -> None:
    folder = recorded(tree_run, "", release="7.0.15")
    plumb("judge", folder, "--known", known_file(tmp_path))
    path = tmp_path / "shared.toml"
    assert plumb("known", "add", folder / "findings.json", FAULT, "--reason", "why", "--file", path)[0] == 0
    assert entries_of(path.read_text("utf-8"), path)[0].release == "redis ==7.0.15"
    run = StoredRun(tmp_path / "other")
    run.canary("armv5")
    a_fault(run)
    plumb("judge", run.finish(), "--known", known_file(tmp_path))
    assert plumb("known", "add", run.folder, FAULT, "--reason", "why", "--file", path)[0] == 0
    assert entries_of(path.read_text("utf-8"), path)[1].server == "redis-3.2.6"


def test_list_shows_entries_in_force_for_a_tree_and_those_that_expire_soon(plumb: Plumb, tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "checkout")
    today = datetime.datetime.now(tz=datetime.UTC).date()
    days = {"late": 30, "soon": 29, "last": 0, "past": -1}
    text = "".join(own(name, expires=today + datetime.timedelta(days=left)) for name, left in days.items())
    fakes.write(tree / IN_TREE, text)
    shared = known_file(
        tmp_path,
        entry("of-another"),
        f'id = "of-the-release"\nrelease = "redis >=7.0, <7.2"\nreason = "r"\nexpires = {LATER}',
        f'id = "of-a-later"\nrelease = "redis >=7.2"\nreason = "r"\nexpires = {LATER}',
    )
    code, out, err = plumb("known", "list", "--server", tree, "--known", shared)
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert list(lines) == ["of-the-release", *days]
    assert {name: ("soon" in line.split(":")[0], "expired" in line) for name, line in lines.items()} == {
        "of-the-release": (False, False),
        "late": (False, False),
        "soon": (True, False),
        "last": (True, False),
        "past": (False, True),
    }
    read = json.loads(plumb("known", "list", "--server", tree, "--known", shared, "--json")[1])
    assert [(one["entry"]["id"], one["state"]) for one in read][1:4] == [
        ("late", "in force"),
        ("soon", "expires soon"),
        ("last", "expires soon"),
    ]
    assert plumb("known", "list")[0] == 0


def test_a_damaged_list_of_a_tree_is_reported_by_every_command_that_reads_it(plumb: Plumb, tmp_path: Path) -> None:
    tree = fakes.server_tree(tmp_path / "checkout")
    path = fakes.write(tree / IN_TREE, "[[findings]\n")
    code, _, err = plumb("known", "list", "--server", tree)
    assert (code, f"({path}:1)" in err) == (ExitCode.USAGE, True), err
