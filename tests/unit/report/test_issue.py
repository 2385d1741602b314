"""The bug report about one finding: its text for each kind of finding. A server's output has no effect in it."""

from __future__ import annotations

import msgspec
import pytest

from harness.core.finding import Frame, Occasion
from harness.protocol.command_stream import from_text
from harness.report import issue
from harness.report.issue import IssueFacts, ReleaseAnswer, StockEmulation
from harness.workflows.replay import shortening
from harness.workflows.replay.recorded_requests import chunks_of
from harness.workflows.workbench import Workbench
from tests.support.judgements import HOSTILE, judgement
from tests.support.reproducers import reproducer

FACTS = IssueFacts(
    machines={"armv5": "ARMv5TE", "aarch64": "AArch64", "sparc64": "SPARC V9"},
    server="redis-3.2.6",
    target="armv5",
    stream="SET k a\nBITOP AND c k k\n",
    commands_before=34,
    why_not_shorter="",
    options=("--appendonly", "yes"),
    files=["dump.rdb"],
    releases=[
        ReleaseAnswer(release="redis-3.2.6", answer="has it"),
        ReleaseAnswer(release="redis-7.0.15", answer="unknown", why="it does not start"),
    ],
    stock=StockEmulation(shows=True, commands=["make", "qemu-arm-static src/redis-server"]),
    source={number: f"line {number};" for number in range(445, 460)},
    differences=[],
    command="check --server redis-3.2.6 --target armv5 --suite bitops",
)


def rendered(facts: IssueFacts = FACTS, *, title: str = "misaligned load in bitopCommand", said: str = "") -> str:
    judged = judgement(title=title)
    finding = judged.findings[0]
    if said:
        seen = Occasion(test="test", command="BITOP", title=title, said=said, functions=())
        witness = msgspec.structs.replace(finding.witnesses[0], occasions=[seen])
        finding = msgspec.structs.replace(finding, kind="wrong-result", witnesses=[witness])
    return issue.render(judged, finding, facts)


def test_a_bug_report_has_symptom_place_cause_and_commands() -> None:
    text = rendered()
    assert text.startswith("# redis-3.2.6: misaligned load in bitopCommand\n")
    assert "- ARMv5TE: shows it\n" in text
    assert "| redis-3.2.6 | has it |  |\n| redis-7.0.15 | unknown | it does not start |\n" in text
    assert "alignment, `bitopCommand`, `src/bitops.c:452`: `ldr r1, [r3]`\n" in text
    five = [f"{'>' if number == 452 else ' '}   {number} line {number};" for number in range(450, 455)]
    assert "\n".join(["```c", *five, "```"]) in text
    assert "bitopCommand (src/bitops.c:452)\ncall (src/bitops.c:9)\nmain (src/bitops.c:1)\n" in text
    assert "2 of 34" in text
    assert "```text\nSET k a\nBITOP AND c k k\n```" in text
    assert "`--appendonly yes`" in text
    assert "`dump.rdb`" in text
    assert "C11, 6.3.2.3, paragraph 7" in text
    assert "plumb check --server redis-3.2.6 --target armv5 --suite bitops\n" in text
    assert "plumb replay bug.stream --server redis-3.2.6 --target armv5\n" in text
    assert "qemu-arm-static src/redis-server\n" in text


def test_a_bug_report_about_a_data_race_has_the_stacks_of_both_threads() -> None:
    judged = judgement()
    other = [Frame(function="poll", file="src/io.c", line=7, origin="server", pc=0)]
    witness = msgspec.structs.replace(judged.findings[0].witnesses[0], against=other)
    text = issue.render(judged, msgspec.structs.replace(judged.findings[0], witnesses=[witness]), FACTS)
    assert "main (src/bitops.c:1)\n```\n\nThe other thread's access:\n\n```text\npoll (src/io.c:7)\n```\n" in text


def test_a_bug_report_has_the_servers_build_and_transport() -> None:
    judged = msgspec.structs.replace(judgement(), settings=["--cflags", "-g -O1"], environment="musl-stack", io="tcp")
    text = issue.render(judged, judged.findings[0], FACTS)
    how = "gcc, `-O2`, `--cflags '-g -O1'`, allocator libc, environment musl-stack, clients over TCP"
    assert f"\nBuilt from redis-3.2.6 with {how}.\n" in text


def test_the_build_options_of_a_distributions_package_are_not_named() -> None:
    judged = msgspec.structs.replace(judgement(), server="debian:bookworm/redis-server=5:7.0.15-1", optimisation="")
    text = issue.render(judged, judged.findings[0], FACTS)
    assert "\nThe distribution's own build, debian:bookworm/redis-server=5:7.0.15-1.\n" in text
    assert "allocator" not in text


def test_a_machine_counts_as_unaffected_only_where_the_tests_ran() -> None:
    """The judgement has only cells of armv5 and sparc64."""
    judged = judgement()
    cells = [msgspec.structs.replace(cell, target="sparc64") for cell in judged.cells if cell.suite == "bitops"]
    text = issue.render(msgspec.structs.replace(judged, cells=cells), judged.findings[0], FACTS)
    assert "- SPARC V9: the same tests do not show it\n" in text
    assert "AArch64" not in text


def test_a_wrong_reply_is_shown_in_full_and_not_in_the_title() -> None:
    facts = msgspec.structs.replace(FACTS, differences=["differs: BITOP AND c k k: guest 1, native 0"])
    text = rendered(facts, title="['BITOP', 'AND']: guest 1, native 0", said="the test's whole message")
    assert text.startswith("# redis-3.2.6: wrong reply to BITOP on armv5\n")
    assert "```text\ndiffers: BITOP AND c k k: guest 1, native 0\n```" in text
    assert "## Why" not in text


def test_a_stream_that_could_not_be_shortened_has_a_reason() -> None:
    facts = msgspec.structs.replace(FACTS, stream="", why_not_shorter="the server ends at once")
    assert "## Commands\n\nStart the server" in rendered(facts)
    assert "None: the server ends at once." in rendered(facts)
    assert "bug.stream" not in rendered(msgspec.structs.replace(facts, stock=StockEmulation(shows=False)))


def test_commands_that_do_not_reproduce_the_bug_are_listed_without_a_replay() -> None:
    facts = msgspec.structs.replace(FACTS, why_not_shorter="its commands alone do not show it")
    text = rendered(facts, title="its own words", said="the test's whole message")
    assert "Not shortened: its commands alone do not show it.\n\n```text\nSET k a\nBITOP AND c k k\n```" in text
    assert "plumb replay" not in text
    assert "wrong reply to" not in text
    assert "None:" not in text


def test_a_servers_text_has_no_effect_in_markdown() -> None:
    facts = msgspec.structs.replace(FACTS, source={452: HOSTILE}, differences=[HOSTILE])
    text = rendered(facts, title=HOSTILE, said=f"```\n{HOSTILE}")
    assert "\x1b" not in text
    assert "\u202e" not in text
    outside = [part for number, part in enumerate(text.split("\n```")) if number % 2 == 0]
    assert not any("<script>" in part or "![](" in part for part in outside)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unit": "siphash"}, "runs by itself"),
        ({"upstream": "unit/type/string::SET"}, "runs by itself"),
        ({"starting": True}, "before a client can send"),
        ({"chunks": []}, "cannot be read as commands"),
    ],
)
def test_a_finding_that_no_client_causes_is_not_shortened(changes: dict[str, object], why: str) -> None:
    given = reproducer(**{"chunks": chunks_of(from_text("PING\n")), **changes})
    found = shortening.shorten(Workbench.default(), given)
    assert why in found.why_not
    assert found.reproducer == given
