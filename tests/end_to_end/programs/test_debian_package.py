"""plumb deb builds source packages for a target, and reports the results of their tests, or the step that failed.

The tests make the packages with dpkg-source, and store them in the cache as apt would. One test uses the archive.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.errors import ExitCode
from tests.end_to_end.programs.test_programs import FAULT_LINE, SOURCE, plumb
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

RELEASED, PATCHED = 1577836800, 1609459200
"""Times of files: Debian's patches are later than upstream's generated files."""
BUILDS = "all: odd\nodd: odd.c\n\t$(CC) -O1 -pthread -o $@ $<\n"
CONFIGURE = """\
#!/bin/sh
# The parts of a script by GNU Autoconf that matter here.
. "$CONFIG_SITE"
# make would generate the script again.
test ! configure.ac -nt configure || exit 1
# Whether libraries are shared is for the package to decide.
test -z "$*" && test -n "$host_alias" || exit 1
printf 'all: odd\\nodd: odd.c\\n\\t%s -pthread -o odd odd.c\\ntest: odd\\n\\t./odd\\n' "$CC" > Makefile
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(odd C)
find_package(Threads REQUIRED)
add_executable(odd odd.c)
target_link_libraries(odd Threads::Threads)
enable_testing()
add_test(NAME clean COMMAND odd clean)
"""

MESON = """\
project('odd', 'c')
odd = executable('odd', 'odd.c', dependencies: dependency('threads'))
# Natively it would have ended in time.
test('late', find_program('sh'), args: ['-c', 'sleep 1.5; exec "$0"', odd], timeout: 1)
"""


def package(files: Mapping[str, str], *, broken: bool = False) -> str:
    """Make a source package of these files in the cache. Returns its name and version."""
    version = f"1.0.{int(key_of([*files, *files.values(), str(broken)]), 16) % 10**9}"

    def make(into: Path) -> None:
        tree = into / f"odd-{version}"
        content = {
            "odd.c": SOURCE,
            "debian/source/format": "3.0 (native)\n",
            "debian/control": "Source: odd\nMaintainer: a <a@example.org>\n\nPackage: odd\nArchitecture: any\n",
            "debian/changelog": f"odd ({version}) x; urgency=low\n\n  * -\n\n"
            " -- a <a@example.org>  Thu, 01 Jan 2026 00:00:00 +0000\n",
            **files,
        }
        for name, text in content.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text, "utf-8")
            (tree / name).chmod(0o755 if name == "configure" else 0o644)
            # dpkg-source preserves times up to that of the changelog.
            stamp = PATCHED if name == "configure.ac" else RELEASED
            os.utime(tree / name, (stamp, stamp))
        subprocess.run(["dpkg-source", "--build", tree.name], cwd=into, check=True, capture_output=True)
        shutil.rmtree(tree)
        if broken:
            (archive,) = into.glob("*.tar.*")
            archive.write_bytes(archive.read_bytes() + b"more")

    Cache.default().folder("debian-sources", f"bookworm-odd-{version}", make)
    return f"odd={version}"


def built(folder: Path, name: str, *options: str) -> tuple[int, dict[str, Any]]:
    finished = plumb(folder, "deb", "--target", "armv5", "--offline", "--json", *options, name)
    assert finished.stdout.startswith("{"), finished.stderr
    return finished.returncode, json.loads(finished.stdout)


def test_a_fault_in_the_tests_of_a_package_is_a_finding_that_replays(tmp_path: Path) -> None:
    # Like libbfio's, the test takes the program's name from the folder that the authors' archive has.
    name = package({"Makefile": f"{BUILDS}check: odd\n\t./$$(basename $$PWD | sed 's/-.*//') exec\n"})
    code, found = built(tmp_path, name, "--into", "tree")
    assert code == ExitCode.FINDINGS
    (finding,) = found["findings"]
    assert (finding["id"], finding["file"], finding["line"]) == ("alignment-odd_load-load", "odd.c", FAULT_LINE)
    assert finding["origin"] == "program"
    assert found["remarks"][0] == f"the package is bookworm/{name} of Debian, built by make"
    assert (tmp_path / "tree" / name.replace("=", "-") / "odd").is_file()
    again = plumb(tmp_path, "replay", finding["replay"].rpartition(" ")[2])
    assert again.returncode == ExitCode.FINDINGS, again.stdout + again.stderr


@pytest.mark.parametrize(
    ("files", "system"),
    [
        ({"Makefile": f"{BUILDS}.PHONY: test\ntest: odd\n\t./odd\n", "check/data": ""}, "make"),
        machines.beyond({"configure": CONFIGURE, "configure.ac": "# as Debian patched it"}, "configure"),
        machines.beyond({"CMakeLists.txt": CMAKE}, "cmake"),
        machines.beyond({"meson.build": MESON}, "meson"),
    ],
    ids=["make", "configure", "cmake", "meson"],
)
def test_a_package_whose_tests_pass_on_the_target_passes(tmp_path: Path, files: dict[str, str], system: str) -> None:
    name = package(files)
    code, found = built(tmp_path, name)
    assert (code, found["findings"]) == (ExitCode.PASS, []), found
    assert found["remarks"][0].endswith(f"built by {system}")
    assert any(remark.startswith("1 execution below the command") for remark in found["remarks"]), found["remarks"]
    assert (tmp_path / f"{name.replace('=', '-')}-armv5" / "stage").read_text("utf-8") == "done\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        machines.beyond({"Makefile": BUILDS}, "neither a goal `check` nor a goal `test`"),
        machines.beyond(
            {"Makefile": BUILDS, "odd.c": "int main(void) { return 0 }\n"}, "does not build for the target"
        ),
        machines.beyond({"configure": "#!/bin/sh\nexit 1\n"}, "could not be configured"),
        # A build whose tests run only host programs proves nothing about the target.
        machines.beyond({"Makefile": f"{BUILDS}check:\n\ttrue\n"}, "no program of armv5 ran below it"),
        # Nor does a program that the build itself runs.
        ({"Makefile": f"{BUILDS}\t./odd\ncheck:\n\ttrue\n"}, "no program of armv5 ran in its tests"),
        # A folder is no test.
        machines.beyond(
            {"Makefile": f"{BUILDS}\t./odd\n", "test/data": ""}, "neither a goal `check` nor a goal `test`"
        ),
    ],
    ids=["untested", "broken", "unconfigured", "elsewhere", "while it was built", "folder"],
)
def test_a_package_of_which_nothing_ran_is_unknown_with_a_reason(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    code, found = built(tmp_path, package(files))
    assert (code, found["verdict"], found["findings"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN", [])
    reasons = [*found["remarks"], *(cell["reason"] for cell in found["cells"])]
    assert any(expected in reason for reason in reasons), reasons


def test_a_file_that_does_not_match_its_description_is_refused(tmp_path: Path) -> None:
    finished = plumb(tmp_path, "deb", "--target", "armv5", "--offline", package({"Makefile": BUILDS}, broken=True))
    assert finished.returncode == ExitCode.INFRASTRUCTURE
    assert "dpkg-source does not unpack bookworm/odd=" in finished.stderr


LIBRARY = {
    "twice.h": "int twice(const char *bytes);\n",
    "twice.c": "int twice(const char *bytes) { return 2 * *(volatile int *)bytes; }\n",
    "Makefile": """\
all: libtwice.so
libtwice.so: twice.c
\t$(CC) -O1 -shared -fPIC -o $@ $<
install:
\tinstall -D libtwice.so $(DESTDIR)$(LIBDIR)/libtwice.so.1
\tln -s $(LIBDIR)/libtwice.so.1 $(DESTDIR)$(LIBDIR)/libtwice.so
\tinstall -D -m 644 twice.h $(DESTDIR)$(PREFIX)/include/twice.h
""",
}
USER = """\
#include <stdio.h>
#include <twice.h>

static char bytes[] __attribute__((aligned(8))) = {0, 0, 0, 0, 0, 0, 0, 21};

int main(int argc, char **argv)
{
    (void)argv;
    printf("%d\\n", twice(bytes + argc));
    return 0;
}
"""


def test_a_library_that_debian_lacks_for_the_target_is_built_from_its_source_first(tmp_path: Path) -> None:
    (tmp_path / "user.c").write_text(USER, "utf-8")
    # The cache has that of an earlier run.
    name = package({**LIBRARY, "README": str(time.time_ns())})
    compiling = "$CC -O1 -o user user.c -ltwice && ./user x x x > said; ./user > /dev/null; true"
    words = ["exec", "--target", "sparc64", "--offline", "--json", "--with", name, "--", "sh", "-c", compiling]
    finished = plumb(tmp_path, *words)
    assert finished.returncode == ExitCode.FINDINGS, finished.stderr
    assert f"Debian has no libraries for sparc64: bookworm/{name} are built for it first" in finished.stderr
    assert (tmp_path / "said").read_text("utf-8") == f"{2 * 21}\n"
    (finding,) = json.loads(finished.stdout)["findings"]
    assert (finding["id"], finding["function"]) == ("alignment-twice-load", "twice")
    # It is kept.
    assert "built for it first" not in plumb(tmp_path, *words).stderr


def test_a_library_that_does_not_build_for_the_target_is_no_verdict_about_the_command(tmp_path: Path) -> None:
    for files, told in (
        ({**LIBRARY, "twice.c": "int twice(\n"}, "does not build for sparc64"),
        ({**LIBRARY, "Makefile": "all:\ninstall:\n"}, "installs no header file"),
    ):
        words = ["--target", "sparc64", "--offline", "--with", package(files)]
        finished = plumb(tmp_path, "exec", *words, "--", "true")
        assert (finished.returncode, told in finished.stderr) == (ExitCode.INFRASTRUCTURE, True), finished.stderr


@pytest.mark.slow(instead="the other tests of test_debian_package.py, on packages that they make")
def test_a_package_of_the_archive_is_fetched_and_its_tests_pass(tmp_path: Path) -> None:
    """A third party's release, as apt fetches and verifies it."""
    finished = plumb(tmp_path, "deb", "--target", "sparc64", "--json", "zlib")
    assert finished.returncode == ExitCode.PASS, finished.stderr
    found = json.loads(finished.stdout)
    assert found["findings"] == []
    assert any(remark.startswith("9 executions below the command") for remark in found["remarks"]), found["remarks"]
    assert plumb(tmp_path, "deb", "--target", "sparc64", "no-such-package").returncode == ExitCode.USAGE
