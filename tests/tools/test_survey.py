"""The survey of Debian's packages: its rule, the stored answers, the page, and a tool that can be interrupted."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from harness.core import json_codec
from harness.core.errors import ExitCode, InconclusiveError, UsageError
from harness.core.finding import Verdict
from harness.core.processes.process import Result
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.report.formats import findings_json
from harness.workflows.campaign.campaign_folder import CampaignFolder, CampaignRecord, JobReport
from harness.workflows.campaign.job import DISCARDED, FOLDER, command_jobs
from harness.workflows.programs.build_system import STAGES
from harness.workflows.programs.debian_package import LACKING
from tests.tools import test_found
from tools import project
from tools.checks import SuiteTally
from tools.survey import __main__ as tool
from tools.survey import document, page, rule
from tools.survey.document import Answer, Answers, NamedPackage, Package, PackageList, Reading, Survey, Thread, Trial
from tools.survey.reasons import reason_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.judge.findings import Judgement

NOON = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
TOOLS = ("debhelper", "cmake", "check-tool", "autotools-dev")
SOURCES = """\
Package: {name}
Version: 1.0-1
Build-Depends: {needs}
Files:
 0123 10 {name}_1.0-1.dsc
 4567 {size} {name}_1.0.orig.tar.xz
Package-List:
 lib{name}1 deb {section} optional arch=any
 lib{name}-dev deb libdevel optional arch=any
"""
HEADER = "a.c:1:10: fatal error: event.h: No such file or directory"
BINARY = """\
Package: lib{name}1
Source: {name} (1.0-1)
Architecture: {architecture}
Depends: libc6 (>= 2.36)
"""


def source(name: str, needs: str = "", *, size: int = 100, section: str = "libs") -> str:
    return SOURCES.format(name=name, needs=needs, size=size, section=section)


def binary(name: str, architecture: str = "amd64") -> str:
    return BINARY.format(name=name, architecture=architecture)


def needing(name: str, needs: str) -> str:
    return f"Package: {name}\nArchitecture: amd64\nDepends: {needs}\n"


def chosen(sources: Sequence[str], binaries: Sequence[str], *named: NamedPackage, count: int = 9) -> rule.Chosen:
    return rule.choose(
        {document.SUITE: rule.paragraphs("\n".join(sources)), "sid": rule.paragraphs(source("only-in-sid"))},
        rule.paragraphs("\n".join(binaries)),
        Survey(tools=TOOLS, named=named),
        count=count,
    )


def names(found: rule.Chosen) -> list[str]:
    return [one.name for one in found.packages]


def test_the_most_needed_libraries_come_first_by_the_packages_of_other_sources() -> None:
    binaries = [binary(name) for name in "abc"]
    # A package that needs the library twice counts once, and one of its own source not at all.
    binaries += [needing("one", "libb1, libc1 | other, libb1"), needing("two", "libb1 (>= 1.0)")]
    binaries += [f"{needing('liba-bin', 'liba1')}Source: a\n"]
    found = chosen([source(name) for name in "abc"], binaries)
    assert [(one.name, one.dependants) for one in found.packages] == [("b", 2), ("c", 1), ("a", 0)]
    assert names(chosen([source(name) for name in "abc"], binaries, count=1)) == ["b"]


@pytest.mark.parametrize(
    ("needs", "libraries"),
    [
        ("debhelper-compat (= 13), cmake", ()),
        ("zlib1g-dev, libxml2-dev (>= 2.9) | libxml-dev", ("zlib1g-dev", "libxml2-dev")),
        ("a-dev, b-dev, c-dev", None),
        ("rustc", None),
        ("autotools-dev, dpkg-dev (>= 1.17), dh-python", ()),
        # For manuals, for other systems, and for tests.
        ("pandoc <!nodoc>, x-dev [hurd-any], cmake [linux-any]", ()),
        ("y-dev [!hurd-any], z-dev <!nocheck>", ("y-dev", "z-dev")),
        ("z-dev <!nocheck> <!stage1>", ()),
        ("python3:any", None),
    ],
)
def test_a_package_fits_if_it_needs_tools_and_at_most_two_libraries(
    needs: str, libraries: tuple[str, ...] | None
) -> None:
    found = chosen([source("a", needs)], [binary("a")])
    assert [one.libraries for one in found.packages] == ([] if libraries is None else [libraries])
    assert (found.considered, found.libraries, found.fitting) == (1, 1, int(libraries is not None))


@pytest.mark.parametrize(
    ("text", "package"),
    [
        (source("a", section="perl"), binary("a")),
        (source("a").replace("libdevel", "devel"), binary("a")),
        (source("a"), binary("a", "all")),
        (source("a"), binary("a").replace("libc6", "libghc")),
    ],
    ids=["section", "no headers", "no program", "another language"],
)
def test_only_a_source_that_builds_a_library_in_c_is_considered(text: str, package: str) -> None:
    assert (chosen([text], [package]).libraries, chosen([source("a")], [binary("a")]).libraries) == (0, 1)


def test_the_newest_version_is_taken_and_what_is_kept_for_others_is_not() -> None:
    older = source("a", size=7).replace("1.0-1", "1.0~rc1-1")
    kept = f"{source('a').replace('1.0-1', '2.0-1')}Extra-Source-Only: yes\n"
    for order in ([older, source("a"), kept], [source("a"), older, kept]):
        (one,) = chosen(order, [binary("a")]).packages
        assert (one.version, one.size_bytes) == ("1.0-1", 110)


def test_packages_without_libraries_take_the_pairs_of_targets_in_turn() -> None:
    found = chosen(
        [source("a"), source("b", "z-dev"), source("c"), source("d")], [binary(name) for name in "abcd"]
    ).packages
    assert [one.targets for one in found] == [rule.PAIRS[0], rule.WITH_LIBRARIES, rule.PAIRS[1], rule.PAIRS[0]]


def test_each_pair_has_a_strict_and_a_big_endian_target_and_both_widths() -> None:
    every = Catalog().targets
    for pair in rule.PAIRS:
        targets = [every[name] for name in pair]
        assert {one.width_bits for one in targets} == {32, 64}
        assert "big" in {one.endianness for one in targets}
        assert {"sparc64", "armv5"} & set(pair)


def test_a_named_package_is_marked_unless_the_rule_chooses_it() -> None:
    wanted = [
        NamedPackage(name="a", targets=("s390x", "sparc64")),
        NamedPackage(name="b", configure=("--without-x", "--platform={machine}"), make=("linux",)),
        NamedPackage(name="only-in-sid", suite="sid"),
    ]
    binaries = [binary("a"), binary("b"), needing("one", "liba1")]
    first, second, third = chosen([source("a"), source("b")], binaries, *wanted, count=1).packages
    assert (first.name, first.named, first.targets) == ("a", False, ("s390x", "sparc64"))
    assert (second.name, second.named, second.source) == ("b", True, "bookworm/b=1.0-1")
    assert (
        " --configure --without-x --configure --platform=armv7l --make linux bookworm/b=1.0-1"
        in second.trials[1].command
    )
    assert third.source == "sid/only-in-sid=1.0-1"
    with pytest.raises(UsageError, match="no source package absent"):
        chosen([source("a")], binaries, NamedPackage(name="absent"))


def test_the_list_has_sixty_packages_by_the_rule_each_on_two_targets() -> None:
    packages = document.chosen().packages
    assert sum(not one.named for one in packages) == rule.CHOSEN
    assert len({one.name for one in packages}) == len(packages) >= 60
    assert {one.name for one in document.survey().named} <= {one.name for one in packages}
    targets = {name for pair in rule.PAIRS for name in pair}
    for one in packages:
        assert len(set(one.targets)) == 2
        assert set(one.targets) <= targets
        assert one.named or len(one.libraries) <= rule.MOST_LIBRARIES


PACKAGE = Package(
    name="odd", version="1.0-1", dependants=3, size_bytes=10, libraries=("z-dev",), targets=("armv5", "sparc64")
)
TRIAL = Trial(package=PACKAGE, target="armv5")
LIST = PackageList(indexed="2026-11-30", considered=9, libraries=5, fitting=2, packages=(PACKAGE,))
CELLS = [("armv5", "canary", Verdict.PASS), ("armv5", "program", Verdict.PASS)]


def judgement(*, failed: bool = False, stage: str = "") -> Judgement:
    """What `plumb deb` wrote: passed, failed, or ended at a stage without a verdict."""
    cells = list(CELLS)
    if failed or stage:
        cells[1] = ("armv5", "program", Verdict.UNKNOWN if stage else Verdict.FAIL)
    made = test_found.judgement(cells, [test_found.SHOWN] if failed else [], "no program ran" if stage else "")
    verdict = Verdict.merge([verdict for _, _, verdict in cells])
    findings = [msgspec.structs.replace(one, file="odd.c", line=7) for one in made.findings]
    return msgspec.structs.replace(made, verdict=verdict, findings=findings, remarks=[STAGES[stage]] if stage else [])


def answer(judged: Judgement, *, trial: Trial = TRIAL, failure: str = "") -> Answer:
    return document.judged(trial, judged, exit_code=0, by="new", asked=NOON, seconds=7, failure=failure)


def test_an_answer_has_the_place_of_each_fault() -> None:
    (fault,) = answer(judgement(failed=True)).failing
    assert (fault.id, fault.place) == (test_found.SHOWN[0], "odd.c:7")
    assert answer(judgement()).failing == []


def test_an_answer_names_no_folder_of_the_machine_that_gave_it() -> None:
    made = judgement(stage="test")
    told = "the programs that ran could not be traced: /tmp/survey-x/tree/source/setfacl: the kernel refused"
    cells = [msgspec.structs.replace(one, reason=told) if one.suite == "program" else one for one in made.cells]
    found = answer(msgspec.structs.replace(made, cells=cells))
    assert found.reason == "the programs that ran could not be traced: setfacl: the kernel refused"
    assert "survey-x" not in json_codec.encode(found).decode()


def test_programs_are_those_that_passed_or_failed() -> None:
    tally = SuiteTally(suite="program", verdict=Verdict.UNKNOWN, passed=2, failed=1, skipped=5)
    assert msgspec.structs.replace(answer(judgement()), suites=(tally,)).programs == 3


def test_an_answer_says_what_a_build_lacked() -> None:
    lacking = answer(judgement(stage="configure"), failure="configure: error: libevent is required")
    assert lacking.verdict is Verdict.UNKNOWN
    assert lacking.reason.splitlines() == [STAGES["configure"], "configure: error: libevent is required"]
    nothing_ran = answer(judgement(stage="test"), failure="valgrind: failed to start tool 'memcheck'")
    assert nothing_ran.reason.splitlines() == ["no program ran", "valgrind: failed to start tool 'memcheck'"]
    bare = judgement(stage="build")
    remark = f"{LACKING} gperf, tcl; to install them: x"
    without_tools = answer(msgspec.structs.replace(bare, remarks=[*bare.remarks, remark]))
    assert without_tools.reason.splitlines() == [STAGES["build"], f"{LACKING} gperf, tcl"]
    # The output of tests that ran says nothing about a build.
    assert answer(judgement(failed=True), failure="x.c:1: error: expected").reason == ""


@pytest.mark.parametrize(
    ("judged", "changes", "doubt"),
    [
        (judgement(), {}, ""),
        (judgement(failed=True), {}, ""),
        (judgement(stage="build"), {}, ""),
        (judgement(failed=True), {"verdict": Verdict.PASS}, "better than its findings"),
        (judgement(), {"verdict": Verdict.FAIL}, "no finding"),
        (judgement(), {"suites": ()}, "no canary"),
        (judgement(stage="build"), {"reason": ""}, "why it is UNKNOWN"),
    ],
)
def test_a_verdict_that_its_evidence_does_not_carry_is_refused(
    tmp_path: Path, judged: Judgement, changes: Mapping[str, object], doubt: str
) -> None:
    one = msgspec.structs.replace(answer(judged), **changes)
    assert doubt in one.doubt()
    assert bool(doubt) == bool(one.doubt())
    document.write(Answers(answers=(one,)), tmp_path / "survey.json")
    if doubt:
        with pytest.raises(UsageError, match="not to be believed"):
            document.read(tmp_path / "survey.json")
    else:
        assert document.read(tmp_path / "survey.json").answers == (one,)


def test_a_pass_without_a_program_of_the_target_is_refused() -> None:
    of_canaries = answer(judgement())
    alone = msgspec.structs.replace(of_canaries, suites=of_canaries.suites[:1])
    assert alone.doubt() == "no program passed"


def test_a_new_answer_replaces_the_old_one_and_another_version_is_not_answered(tmp_path: Path) -> None:
    file = tmp_path / "survey.json"
    document.store(answer(judgement(stage="build")), file)
    document.store(answer(judgement()), file)
    assert [one.verdict for one in document.read(file).answers] == [Verdict.PASS]
    newer = Trial(package=msgspec.structs.replace(PACKAGE, version="1.0-2"), target="armv5")
    assert document.read(file).of(newer) is None


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "survey.json").write_text('{"answers": [{', "utf-8")
    with pytest.raises(UsageError, match="not a valid file"):
        document.read(tmp_path / "survey.json")


def test_the_smallest_sources_are_asked_first_and_libraries_are_fetched_where_there_are_some() -> None:
    smaller = msgspec.structs.replace(PACKAGE, name="tiny", size_bytes=1, libraries=())
    listed = msgspec.structs.replace(LIST, packages=(PACKAGE, smaller))
    assert [one.command for one in listed.trials] == [
        "plumb deb --target armv5 bookworm/tiny=1.0-1",
        "plumb deb --target sparc64 bookworm/tiny=1.0-1",
        "plumb deb --target armv5 --with z-dev bookworm/odd=1.0-1",
        "plumb deb --target sparc64 bookworm/odd=1.0-1",
    ]


def test_trials_without_an_answer_are_asked_then_those_without_a_judgement_and_again_the_oldest() -> None:
    trials = [Trial(package=PACKAGE, target=name) for name in ("armv5", "armv7", "s390x", "sparc64", "x")]
    passed, late, refused, unbuilt = (
        msgspec.structs.replace(answer(judgement(), trial=trial), asked=NOON - datetime.timedelta(days=days))
        for days, trial in enumerate(trials[:4])
    )
    late = msgspec.structs.replace(late, suites=(), verdict=Verdict.UNKNOWN, exit_code=-9, reason="late")
    refused = msgspec.structs.replace(late, target=trials[2].target, exit_code=ExitCode.USAGE)
    unbuilt = msgspec.structs.replace(unbuilt, verdict=Verdict.UNKNOWN, reason="x.h")
    stored = Answers(answers=(passed, late, refused, unbuilt))
    assert tool.wanted(trials, stored, again=False) == [trials[4], trials[1]]
    assert tool.wanted(trials, stored, again=True) == [trials[4], trials[1], trials[3], trials[2], trials[0]]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("checking for gperf... no\nconfigure: error: no gperf\nmake: *** failed\n", "configure: error: no gperf"),
        ("../s.sh: 4: help2man: not found\nmake: *** [x] Error 127\n", "../s.sh: 4: help2man: not found"),
        (
            "configure: error: in `/a/b':\nconfigure: error: no Python\nSee `config.log'\n",
            "configure: error: no Python",
        ),
        ("/x/arm-gcc: error: unrecognized option\nmake: *** [x] Error 1\n", "arm-gcc: error: unrecognized option"),
        ("prog: 1: \x7fELF\x01: not found\nERROR: it failed\n", "ERROR: it failed"),
        ("make: xyz: No such file or directory\nmake: *** [x] Error 127\n", "make: xyz: No such file or directory"),
        ("configure: WARNING: xdr: not found\nok\n", ""),
        ("checking whether x is found... not found\nok\n", ""),
        ("c.c: In f:\na.c:1:10: fatal error: event.h: No such file or directory\n", HEADER),
        ("/usr/lib/gcc-cross/ld: cannot find -lnuma: No such file\n", "ld: cannot find -lnuma: No such file"),
        ("\x1b[31mmeson.build:3:0: ERROR: Dependency x\x1b[0m\n", "meson.build:3:0: ERROR: Dependency x"),
        ("a.c:2:3: warning: bad\na.c:3:1: error: expected ';'\n", "a.c:3:1: error: expected ';'"),
        ("all is well\n", ""),
        (
            "libtoolize:   error: '/usr/share/aclocal/ltdl.m4' does not exist.\nautoreconf: error: libtoolize failed\n",
            "libtoolize:   error: 'ltdl.m4' does not exist.",
        ),
        (
            "/usr/bin/ld: a.o: error adding symbols: file in wrong format\nmake[3]: *** [Makefile:66: a.la] Error 1\n",
            "ld: a.o: error adding symbols: file in wrong format",
        ),
    ],
)
def test_the_reason_of_a_failed_build_is_the_line_that_names_what_is_missing(output: str, reason: str) -> None:
    assert reason_in(output) == reason


def survey_of(*readings: Reading) -> Survey:
    threads = (Thread(name="odd/odd#1", about="it | fails"), Thread(name="odd/odd#2", about="again"))
    return Survey(tools=(), named=(NamedPackage(name="odd", threads=threads),), readings=readings)


def test_the_page_says_how_much_has_a_verdict_and_which_findings_nobody_has_read() -> None:
    stored = Answers(answers=(answer(judgement(failed=True)),))
    told = "\n".join(page.state(LIST, stored, survey_of()))
    assert "**1 of 2 trials have a verdict** (1 FAIL), of 1 of 1 packages. 0 more were tried" in told
    assert "1 have not been tried yet." in told
    unknown = "\n".join(page.state(LIST, Answers(answers=(answer(judgement(stage="build")),)), survey_of()))
    assert "**0 of 2 trials have a verdict** (none), of 0 of 1 packages. 1 more were tried and are UNKNOWN." in unknown
    assert "0 of 1 findings have been read." in told
    rows = page.package_rows(LIST, stored, survey_of())
    assert "at odd.c:7. **Not read yet.**" in rows[-1]
    assert rows[-1].startswith("| 1 | odd 1.0-1 | `armv5` | **FAIL** |")
    assert page.untried_rows(LIST, stored)[-1] == "| odd | 1.0-1 | `sparc64` |"


def test_the_page_shows_what_was_found_out_where_it_is_true() -> None:
    stored = Answers(answers=(answer(judgement(failed=True)),))
    read = Reading(package="odd", finding="*", cause="program", because="It reads | words.", link="odd-10")
    told = page.package_rows(LIST, stored, survey_of(read))[-1]
    assert r"[A bug of the program](#odd-10): It reads \| words." in told
    assert "1 of 1 findings have been read (1: a bug of the program)." in page.state(LIST, stored, survey_of(read))[-1]
    for other in (
        msgspec.structs.replace(read, package="even"),
        msgspec.structs.replace(read, finding="exit-*"),
        msgspec.structs.replace(read, targets=("sparc64",)),
    ):
        assert page.UNREAD in page.package_rows(LIST, stored, survey_of(other))[-1]


def test_the_page_shows_what_was_found_out_about_a_run_without_a_verdict() -> None:
    stored = Answers(answers=(answer(judgement(stage="build"), failure="a.c:1: error: x"),))
    read = Reading(package="odd", finding="", cause="program", because="It needs a wide long.", link="odd-10")
    told = page.package_rows(LIST, stored, survey_of(read))[-1]
    assert "| [A bug of the program](#odd-10): It needs a wide long. <br> the package does not build" in told
    long = Answers(answers=(answer(judgement(stage="test"), failure=f"a.c:1: error: {'x' * 300}"),))
    assert "xxx" not in page.package_rows(LIST, long, survey_of(read))[-1]
    of_findings = msgspec.structs.replace(read, finding="*")
    assert "wide long" not in page.package_rows(LIST, stored, survey_of(of_findings))[-1]
    failed = Answers(answers=(answer(judgement(failed=True)),))
    assert page.UNREAD in page.package_rows(LIST, failed, survey_of(read))[-1]


def test_findings_with_one_reason_share_it() -> None:
    one = answer(judgement(failed=True))
    (fault,) = one.faults
    several = msgspec.structs.replace(one, faults=(fault, msgspec.structs.replace(fault, id="exit-odd-1", place="")))
    read = Reading(package="odd", finding="*", cause="test", because="A limit.")
    told = page.package_rows(LIST, Answers(answers=(several,)), survey_of(read))[-1]
    assert told.endswith("at odd.c:7, `exit-odd-1`. A mistake of its tests: A limit. |")


def test_a_row_names_the_first_of_many_findings_with_one_reason() -> None:
    one = answer(judgement(failed=True))
    (fault,) = one.faults
    several = tuple(msgspec.structs.replace(fault, id=f"exit-odd-{number}", place="") for number in range(9))
    stored = Answers(answers=(msgspec.structs.replace(one, faults=several),))
    told = page.package_rows(LIST, stored, survey_of())[-1]
    assert "`exit-odd-6`, and 2 more. " in told
    assert "exit-odd-7" not in told


def test_a_place_in_a_folder_is_one_of_the_package_and_the_programs_of_the_host_are_not_shown() -> None:
    one = answer(judgement(failed=True))
    (fault,) = one.faults
    below = msgspec.structs.replace(
        one,
        faults=(msgspec.structs.replace(fault, place="tools/odd.c:7"),),
        reason="no program ran, and it ended with status 2; only programs of this machine ran (make): its own output",
    )
    told = page.package_rows(LIST, Answers(answers=(below,)), survey_of())[-1]
    assert "at odd/tools/odd.c:7." in told
    assert told.endswith("no program ran, and it ended with status 2. |")


def test_a_thread_is_reproduced_only_by_a_finding_that_was_read_as_its_fault() -> None:
    failed, lacking = (
        Answers(answers=(answer(judgement(failed=True)),)),
        Answers(answers=(answer(judgement(stage="build")),)),
    )
    read = Reading(package="odd", finding="*", cause="program", because="It is.", thread="odd/odd#1")
    first, second = page.thread_rows(LIST, failed, survey_of(read))[-2:]
    assert first == (
        r"| [odd/odd#1](https://github.com/odd/odd/issues/1) | odd | it \| fails | reproduced | `armv5` odd.c:7 |"
    )
    assert second.endswith("| again | not seen | `armv5` |")
    for stored, told in ((failed, "not seen"), (lacking, "its tests did not run"), (Answers(), "not run yet")):
        assert f" {told} |" in page.thread_rows(LIST, stored, survey_of())[-2]


def test_a_thread_that_the_survey_did_not_show_may_be_reproduced_by_hand() -> None:
    thread = Thread(name="odd/odd#1", about="it fails", by_hand=("sparc64 key.c:5", "armv5 a|b.c:7"), section="odd-1")
    read = Reading(package="odd", finding="*", cause="program", because="It is.", thread="odd/odd#1")
    survey = Survey(tools=(), named=(NamedPackage(name="odd", threads=(thread,)),), readings=(read,))
    told = page.thread_rows(LIST, Answers(), survey)[-1]
    assert told.endswith(r"| reproduced [by hand](PROGRAMS.md#odd-1) | `sparc64` key.c:5, `armv5` a\|b.c:7 |")
    shown = page.thread_rows(LIST, Answers(answers=(answer(judgement(failed=True)),)), survey)[-1]
    assert shown.endswith("| reproduced | `armv5` odd.c:7 |")


def anchors() -> set[str]:
    """The sections of docs/PROGRAMS.md."""
    lines = (ROOT / "docs" / "PROGRAMS.md").read_text("utf-8").splitlines()
    return {line.strip("# ").lower().replace(" ", "-").replace(".", "") for line in lines if line[:2] == "##"}


def test_each_run_by_hand_has_a_section() -> None:
    threads = [thread for named in document.survey().named for thread in named.threads if thread.by_hand]
    assert {thread.section for thread in threads} <= anchors()
    assert all(place.count(" ") == 1 for thread in threads for place in thread.by_hand)


def test_each_reading_is_of_a_stored_finding_and_its_section_exists() -> None:
    stored, survey = document.read(), document.survey()
    sections = anchors()
    for one in survey.readings:
        seen = [
            fault
            for answered in stored.answers
            for fault in [*(fault.id for fault in answered.failing), *([""] if not answered.failing else [])]
            if survey.reading_of(answered.package, answered.target, fault) is one
            and bool(fault) is (answered.verdict is not Verdict.UNKNOWN)
        ]
        assert seen, f"{one.package}: {one.finding}"
        assert not one.link or one.link in sections, one.link
        threads = {thread.name for named in survey.named if named.name == one.package for thread in named.threads}
        assert not one.thread or one.thread in threads


def said(text: str, code: int, *, expired: bool = False) -> Result:
    return Result([], code, text.encode(), expired=expired, seconds=1)


def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: Result, judged: Judgement | None = None) -> Answer:
    def plumb(*words: str | Path, **_limits: object) -> Result:
        assert "--jobs" not in words
        assert tmp_path.stat().st_mode & 0o005 == 0o005
        if judged is not None:
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / findings_json.FORMAT.file).write_bytes(json_codec.encode(judged))
        return result

    monkeypatch.setattr(project, "plumb", plumb)
    tmp_path.chmod(0o700)
    return tool.ask(TRIAL, tmp_path, deadline_seconds=9)


def test_an_answer_is_made_of_the_judgement_and_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = said("a.c:1:1: fatal error: x.h: No such file or directory\n", ExitCode.INCONCLUSIVE)
    found = asked(monkeypatch, tmp_path, ended, judgement(stage="build"))
    assert (found.verdict, found.exit_code) == (Verdict.UNKNOWN, ExitCode.INCONCLUSIVE)
    assert "fatal error: x.h" in found.reason


def test_a_package_that_cannot_be_built_is_unknown_with_the_error_and_without_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "12:00:00 fetching\nerror: the tree is built by meson (/tmp/x/tree)\n  because: missing: meson\n  try: apt\n"
    found = asked(monkeypatch, tmp_path, said(text, ExitCode.INFRASTRUCTURE))
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason.splitlines()[1:] == ["error: the tree is built by meson (tree)", "  because: missing: meson"]


def test_a_package_that_takes_too_long_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, tmp_path, said("make check\n", -9, expired=True), judgement())
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "the check did not end in time")


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list of two trials, and the file for their answers."""
    monkeypatch.setattr(document, "chosen", lambda: LIST)
    return tmp_path / "survey.json"


def test_the_tool_stores_an_answer_and_continues_with_what_is_missing(
    listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def ask(trial: Trial, _folder: Path, **_limits: object) -> Answer:
        if begun:
            raise KeyboardInterrupt
        begun.append(trial.target)
        return answer(judgement(), trial=trial)

    monkeypatch.setattr(tool, "ask", ask)
    first = CliRunner().invoke(tool.main, ["--document", str(listed)])
    assert first.exit_code == ExitCode.INTERRUPTED
    assert [one.target for one in document.read(listed).answers] == ["armv5"]
    begun.clear()
    second = CliRunner().invoke(tool.main, ["--document", str(listed)])
    assert (second.exit_code, begun) == (ExitCode.PASS, ["sparc64"])
    assert len(document.read(listed).answers) == 2


def test_several_are_asked_at_a_time_and_none_after_the_time(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[str] = []
    most = []

    def ask(trial: Trial, _folder: Path, **_limits: object) -> Answer:
        at_once.append(trial.target)
        end = time.monotonic() + 20
        while len(at_once) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        most.append(len(at_once))
        return answer(judgement(), trial=trial)

    monkeypatch.setattr(tool, "ask", ask)
    assert tool.ask_here(LIST.trials, listed, None, jobs=2, deadline_seconds=9, end=time.monotonic()) == 2
    assert most == []
    CliRunner().invoke(tool.main, ["--document", str(listed), "--jobs", "2"])
    assert most == [2, 2]
    assert len(document.read(listed).answers) == 2


def test_what_is_not_listed_is_refused_with_near_names(listed: Path) -> None:
    result = CliRunner().invoke(tool.main, ["--document", str(listed), "--package", "od"])
    assert result.exit_code == ExitCode.USAGE
    assert "odd" in result.output


def report(name: str, code: int, *, output: str = "", messages: str = "", problem: str = "") -> JobReport:
    return JobReport(
        key=name, worker="w", exit_code=code, seconds=3.2, output=output, messages=messages, problem=problem
    )


def test_workers_get_folders_of_their_own_and_a_failure_on_every_machine_is_an_answer(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commands_on(
        _progress: object, commands: Mapping[str, Sequence[str]], _folder: Path, **options: object
    ) -> dict[str, JobReport]:
        words = commands["odd-armv5"]
        assert words[words.index("--into") + 1] == FOLDER
        assert words[words.index("--run") + 1] == DISCARDED
        failures = options["failures"]
        assert isinstance(failures, dict)
        failures["odd-sparc64"] = report("b", ExitCode.USAGE, problem="error: the tree has no known build system")
        return {}

    monkeypatch.setattr(tool, "commands_on", commands_on)
    words = ["--document", str(listed), "--on", "local:1", "--run", str(tmp_path / "campaigns")]
    result = CliRunner().invoke(tool.main, words)
    assert result.exit_code == ExitCode.PASS, result.output
    (one,) = document.read(listed).answers
    assert (one.target, one.exit_code) == ("sparc64", ExitCode.USAGE)
    assert one.reason == "error: the tree has no known build system"


def test_what_arrived_in_an_interrupted_campaign_counts(listed: Path, tmp_path: Path) -> None:
    (job, _) = command_jobs({one.name: one.words for one in LIST.trials}, expected_seconds=1, version="1")
    record = CampaignRecord(command=[], seed=0, jobs=[job], begun="2026-11-30")
    folder = CampaignFolder.begin(tmp_path / "campaigns" / "1", record)
    there = report(job.key, ExitCode.INCONCLUSIVE, output=json_codec.encode(judgement(stage="build")).decode(),
                   messages="a.c:1:1: error: x\n")  # fmt: skip
    folder.land(job, there, b"")
    tool.take_arrived(LIST.trials, listed, tmp_path / "campaigns")
    (one,) = document.read(listed).answers
    assert (one.target, one.seconds, one.reason.splitlines()[1]) == ("armv5", 3, "a.c:1:1: error: x")
    # A second time it is there already.
    document.store(answer(judgement()), listed)
    tool.take_arrived(LIST.trials, listed, tmp_path / "campaigns")
    assert [one.verdict for one in document.read(listed).answers] == [Verdict.PASS]


def test_a_document_about_another_target_is_not_an_answer() -> None:
    text = json_codec.encode(judgement()).decode()
    with pytest.raises(InconclusiveError, match="not that of its job"):
        tool.judgement_in(text, Trial(package=PACKAGE, target="sparc64"))
    with pytest.raises(InconclusiveError, match="not that of its job"):
        tool.judgement_in("{", TRIAL)
