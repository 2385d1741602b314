"""Builds happen once for each content, out of tree, and report the compiler's first error. The compiler is a fake."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.server_build import Builder
from harness.build.sources.archives import Fetcher
from harness.build.sources.openssl import SHARED, OpenSsl, provide_openssl
from harness.build.sources.server_tree import open_server
from harness.build.sources.source_tree import open_tree
from harness.build.workshop import build_warnings
from harness.build.workshop.build_failure import BuildFailedError
from harness.build.workshop.build_plan import BuildPlan
from harness.core.cache import Cache
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.core.model import BuildSettings
from harness.core.processes import process
from harness.plan.catalog import Catalog
from tests.support import fakes

if TYPE_CHECKING:
    from harness.core.model import Build, SourceTree

MAKEFILE = """
redis-server:
\techo made >>{made}
\tprintf '%s %s' "$(uname_M)" "$(OPTIMIZATION)" >redis-server
\tcat "$(CC)" >>redis-server
\tchmod +x redis-server
"""
MODULAR = """
redis-server:
\techo made >>{made}
\ttouch redis-server
\tif [ "$(BUILD_LUA)" = module ]; then mkdir -p modules/lua && echo lua >modules/lua/libvalkeylua.so; fi
"""
COUNTING = """
redis-server:
\techo "$$(git diff --no-ext-diff -- ../src ../deps 2>&1 | grep -c '^[+-]')" >redis-server
\tchmod +x redis-server
"""
CALLING = """
AR= ar rcu
redis-server:
\techo made >>{made}
\t( $(AR) lib.a; ranlib lib.a; cc -c x.c; c++ -c x.cc; strip x; gcc-ar x ) >redis-server
\tchmod +x redis-server
"""
FAILING = """
redis-server:
\t@echo 'cc -c x.c'
\t@echo 'x.c: In function f:'
\t@echo 'x.c:3:5: error: boom'
\t@echo '    3 |     boom;'
\t@echo '      |     ^~~~'
\t@echo 'y.c:9:9: error: second'
\t@exit 1
"""


@pytest.fixture(autouse=True)
def _compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.build import toolchain

    toolchain.version.cache_clear()
    fakes.fake_compiler(tmp_path / "bin", monkeypatch)


def tree_with(tmp_path: Path, makefile: str) -> SourceTree:
    path = fakes.server_tree(tmp_path / "redis-7.0.15")
    fakes.write(path / "src" / "Makefile", makefile.format(made=tmp_path / "made"))
    return open_tree(path)


def times_made(tmp_path: Path) -> int:
    made = tmp_path / "made"
    return len(made.read_text("utf-8").splitlines()) if made.is_file() else 0


def build(tmp_path: Path, tree: SourceTree, *, name: str = "armv5", optimisation: str = "O2") -> Build:
    builder = Builder(Cache(tmp_path / "cache"), fakes.quiet())
    return builder.build(
        BuildPlan(tree=tree, target=fakes.target(name), tools=fakes.toolchain(), optimisation=optimisation)
    )


def test_a_build_gets_the_targets_machine_flags_and_optimisation(tmp_path: Path) -> None:
    made = build(tmp_path, tree_with(tmp_path, MAKEFILE))
    text = made.server_binary.read_text("utf-8")
    assert text.startswith("armv5tel -O2")
    assert "fake-gcc" in text
    for flag in ("-marm", "-O2", "-gdwarf-4"):
        assert flag in text, f"the compiler's wrapper does not pass {flag}"
    assert text.index('"$@"') < text.index("-marm"), "the target's flags must win over the makefile's"
    assert (made.target, made.server, made.optimisation) == ("armv5", "redis-7.0.15", "O2")
    assert "MALLOC=libc" in made.command_line


def test_a_server_with_link_time_optimisation_is_a_separate_build(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    plain, linked = build(tmp_path, tree), build(tmp_path, tree, optimisation="O2-lto")
    assert plain.key != linked.key
    text = linked.server_binary.read_text("utf-8")
    assert text.startswith("armv5tel -O2 -flto")
    assert text.index('"$@"') < text.index("-O2 -flto ", len("armv5tel -O2 -flto"))


WARNING = """
redis-server: x.o ../deps/y.o
\techo made >>{made}
\ttouch $@
x.o:
\t@echo '$(CC) -c -o x.o x.c'
\t@echo 'x.c: In function f:'
\t@echo 'x.c:3:5: warning: not for every address [-Wcast-align]'
../deps/y.o:
\t@$(MAKE) -C ../deps y.o
"""
DEPENDENCY = """
y.o:
\t@echo '$(CC) -c -o y.o y.c'
\t@echo 'y.c:1:1: warning: not the server [-Wcast-align]'
"""


def test_compiler_warnings_in_the_servers_own_folder_are_kept_with_the_build(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, WARNING)
    fakes.write(tree.path / "deps" / "Makefile", DEPENDENCY)
    tree = open_tree(tree.path)
    report = build_warnings.read(build(tmp_path, tree))
    assert report.problem == ""
    assert [(one.file, one.line, one.warning) for one in report.warnings] == [("src/x.c", 3, "cast-align")]
    build(tmp_path, tree)
    assert times_made(tmp_path) == 1


def test_a_makefile_that_does_not_print_its_compiler_gives_no_warnings(tmp_path: Path) -> None:
    report = build_warnings.read(build(tmp_path, tree_with(tmp_path, MAKEFILE)))
    assert (report.warnings, report.problem) == ([], "the makefile does not print its compiler commands")


def test_no_compiler_runs_to_list_headers(tmp_path: Path) -> None:
    listed = "-include Makefile.dep\nMakefile.dep:\n\techo listed >>{made}\n\ttouch $@\n" + MAKEFILE
    build(tmp_path, tree_with(tmp_path, listed))
    assert (tmp_path / "made").read_text("utf-8") == "made\n"


def test_makefiles_count_no_differences_from_a_repository(tmp_path: Path) -> None:
    fakes.write(tmp_path / "redis-7.0.15" / "deps" / "Makefile", "all:\n")
    made = build(tmp_path, tree_with(tmp_path, COUNTING))
    assert made.server_binary.read_text("utf-8") == "0\n"


def test_the_second_build_is_a_cache_hit(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    first, second = build(tmp_path, tree), build(tmp_path, tree)
    assert first == second
    assert times_made(tmp_path) == 1


@pytest.mark.parametrize(("optimisation", "prefix"), [("O2", ""), ("O2-lto", "gcc-")])
def test_makefiles_find_the_targets_tools_by_their_plain_names(tmp_path: Path, optimisation: str, prefix: str) -> None:
    """Before Redis 2.8.8, `AR` in Lua's makefile is `ar rcu`, and AR= on make's command line would remove the option.

    Objects for link-time optimisation have symbols that only GCC's own archiver reads.
    """
    for name in ("strip", "gcc-ar", "gcc-ranlib"):
        fakes.write(tmp_path / "bin" / f"fake-{name}", "#!/bin/sh\necho fake\n", mode=0o755)
    for name in ("ar", "ranlib", "gcc", "g++", "strip", "gcc-ar", "gcc-ranlib"):
        path = tmp_path / "bin" / f"fake-{name}"
        path.write_text(f'{path.read_text("utf-8")}echo "{name} $1 $2"\n', "utf-8")
    made = build(tmp_path, tree_with(tmp_path, CALLING), optimisation=optimisation)
    called = [line for line in made.server_binary.read_text("utf-8").splitlines() if not line.startswith("fake")]
    assert called == [
        f"{prefix}ar rcu lib.a",
        f"{prefix}ranlib lib.a ",
        "gcc -c x.c",
        "g++ -c x.cc",
        "strip x ",
        "gcc-ar x ",
    ]


def test_a_tools_wrapper_does_not_find_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools of the host's own toolchain have plain names."""
    from harness.build import toolchain

    fakes.write(tmp_path / "bin" / "ar", '#!/bin/sh\necho "the host\'s own: $1 $(command -v ar)"\n', mode=0o755)
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    toolchain.write_plain_tools(tmp_path / "tools", fakes.toolchain(triple=""), tmp_path, "O2")
    path = f"{tmp_path / 'tools'}:{tmp_path / 'bin'}:/usr/bin:/bin"
    output = process.run([tmp_path / "tools" / "ar", "rcu"], deadline_seconds=20, environment={"PATH": path}).text
    assert output == f"the host's own: rcu {tmp_path / 'bin' / 'ar'}\n"


@pytest.mark.parametrize(("macros", "defined"), [("_BSD_SOURCE", True), ("_GNU_SOURCE", False), (None, False)])
def test_a_tree_that_does_not_request_glibcs_extensions_gets_them(
    tmp_path: Path, macros: str | None, *, defined: bool
) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    if macros:
        fakes.write(tree.path / "src" / "fmacros.h", f"#define {macros}\n")
        tree = open_tree(tree.path)
    assert ("-D_GNU_SOURCE=" in build(tmp_path, tree).server_binary.read_text("utf-8")) is defined


@pytest.mark.parametrize(("version", "added"), [("2.8.17", False), ("2.9.11", True), ("3.0.0", False)])
def test_a_tree_that_may_request_the_c_librarys_extensions_too_late_gets_them(
    tmp_path: Path, version: str, *, added: bool
) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    fakes.write(tree.path / "src" / "fmacros.h", "#define _GNU_SOURCE\n")
    fakes.write(tree.path / "src" / "version.h", f'#define REDIS_VERSION "{version}"\n')
    text = build(tmp_path, open_tree(tree.path)).server_binary.read_text("utf-8")
    assert ("-D_DEFAULT_SOURCE=" in text) is added
    assert "-D_GNU_SOURCE=" not in text, "strerror_r would return the text, and hiredis would ignore it"


@pytest.mark.parametrize("included", [True, False])
def test_a_tree_that_includes_a_header_that_the_c_library_has_no_longer_gets_an_empty_one(
    tmp_path: Path, *, included: bool
) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    fakes.write(tree.path / "src" / "redis.c", f"#include <{'sys/sysctl.h' if included else 'sys/socket.h'}>\n")
    text = build(tmp_path, open_tree(tree.path)).server_binary.read_text("utf-8")
    assert ("-idirafter" in text) is included


def test_a_distributions_flags_and_variables_follow_the_makefiles_and_never_apply_natively(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    plain = build(tmp_path, tree)
    settings = BuildSettings(cflags=("-march=armv7-a", "-DNAME=a b", "-g3"), make=("USE_SYSTEMD=yes", "X=1 2"))
    distributed = msgspec.structs.replace(tree, settings=settings)
    made = build(tmp_path, distributed)
    assert made.command_line.index("USE_SYSTEMD=yes") > made.command_line.index("USE_SYSTEMD=no")
    assert "X=1 2" in made.command_line
    wrapper = made.server_binary.read_text("utf-8")
    assert "-march=armv7-a '-DNAME=a b' -g3 -gdwarf-4" in wrapper, "findings need line numbers, whatever the flags are"
    assert wrapper.index("-marm") < wrapper.index("-march=armv7-a"), "the distribution's flags must win"
    here = Catalog().targets["native"]
    builder = Builder(Cache(tmp_path / "cache"), fakes.quiet())
    native = [builder.build(fakes.build_plan(one, here)) for one in (tree, distributed)]
    assert native[0] == native[1]
    keys = {plain.key, made.key}
    for other in (BuildSettings(cflags=settings.cflags), BuildSettings(make=settings.make)):
        keys.add(build(tmp_path, msgspec.structs.replace(tree, settings=other)).key)
    assert len(keys) == 4, "two different settings share a build"


def test_a_module_that_a_makefile_builds_separately_is_kept_with_the_server(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MODULAR)
    whole = build(tmp_path, tree)
    modular = msgspec.structs.replace(tree, settings=BuildSettings(make=("BUILD_LUA=module",)))
    made = build(tmp_path, modular)
    assert (whole.modules, whole.key != made.key) == ((), True)
    assert [module.read_text("utf-8") for module in made.modules] == ["lua\n"]
    assert made.modules[0].parent == made.folder
    assert build(tmp_path, modular) == made, "a cached build must have its modules too"
    assert times_made(tmp_path) == 2


@pytest.mark.parametrize("what", ["source", "optimisation", "target", "compiler"])
def test_a_build_is_repeated_when_it_would_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    first = build(tmp_path, tree)
    name, optimisation = "armv5", "O2"
    if what == "source":
        fakes.write(tree.path / "src" / "bitops.c", "int fixed;\n")
        tree = open_tree(tree.path)
    elif what == "optimisation":
        optimisation = "O0"
    elif what == "target":
        name = "armv6"
    else:
        from harness.build import toolchain

        toolchain.version.cache_clear()
        fakes.fake_compiler(tmp_path / "bin2", monkeypatch, version="fake-gcc 2.0")
    second = build(tmp_path, tree, name=name, optimisation=optimisation)
    assert first.key != second.key
    assert times_made(tmp_path) == 2


def test_a_failed_build_shows_the_compilers_first_error_and_names_the_log(plain_path: Path) -> None:
    with pytest.raises(BuildFailedError) as caught:
        build(plain_path, tree_with(plain_path, FAILING))
    error = caught.value
    assert error.because == "x.c:3:5: error: boom\n    3 |     boom;\n      |     ^~~~"
    assert "redis-7.0.15 does not compile for armv5" in str(error)
    assert error.exit_code == ExitCode.FINDINGS
    from pathlib import Path as ThePath

    log = ThePath(error.log).read_text("utf-8")
    assert log.startswith("$ make ")
    assert "y.c:9:9: error: second" in log


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ld: bitops.o: undefined reference to `__atomic_load_8'", "undefined reference"),
        ("Makefile:9: *** missing separator.  Stop.", "missing separator"),
        ("zmalloc.h:50:10: fatal error: jemalloc/jemalloc.h: No such file or directory", "fatal error"),
    ],
)
def test_other_first_errors_are_recognised(plain_path: Path, line: str, reason: str) -> None:
    quoted = line.replace("'", "'\\''")
    noise = "".join(f"\t@echo noise {number}\n" for number in range(9))
    with pytest.raises(BuildFailedError) as caught:
        build(plain_path, tree_with(plain_path, f"redis-server:\n\t@echo '{quoted}'\n{noise}\t@exit 1\n"))
    assert reason in caught.value.because
    assert caught.value.because.startswith(line[:20])


@pytest.mark.parametrize("name", ["two words", "it's", 'a"quote', "a$variable", "a;command"])
def test_a_failure_in_a_folder_that_makefiles_do_not_quote_is_not_the_servers(plain_path: Path, name: str) -> None:
    with pytest.raises(InfrastructureError, match="makefiles cannot build in this cache") as caught:
        build(plain_path / name, tree_with(plain_path, FAILING))
    assert caught.value.where.startswith(str(plain_path / name))
    assert "PLUMBLINE_CACHE" in caught.value.remedy


def test_a_make_that_succeeds_without_a_binary_has_failed(plain_path: Path) -> None:
    with pytest.raises(BuildFailedError):
        build(plain_path, tree_with(plain_path, "redis-server:\n\t@true\n"))


def test_a_failed_build_is_not_cached_and_a_fixed_tree_builds(plain_path: Path) -> None:
    tree = tree_with(plain_path, FAILING)
    with pytest.raises(BuildFailedError):
        build(plain_path, tree)
    made = build(plain_path, tree_with(plain_path, MAKEFILE))
    assert made.server_binary.is_file()
    assert [path for path in (plain_path / "cache" / "builds").iterdir() if path.is_dir()] == [made.folder]


def test_a_full_disk_during_a_build_is_not_a_finding_about_the_server(tmp_path: Path) -> None:
    text = "redis-server:\n\t@echo 'x.s: Error: cannot write to output file: No space left on device'\n\t@exit 1\n"
    with pytest.raises((InfrastructureError, BuildFailedError)) as caught:
        build(tmp_path, tree_with(tmp_path, text))
    assert isinstance(caught.value, InfrastructureError), "a full disk became a finding about the server"


def test_the_users_tree_is_not_written_to(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    before = sorted((str(path), path.stat().st_mtime_ns) for path in tree.path.rglob("*"))
    build(tmp_path, tree)
    assert before == sorted((str(path), path.stat().st_mtime_ns) for path in tree.path.rglob("*"))


def test_no_work_folder_is_left(tmp_path: Path) -> None:
    build(tmp_path, tree_with(tmp_path, MAKEFILE))
    work = tmp_path / "cache" / "work"
    assert (list(work.iterdir()) if work.is_dir() else []) == []


def test_a_missing_compiler_is_an_infrastructure_error_that_names_it(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    builder = Builder(Cache(tmp_path / "cache"), fakes.quiet())
    with pytest.raises(InfrastructureError, match="the compiler no-such-triple-gcc is not installed"):
        builder.build(
            BuildPlan(tree=tree, target=fakes.target(), tools=fakes.toolchain("no-such-triple"), optimisation="O2")
        )


def test_concurrent_builds_of_one_tree_for_several_targets_do_not_mix(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    names = ["armv5", "armv5", "armv6", "armv6", "armv7", "armv7"]
    together = threading.Barrier(len(names))
    cache = Cache(tmp_path / "cache")

    def one(name: str) -> Build:
        together.wait(10)
        target = msgspec.structs.replace(fakes.target(name), compiler_flags=[f"-mfor-{name}"])
        return Builder(cache, fakes.quiet()).build(fakes.build_plan(tree, target))

    with ThreadPoolExecutor(len(names)) as pool:
        made = list(pool.map(one, names))
    assert times_made(tmp_path) == 3
    for result, name in zip(made, names, strict=True):
        text = result.server_binary.read_text("utf-8")
        assert {f"-mfor-{name}"} == {word for word in text.split() if word.startswith("-mfor-")}


def test_concurrent_builds_of_two_contents_at_one_path_do_not_mix(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    digests = ["1" * 64, "2" * 64]
    cache = Cache(tmp_path / "cache")

    def one(digest: str) -> Build:
        other = msgspec.structs.replace(tree, digest=digest)
        return Builder(cache, fakes.quiet()).build(fakes.build_plan(other, fakes.target()))

    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(one, digests))
    assert len({result.key for result in made}) == 2
    assert all(result.server_binary.is_file() for result in made)


EDITING = """
redis-server:
\tsed -i 's/int.*/int poisoned;/' {edited}
\tcp bitops.c redis-server
\tchmod +x redis-server
"""


def test_a_tree_that_is_edited_after_it_was_opened_is_built_unedited(tmp_path: Path) -> None:
    path = tree_with(tmp_path, MAKEFILE).path
    fakes.write(path / "src" / "Makefile", EDITING.format(edited=path / "src" / "bitops.c"))
    cache = Cache(tmp_path / "cache")
    tree = open_server(Catalog(), Fetcher(cache, fakes.quiet()), str(path))
    builder = Builder(cache, fakes.quiet())
    made = [builder.build(fakes.build_plan(tree, fakes.target(name))) for name in ("armv5", "armv6")]
    assert (path / "src" / "bitops.c").read_text("utf-8") == "int poisoned;\n"
    assert [one.server_binary.read_text("utf-8") for one in made] == ["int bitops;\n"] * 2
    again = open_server(Catalog(), Fetcher(cache, fakes.quiet()), str(path))
    rebuilt = builder.build(fakes.build_plan(again, fakes.target("armv5")))
    assert rebuilt.server_binary.read_text("utf-8") == "int poisoned;\n"


def test_a_tree_that_does_not_match_its_key_is_not_built(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    fakes.write(tree.path / "src" / "bitops.c", "int poisoned;\n")
    with pytest.raises(InfrastructureError, match="has changed since it was opened"):
        build(tmp_path, tree)
    assert times_made(tmp_path) == 0
    assert not list((tmp_path / "cache").glob("builds/*"))


@pytest.mark.parametrize("damage", ["empty", "missing", "half"])
def test_a_damaged_server_is_built_again(tmp_path: Path, damage: str) -> None:
    tree = tree_with(tmp_path, MAKEFILE)
    made = build(tmp_path, tree)
    whole = made.server_binary.read_bytes()
    if damage == "missing":
        made.server_binary.unlink()
    else:
        made.server_binary.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"")
    assert build(tmp_path, tree).server_binary.read_bytes() == whole
    assert times_made(tmp_path) == 2


CLIENTS = """
redis-cli redis-benchmark:
\tprintf 'speaks TLS: %s' "$(BUILD_TLS)" >$@
"""


def library(tmp_path: Path, identity: str = "1") -> OpenSsl:
    for name in SHARED:
        fakes.write(tmp_path / "openssl" / name, name)
    headers = (tmp_path / "include", tmp_path / "include" / "of-the-target")
    return OpenSsl(headers=headers, libraries=tmp_path / "openssl", identity=identity)


def test_a_server_with_tls_is_a_separate_build_with_its_own_library(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, MAKEFILE + CLIENTS)
    builder = Builder(Cache(tmp_path / "cache"), fakes.quiet())
    plain, one, other = (
        builder.build(fakes.build_plan(tree, fakes.target("armv5"), tls=tls))
        for tls in (None, library(tmp_path), library(tmp_path, "2"))
    )
    assert len({plain.key, one.key, other.key}) == 3
    assert (plain.tls, one.tls) == (False, True)
    assert "BUILD_TLS=no" in plain.command_line
    # pkg-config describes the host's library.
    assert {"BUILD_TLS=yes", "PKG_CONFIG=false"} <= set(one.command_line)
    wrapper = one.server_binary.read_text("utf-8")
    for word in (str(tmp_path / "include" / "of-the-target"), f"-L{tmp_path / 'openssl'}", "'-Wl,-rpath,$ORIGIN'"):
        assert word in wrapper, f"the compiler's wrapper does not pass {word}"
        assert word not in plain.server_binary.read_text("utf-8")
    clients = {"redis-cli", "redis-benchmark"}
    more = {path.name for path in one.folder.iterdir()} - {path.name for path in plain.folder.iterdir()}
    assert more == {*SHARED, *clients}
    assert {(one.folder / name).read_text("utf-8") for name in clients} == {"speaks TLS: yes"}
    assert (one.folder / SHARED[0]).read_text("utf-8") == SHARED[0]


def test_a_client_that_does_not_compile_with_tls_is_reported(plain_path: Path) -> None:
    builder = Builder(Cache(plain_path / "cache"), fakes.quiet())
    with pytest.raises(BuildFailedError, match="does not compile for armv5: redis-cli, redis-benchmark"):
        builder.build(fakes.build_plan(tree_with(plain_path, MAKEFILE), fakes.target("armv5"), tls=library(plain_path)))


def test_a_toolchain_without_debians_openssl_is_refused(tmp_path: Path) -> None:
    fetcher = Fetcher(Cache(tmp_path / "cache"), fakes.quiet(), offline=True)
    with pytest.raises(UsageError, match="TLS is not available with fake") as caught:
        provide_openssl(fetcher, fakes.toolchain())
    assert "has no OpenSSL for the architecture" in caught.value.because
    tools = msgspec.structs.replace(fakes.toolchain(), debian_architecture="armel")
    with pytest.raises(
        InfrastructureError, match="the cache does not contain libssl-dev and libssl3 of bookworm for armel"
    ):
        provide_openssl(fetcher, tools)


def test_a_build_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    """Regression: a whole entry with its seal was believed wherever it stood, so that another server was judged."""
    tree = tree_with(tmp_path, MAKEFILE)
    one, other = build(tmp_path, tree), build(tmp_path, tree, optimisation="O3")
    for suffix in ("", ".seal"):
        here, there = (Path(f"{each.folder}{suffix}") for each in (one, other))
        shutil.rmtree(here) if here.is_dir() else here.unlink()
        there.rename(here)
    with pytest.raises(InfrastructureError, match="a build in the cache is another one") as refused:
        build(tmp_path, tree)
    assert refused.value.because == f"it was made as {other.key}"
    assert refused.value.where == str(one.folder)
    shutil.rmtree(one.folder)
    assert build(tmp_path, tree).command_line == one.command_line
