"""With another compiler and C library, programs are watched as usual, and Plumbline's additions to them are right."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from harness.build.helper_program import compiled
from harness.core.errors import ExitCode
from harness.core.processes import process
from harness.run.environments import environment_canary
from harness.workflows.target_setup import set_up_target
from tests.end_to_end.servers.test_upstream_suite import NO_WORD_BOUNDARY, planted_tree
from tests.end_to_end.support.machines import quiet_workbench
from tests.end_to_end.support.plumb_runs import PLUMB, document, run
from tests.support.stored import known_file

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow(
        instead=(
            "tests/unit/build/test_toolchain_family.py and tests/unit/build/test_build.py, for targets, commands, "
            "flags and identities of other compilers' builds; test_guest_environment.py, for musl's stacks"
        )
    ),
]

FAMILY = "clang-musl"
ATOMICS = """
#include <stdint.h>
#include <stdio.h>
/* Neighbours of the value must not change. Each function returns the previous value. */
#define TRY(type, function, before, with, after)                                              \\
    do {                                                                                      \\
        struct { type left, value, right; } at = {(type)-1, (type)(before), (type)-1};        \\
        type was = __sync_##function(&at.value, (type)(with));                                \\
        if (was != (type)(before) || at.value != (type)(after) || at.left != (type)-1 || at.right != (type)-1) { \\
            printf("%s of %zu bytes\\n", #function, sizeof(type));                             \\
            wrong = 1;                                                                        \\
        }                                                                                     \\
    } while (0)
#define SWAP(type, before, expected, with, after)                                             \\
    do {                                                                                      \\
        struct { type left, value, right; } at = {(type)-1, (type)(before), (type)-1};        \\
        type was = __sync_val_compare_and_swap(&at.value, (type)(expected), (type)(with));    \\
        if (was != (type)(before) || at.value != (type)(after) || at.left != (type)-1 || at.right != (type)-1) { \\
            printf("compare and swap of %zu bytes\\n", sizeof(type));                          \\
            wrong = 1;                                                                        \\
        }                                                                                     \\
    } while (0)
#define ALL(type)                                                                             \\
    TRY(type, fetch_and_add, (type)-2, 3, 1);                                                 \\
    TRY(type, fetch_and_sub, 1, 3, -2);                                                       \\
    TRY(type, fetch_and_and, 0x5a, 0x0f, 0x0a);                                               \\
    TRY(type, fetch_and_or, 0x50, 0x0f, 0x5f);                                                \\
    TRY(type, fetch_and_xor, 0x5a, 0x0f, 0x55);                                               \\
    TRY(type, fetch_and_nand, 0x5a, 0x0f, ~0x0a);                                             \\
    TRY(type, lock_test_and_set, 7, -9, -9);                                                  \\
    SWAP(type, 7, 7, -9, -9);                                                                 \\
    SWAP(type, 7, 8, -9, 7)
int main(void) {
    int wrong = 0;
    ALL(uint8_t);
    ALL(uint16_t);
    ALL(uint32_t);
    ALL(uint64_t);
    __sync_synchronize();
    puts(wrong ? "wrong" : "right");
    return 0;
}
"""
OWN_SYMBOLS = """
#include <dlfcn.h>
#include <stdio.h>
int answer(void) { return 42; }
int number = 7;
static int hidden(void) { return 1; }
int main(void) {
    void *self = dlopen(NULL, RTLD_NOW);
    int (*function)(void) = (int (*)(void))dlsym(self, "answer");
    int *object = dlsym(self, "number");
    printf("%d %d %d\\n", function ? function() : -1, object ? *object : -1, hidden());
    puts(dlsym(self, "hidden") ? "found" : dlerror());
    puts(dlsym(self, "environ") ? "found" : dlerror());
    puts(dlsym(NULL, "answer") ? "found" : dlerror());
    puts(dlopen("other.so", RTLD_NOW) ? "opened" : dlerror());
    printf("%d\\n", dlclose(self));
    return 0;
}
"""


def run_program(name: str, text: str, flags: list[str], folder: Path) -> str:
    """The output of a program that the family of compilers compiles for armv5."""
    bench = quiet_workbench().with_toolchain(FAMILY)
    setup = set_up_target(bench, bench.catalog.targets["armv5"])
    source = folder / f"{name}.c"
    source.write_text(text, "utf-8")
    program = compiled(
        bench.cache,
        setup.toolchain,
        title=name,
        kind="test-programs",
        owner="armv5",
        file=name,
        flags=[*setup.target.compiler_flags, "-O2", *flags],
        sources=[source],
    )
    return process.run(setup.runner("signal").command(program, []), deadline_seconds=60).text


def test_the_added_atomic_functions_are_right(tmp_path: Path) -> None:
    flags = ["-Wno-sync-fetch-and-nand-semantics-changed"]
    assert run_program("atomics", ATOMICS, flags, tmp_path) == "right\n"


@pytest.mark.parametrize("first", ["#include <dlfcn.h>", "#include <sys/types.h>"])
def test_a_static_program_finds_its_own_symbols_by_name_and_no_others(first: str, tmp_path: Path) -> None:
    """Musl's headers rename dlsym() on this machine if a header of types comes first."""
    said = run_program("own_symbols", f"{first}\n{OWN_SYMBOLS}", [], tmp_path).splitlines()
    assert said[0] == "42 7 1"
    assert said[1:] == [
        "Symbol not found: hidden",
        "found",
        "Symbol not found: answer",
        "Dynamic loading not supported",
        "0",
    ]


def test_threads_of_programs_with_musl_have_its_small_stacks(tmp_path: Path) -> None:
    bench = quiet_workbench().with_toolchain(FAMILY)
    setup = set_up_target(bench, bench.catalog.targets["armv5"])
    runner = setup.runner("signal", "musl-stack")
    program = environment_canary.compiled_canary(bench.cache, runner, setup.toolchain)
    assert runner.preloads == ()
    assert environment_canary.misbehaviour(program, runner, tmp_path) == ""


@pytest.mark.parametrize(("family", "target"), [(FAMILY, "armv5"), ("clang-glibc", "sparc32plus")])
def test_a_planted_misalignment_is_found_and_replayed_with_the_compiler_that_showed_it(
    family: str, target: str, tmp_path: Path
) -> None:
    read = document(
        run(
            *["check", "--toolchain", family, "--target", target, "--suite", "bitops", "--json"],
            *["--server", planted_tree(NO_WORD_BOUNDARY), "--run", tmp_path / "run", "--seed", "1"],
        )
    )
    assert (read["verdict"], read["toolchain"]) == ("FAIL", family)
    places = {(finding["file"], finding["function"]) for finding in read["findings"]}
    assert places == {("src/bitops.c", "redisPopcount")}
    words = shlex.split(read["findings"][0]["replay"])[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS
    assert run(*words, "--server", "redis-7.0.15", program=PLUMB).returncode == ExitCode.PASS


def test_a_demand_that_a_static_c_library_does_not_meet_is_refused(tmp_path: Path) -> None:
    chosen = ["--toolchain", FAMILY, "--target", "armv7", "--suite", "canary", "--policy", "strict"]
    refused = run("check", *chosen, "--run", tmp_path / "strict")
    assert refused.returncode == ExitCode.USAGE, refused.stderr
    assert "policy strict is not available on armv7" in refused.stderr
    audited = run("audit", *chosen, "--run", tmp_path / "audit")
    assert audited.returncode == ExitCode.PASS, audited.stdout


def test_a_check_that_a_compiler_drops_is_found(tmp_path: Path) -> None:
    """The bug is that of docs/found/zipmap-bound-dropped.md."""
    suites = ["--suite", "fuzz", "--test", "old_hashes", "--suite", "units", "--test", "zipmap_integrity"]
    words = ["check", "--target", "armv7", *suites, "--known", known_file(tmp_path), "--json", "--seed", "1"]
    read = document(run(*words, "--toolchain", FAMILY, "--run", tmp_path / "clang"))
    assert {finding["id"].removeprefix("sigsegv-zipmap") for finding in read["findings"]} <= {
        "ValidateIntegrity",
        "GetEncodedLengthSize",
    }
    assert {witness["suite"] for finding in read["findings"] for witness in finding["witnesses"]} == {"fuzz", "units"}
    assert document(run(*words, "--run", tmp_path / "gcc"))["verdict"] == "PASS"


def test_what_is_optimised_when_it_is_linked_is_watched_as_well(tmp_path: Path) -> None:
    read = document(
        run(
            *["check", "--optimisation", "O2-lto", "--target", "sparc64", "--suite", "bitops", "--suite", "units"],
            *["--server", planted_tree(NO_WORD_BOUNDARY), "--run", tmp_path / "run", "--seed", "1", "--json"],
        )
    )
    assert read["verdict"] == "FAIL"
    places = {finding["file"] for finding in read["findings"] if finding["kind"] == "alignment"}
    assert places == {"src/bitops.c"}
    assert {cell["suite"]: cell["passed"] for cell in read["cells"]}["units"] > 20
    words = shlex.split(next(one["replay"] for one in read["findings"] if one["kind"] == "alignment"))[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS


def test_a_check_for_overflow_that_a_compiler_drops_is_found(tmp_path: Path) -> None:
    """The bug is that of docs/found/expiry-overflow.md."""
    words = ["check", "--target", "aarch64", "--suite", "protocol", "--test", "expiry-2.4", "--json", "--seed", "1"]
    words += ["--known", str(known_file(tmp_path))]
    read = document(run(*words, "--toolchain", "clang-glibc", "--run", tmp_path / "clang"))
    assert [finding["id"] for finding in read["findings"]] == ["wrong-result-protocol_expiry.testsuite_expiry_2.4"]
    assert document(run(*words, "--run", tmp_path / "gcc"))["verdict"] == "PASS"
