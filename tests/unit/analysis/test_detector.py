"""Messages of detectors become reports with process, kind, place, and offset in the log."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.detectors import registry
from harness.analysis.detectors.registry import DETECTORS, Report, named, reports, write_prelude
from harness.build.emulators.runner import target_runner
from harness.core.cache import Cache
from harness.core.errors import UsageError
from harness.core.finding import Frame
from harness.core.processes import capped_log
from harness.core.strict_toml import ROOT
from harness.judge.findings import judge
from harness.judge.verdict import cell_verdicts
from harness.plan.catalog import Catalog
from harness.record import stored_run
from harness.run import detector_canary
from harness.run.server_process import Guest, StartError
from harness.run.servers.server_spec import ServerSpec
from tests.support import fakes
from tests.support.code_names import named_in, named_outside
from tests.support.fakes import fault
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Sequence


LOGS = fakes.DATA / "detectors"
NOISE = b"4711:M 01 Jan 2026 00:00:00.000 * Background saving started by pid 4712\n"


def log(detector: str) -> bytes:
    return (LOGS / f"{detector}.log").read_bytes()


def stored(detector: str) -> list[Report]:
    return reports(log(detector), detector)


def identities(found: Sequence[Report]) -> list[str]:
    return [report.identity for report in found]


@pytest.mark.parametrize("origin", ["server", "bundled/lua", "program"])
def test_the_innermost_frame_of_what_the_user_compiled_is_ones_own(origin: str) -> None:
    """A replay finds by it that a program died in the same function, through the C library."""
    frames = [
        Frame(function=name, file="f.c", line=1, origin=of, pc=0)
        for name, of in (("strlen", "libc"), ("measure", origin), ("main", origin))
    ]
    assert registry.own_frames(frames) == (frames[1:], "strlen")


def test_the_undefined_behaviour_sanitizers_messages_get_the_names_of_gccs_checks() -> None:
    assert identities(stored("ubsan")) == [
        "alignment-rd-load",
        "alignment-hidden-load",
        "alignment-st-store",
        "alignment-mem",
        "undefined-shift-sh",
        "undefined-signed-integer-overflow-ov",
        "undefined-bounds-idx",
        "undefined-object-size-idx",
        "undefined-bool-bl",
        "undefined-nonnull-attribute-nul",
        "undefined-pointer-overflow-add",
    ]


def test_the_report_of_a_misaligned_access_has_type_misalignment_and_column() -> None:
    assert [report.access for report in stored("ubsan")[:4]] == [
        "load of const uint32_t at 1 mod 4, column 51",
        "load of uint64_t at 1 mod 8, column 93",
        "store of uint16_t at 1 mod 2, column 75",
        "member access in struct pair at 4 mod 8, column 69",
    ]
    assert [(r.alignment_bytes, r.modulo) for r in stored("ubsan")[:4]] == [(4, 1), (8, 1), (2, 1), (8, 4)]


def test_the_function_is_the_innermost_inlined_one_as_in_addr2line() -> None:
    first, second, *_ = stored("ubsan")[0].frames
    assert (first.function, first.file, first.line, first.inlined) == ("rd", "src/undefined.c", 6, True)
    assert (second.function, second.line, second.inlined, second.pc) == ("outer", 7, False, first.pc)


def test_the_messages_line_counts_where_the_stack_has_another_functions_line() -> None:
    """GCC merges equal ends of functions and the sanitizer's call in them. Its line then belongs to one of them."""
    report = next(report for report in stored("ubsan") if report.kind == "undefined-bool")
    assert b"in bl /cache/work/1/tree/src/undefined.c:11\n" in log("ubsan")
    assert (report.frames[0].function, report.frames[0].line) == ("bl", 15)


def test_the_address_sanitizers_errors_keep_its_own_names() -> None:
    assert identities(stored("asan")) == [
        "asan-heap-buffer-overflow-over-load",
        "asan-heap-buffer-overflow-wr-store",
        "asan-heap-buffer-overflow-main-store",
        "asan-stack-buffer-overflow-stk-load",
        "asan-double-free-main",
        "asan-segv-over-load",
    ]
    assert [report.fatal for report in stored("asan")] == [False] * 5 + [True]
    assert [report.size_bytes for report in stored("asan")] == [1, 1, 40, 4, 0, 0]


def test_a_race_is_at_its_store_and_names_the_other_access() -> None:
    """Which of the two the sanitizer saw first is a matter of chance."""
    found = stored("tsan")
    assert identities(found) == [
        "tsan-data-race-wr-store",
        "tsan-data-race-cp-store",
        "tsan-data-race-wr-store",
        "tsan-heap-use-after-free-rd-load",
    ]
    assert [report.message for report in found[:3]] == [
        "data race: store of 1 bytes, not ordered with the load in rd (src/races.c:9)",
        "data race: store of 8 bytes, not ordered with the load in rd (src/races.c:9)",
        "data race: store of 1 bytes, not ordered with the load in rd (src/races.c:9)",
    ]
    assert [report.frames[1].function for report in found[:3]] == ["main", "main", "other"]
    assert [[frame.function for frame in report.against][:1] for report in found] == [["rd"], ["rd"], ["rd"], []]
    assert not any(report.fatal for report in found)


def test_of_two_racing_stores_the_place_is_the_same_whichever_came_first() -> None:
    def race(first: bytes, second: bytes) -> bytes:
        return b"WARNING: ThreadSanitizer: data race (pid=7)\n" + b"\n".join(
            b"  %s of size 4 at 0x7b10 by thread T%d:\n    #0 %s /t/tree/src/a.c:%d (r+0x%d)\n"
            % (verb, number, name, number, number)
            for number, (verb, name) in enumerate([(b"Write", first), (b"Previous atomic write", second)], start=1)
        )

    assert [identities(reports(race(*names), "tsan")) for names in ((b"f", b"g"), (b"g", b"f"))] == [
        ["tsan-data-race-f-store"]
    ] * 2


def test_a_folder_with_spaces_is_no_part_of_a_functions_name() -> None:
    report = (
        b"WARNING: ThreadSanitizer: data race (pid=7)\n  Write of size 4 at 0x7b10 by thread T1:\n"
        b"    #0 f(int, char) /a clone of mine/src/a.c:3 (a server+0x2)\n"
    )
    (found,) = reports(report, "tsan")
    assert [(one.function, one.line) for one in found.frames] == [("f(int, char)", 3)]


@pytest.mark.parametrize(("thread", "found"), [(b"main thread", 0), (b"thread T2", 1)])
def test_mutexes_in_two_orders_are_no_deadlock_if_the_main_thread_alone_holds_two(thread: bytes, found: int) -> None:
    """Valkey's main thread stops its I/O threads by locking a mutex of each, the last one first."""
    text = b"WARNING: ThreadSanitizer: lock-order-inversion (potential deadlock) (pid=7)\n" + b"".join(
        b"  Mutex M%d acquired here while holding mutex M%d in %s:\n    #0 %s /t/tree/src/a.c:3 (r+0x%d)\n\n"
        % (one, other, holder, function, one)
        for one, other, holder, function in [(1, 2, b"main thread", b"start"), (2, 1, thread, b"stop")]
    )
    assert len(reports(text + b"SUMMARY: ThreadSanitizer: lock-order-inversion\n", "tsan")) == found


def test_a_race_whose_other_stack_is_lost_is_still_reported() -> None:
    text = (
        b"WARNING: ThreadSanitizer: data race (pid=7)\n  Write of size 4 at 0x7b10 by thread T1:\n"
        b"    #0 f /t/tree/src/a.c:3 (r+0x10)\n\n  Previous read of size 4 at 0x7b10 by thread T2:\n"
        b"    [failed to restore the stack]\n\nSUMMARY: ThreadSanitizer: data race /t/tree/src/a.c:3 in f\n"
    )
    assert identities(reports(text, "tsan")) == ["tsan-data-race-f-store"]


def test_what_a_trees_authors_expect_of_a_detector_is_compiled_in(tmp_path: Path) -> None:
    fakes.write(tmp_path / "tree" / named("tsan").suppressions, '# no rule\nrace:a_function \n\nsignal:*"\n')
    _, path = write_prelude("tsan", tmp_path, tmp_path / "tree")
    assert r'"race\072a\137function\n""signal\072\052\042\n"' in Path(path).read_text("utf-8")
    assert "suppressions" not in Path(write_prelude("tsan", tmp_path, tmp_path)[1]).read_text("utf-8")
    assert write_prelude("asan", tmp_path, tmp_path / "tree") == []


def test_memchecks_errors_in_libc_are_distinguished_by_the_caller() -> None:
    found = stored("valgrind")
    assert list(dict.fromkeys(identities(found))) == [
        "memcheck-invalid-read-over-load",
        "memcheck-invalid-write-wr-store",
        "memcheck-invalid-write-main-store",
        "memcheck-uninitialised-condition-main",
        "memcheck-uninitialised-use-main",
        "memcheck-uninitialised-syscall-main",
        "memcheck-invalid-free-main",
        "memcheck-sigsegv-over",
    ]
    through = {(report.frames[0].function, report.through) for report in found}
    assert {("main", "memmove"), ("main", "printf"), ("main", "write"), ("over", "")} <= through
    assert [report.fatal for report in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_reports_stack_is_that_of_the_error_and_not_of_the_allocation(detector: str) -> None:
    for report in stored(detector):
        assert report.frames[0].origin == "server"
        assert report.frames[0].line > 0
        assert len([frame for frame in report.frames if frame.function in {"main", "other"}]) == 1, report


@pytest.mark.parametrize(
    ("detector", "head"),
    [
        ("ubsan", rb"\S+: runtime error: "),
        ("asan", rb"==\d+==ERROR: "),
        ("tsan", rb"WARNING: ThreadSanitizer: "),
        ("valgrind", rb"==\d+== [A-Z]"),
    ],
)
def test_a_report_begins_at_its_offset(detector: str, head: bytes) -> None:
    offsets = [report.offset for report in stored(detector)]
    assert offsets == sorted(set(offsets))
    assert all(re.match(head, log(detector)[offset:]) for offset in offsets)


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_log_cut_between_two_reports_gives_the_same_reports(detector: str) -> None:
    content, whole = log(detector), stored(detector)
    for cut in [report.offset for report in whole]:
        assert identities(whole) == identities([*reports(content[:cut], detector), *reports(content[cut:], detector)])


@pytest.mark.parametrize("detector", DETECTORS)
def test_lines_of_the_server_between_any_two_lines_change_nothing_but_offsets(detector: str) -> None:
    lines = log(detector).splitlines(keepends=True)
    mixed = b"".join(line + NOISE for line in lines)
    assert identities(stored(detector)) == identities(reports(mixed, detector))
    assert [len(one.frames) for one in stored(detector)] == [len(one.frames) for one in reports(mixed, detector)]


@pytest.mark.parametrize("unfinished", [b"Test of sds: ", "größer \u2713 ".encode(), b"12345:C 1:2: "])
@pytest.mark.parametrize("detector", DETECTORS)
def test_a_report_may_begin_on_a_line_that_the_program_has_not_ended(detector: str, unfinished: bytes) -> None:
    """Self-tests write a test's name before its result, and libc flushes a full buffer in the middle of a line."""
    content, whole = log(detector), stored(detector)
    places = [0, *(report.offset for report in whole), len(content)]
    pieces = [content[start:end] for start, end in itertools.pairwise(places)]
    found = reports(unfinished.join(pieces), detector)
    assert identities(found) == identities(whole)
    assert [len(one.frames) for one in found] == [len(one.frames) for one in whole]
    assert [one.offset for one in found] == [
        report.offset + number * len(unfinished) for number, report in enumerate(whole, start=1)
    ]


def test_a_report_directly_behind_the_programs_output_keeps_the_function_of_its_stack() -> None:
    content = b"....." + log("ubsan")
    assert identities(reports(content, "ubsan")) == identities(stored("ubsan"))


def test_the_offset_of_a_report_behind_binary_bytes_is_not_too_large() -> None:
    noise = b"\xff\xfe value: "
    (report,) = reports(noise + b"a.c:1:1: runtime error: division by zero\n", "ubsan")
    assert report.offset == len(noise)


def test_interleaved_lines_of_two_processes_under_valgrind_are_separated() -> None:
    lines = log("valgrind").splitlines(keepends=True)
    pid = lines[0].split(b"==")[1]
    child = [line.replace(b"==" + pid + b"==", b"==99999==") for line in lines]
    mixed = b"".join(one + other for one, other in zip(lines, child, strict=True))
    found = identities(reports(mixed, "valgrind"))
    assert sorted(identities(stored("valgrind")) * 2) == sorted(found)


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_servers_own_output_is_no_report(detector: str) -> None:
    quiet = NOISE + b"4711:M runtime error: none\n==\n== 12 ==\n\xff\xfe\n# Server initialized\n    #0 0x1234 in main\n"
    assert reports(quiet, detector) == []


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_detectors_message_is_no_report_of_another_detector_or_without_one(detector: str) -> None:
    assert reports(log(detector), "") == []
    assert [one for other in DETECTORS if other != detector for one in reports(log(detector), other)] == []


def test_the_first_stack_ends_where_frame_numbers_restart() -> None:
    text = b"a.c:1:1: runtime error: division by zero\n" + b"".join(
        b"    #%d 0x%x in %s /t/tree/src/a.c:1\n" % (number, 16 * number, name)
        for number, name in ((0, b"inner"), (1, b"outer"), (0, b"other"))
    )
    assert [frame.function for frame in reports(text, "ubsan")[0].frames] == ["inner", "outer"]


def test_frames_have_origins_and_begin_in_bundled_code_or_in_the_servers_own() -> None:
    text = b"""\
==7== Invalid read of size 4
==7==    at 0x484B36B: memmove (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
==7==    by 0x48ACAAB: EVP_Digest (in /usr/lib/x86_64-linux-gnu/libcrypto.so.3)
==7==    by 0x10911A: luaS_newlstr (/cache/work/1/tree/deps/lua/src/lstring.c:85)
==7==    by 0x10911F: ??? (in /usr/lib/x86_64-linux-gnu/libc.so.6)
==7==
"""
    (report,) = reports(text, "valgrind")
    assert [(frame.function, frame.origin) for frame in report.frames] == [
        ("luaS_newlstr", "bundled/lua"),
        ("??", "libc"),
    ]
    assert report.through == "EVP_Digest"
    (lone,) = reports(text.replace(b"tree/deps", b"elsewhere"), "valgrind")
    assert [frame.origin for frame in lone.frames][:1] == ["library/libcrypto"]


def test_a_message_without_a_stack_still_has_its_place() -> None:
    text = b"/cache/work/1/tree/src/db.c:7:3: runtime error: division by zero\n" + NOISE * 3
    (report,) = reports(text, "ubsan")
    frame = report.frames[0]
    assert (frame.function, frame.file, frame.line, report.kind) == (
        "??",
        "src/db.c",
        7,
        "undefined-integer-divide-by-zero",
    )


def test_a_stack_is_not_taken_from_the_next_report() -> None:
    text = b"a.c:1:1: runtime error: division by zero\n" + log("ubsan")
    assert [one.frames[0].function for one in reports(text, "ubsan")][:2] == ["??", "rd"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("left shift of negative value -1", "undefined-shift"),
        ("negation of -2147483648 cannot be represented in type 'int'", "undefined-signed-integer-overflow"),
        ("member access within null pointer of type 'struct robj'", "undefined-null"),
        ("applying non-zero offset 8 to null pointer", "undefined-pointer-overflow"),
        ("execution reached an unreachable program point", "undefined-unreachable"),
        ("something that the next compiler says", "undefined-other"),
    ],
)
def test_messages_of_other_checks_and_compilers(message: str, kind: str) -> None:
    assert [kind] == [one.kind for one in reports(f"a.c:1:1: runtime error: {message}\n".encode(), "ubsan")]


@given(st.binary(max_size=400))
def test_a_parser_handles_any_text(text: bytes) -> None:
    for detector in DETECTORS:
        reports(text, detector)


@given(st.lists(st.sampled_from(sorted({line for one in DETECTORS for line in log(one).splitlines()})), max_size=30))
def test_a_parser_handles_its_lines_in_any_order(lines: list[bytes]) -> None:
    for detector in DETECTORS:
        assert all(one.frames for one in reports(b"\n".join(lines), detector))


# Targets.


def with_detectors() -> list[str]:
    return [name for name, target in Catalog().targets.items() if target.emulator.detector]


def test_every_detector_has_a_target_that_is_not_required_and_canaries() -> None:
    targets = Catalog().targets
    assert sorted(DETECTORS) == sorted(targets[name].emulator.detector for name in with_detectors())
    for name in with_detectors():
        assert "detectors" in targets[name].groups
        assert "required" not in targets[name].groups
        assert detector_canary.expectations(targets[name].emulator.detector)


NAMES = re.compile(rf"{'|'.join(DETECTORS)}|(?<!crash-)memcheck|sanitizer")
"""The server's option `crash-memcheck-enabled` does not name a detector."""


@pytest.mark.parametrize(
    "line",
    [
        "if witness.detector == 'asan': pass",
        "message = f'{target} has no UBSan'",
        "def _memcheck_errors(): pass",
        "class AddressSanitizerReport: pass",
        "from harness.analysis.detectors import ubsan",
        "from harness.analysis.detectors.asan import reports",
        "look(memcheck_log=1)",
    ],
)
def test_a_detectors_name_in_code_is_found(tmp_path: Path, line: str) -> None:
    """The line is added to a copy of a judging module, and to the folder of detectors, which may contain it."""
    source = (ROOT / "harness" / "judge" / "verdict.py").read_text("utf-8")
    assert named_in(source, NAMES) == []
    own = tmp_path / "harness" / "analysis" / "detectors"
    for path in (tmp_path / "harness" / "judge" / "verdict.py", own / "verdict.py"):
        path.parent.mkdir(parents=True)
        path.write_text(f"{source}\n{line}\n", "utf-8")
    found = named_outside(own, NAMES, root=tmp_path / "harness")
    assert [(file, len(places)) for file, places in found.items()] == [("harness/judge/verdict.py", 1)]


@pytest.mark.parametrize("source", ['"""As ASan does."""', "# ubsan\n", "detector = 'a detector'", "as_an = 'as any'"])
def test_prose_and_other_words_name_no_detector(source: str) -> None:
    assert named_in(source, NAMES) == []


def test_only_the_modules_of_detectors_name_one() -> None:
    assert named_outside(Path(registry.__file__).parent, NAMES) == {}, (
        "names of detectors belong in harness/analysis/detectors/"
    )


def test_an_unknown_detector_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown detector 'none-such'") as caught:
        named("none-such")
    assert ", ".join(DETECTORS) in str(caught.value)


def test_every_error_of_the_canaries_has_a_correct_twin_and_is_in_the_program() -> None:
    program = detector_canary.SOURCE.read_text("utf-8")
    for detector in DETECTORS:
        cases = dict(detector_canary.expectations(detector))
        for name in named(detector).canary:
            assert f'"{name}"' in program
            assert cases[f"{name} good"] == detector_canary.SILENT != cases[f"{name} bad"]


def test_a_native_program_runs_under_valgrind_and_sanitizers_continue_after_an_error(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    catalog = Catalog()

    def command(name: str) -> tuple[str, dict[str, str]]:
        target = catalog.targets[name]
        runner = target_runner(cache, target, catalog.toolchain_of(target), catalog.policies["signal"], {})
        return runner.command(Path("/b"), ["x"])[0], runner.environment

    assert command("native") == ("/b", {})
    assert command("native-valgrind") == ("valgrind", {})
    program, environment = command("native-asan")
    assert (program, "halt_on_error=0" in environment["ASAN_OPTIONS"]) == ("/b", True)


def test_a_guest_gets_its_detectors_options_beside_the_plain_environment(tmp_path: Path) -> None:
    program = fakes.write(tmp_path / "server", '#!/bin/sh\necho "$LC_ALL $ASAN_OPTIONS"; exit 7\n', mode=0o755)
    runner = fakes.unemulated(Catalog().targets["native-asan"])
    runner = msgspec.structs.replace(runner, environment=dict(named("asan").environment))
    build = fakes.build(tmp_path, binary=program.name)
    guest = Guest(ServerSpec(build=build, version=(7,)), runner, tmp_path / "guest-1", sockets=tmp_path)
    with pytest.raises(StartError, match="exit status 7"):
        guest.__enter__()
    assert guest.evidence.log.read_text("utf-8") == f"C {named('asan').environment['ASAN_OPTIONS']}\n"
    assert guest.evidence.log_bytes() == guest.evidence.log.stat().st_size


def test_a_guests_reports_are_those_from_an_offset_on(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(log("ubsan"))
    runner = fakes.unemulated(Catalog().targets["native-ubsan"])
    guest = Guest(ServerSpec(build=fakes.build(tmp_path), version=(7,)), runner, tmp_path, sockets=tmp_path)
    last = stored("ubsan")[-1]
    assert identities(guest.evidence.reports(last.offset)) == [last.identity]
    assert guest.evidence.reports(guest.evidence.log_bytes()) == []


def test_the_undefined_behaviour_sanitizer_needs_its_options_compiled_in(tmp_path: Path) -> None:
    assert [write_prelude(detector, tmp_path) for detector in ("", "asan", "valgrind")] == [[], [], []]
    flag, path = write_prelude("ubsan", tmp_path)
    assert (flag, "print_stacktrace=1" in Path(path).read_text("utf-8")) == ("-include", True)


# Judgement.


MISALIGNED = b"""\
bitops.c:131:13: runtime error: load of misaligned address 0x55550003 for type 'long', which requires 8 byte alignment
0x55550003: note: pointer points here
    #0 0x1671 in redisBitpos /cache/work/1/tree/src/bitops.c:131
    #1 0x1671 in bitposCommand /cache/work/1/tree/src/bitops.c:866

"""
MEMBER = MISALIGNED.replace(b"load of misaligned", b"member access within misaligned")
FATAL = b"""\
==12==ERROR: AddressSanitizer: SEGV on unknown address 0x00000000000a (pc 0x55 bp 0x7f sp 0x7f T0)
==12==The signal is caused by a READ memory access.
    #0 0x1671 in redisBitpos /cache/work/1/tree/src/bitops.c:131

"""
TERMINATING = b"""\
==12== Process terminating with default action of signal 11 (SIGSEGV)
==12==    at 0x1671: redisBitpos (/cache/work/1/tree/src/bitops.c:131)
==12==
"""
TEST = "bitops/test_bitops.py::test_bitpos"
BITPOS = b"*2\r\n$4\r\nPING\r\n$1\r\nx\r\n*3\r\n$6\r\nBITPOS\r\n$1\r\nk\r\n$1\r\n0\r\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    """The suite bitops on an emulated target and on one with a detector. The canaries behaved."""
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    made = StoredRun(tmp_path / "run", targets=("armv5", "native-ubsan"))
    made.detectors = {"armv5": "", "native-ubsan": "ubsan"}
    for name in made.targets:
        made.canary(name)
    made.test("armv5", "bitops", "bitops/test_bitops.py::test_quiet")
    return made


def reported(run: StoredRun, text: bytes, *, outcome: Literal["passed", "failed"] = "passed") -> None:
    where = run.log("native-ubsan", "bitops", "guest-1", text)
    run.test(
        "native-ubsan",
        "bitops",
        TEST,
        outcome=outcome,
        guest="guest-1",
        log=where,
        transcript=BITPOS,
    )


def test_a_report_during_a_test_that_passes_is_a_finding_with_its_command_and_reproducer(run: StoredRun) -> None:
    reported(run, MISALIGNED)
    (finding,), outcomes, _ = judge(stored_run.read(run.finish()))
    assert (finding.id, finding.file, finding.line) == ("alignment-redisBitpos-load", "src/bitops.c", 131)
    assert (finding.command, finding.origin) == ("BITPOS k 0", "server")
    assert [(w.target, w.detector, w.test) for w in finding.witnesses] == [("native-ubsan", "ubsan", TEST)]
    assert {cell.target: cell.verdict for cell in cell_verdicts(outcomes, [finding]) if cell.suite == "bitops"} == {
        "armv5": "PASS",
        "native-ubsan": "FAIL",
    }


@pytest.mark.parametrize("text", [MISALIGNED, MEMBER])
def test_reports_of_several_detectors_in_one_function_are_one_finding(run: StoredRun, text: bytes) -> None:
    pc = run.place("armv5", "redisBitpos")
    run.fault("armv5", "bitops", "guest-1", fault(pc=pc))
    run.test("armv5", "bitops", TEST, outcome="failed", guest="guest-1", faults=(0, 1))
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGBUS", test=TEST)
    reported(run, text)
    (finding,), *_ = judge(stored_run.read(run.finish()))
    assert finding.id == "alignment-redisBitpos-load"
    assert [(w.target, w.detector) for w in finding.witnesses] == [("armv5", "signal"), ("native-ubsan", "ubsan")]


def test_a_member_access_that_only_one_detector_reports_is_a_finding(run: StoredRun) -> None:
    reported(run, MEMBER)
    assert [finding.id for finding in judge(stored_run.read(run.finish()))[0]] == ["alignment-redisBitpos"]


def test_a_test_that_fails_beside_a_report_is_a_separate_finding(run: StoredRun) -> None:
    """A report does not stop the server, so a wrong reply is a separate observation, and may have a different cause."""
    reported(run, MISALIGNED, outcome="failed")
    assert [finding.kind for finding in judge(stored_run.read(run.finish()))[0]] == ["alignment", "wrong-result"]


def test_the_failure_of_a_test_with_a_fatal_report_is_its_consequence(run: StoredRun) -> None:
    run.detectors["native-ubsan"] = "asan"
    reported(run, FATAL, outcome="failed")
    run.guest("native-ubsan", "bitops", "guest-1", end="exit", detail="exit status 1", test=TEST, pid=12)
    assert [finding.id for finding in judge(stored_run.read(run.finish()))[0]] == ["asan-segv-redisBitpos-load"]


@pytest.mark.parametrize(
    ("detector", "text", "first"),
    [
        ("asan", FATAL, "asan-segv-redisBitpos-load"),
        ("valgrind", TERMINATING, "memcheck-sigsegv-redisBitpos"),
    ],
)
def test_a_fatal_report_of_a_child_does_not_explain_the_servers_own_end(
    run: StoredRun, detector: str, text: bytes, first: str
) -> None:
    """The death of a saving child is one finding, and the server's later failed assertion is another."""
    run.detectors["native-ubsan"] = detector
    reported(run, text, outcome="failed")
    run.guest("native-ubsan", "bitops", "guest-1", end="signal", detail="killed by SIGABRT", test=TEST, pid=11)
    found = [finding.id for finding in judge(stored_run.read(run.finish()))[0]]
    assert found == [first, "crash-bitops_test_bitops.py_test_bitpos"]


@pytest.mark.parametrize(
    ("before", "after", "command"),
    [(MISALIGNED, b"", "(while starting)"), (b"", MISALIGNED, "(while stopping)")],
)
def test_a_report_outside_tests_belongs_to_none(run: StoredRun, before: bytes, after: bytes, command: str) -> None:
    run.log("native-ubsan", "bitops", "guest-1", before)
    reported(run, NOISE)
    run.log("native-ubsan", "bitops", "guest-1", after)
    (finding,), *_ = judge(stored_run.read(run.finish()))
    assert (finding.command, finding.witnesses[0].test) == (command, "")


@pytest.mark.parametrize(("detector", "verdict"), [("ubsan", "UNKNOWN"), ("", "PASS")])
def test_a_log_without_its_middle_may_have_lost_reports(
    run: StoredRun, monkeypatch: pytest.MonkeyPatch, detector: str, verdict: str
) -> None:
    monkeypatch.setattr(capped_log, "LIMIT_BYTES", 4096)
    run.detectors["native-ubsan"] = detector
    reported(run, NOISE.ljust(2048, b"x") + b"\n[plumbline: 9999 bytes are left out here]\n" + NOISE)
    run.guest("native-ubsan", "bitops", "guest-1", end="stopped")
    findings, outcomes, _ = judge(stored_run.read(run.finish()))
    verdicts = cell_verdicts(outcomes, findings)
    (cell,) = [one for one in verdicts if (one.target, one.suite) == ("native-ubsan", "bitops")]
    assert (findings, cell.verdict) == ([], verdict)
    assert ("its log lacks 9999 bytes" in cell.reason) == bool(detector)


def test_logs_of_targets_without_a_detector_are_not_read(run: StoredRun) -> None:
    run.detectors = {}
    reported(run, MISALIGNED)
    assert judge(stored_run.read(run.finish()))[0] == []
