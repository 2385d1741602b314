"""The first failure in the output of make: messages of a compiler, a linker or a shell come before those of make."""

from __future__ import annotations

import pytest

from harness.analysis.compiler_output import complaints, first_error

MAKES = "make[2]: *** [Makefile:9: lapi.o] Error 1\nmake[1]: *** Waiting for unfinished jobs....\n"
"""Messages of make about another job's failure, which may precede the compiler's messages."""


@pytest.mark.parametrize(
    ("output", "first"),
    [
        (
            "gcc -c x.c\nx.c:3:5: error: boom\n    3 | boom\n      | ^~~~\n",
            "x.c:3:5: error: boom\n    3 | boom\n      | ^~~~",
        ),
        ("z.h:5:10: fatal error: jemalloc.h: No such file or directory\n", "z.h:5:10: fatal error: jemalloc.h"),
        ("gcc: error: unrecognized command-line option '-mfoo'\n", "gcc: error: unrecognized"),
        (
            "{standard input}: Assembler messages:\n{standard input}:7: Error: bad instruction `ldx'\n",
            "{standard input}:7",
        ),
        (
            "/usr/bin/ld: a.o: in function `f':\na.c:9: undefined reference to `g'\n",
            "a.c:9: undefined reference to `g'",
        ),
        ("/usr/bin/ld: cannot find -latomic: No such file or directory\n", "/usr/bin/ld: cannot find -latomic"),
        ("collect2: fatal error: ld terminated with signal 9\n", "collect2: fatal error"),
        ("arm-linux-gnueabi-ar: lua.a: file format not recognized\n", "arm-linux-gnueabi-ar: lua.a"),
        (
            "ar: `u' modifier ignored since `D' is the default (see `U')\nb.c:7: undefined reference to `g'\n",
            "b.c:7: undefined reference",
        ),
        ("configure: error: cannot run C compiled programs\n", "configure: error: cannot run"),
        ("sh: 1: ./mkreleasehdr.sh: not found\n", "sh: 1: ./mkreleasehdr.sh: not found"),
        ("make[1]: armgcc: No such file or directory\n", "make[1]: armgcc: No such file"),
        ("Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n", "ModuleNotFoundError"),
    ],
)
def test_the_first_error_is_that_of_the_failed_program_and_not_of_make(output: str, first: str) -> None:
    end = "collect2: error: ld returned 1 exit status\nmake: *** [Makefile:4: redis-server] Error 1\n"
    found = first_error(output + end)
    assert found.startswith(first)
    assert "***" not in found
    assert "ld returned" not in found


@pytest.mark.parametrize("line", ["x.c:3:5: error: boom", "/usr/bin/ld: cannot find -lm", "ar: x.a: bad value"])
def test_makes_message_about_another_job_is_skipped(line: str) -> None:
    assert first_error(f"{MAKES}{line}\nmake: *** [Makefile:1: all] Error 2\n") == line


@pytest.mark.parametrize(
    "line",
    [
        "Makefile:9: *** missing separator.  Stop.",
        "make[1]: *** No rule to make target 'a.o', needed by 'redis-server'.  Stop.",
    ],
)
def test_makes_own_error_is_recognised(line: str) -> None:
    assert first_error(f"gcc -c x.c\n{line}\nmake: *** [Makefile:1: all] Error 2\n") == line


def test_a_shells_message_in_a_successful_recipe_is_not_the_first_error() -> None:
    output = "cat: .make-prerequisites: No such file or directory\ngcc -c x.c\nsh: 1: tclsh: not found\n"
    assert first_error(f"{output}make: *** [Makefile:1: all] Error 127\n") == "sh: 1: tclsh: not found"
    assert first_error("cat: a: No such file or directory\nx.c:1:1: error: boom\n") == "x.c:1:1: error: boom"


def test_a_warning_that_mentions_errors_is_not_an_error() -> None:
    output = "x.c:1:1: warning: error: not so [-Wfoo]\nld: warning: x.o: missing .note\nx.c:2:1: error: boom\n"
    assert first_error(output) == "x.c:2:1: error: boom"


QUOTED = [
    pytest.param('   15 |   "because of OS error: %s.",\n      |   ~~~~^~~~~~~~\n', id="gcc"),
    pytest.param('  "because of OS error: %s.",\n   ~~~~^~~~~~~~\n', id="clang"),
]


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_line_of_the_source_that_a_warning_quotes_is_not_an_error(quoted: str) -> None:
    error = "h.h:14:30: error: unknown type name 'siginfo_t'"
    output = f"x.c:15:4: warning: format '%llu' [-Wformat=]\n{quoted}{error}\n"
    assert first_error(output) == error
    assert complaints(output) == {error}


def test_a_note_is_not_an_error() -> None:
    note = "x.c:1:1: note: in expansion of macro 'error: '\n"
    assert first_error(f"{note}x.c:2:1: error: boom\n") == "x.c:2:1: error: boom"


@pytest.mark.parametrize(
    "before",
    ["aarch64-linux-gnu-ar: creating libfast_float.a", "ar: x.a: bad value", "strip: unable to copy file 'x'"],
)
def test_the_compilers_error_is_named_before_what_other_tools_said_earlier(before: str) -> None:
    assert first_error(f"{before}\nbitops.c:20:1: error: boom\n{MAKES}") == "bitops.c:20:1: error: boom"


def test_an_archiver_that_creates_an_archive_does_not_complain() -> None:
    created = "aarch64-linux-gnu-ar: creating libfast_float.a\n"
    assert complaints(f"{created}bitops.c:20:1: error: boom\n") == {"bitops.c:20:1: error: boom"}
    assert first_error(f"{created}sh: 1: tclsh: not found\n{MAKES}") == "sh: 1: tclsh: not found"


def test_of_unknown_output_the_last_lines_are_reported_without_makes() -> None:
    assert first_error("one\ntwo\nmake: *** [Makefile:1: all] Error 1\n") == "one\ntwo"
    assert first_error("make: *** [Makefile:1: all] Error 1\n") == "make: *** [Makefile:1: all] Error 1"


def test_two_machines_complaints_are_equal_without_folders_and_tools() -> None:
    cross = (
        "/cache/work/a/tree/src/x.c:3:5: error: boom\narm-linux-gnueabi-gcc: error: no -mfoo\n"
        "/usr/lib/gcc-cross/arm-linux-gnueabi/12/../bin/ld: x.o:(.text+0x14): undefined reference to `g'\n"
    )
    native = (
        "/cache/work/b/tree/src/x.c:3:5: error: boom\ngcc: error: no -mfoo\n"
        "/usr/bin/ld: x.o:(.text+0x9): undefined reference to `g'\ny.c:1:1: error: more\n"
    )
    assert complaints(cross) < complaints(native)
    assert len(complaints(cross)) == 3
    assert not complaints("x.c:3:5: error: of the target alone\n") <= complaints(native)
    stopped, went_on = (f"make: *** No rule to make target 'x.c', needed by 'a'.{end}\n" for end in ("  Stop.", ""))
    assert complaints(stopped) == complaints(went_on), "make -k asks for all errors of the native build"
    assert complaints("sh: 1: tclsh: not found\nmake: *** [Makefile:1: all] Error 127\n") == {"sh: 1: tclsh: not found"}


IGNORED = """\
make[1]: Entering directory '/w/src/unit'
Makefile:106: *** googletest not found. Install gtest or set GTEST_LIBS explicitly.  Stop.
make[1]: Leaving directory '/w/src/unit'
make: [Makefile:787: distclean] Error 2 (ignored)
"""
"""Valkey 9's makefile cleans its tests before it compiles the server, and continues."""


@pytest.mark.parametrize("ignored", [IGNORED, IGNORED.replace("Makefile:787: ", "")])
def test_a_failure_that_the_makefile_ignores_is_not_what_failed(ignored: str) -> None:
    failed = f"{ignored}server.c:9:1: error: boom\nmake: *** [Makefile:1: server.o] Error 1\n"
    assert first_error(failed) == "server.c:9:1: error: boom"
    assert complaints(failed) == {"server.c:9:1: error: boom"}
    not_ignored = failed.replace(" (ignored)", "").replace("make: [", "make: *** [")
    assert "googletest not found" in first_error(not_ignored)


def test_what_follows_makes_message_does_not_belong_to_the_error() -> None:
    output = "x.c:3: error: boom\nmake[1]: *** [Makefile:9: x.o] Error 1\ngcc -c y.c\n"
    assert first_error(output) == "x.c:3: error: boom"
