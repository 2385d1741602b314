"""A real kernel's reports of misaligned accesses appear in reports with the kernel's own numbers."""

from __future__ import annotations

import html
import io
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.console import Console

from harness.core.errors import InfrastructureError
from harness.judge.conclusion import conclude
from harness.record import stored_run
from harness.record.cell_events import Counters
from harness.record.fault_log import is_misaligned
from harness.record.kernel_faults import as_reported, counted, read_counters
from harness.report import terminal
from harness.report.formats import markdown
from harness.report.formats import registry as formats
from tests.support import fakes
from tests.support.fakes import fault
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from pathlib import Path

VERSATILE = """User:\t\t2011
System:\t\t3 (ip_rcv_core+0x1c8/0x2b0)
Skipped:\t1
Half:\t\t2
Word:\t\t4
DWord:\t\t2002
Multi:\t\t5
User faults:\t4 (signal)
"""
LINE = "Alignment trap: server (36) PC=0x00001000 Instr=0xe5931000 Address=0x00020001 FSR 0x001"


def counters(user: int = 0, *, word: int = 0, skipped: int = 0) -> Counters:
    return Counters(user=user, skipped=skipped, half=0, word=word, dword=0, multi=0)


def test_the_kernels_counters_are_read() -> None:
    assert read_counters(VERSATILE) == Counters(user=2011, skipped=1, half=2, word=4, dword=2002, multi=5)


def test_a_kernel_with_one_counter_counts_what_it_repaired() -> None:
    # MIPS' unaligned_instructions.
    assert read_counters("17\n") == counters(17)


def test_a_processor_without_doublewords_counts_none() -> None:
    assert read_counters(VERSATILE.replace("DWord:\t\t2002\n", "")).dword == 0


@pytest.mark.parametrize("text", ["", "Half:\t\t2\n", "no such file"])
def test_text_without_counters_is_refused(text: str) -> None:
    with pytest.raises(InfrastructureError, match="cannot be read"):
        read_counters(text)


def test_a_fault_is_reported_with_signal_code_address_place_and_the_kernels_line() -> None:
    assert as_reported(fault(kernel_log=(LINE,))) == (
        f"SIGBUS, si_code BUS_ADRALN (1), si_addr 0x20001, PC 0x1000; {LINE}"
    )


def test_an_address_that_siginfo_omits_is_taken_from_the_processors_registers() -> None:
    unnamed = msgspec.structs.replace(fault(code=0x80, address=0), access_class="", access="")
    untold = msgspec.structs.replace(unnamed, misaligned_address=0x20001)
    assert as_reported(untold) == "SIGBUS, si_code SI_KERNEL (128), si_addr 0x0, misaligned address 0x20001, PC 0x1000"
    assert is_misaligned(untold)
    # A bus error of another kind has no such address.
    assert not is_misaligned(unnamed)
    # A specification exception of z/Architecture with another cause has no such address either.
    other = msgspec.structs.replace(fault(number=fakes.SIGILL, code=2, address=0x1000), access_class="", access="")
    exception = msgspec.structs.replace(other, misaligned_address=0x20001)
    assert as_reported(exception) == (
        "SIGILL, si_code ILL_ILLOPN (2), si_addr 0x1000, misaligned address 0x20001, PC 0x1000"
    )
    assert is_misaligned(exception)
    assert not is_misaligned(other)
    assert as_reported(fault(code=77)) == "SIGBUS, si_code 77, si_addr 0x20001, PC 0x1000"
    assert as_reported(fault(number=fakes.SIGSEGV, address=0)).startswith(
        "SIGSEGV, si_code SEGV_MAPERR (1), si_addr 0x0,"
    )


def a_run_on_a_kernel(folder: Path) -> StoredRun:
    run = StoredRun(folder, targets=("armv5", "armv5-kernel"))
    run.real_kernels = {"armv5-kernel"}
    for target in run.targets:
        run.canary(target)
        pc = run.place(target, "bitopCommand")
        line = (LINE,) if target in run.real_kernels else ()
        run.fault(target, "bitops", "guest-1", fault(pc=pc, kernel_log=line))
        totals = (counters(3), counters(5, word=1)) if target in run.real_kernels else None
        run.test(target, "bitops", "test_bitop", outcome="failed", guest="guest-1", faults=(0, 1), counters=totals)
        run.guest(target, "bitops", "guest-1", end="signal", detail="killed by SIGBUS", test="test_bitop")
        run.test(target, "bitops", "test_more", counters=totals and (totals[1], counters(6, word=2)))
        # A restarted machine counts from zero, so that test's count is unknown.
        run.test(target, "bitops", "test_anew", counters=totals and (counters(6, word=2), counters(0)))
    return run


def test_a_finding_contains_the_kernels_report_and_the_page_shows_it(tmp_path: Path) -> None:
    known = fakes.write(tmp_path / "known.toml", "findings = []\n")
    folder = a_run_on_a_kernel(tmp_path / "run").finish()
    judgement, _ = conclude(stored_run.read(folder), known, fakes.quiet())
    (finding,) = judgement.findings
    reported = {witness.target: witness.kernel for witness in finding.witnesses}
    assert reported["armv5"] == ""
    assert reported["armv5-kernel"].startswith("SIGBUS, si_code BUS_ADRALN (1), si_addr 0x20001, PC 0x")
    assert reported["armv5-kernel"].endswith(f"; {LINE}")
    assert judgement.kernel_counters == {"armv5-kernel": counters(3, word=2)}
    shown = io.StringIO()
    terminal.show(Console(file=shown, width=400), judgement)
    # Markdown and HTML have their own escapes for special characters.
    summary = html.unescape(markdown.render(judgement).replace("\\", ""))
    page = html.unescape(formats.render(folder, judgement, "html"))
    for text in (shown.getvalue(), summary, page):
        assert reported["armv5-kernel"] in text
        assert "armv5-kernel: its kernel counted User: 3  Skipped: 0  Half: 0  Word: 2  DWord: 0  Multi: 0" in text


def test_a_kernel_that_counted_nothing_is_not_mentioned() -> None:
    assert counted([]) is None


@pytest.mark.parametrize(
    ("moved", "recorded", "verdict", "reason"),
    [
        (counters(), False, "PASS", ""),
        (
            counters(2),
            False,
            "UNKNOWN",
            "the kernel counted 2 misaligned accesses in its tests, and none of them is recorded",
        ),
        (counters(2), True, "FAIL", "1 findings in 0 failed tests"),
        (counters(2, word=2), False, "UNKNOWN", "the kernel repaired 2 misaligned accesses, each of which must raise"),
    ],
    ids=["nothing", "lost", "recorded", "not in its mode"],
)
def test_every_access_that_a_kernel_counted_must_be_in_the_evidence(
    tmp_path: Path, moved: Counters, recorded: bool, verdict: str, reason: str
) -> None:
    """A record may be lost between the machine and its reader, or a machine may have started in the wrong mode."""
    target = "armv5-kernel"
    run = StoredRun(tmp_path / "run", targets=(target,))
    run.real_kernels = {target}
    run.canary(target)
    pc = run.place(target, "bitopCommand")
    if recorded:
        run.fault(target, "bitops", "guest-1", fault(pc=pc, handled=True))
    before = counters(7, word=3)
    after = Counters(**{name: getattr(before, name) + getattr(moved, name) for name in Counters.__struct_fields__})
    run.test(target, "bitops", "test_bitop", guest="guest-1", faults=(0, int(recorded)), counters=(before, after))
    judgement, _ = conclude(
        stored_run.read(run.finish()), fakes.write(tmp_path / "known.toml", "findings = []\n"), fakes.quiet()
    )
    (cell,) = [one for one in judgement.cells if one.suite == "bitops"]
    assert cell.verdict == verdict
    assert cell.reason.startswith(reason)


@pytest.mark.parametrize(
    ("policy", "moved", "title"),
    [
        ("fixup", counters(3, word=3), "the kernel repaired 3 misaligned accesses (3 word) in TEST"),
        # The kernel repaired two of its own, so that the classes are not the programs'.
        ("fixup", counters(3, word=5), "the kernel repaired 3 misaligned accesses in TEST"),
        (
            "fixup",
            counters(4, word=3, skipped=1),
            "the kernel repaired 3 misaligned accesses (3 word) in TEST",
        ),
        # All were its own, or ended in a signal.
        ("fixup", counters(0, word=5), ""),
        ("fixup", counters(1, skipped=1), ""),
        ("signal", counters(3, word=3), ""),
    ],
    ids=["classes", "with its own", "one skipped", "only its own", "none repaired", "not its policy"],
)
def test_accesses_that_a_boards_kernel_repaired_are_a_finding_of_the_test(
    tmp_path: Path, policy: str, moved: Counters, title: str
) -> None:
    run = StoredRun(tmp_path / "run", targets=("armv5",))
    run.boards, run.policy = {"armv5"}, policy
    run.canary("armv5")
    name = "bitops/test_bitops.py::test_bitop[1]"
    before = counters(7, word=3)
    after = Counters(**{name: getattr(before, name) + getattr(moved, name) for name in Counters.__struct_fields__})
    run.test("armv5", "bitops", name, counters=(before, after))
    judgement, _ = conclude(
        stored_run.read(run.finish()), fakes.write(tmp_path / "known.toml", "findings = []\n"), fakes.quiet()
    )
    (cell,) = [one for one in judgement.cells if one.suite == "bitops"]
    assert cell.verdict == ("FAIL" if title else "PASS")
    assert [one.title for one in judgement.findings] == ([title.replace("TEST", name)] if title else [])
    for one in judgement.findings:
        assert (one.id, one.occurrences) == ("alignment-repaired-bitops_test_bitops.py_test_bitop", 3)
        assert one.replay.endswith("--target armv5 --suite bitops --test bitops/test_bitops.py::test_bitop")
        assert one.replay.startswith("plumb audit --server ")
