"""Debian's source packages: their names, the build of a tree, and requests that are refused before the build."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.build.sources.debian_source import SourcePackage, source_named, version_in
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.workflows.programs import build_system, debian_rules
from harness.workflows.programs.debian_package import lacking_tools
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fakes import Plumb

TARGET = ("--target", "sparc64")


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("zlib", SourcePackage(suite="bookworm", name="zlib")),
        ("sid/lua5.4", SourcePackage(suite="sid", name="lua5.4")),
        ("debian:trixie/libsigc++-2.0", SourcePackage(suite="trixie", name="libsigc++-2.0")),
        ("zlib=1:1.2.13.dfsg-1", SourcePackage(suite="bookworm", name="zlib", version="1:1.2.13.dfsg-1")),
    ],
)
def test_a_source_package_is_named_by_suite_name_and_version(text: str, package: SourcePackage) -> None:
    assert source_named(text) == package


@pytest.mark.parametrize(
    "text", ["", "../zlib", "a/b/c", "zlib=", "zlib=$(id)", "-o", "zlib=../x", "Zlib", "zlib x", "-o=1", "b/-o", "/etc"]
)
def test_an_invalid_package_name_is_refused_before_apt_gets_it(text: str) -> None:
    with pytest.raises(UsageError, match="names no package") as caught:
        source_named(text)
    assert "bookworm/zlib" in str(caught.value)


INDEX = """\
Package: aboot
Version: 1.0~pre20040408-4
Extra-Source-Only: yes

Package: aboot
Version: 1.0-10
Build-Depends: other (>= 2)

Package: aboot
Version: 1.0-9

"""


def test_a_suite_has_the_newest_of_the_versions_that_its_index_lists() -> None:
    """Hundreds of packages in sid have several versions."""
    assert version_in(INDEX) == "1.0-10"
    assert version_in(INDEX.replace("1.0-9", "1:0.1-1")) == "1:0.1-1"
    assert version_in("") == ""


def test_a_folder_has_no_epoch_in_its_name() -> None:
    package = SourcePackage(suite="s", name="zlib", version="1:1.2.13.dfsg-1+b1~x")
    assert package.file_name == "zlib-1.2.13.dfsg-1+b1~x"
    assert SourcePackage(suite="s", name="lz4", version="1.9.4-1").file_name == "lz4-1.9.4-1"


@pytest.mark.parametrize(
    ("version", "name"), [("1:1.2.13.dfsg-1+b1", "a-b-1.2.13.dfsg"), ("2.0-rc1-3", "a-b-2.0-rc1"), ("3", "a-b-3")]
)
def test_a_tree_is_named_after_its_authors_version(version: str, name: str) -> None:
    assert SourcePackage(suite="s", name="a-b", version=version).tree_name == name


@pytest.mark.parametrize(
    ("files", "named", "system"),
    [
        (["configure", "configure.ac", "CMakeLists.txt", "Makefile"], "", "configure"),
        (["configure.ac", "CMakeLists.txt"], "", "autoreconf"),
        (["CMakeLists.txt", "Makefile"], "", "cmake"),
        (["CMakeLists.txt", "Makefile"], "make", "make"),
        (["GNUmakefile"], "", "make"),
    ],
)
def test_a_tree_is_built_by_the_first_system_that_it_has_or_by_the_named_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], named: str, system: str
) -> None:
    every_tool(tmp_path / "bin", monkeypatch)
    for name in files:
        fakes.write(tmp_path / "tree" / name, "")
    found = build_system.detect(tmp_path / "tree", named)
    assert (found.system.name, found.folder) == (system, "")


@pytest.mark.parametrize(
    ("files", "rules", "folder"),
    [
        (["libraries/liblmdb/Makefile", "tests/Makefile"], "", "libraries/liblmdb"),
        (["unix/configure", "win/configure"], "override_dh_auto_build:\n\tcd unix && make\n", "unix"),
        (["build/cmake/CMakeLists.txt", "lib/Makefile"], "\tdh $@ --sourcedirectory=lib/\n", "lib"),
        # What another folder's build system includes is not a tree of its own.
        (["nspr/configure", "nspr/lib/Makefile"], "", "nspr"),
    ],
)
def test_a_build_system_below_the_top_folder_is_found_if_it_is_the_only_one_or_the_rules_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], rules: str, folder: str
) -> None:
    every_tool(tmp_path / "bin", monkeypatch)
    for name in files:
        fakes.write(tmp_path / "tree" / name, "")
    fakes.write(tmp_path / "tree" / "debian" / "rules", rules)
    assert build_system.detect(tmp_path / "tree").folder == folder


@pytest.mark.parametrize(
    ("patched", "named", "system"),
    [
        ("configure.ac", "", "autoreconf"),
        ("configure.in", "", "autoreconf"),
        ("configure.ac", "configure", "configure"),
        ("src/a.c", "", "configure"),
        ("doc/configure.ac", "", "configure"),
    ],
)
def test_a_configure_script_is_generated_again_if_debian_patches_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patched: str, named: str, system: str
) -> None:
    """Without what Debian adds to configure.ac, fuse does not compile with the GNU C library of today."""
    every_tool(tmp_path / "bin", monkeypatch)
    for name in ("configure", "configure.ac"):
        fakes.write(tmp_path / "tree" / name, "")
    fakes.write(
        tmp_path / "tree" / "debian" / "patches" / "one.patch", f"--- a/{patched}\n+++ b/{patched}\n@@ -1 +1 @@\n"
    )
    assert build_system.detect(tmp_path / "tree", named).system.name == system


def test_several_build_systems_below_the_top_folder_are_named_and_none_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_tool(tmp_path / "bin", monkeypatch)
    for name in ("unix/configure", "win/configure"):
        fakes.write(tmp_path / name, "")
    with pytest.raises(UsageError, match="no known build system") as caught:
        build_system.detect(tmp_path)
    assert "several folders below it have one: unix, win" in " ".join(str(caught.value).split())


def test_a_script_that_builds_in_a_folder_of_the_tree_writes_its_stage_beside_the_tree(tmp_path: Path) -> None:
    (system,) = (one for one in build_system.SYSTEMS if one.name == "make")
    fakes.write(tmp_path / "source" / "a" / "b" / "Makefile", "all:\ncheck: ; echo tested > result\n")
    fakes.write(tmp_path / "script", build_system.script_of(system, folder="a/b"))
    subprocess.run(["sh", "../script"], cwd=tmp_path / "source", check=True, capture_output=True)
    assert (tmp_path / "stage").read_text("utf-8") == "done\n"
    assert (tmp_path / "testing").is_file()
    assert (tmp_path / "source" / "a" / "b" / "result").is_file()


RULES = """\
#!/usr/bin/make -f
export USE_VALGRIND=0
export LC_ALL := C.UTF-8   # for the tests
export GREETING = it's "two" words
export CC = gcc
export CFLAGS = -O3
export DEB_BUILD_MAINT_OPTIONS = hardening=+all
export TOP = $(CURDIR)/debian
export LONG = one \\
  two
ifeq ($(DEB_HOST_ARCH_OS),hurd)
export with_pcap=hurd
else
export with_pcap=linux
endif
override_dh_auto_test:
\texport IN_A_RECIPE=1; make check
export LAST ?= 1
"""


def test_the_build_has_the_plain_variables_that_the_rules_of_the_package_export(tmp_path: Path) -> None:
    """The tests of json-c use the host's valgrind, which cannot run them, unless USE_VALGRIND is 0."""
    assert debian_rules.variables_of_rules(tmp_path) == {}
    fakes.write(tmp_path / "source" / "debian" / "rules", RULES)
    found = debian_rules.variables_of_rules(tmp_path / "source")
    assert found == {"USE_VALGRIND": "0", "LC_ALL": "C.UTF-8", "GREETING": 'it\'s "two" words', "LAST": "1"}
    (system,) = (one for one in build_system.SYSTEMS if one.name == "make")
    fakes.write(tmp_path / "source" / "Makefile", 'all:\ncheck: ; echo "$$USE_VALGRIND $$GREETING" > result\n')
    fakes.write(tmp_path / "script", build_system.script_of(system, variables=found))
    for given, told in (({}, "0"), ({"USE_VALGRIND": "1"}, "1")):
        environment = {"PATH": os.environ["PATH"], **given}
        subprocess.run(["sh", "../script"], cwd=tmp_path / "source", env=environment, check=True, capture_output=True)
        assert (tmp_path / "source" / "result").read_text("utf-8") == f'{told} it\'s "two" words\n'


@pytest.mark.parametrize(
    ("makefile", "tested"),
    [
        ("check: ; echo check > result\ntest: ; echo test > result\n", "check"),
        # What Automake writes for a tree without tests of its own kind, as of memcached.
        ("check-am:\ncheck: check-am ; echo check > result\ntest: ; echo test > result\n", "test"),
        ("check-am:\ncheck: check-am ; echo check > result\n", "check"),
        ("check-am: check-TESTS\ncheck-TESTS:\ncheck: ; echo check > result\ntest: ; echo test > result\n", "check"),
    ],
    ids=["plain", "without tests", "without a goal", "with tests"],
)
def test_the_goal_that_runs_tests_is_made(tmp_path: Path, makefile: str, tested: str) -> None:
    (system,) = (one for one in build_system.SYSTEMS if one.name == "make")
    fakes.write(tmp_path / "source" / "Makefile", f"all:\n{makefile}")
    fakes.write(tmp_path / "script", build_system.script_of(system))
    subprocess.run(["sh", "../script"], cwd=tmp_path / "source", check=True, capture_output=True)
    assert (tmp_path / "source" / "result").read_text("utf-8") == f"{tested}\n"


def every_tool(folder: Path, monkeypatch: pytest.MonkeyPatch, *, but: str = "") -> None:
    """A PATH with the tools of every build system and nothing else."""
    for system in build_system.SYSTEMS:
        for tool in system.tools:
            if tool != but:
                fakes.write(folder / tool, "", mode=0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_a_tree_without_a_build_system_is_refused_with_advice(tmp_path: Path) -> None:
    fakes.write(tmp_path / "setup.py", "")
    with pytest.raises(UsageError, match="no known build system") as caught:
        build_system.detect(tmp_path)
    assert f"cd {tmp_path} && plumb exec" in str(caught.value)
    fakes.write(tmp_path / "Makefile", "")
    with pytest.raises(UsageError, match="no build system cmake") as caught:
        build_system.detect(tmp_path, "cmake")
    assert "has none of: CMakeLists.txt" in str(caught.value)


def test_a_missing_tool_is_reported_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write(tmp_path / "tree" / "meson.build", "")
    every_tool(tmp_path / "bin", monkeypatch, but="ninja")
    with pytest.raises(InfrastructureError, match="built by meson, which is not installed") as caught:
        build_system.detect(tmp_path / "tree")
    assert caught.value.remedy.endswith(" ninja-build")


@pytest.mark.parametrize("system", build_system.SYSTEMS, ids=build_system.NAMES)
def test_the_script_of_a_build_system_is_valid(system: build_system.BuildSystem) -> None:
    text = build_system.script_of(system)
    checked = subprocess.run(["sh", "-n"], input=text, capture_output=True, encoding="utf-8", check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    stages = [line.split()[1] for line in text.splitlines() if line.startswith("echo ") and line.endswith("> ../stage")]
    assert [stage for stage in stages if stage != "untested"][:3] == ["configure", "build", "test"]
    assert set(stages) <= set(build_system.STAGES)


UNMET = (
    "dpkg-checkbuilddeps: error: Unmet build dependencies: debhelper-compat (= 13) libbsd-dev (>= 0.1.3) bsdmainutils "
    "dh-exec quilt libtinfo-dev | libncurses-dev python3:any (>= 3.9) tcl | tclsh"
)


def test_tools_of_the_packages_build_that_are_missing_here_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lacking_tools(tmp_path) == []
    fakes.write(tmp_path / "bin" / "dpkg-checkbuilddeps", f"#!/bin/sh\necho '{UNMET}' >&2\nexit 1\n", mode=0o755)
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    assert lacking_tools(tmp_path) == ["bsdmainutils", "python3", "tcl"]


def test_without_dpkg_source_nothing_is_fetched(plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write(tmp_path / "bin" / "apt-get", "", mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    code, _, err = plumb("deb", *TARGET, "zlib")
    assert code == ExitCode.INFRASTRUCTURE
    assert "apt-get install --yes --no-install-recommends dpkg-dev" in err


@pytest.fixture
def with_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("apt-get", "dpkg-source"):
        fakes.write(tmp_path / "bin" / name, "#!/bin/sh\nexit 1\n", mode=0o755)
    fakes.put_on_path(tmp_path / "bin", monkeypatch)


@pytest.mark.usefixtures("with_tools")
def test_offline_only_fetched_packages_can_be_built(plumb: Plumb) -> None:
    code, _, err = plumb("deb", *TARGET, "--offline", "zlib")
    assert (code, "no index of bookworm" in err) == (ExitCode.INFRASTRUCTURE, True)
    code, _, err = plumb("deb", *TARGET, "--offline", "zlib=1:1.2.13")
    assert (code, "the source of bookworm/zlib=1:1.2.13 is not in the cache" in err) == (ExitCode.INFRASTRUCTURE, True)


@pytest.mark.usefixtures("with_tools")
def test_a_folder_that_is_not_empty_is_left_unchanged(plumb: Plumb, tmp_path: Path) -> None:
    precious = fakes.write(tmp_path / "here" / "zlib-1.2-sparc64" / "precious", "")
    for words in ((), ("--into", str(precious.parent)), ("--into", str(precious))):
        code, _, err = plumb("deb", *TARGET, "--offline", "zlib=1.2", *words)
        assert (code, "is not empty" in err) == (ExitCode.USAGE, True)
    assert [path.name for path in precious.parent.iterdir()] == ["precious"]


@pytest.mark.parametrize(("suite", "other"), [("bookworm", "trixie"), ("trixie", "bookworm")])
def test_a_package_that_cannot_be_fetched_names_another_suite_and_leaves_no_folder(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str, other: str
) -> None:
    apt = '#!/bin/sh\ncase " $* " in *" source "*) echo "E: 404 Not Found" && exit 100;; esac\n'
    for name, script in (("apt-get", apt), ("dpkg-source", "#!/bin/sh\nexit 1\n")):
        fakes.write(tmp_path / "bin" / name, script, mode=0o755)
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    code, _, err = plumb("deb", *TARGET, f"{suite}/zlib=1.2")
    assert code == ExitCode.INFRASTRUCTURE
    assert f"name another suite, such as {other}/zlib" in " ".join(err.split())
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("system", build_system.SYSTEMS, ids=build_system.NAMES)
def test_the_package_decides_whether_it_builds_shared_libraries(system: build_system.BuildSystem) -> None:
    """The tests of acl preload a library of their own, and failed without it as if acl were wrong."""
    assert not re.search("shared|static|default_library", build_system.script_of(system), re.IGNORECASE)


@pytest.mark.parametrize("system", build_system.SYSTEMS, ids=build_system.NAMES)
def test_options_are_passed_to_what_configures_a_tree_or_refused(system: build_system.BuildSystem) -> None:
    options = ["--without-curses", "CFLAGS=-O1 -g"]
    if build_system.OPTIONS not in system.configure:
        with pytest.raises(UsageError, match="is not configured"):
            build_system.script_of(system, options)
        return
    assert " --without-curses 'CFLAGS=-O1 -g'" in build_system.script_of(system, options)
    assert build_system.OPTIONS not in build_system.script_of(system)


@pytest.mark.parametrize("system", build_system.SYSTEMS, ids=build_system.NAMES)
def test_every_build_system_installs_libraries_where_the_target_looks_for_them(
    system: build_system.BuildSystem,
) -> None:
    text = build_system.installing_script(system, "lib/sparc64-linux-gnu", {"WITH": "a b"})
    checked = subprocess.run(["sh", "-n"], input=text, capture_output=True, encoding="utf-8", check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert re.search(r"(?i)libdir=(/usr/)?lib/sparc64-linux-gnu", text)
    assert re.search(r"(?i)prefix=/usr\b", text)
    assert "WITH='a b'; export WITH" in text
    assert not re.search(r"@[A-Z]+@|{\w+}", text)


@pytest.mark.parametrize("system", build_system.SYSTEMS, ids=build_system.NAMES)
def test_words_for_make_are_passed_to_the_build_and_the_tests_or_refused(
    tmp_path: Path, system: build_system.BuildSystem
) -> None:
    """Lua builds nothing without a goal that names a platform."""
    words = ["linux", "MYCFLAGS=-DA -DB"]
    if build_system.MAKE not in system.build:
        with pytest.raises(UsageError, match="is not built by make"):
            build_system.script_of(system, make=words)
        return
    assert build_system.MAKE not in build_system.script_of(system)
    makefile = "none:\nlinux: ; echo '$(MYCFLAGS)' >> result\ncheck: linux ; echo tested >> result\n"
    fakes.write(tmp_path / "source" / "Makefile", makefile)
    fakes.write(tmp_path / "source" / "configure", "#!/bin/sh\n", mode=0o755)
    script = build_system.script_of(system, make=words).replace("autoreconf --force", ": ")
    fakes.write(tmp_path / "script", script)
    subprocess.run(["sh", "../script"], cwd=tmp_path / "source", check=True, capture_output=True)
    built, again, tested = (tmp_path / "source" / "result").read_text("utf-8").splitlines()
    assert (built, again, tested) == ("-DA -DB", "-DA -DB", "tested")


STEPS = """\
override_dh_auto_configure:
\techo "$(DEB_HOST_MULTIARCH)" > machine
override_dh_auto_build-arch:
\t$(MAKE) linux
# Debian's own tools are not installed here.
override_dh_auto_install:
\tdh_auto_install -- x
ifeq (,$(filter nocheck,$(DEB_BUILD_OPTIONS)))
override_dh_auto_test:
\ttrue
ifeq ($(DEB_HOST_ARCH),amd64)
\tdh_auto_test -- x
endif
endif
"""


def test_commands_of_the_rules_prepare_and_build_a_tree_that_has_a_makefile_alone(tmp_path: Path) -> None:
    """Lua's makefile builds nothing without a goal, and includes a file that debian/rules writes."""
    tree = tmp_path / "source"
    assert debian_rules.steps_of_rules(tree) == {}
    fakes.write(tree / "debian" / "rules", STEPS)
    steps = debian_rules.steps_of_rules(tree)
    assert steps == {"configure": "override_dh_auto_configure", "build": "override_dh_auto_build-arch"}
    system = {one.name: one for one in build_system.SYSTEMS}
    makefile = "CC = host\nnone: ; false\nlinux: machine ; echo $(CC) > built\ncheck: built ; echo tested > result\n"
    fakes.write(tree / "Makefile", makefile)
    fakes.write(tmp_path / "script", build_system.script_of(system["make"], steps=steps))
    environment = {"PATH": os.environ["PATH"], "CC": "target-gcc", "HOST_TRIPLET": "sparc64-linux-gnu"}
    subprocess.run(["sh", "../script"], cwd=tree, env=environment, check=True, capture_output=True)
    contents = {name: (tree / name).read_text("utf-8").strip() for name in ("machine", "built", "result")}
    assert contents == {"machine": "sparc64-linux-gnu", "built": "target-gcc", "result": "tested"}
    # A configure script knows, and the folder of another build system is not where they run.
    assert "debian/rules" not in build_system.script_of(system["configure"], steps=steps)
    assert "debian/rules" not in build_system.script_of(system["make"], folder="src", steps=steps)


@pytest.mark.parametrize(
    ("target", "instead"),
    [
        ("native-ubsan", "compile with gcc -fsanitize=alignment,undefined"),
        ("native-unsigned-char", "compile with gcc -funsigned-char"),
        ("i386-time64", "-D_TIME_BITS=64"),
    ],
)
def test_a_target_of_the_host_names_what_tests_the_same_of_a_program(plumb: Plumb, target: str, instead: str) -> None:
    code, _, err = plumb("exec", "--target", target, "true")
    assert code == ExitCode.USAGE
    assert instead in " ".join(err.split())


def test_a_target_that_cannot_run_programs_here_is_refused_first(plumb: Plumb) -> None:
    code, _, err = plumb("deb", "--target", "native", "zlib")
    assert (code, "native is not a target of the user tier" in err) == (ExitCode.USAGE, True)
