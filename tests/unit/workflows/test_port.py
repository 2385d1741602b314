"""The parts of a porting report that need no compiler: messages, compiled code, items, and their order."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis import compiler_output
from harness.build.workshop.build_failure import BuildFailedError
from harness.core import json_codec
from harness.core.finding import Access, Finding
from harness.core.model import BuildSettings
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.record.compiler_warnings import Diagnostic
from harness.workflows.porting import attempt, conditionals, items, makefiles, markdown, page, survey, xmemalign
from harness.workflows.porting.document import (
    BLOCKERS,
    Assumption,
    Hint,
    PortingItem,
    PortReport,
    Region,
    Step,
    TargetPort,
    Xmemalign,
)
from harness.workflows.porting.sections import ANY_POLICY
from tests.support import fakes
from tests.support.judgements import HOSTILE, cell, judgement, run_folder
from tests.unit.report.test_page import Outline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.judge.findings import Judgement

TREE = Path("/cache/work/1/tree")
OUTPUT = """\
make: Entering directory '/cache/work/1/tree/src'
/w/gcc -O2 -MMD -o a.o -c a.c; echo done
In file included from a.c:3:
sds.h:12:20: warning: cast increases required alignment of target type [-Wcast-align]
   12 |     return *(long *)s;
\x1b[01ma.c:9:5:\x1b[K \x1b[31merror: \x1b[Kunknown type name 'u_long'
make: Leaving directory '/cache/work/1/tree/src'
make[2]: Entering directory '/cache/work/1/tree/deps/lua/src'
/w/gcc -c -o lapi.o lapi.c
lapi.c:4: warning: comparison is always true [-Werror=type-limits]
make[3]: Entering directory '/elsewhere'
x.c:1:1: warning: the tree does not have it
make[3]: Leaving directory '/elsewhere'
lapi.c:5:1: warning: from the folder before [-Wcast-align=strict]
make[2]: Leaving directory '/cache/work/1/tree/deps/lua/src'
make: Entering directory '/cache/work/1/tree/src'
/w/gcc -O2 -o b.o -c b.c
sds.h:12:20: warning: cast increases required alignment of target type [-Wcast-align]
/w/gcc -o server a.o b.o -lm
/usr/bin/ld: a.o: in function `f':
a.c:(.text+0x10): undefined reference to `__atomic_load_8'
/usr/bin/ld: b.o:(.bss+0x0): multiple definition of `server'; a.o:(.bss+0x0): first defined here
make: Leaving directory '/cache/work/1/tree/src'
"""


def test_warnings_and_errors_have_places_in_the_tree_and_occur_once() -> None:
    diagnostics = [(one.severity, one.file, one.line, one.warning) for one in compiler_output.read(OUTPUT, TREE)]
    assert diagnostics == [
        ("warning", "src/sds.h", 12, "cast-align"),
        ("error", "src/a.c", 9, ""),
        ("warning", "deps/lua/src/lapi.c", 4, "type-limits"),
        ("warning", "/elsewhere/x.c", 1, ""),
        ("warning", "deps/lua/src/lapi.c", 5, "cast-align=strict"),
    ]
    own = [one.file for one in compiler_output.read(OUTPUT, TREE, below=TREE / "src")]
    assert own == ["src/sds.h", "src/a.c"]


def test_missing_symbols_are_reported_with_the_remedy() -> None:
    linking = compiler_output.linking(OUTPUT)
    assert (linking.undefined, linking.twice) == (["__atomic_load_8"], ["server"])
    assert attempt.link_problem(linking) == (
        "without -latomic after the objects it lacks __atomic_load_8; "
        "without -fcommon it has 1 duplicate globals, such as server"
    )
    other = compiler_output.linking("x.o: undefined reference to `foo'")
    assert attempt.link_problem(other) == "it lacks foo"
    assert attempt.link_problem(compiler_output.linking("")) == ""


def test_calls_that_make_objects_are_recognised_with_their_folders() -> None:
    calls = compiler_output.compilations(OUTPUT, ("/w/gcc", "/w/g++"))
    assert [(one.folder, one.words[-1]) for one in calls] == [
        (f"{TREE}/src", "a.c"),
        (f"{TREE}/deps/lua/src", "lapi.c"),
        (f"{TREE}/src", "b.c"),
    ]
    assert attempt.preprocessing(calls[0].words) == ["/w/gcc", "-O2", "a.c", "-E", "-dD", "-dI"]


def test_calls_that_nothing_can_repeat_are_left_out(tmp_path: Path) -> None:
    """Regression: a call with a NUL, which a makefile printed, was a bug in Plumbline; without its folder, the host's
    fault.
    """
    called = "make: Entering directory '{}'\n/w/gcc -c {}\n"
    texts = [called.format(tmp_path, "a.c"), called.format(tmp_path / "gone", "a.c"), called.format(tmp_path, "a\0.c")]
    texts.append(called.format(tmp_path, "a" * attempt.MOST_WORDS_BYTES))
    calls = [compiler_output.compilations(text, ("/w/gcc",))[0] for text in texts]
    assert [attempt.can_be_repeated(one) for one in calls] == [True, False, False, False]


ENDLESS = {
    "a line number": f"a.c:{'9' * 5000}: error: x\n",
    "a complaint": f"error: {'a' * 300_000}\n",
    "a folder": f"make: Entering directory '{'a' * 100_000}'\na.c:1: error: x\n",
}


@pytest.mark.parametrize("output", ENDLESS.values(), ids=ENDLESS)
def test_lines_without_end_are_read_in_a_moment(output: str) -> None:
    """Regression: the number was a bug in Plumbline, and the comparison of a complaint took hours."""
    began = time.process_time()
    compiler_output.read(output, TREE)
    compiler_output.complaints(output)
    compiler_output.first_error(output)
    assert time.process_time() - began < ENDLESS_SECONDS


ENDLESS_SECONDS = 5.0


@pytest.mark.parametrize(
    "source",
    [
        "/* " * 60_000,
        "#if __arm__\nint a;\n" * 20_000,
        "#if __arm__\n" + "int a;\n#elif __sun\n" * 20_000 + "#endif\n",
        "x \\\n" * 60_000,
    ],
    ids=["comments", "nested", "alternatives", "continued lines"],
)
def test_source_without_end_is_read_in_a_moment(source: str) -> None:
    """Regression: comments without an end took hours, and conditionals in each other all memory."""
    began = time.process_time()
    conditionals.regions({"a.c": source}, {"a.c": {1}})
    assert time.process_time() - began < ENDLESS_SECONDS


SOURCE = """\
#ifndef __ENDIAN_H
#define __ENDIAN_H
#include <x.h>
#if BYTE_ORDER == LITTLE_ENDIAN
#define SAME(x) (x)
#elif BYTE_ORDER == BIG_ENDIAN
int swap(int x);
#else
#error "neither"
#endif
#ifdef __sun /* illumos, too */
#include <sys/sun.h>
#ifdef __sparc
int inner;
#endif
#endif
#if !defined(__sun)
int statfs_there;
#endif
#if defined(__arm__) || \\
    defined(__sparc__)
/* only words:
#ifdef __i386__
int commented;
#endif
*/
#endif
#ifdef DEBUG
#ifdef __arm__
int left_out_for_another_reason;
#endif
#endif
#if UNALIGNED_LE_CPU
int fast;
#endif
#endif
"""
PASSED = """\
# 1 "endian.h"
#define __ENDIAN_H
#include <x.h>
# 1 "/usr/include/x.h" 1 3
int x;
# 7 "endian.h" 2
int swap(int x);
# 18 "endian.h"
int statfs_there;
"""


def regions() -> list[Region]:
    # As in real output, the marker's text begins at line 1, and the guard is in line 2.
    text = PASSED.replace('# 1 "endian.h"', '# 2 "endian.h"', 1)
    lines = conditionals.passed(text.encode(), f"{TREE}/src", TREE)
    assert lines == {"src/endian.h": {2, 3, 7, 18}}
    return conditionals.regions({"src/endian.h": SOURCE, "src/not_compiled.c": SOURCE}, lines)


def test_files_whose_names_are_not_utf8_are_read_under_the_compilers_names_for_them(tmp_path: Path) -> None:
    """Regression: their names were a bug in Plumbline, once one of them had a line to report."""
    bad = os.fsdecode(b"src/odd\xe9.h")
    fakes.server_tree(tmp_path)
    fakes.write(tmp_path / bad, "#pragma once\n#ifdef __sun\nint sun;\n#else\nint here;\n#endif\n")
    fakes.write(tmp_path / os.fsdecode(b"src/odd\xe9.mk"), "ifeq ($(uname_S),SunOS)\nendif\n")
    files = survey.readable(fakes.opened(tmp_path))
    assert sorted(files) == ["src/bitops.c", r"src/odd\xe9.h", r"src/odd\xe9.mk", "src/version.h"]
    (tmp_path / "main.c").write_bytes(b'#include "src/odd\xe9.h"\n')
    output = subprocess.run(
        ["cc", "-E", "-dD", "-dI", "main.c"], cwd=tmp_path, check=True, stdout=subprocess.PIPE
    ).stdout
    (region, other) = conditionals.regions(files, conditionals.passed(output, str(tmp_path), tmp_path))
    assert (region.file, region.first, region.compiled) == (r"src/odd\xe9.h", 3, False)
    assert other.compiled
    (line,) = makefiles.assumptions({name: text for name, text in files.items() if makefiles.is_makefile(name)})
    port = msgspec.structs.replace(report().targets[0], regions=[region], assumptions=[line])
    (read,) = json_codec.decode(json_codec.encode(report(targets=[port])), PortReport).targets
    assert [*read.regions, *read.assumptions] == [region, line]


def test_code_is_compiled_if_the_preprocessor_passed_a_line_of_it() -> None:
    assert [(one.topic, one.first, one.last, one.condition, one.compiled) for one in regions()] == [
        ("byte order", 5, 5, "BYTE_ORDER == LITTLE_ENDIAN", False),
        ("byte order", 7, 7, "else, BYTE_ORDER == BIG_ENDIAN", True),
        ("Solaris", 12, 15, "defined(__sun)", False),
        ("Solaris", 18, 18, "!defined(__sun)", True),
        ("alignment", 34, 34, "UNALIGNED_LE_CPU", False),
    ]


@pytest.mark.parametrize(
    ("condition", "topic"),
    [
        ("defined(__SVR4) && !defined(DEBUG)", "Solaris"),
        ("USE_ALIGNED_ACCESS", "alignment"),
        ("__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__", "byte order"),
        ("defined(__x86_64__)", "machine"),
        ("defined(sparc)", "machine"),
        ("SUNDAY", None),
        ("defined(__ENDIANCONV_H)", None),
        ("ARMED", None),
    ],
)
def test_a_condition_has_a_topic_by_whole_names(condition: str, topic: str | None) -> None:
    assert conditionals.topic_of([condition]) == topic


def test_makefiles_are_searched_for_names_and_fatal_warnings() -> None:
    text = """\
uname_S := $(shell sh -c 'uname -s')
ifeq ($(uname_S),SunOS)  # not Linux
ifneq (,$(findstring armv,$(uname_M)))
# ifeq ($(uname_M),armv6l)
ifeq ($(uname_S),Linux)
WARN=-Wall -Werror=undef
ARCH := $(shell uname -m)
"""
    found = makefiles.assumptions({"src/Makefile": text})
    assert [(one.kind, one.line) for one in found] == [
        ("Solaris", 2),
        ("machine", 3),
        ("system", 5),
        ("warnings are errors", 6),
        ("machine", 7),
    ]


def test_casts_of_pointers_are_reported_with_their_places_in_any_code() -> None:
    """redis-8.0.6 has such casts in its vector sets, for 32-bit machines."""
    hints = [
        Hint(warning=warning, file="modules/v/hnsw.c", line=line, text="x", origin="bundled/v", source="p = (long)q;")
        for warning, line in (("int-to-pointer-cast", 7), ("pointer-to-int-cast", 9), ("cast-align", 1))
    ]
    port = msgspec.structs.replace(report().targets[0], hints=hints, regions=[], assumptions=[])
    (note,) = items.of_notes([port])
    assert note.title == "2 casts between a pointer and an integer of another width, in modules/v/hnsw.c"
    assert note.detail == ["modules/v/hnsw.c:7  p = (long)q;", "modules/v/hnsw.c:9  p = (long)q;"]


def test_a_machine_that_no_makefile_names_is_reported() -> None:
    text = """\
ifneq (,$(filter aarch64 armv%,$(uname_M)))
ifneq (,$(findstring ppc,$(uname_M)))
ifeq ($(uname_M),arm64)
ifeq ($(uname_S),SunOS)
"""
    found = makefiles.assumptions({"src/Makefile": text})
    assert makefiles.machines_named(found) == ["aarch64", "arm64", "armv", "ppc"]
    port = msgspec.structs.replace(report().targets[0], assumptions=found, regions=[], hints=[])
    notes = items.of_notes([port, msgspec.structs.replace(port, target="armv5", machine="armv5tel")])
    assert [(one.targets, one.title) for one in notes] == [
        (
            ["sparc64"],
            ("the makefiles have special cases for some machines (aarch64, arm64, armv, ppc), but not for sparc64"),
        )
    ]


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("Makefile", True),
        ("deps/lua/src/Makefile", True),
        ("modules/common.mk", True),
        ("src/unit/Makefile", False),
        ("tests/modules/Makefile", False),
        ("src/Makefile.dep", False),
        ("src/makefile.c", False),
    ],
)
def test_only_makefiles_that_make_the_server_count(file: str, counts: bool) -> None:
    assert makefiles.is_makefile(file) == counts


def xmemalign_rows(target: str, *accesses: Access) -> dict[str, tuple[str, int, int, int]]:
    catalog = Catalog()
    places = {f"src/a.c:{number}": [access] for number, access in enumerate(accesses)}
    rows = xmemalign.outcomes(catalog.policies, catalog.targets[target], places)
    return {row.policy: (row.acts_as, row.apart, row.repaired, row.signal) for row in rows}


def test_xmemalign_follows_from_the_policies() -> None:
    """A word at 2 mod 4, an integer doubleword and a double at 4 mod 8, a compare-and-swap at 2 mod 4."""
    load = Access(direction="load", size_bytes=4, modulo=2, access_class="word")
    long_load = Access(direction="load", size_bytes=8, modulo=4, access_class="dword")
    double = Access(direction="load", size_bytes=8, modulo=4, access_class="double")
    swap = Access(direction="store", size_bytes=4, modulo=2, access_class="cas")
    rows = xmemalign_rows("sparc64", load, long_load, double, swap)
    assert len(rows) == 15
    assert rows["solaris-1s"] == ("solaris-1s", 3, 0, 1)
    assert rows["solaris-2i"] == ("solaris-2i", 3, 0, 1)
    assert rows["solaris-4i"] == ("solaris-4i", 2, 1, 1)
    assert rows["solaris-4s"] == ("solaris-4s", 2, 0, 2)
    assert rows["solaris-8i"] == ("solaris-8i", 1, 2, 1)
    # A 64-bit program's doubles at 4 mod 8 are emulated with any option.
    assert rows["solaris-8s"] == ("solaris-8f", 1, 0, 3)
    assert xmemalign_rows("sparc32plus", double)["solaris-8s"] == ("solaris-8s", 0, 0, 1)


def test_of_a_source_line_the_worst_access_counts() -> None:
    catalog = Catalog()
    places = {
        "src/a.c:1": [
            Access(direction="load", size_bytes=4, modulo=2, access_class="word"),
            Access(direction="load", size_bytes=4, modulo=1, access_class="word"),
        ]
    }
    rows = xmemalign.outcomes(catalog.policies, catalog.targets["sparc64"], places)
    assert {row.policy for row in rows if row.unsure} == set()
    counts = {row.policy: (row.apart, row.repaired, row.signal) for row in rows}
    assert (counts["solaris-2s"], counts["solaris-2i"]) == ((0, 0, 1), (0, 1, 0))


def test_an_access_that_would_be_worse_at_another_address_is_marked_as_uncertain() -> None:
    """For example, BITPOS of redis-2.8.17 was recorded at 2 mod 8, but also occurs at 1 mod 8."""
    catalog = Catalog()
    places = {"src/bitops.c:139": [Access(direction="load", size_bytes=8, modulo=2, access_class="dword")]}
    rows = {row.policy: row for row in xmemalign.outcomes(catalog.policies, catalog.targets["sparc64"], places)}
    assert {name for name, row in rows.items() if row.unsure} == {"solaris-2i", "solaris-2s", "solaris-2f"}
    assert (rows["solaris-2s"].apart, rows["solaris-4s"].signal) == (1, 1)


def test_other_machines_have_no_solaris() -> None:
    assert xmemalign_rows("armv5", Access(direction="load", size_bytes=4, modulo=2, access_class="word")) == {}


def test_defaults_are_those_in_the_policies_file() -> None:
    catalog = Catalog()
    text = (ROOT / "harness" / "plan" / "policies" / "solaris.toml").read_text("utf-8")
    for target in ("sparc32plus", "sparc64"):
        rows = xmemalign.outcomes(catalog.policies, catalog.targets[target], {})
        name = next(row.policy for row in rows if row.default).removeprefix("solaris-")
        assert f"{name} for -m{catalog.targets[target].width_bits}" in text


def test_problems_that_plumbline_fixes_still_block_the_unchanged_tree() -> None:
    found = items.of_steps(
        "mips",
        [
            Step(name="configure", result="failed", detail="deps/jemalloc does not"),
            Step(name="compile", result="ok", detail=""),
            Step(name="link", result="mended", detail="without -latomic after the objects it lacks __atomic_load_8"),
        ],
    )
    assert [(one.rank, one.title) for one in found] == [
        ("note", "jemalloc's configure script fails"),
        ("build", "it does not link as it is"),
    ]
    assert "-latomic" in found[1].remedy


def audited(fate: str, **more: object) -> Finding:
    """A finding of an audit, with its fate."""
    known = judgement().findings[0]
    witness = msgspec.structs.replace(known.witnesses[0], detector="audit", fate=fate)
    return msgspec.structs.replace(known, witnesses=[witness], **more)


@pytest.mark.parametrize(
    ("found", "rank"),
    [
        (audited("kill"), "fault"),
        (audited("fixup"), "fault"),
        (audited("rotated"), "fault"),
        (audited("hardware"), "strict"),
        (audited("kill", known="upstream knows"), "note"),
        (audited("kill", kind="sigsegv"), "fault"),
        (audited("", kind="hang"), "fault"),
        (audited("", kind="wrong-result"), "value"),
        (audited("", kind="wrong-result", title=f"1 != 2; {items.EVERYWHERE}"), "note"),
    ],
)
def test_a_finding_has_the_rank_of_its_effect(found: Finding, rank: str) -> None:
    assert items.rank_of(found) == rank


def test_the_suites_use_the_words_that_mark_a_fault_as_everywhere() -> None:
    for file in ("_shared/paired_servers.py", "fuzz/failure.py"):
        assert items.EVERYWHERE in (ROOT / "suites" / file).read_text("utf-8")


def test_the_place_of_a_death_at_start_comes_first_and_once() -> None:
    one = audited("kill", function="murmur32", title="misaligned load in murmur32")
    death = items.Death(
        target="sparc64", detail="killed by SIGBUS", function="murmur32", place="x.c:1", stack=("a", "b")
    )
    other = items.Death(target="armv5", detail="exit status 1; cannot open the display")
    assert items.of_deaths([death], [one]) == []
    assert [(it.targets, it.detail) for it in items.of_deaths([death, other], [])] == [
        (["sparc64"], ["killed by SIGBUS", "a ← b"]),
        (["armv5"], ["exit status 1; cannot open the display"]),
    ]
    found = items.of_findings([one], [death])
    assert (found[0].rank, found[0].title) == ("start", "it does not start: misaligned load in murmur32")
    assert found[0].detail[0] == "a ← b"


def test_the_lines_that_a_headline_names_or_counts_are_shown() -> None:
    found = items.of_steps(
        "sparc64", [Step(name="compile", result="failed", detail="1 error", lines=["src/a.c:9  u_long x;  unknown"])]
    )
    assert found[0].detail == ["1 error", "src/a.c:9  u_long x;  unknown"]
    notes = {one.title.partition(" ")[2]: one.detail for one in items.of_notes(report().targets)}
    assert notes["warnings of the compiler in the server's own files"] == [
        f"src/a.c:3  *(int *)p  {HOSTILE}  misaligned in the audit",
        "src/b.c:1  x",
    ]
    assert notes["parts of the source were neither compiled nor tested"][:2] == [
        "src/endian.h:5  #if BYTE_ORDER == LITTLE_ENDIAN  #define SAME(x) (x)",
        "src/endian.h:12-15  #if defined(__sun)  #include <sys/sun.h>",
    ]
    files = {"src/a.c": "int x;\f\n\tp = *(long  *)q;\n" + "y" * 400}
    places = ["src/a.c:2", "src/a.c:3", "src/a.c:9", "src/b.c:1", ""]
    placed = [PortingItem(rank="fault", title="x", targets=["a"], place=place) for place in places]
    sources = [one.source for one in items.with_sources(placed, files)]
    assert sources == ["p = *(long *)q;", "y" * 159 + "…", "", "", ""]
    text = markdown.render(report(items=items.with_sources(placed, files)))
    assert "  - `src/a.c:2  p = *(long *)q;`" in text


@pytest.mark.parametrize(("number", "counted"), [(1, "1 error, the first at src/a.c:1"), (2, "2 errors, the first")])
def test_a_step_that_fails_shows_the_line_of_each_error(number: int, counted: str) -> None:
    errors = [
        Diagnostic(severity="error", file="src/a.c", line=line, text="unknown type", warning="")
        for line in range(1, number + 1)
    ]
    tried = attempt.Attempt(
        succeeded=False,
        errors=errors,
        warnings=[],
        linking=compiler_output.linking(""),
        last_words="",
        configured=Step(name="configure", result="none", detail=""),
        passed={},
        log=Path("log"),
    )
    failed = attempt.steps(tried, BuildFailedError("x"), {"src/a.c": "u_long x;\nu_long y;\n"})[1]
    assert (failed.name, failed.result, failed.detail.startswith(counted)) == ("compile", "failed", True)
    lines = ["src/a.c:1  u_long x;  unknown type", "src/a.c:2  u_long y;  unknown type"]
    assert failed.lines == lines[:number]


def test_items_are_in_order_of_priority_and_targets_are_joined() -> None:
    def item(rank: str, target: str, title: str = "x") -> PortingItem:
        return json_codec.convert({"rank": rank, "title": title, "targets": [target]}, PortingItem)

    ordered = items.in_order(
        [item("note", "a"), item("value", "a"), item("build", "a"), item("build", "b"), item("strict", "a")]
    )
    assert [(one.rank, one.targets) for one in ordered] == [
        ("build", ["a", "b"]),
        ("value", ["a"]),
        ("strict", ["a"]),
        ("note", ["a"]),
    ]


def failed_with(*findings: Finding, cells: Sequence[str] = ("PASS", "FAIL")) -> Judgement:
    """The judgement of a run whose suite bitops has these findings on ARMv5, and these verdicts."""
    whole, at = judgement(), "armv5/bitops"
    found = [
        msgspec.structs.replace(
            one, witnesses=[msgspec.structs.replace(witness, cells=[at]) for witness in one.witnesses]
        )
        for one in findings
    ]
    canaries, suite = (cell("armv5", name, verdict) for name, verdict in zip(("canary", "bitops"), cells, strict=True))
    return msgspec.structs.replace(whole, findings=found, cells=[canaries, suite])


@pytest.mark.parametrize("rank", items.RANKS)
def test_only_blockers_fail(rank: str) -> None:
    one = json_codec.convert(
        {"rank": rank, "title": "x", "targets": ["a"], "finding": audited("hardware").id}, PortingItem
    )
    assert items.verdict_of([one], failed_with(audited("hardware"))) == ("FAIL" if rank in BLOCKERS else "PASS")


def test_missing_results_are_no_clean_report() -> None:
    assert items.verdict_of([], failed_with(cells=("PASS", "PASS"))) == "PASS"
    assert items.verdict_of([], failed_with(cells=("PASS", "UNKNOWN"))) == "UNKNOWN"
    assert items.verdict_of([], failed_with(cells=("PASS", "SKIP"))) == "UNKNOWN"
    assert items.verdict_of([], msgspec.structs.replace(failed_with(), cells=[])) == "UNKNOWN"
    unended = msgspec.structs.replace(failed_with(cells=("PASS", "PASS")), unchecked=["the run did not end"])
    assert items.verdict_of([], unended) == "UNKNOWN"


def test_a_cell_that_failed_without_a_shown_reason_is_no_clean_report() -> None:
    assert items.verdict_of([], failed_with()) == "UNKNOWN"
    assert items.verdict_of([], failed_with(audited("hardware"))) == "UNKNOWN"


def test_a_failed_build_outside_the_steps_is_an_item() -> None:
    """The steps belong to the plain server, but a suite may need the server with TLS, or another program."""
    broken = audited("", kind="build", title="the server with TLS does not compile", targets=["armv5", "sparc64"])
    linked = [Step(name="link", result="ok", detail=""), Step(name="link", result="failed", detail="")]
    ports = [
        msgspec.structs.replace(report().targets[0], target=target, steps=[step])
        for target, step in zip(("armv5", "sparc64"), linked, strict=True)
    ]
    assert items.unbuilt(ports) == ["sparc64"]
    (item,) = items.of_findings([broken], [], unbuilt=items.unbuilt(ports))
    assert (item.rank, item.title) == ("build", "the server with TLS does not compile")
    assert items.verdict_of([item], failed_with(broken)) == "FAIL"
    assert items.of_findings([broken], [], unbuilt=["armv5", "sparc64"]) == []


def report(**more: object) -> PortReport:
    """A report with content in every section, about a hostile server."""
    whole = judgement(title=HOSTILE)
    port = TargetPort(
        target="sparc64",
        title="SPARC V9",
        machine="sparc64",
        alignment="strict",
        steps=[Step(name="compile", result="failed", detail=HOSTILE), Step(name="start", result="ok", detail="")],
        hints=[
            Hint(
                warning="cast-align",
                file="src/a.c",
                line=3,
                text=HOSTILE,
                origin="server",
                seen=True,
                source="*(int *)p",
            ),
            Hint(warning="unused", file="src/b.c", line=1, text="x", origin="server"),
            Hint(warning="cast-align", file="deps/c.c", line=9, text="x", origin="bundled/c"),
        ],
        assumptions=[Assumption(kind="Solaris", file="src/Makefile", line=7, text=HOSTILE)],
        regions=regions(),
        xmemalign=[
            Xmemalign(policy="solaris-8s", acts_as="solaris-8f", default=True, apart=1, repaired=0, signal=2),
        ],
    )
    found = items.of_steps("sparc64", port.steps) + items.of_findings(whole.findings, []) + items.of_notes([port])
    made = PortReport(
        schema=1,
        verdict="FAIL",
        server=HOSTILE,
        seed=7,
        run="/run",
        optimisation="O2",
        settings=BuildSettings(cflags=("-DX=a b",)),
        items=items.in_order(found),
        targets=[port],
        cells=whole.cells,
        stages={},
    )
    return msgspec.structs.replace(made, **more)


def test_the_document_is_read_back_as_it_was() -> None:
    assert report() == json_codec.decode(json_codec.pretty(report()), PortReport)


def test_the_page_has_every_section_and_escapes_hostile_text(tmp_path: Path) -> None:
    text = page.render(run_folder(tmp_path), report(), judgement(title=HOSTILE))
    outline = Outline(text)
    assert outline.named("script", "img", "iframe", "form") == []
    headings = "".join(data for tag, data in outline.texts if tag in {"h2", "h3"})
    for part in ("It does not build", "It dies in the default workload", "Worth knowing", "Solaris", "Compiler hints"):
        assert part in headings
    ids = {attributes["id"] for _, attributes in outline.elements if "id" in attributes}
    targets = [attributes["href"][1:] for attributes in outline.named("a") if attributes["href"].startswith("#")]
    assert set(targets) <= ids
    assert "alert(1)&lt;" in text
    assert "\x1b" not in text


def test_markdown_has_every_section_in_the_order_of_what_to_fix_first() -> None:
    text = markdown.render(report())
    heads = [line for line in text.splitlines() if line.startswith("#")]
    ranks = ["### It does not build", "### It dies in the default workload", "### Worth knowing"]
    assert [line for line in heads if line.startswith("###")] == ranks
    assert "<script>" not in re.sub(r"`+[^`].*?`+", "", text.replace("``", "`"))
    assert "| solaris-8s (the compiler's default) | solaris-8f | 1 | 0 | 2 |  |" in text
    assert "| `src/a.c` | `cast-align` | 3 | 3 |" in text
    assert "And 1 in 1 files that it bundles." in text
    # Every row of a table has as many cells as its header.
    tables = re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE)
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_without_misaligned_accesses_any_xmemalign_is_recommended_and_without_a_build_none(tmp_path: Path) -> None:
    catalog = Catalog()
    rows = xmemalign.outcomes(catalog.policies, catalog.targets["sparc64"], {})
    for own, mentioned in ((rows, True), ([], False)):
        clean = report(targets=[msgspec.structs.replace(report().targets[0], xmemalign=own)])
        for text in (markdown.render(clean), page.render(run_folder(tmp_path / str(mentioned)), clean, judgement())):
            assert (ANY_POLICY in text) == mentioned
            assert "solaris-8s" not in text


def test_a_clean_report_says_so() -> None:
    text = markdown.render(report(items=[], verdict="PASS", server="redis-7.0.15"))
    assert text.startswith("# Porting redis-7.0.15 to sparc64: ✅ PASS\n\nNothing blocks this port.\n")
