"""Servers from distribution packages: their names, the options that are refused, and where programs find libraries."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.emulators.package_root import runner_of
from harness.build.sources.closed_root import LOADER_CACHE, close_root, refuse_incomplete
from harness.build.sources.debian_archive import UNSIGNED, Apt
from harness.build.sources.server_package import (
    CONTENTS,
    ServerPackages,
    debian_architecture,
    package_named,
    upstream_version,
)
from harness.core.cache import Cache
from harness.core.digests import sha256_of
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.core.model import Build, ServerPackage
from harness.core.processes import process
from harness.core.target_model import ORACLE
from harness.plan.catalog import Catalog
from tests.support import fakes

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.core.target_model import Target
    from tests.support.fakes import Plumb

CATALOG = Catalog()
REDIS = "debian:bookworm/redis-server"


@pytest.mark.parametrize(
    ("text", "package"),
    [
        (REDIS, ServerPackage(suite="bookworm", name="redis-server")),
        (
            f"{REDIS}=5:7.0.15-1~deb12u7",
            ServerPackage(suite="bookworm", name="redis-server", version="5:7.0.15-1~deb12u7"),
        ),
        ("redis-7.0.15", None),
        ("../debian", None),
    ],
)
def test_a_package_is_named_by_suite_name_and_version(text: str, package: ServerPackage | None) -> None:
    assert package_named(text) == package
    if package:
        assert package.title == text
        assert package.family == "redis"


@pytest.mark.parametrize(
    "text", ["debian:", "debian:bookworm", "debian:../x/redis", "debian:a/b=c d", "debian:a/b=/etc"]
)
def test_an_invalid_package_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no package") as caught:
        package_named(text)
    assert REDIS in str(caught.value)


@pytest.mark.parametrize(
    ("version", "release"),
    [("5:7.0.15-1~deb12u7", "7.0.15"), ("8.1.1+dfsg1-3+deb13u3", "8.1.1"), ("1:2.8.17-1", "2.8.17"), ("odd", "odd")],
)
def test_the_release_is_a_part_of_the_packages_version(version: str, release: str) -> None:
    assert upstream_version(ServerPackage(suite="s", name="redis-server", version=version)) == release


def test_a_target_uses_packages_of_the_same_word_size_and_byte_order() -> None:
    big, wide = {"s390x"}, {"amd64", "arm64", "mips64el", "ppc64el", "riscv64", "s390x"}
    of = {name: CATALOG.toolchain_of(target).debian_architecture for name, target in CATALOG.targets.items()}
    assert {"armv5", "armv6", "armv7", "aarch64", "s390x", ORACLE} <= {name for name, found in of.items() if found}
    # Debian's hard-float packages are for ARMv7.
    assert (of["armv5"], of["armv6"], of["armv7"]) == ("armel", "armel", "armhf")
    for name, found in of.items():
        if found:
            assert (CATALOG.targets[name].width_bits == 64) == (found in wide), name
            assert (CATALOG.targets[name].endianness == "big") == (found in big), name


def test_a_target_without_packages_is_refused_with_the_reason() -> None:
    target = CATALOG.targets["sparc64"]
    with pytest.raises(UsageError, match="no packages that run on sparc64"):
        debian_architecture(CATALOG.toolchain_of(target), target)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--optimisation", "O0"], "--optimisation controls how a server is compiled"),
        (["--allocator", "guard"], "--allocator controls how a server is compiled"),
        (["--target", "sparc64"], "no packages that run on sparc64"),
        (["--target", "armv5-kernel"], "needs a server that is compiled for it"),
        (["--target", "native-asan"], "needs a server that is compiled for it"),
    ],
)
def test_options_that_a_package_cannot_have_are_refused_before_anything_is_fetched(
    plumb: Plumb, words: list[str], said: str
) -> None:
    code, _, err = plumb("check", "--server", REDIS, "--target", "armv5", *words)
    assert code == ExitCode.USAGE
    assert said in err


@pytest.mark.parametrize("command", ["build", "port", "measure", "bench"])
def test_a_command_that_needs_a_source_tree_says_so(plumb: Plumb, command: str) -> None:
    code, _, err = plumb(command, "--server", REDIS)
    assert code == ExitCode.USAGE
    assert "is a package, but this command needs a source tree" in err
    assert f"plumb check --server {REDIS}" in err


def test_a_package_that_is_not_cached_is_not_a_finding_offline(plumb: Plumb) -> None:
    code, _, err = plumb("check", "--offline", "--no-install", "--server", REDIS, "--target", "armv5")
    assert code == ExitCode.INFRASTRUCTURE
    assert "no index of bookworm" in err


def test_links_remain_in_the_root_folder_and_a_merged_usr_has_its_links(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fakes.write(root / "usr" / "lib" / "arm" / "libc.so", "")
    (root / "usr" / "lib" / "ld.so").symlink_to("/lib/arm/libc.so")
    (root / "etc").mkdir()
    (root / "etc" / "alternatives").symlink_to("../usr")
    close_root(root)
    assert (root / "lib").readlink() == Path("usr/lib")
    assert (root / "usr" / "lib" / "ld.so").resolve() == (root / "usr/lib/arm/libc.so").resolve()
    assert (root / "etc" / "alternatives").readlink() == Path("../usr")


def test_libraries_below_lib_and_usr_lib_are_in_the_loaders_first_folder(tmp_path: Path) -> None:
    """Regression: an emulated server of bookworm used the host's /lib/arm/libssl.so, not its own below /usr/lib."""
    root = tmp_path / "root"
    fakes.write(root / "lib" / "arm" / "libc.so", "")
    (root / "lib" / "arm" / "libc.so.6").symlink_to("libc.so")
    (root / "lib" / "ld.so").symlink_to("/lib/arm/libc.so")
    (root / "lib" / "modules").symlink_to("arm")
    fakes.write(root / "usr" / "lib" / "arm" / "libssl.so", "")
    close_root(root)
    assert (root / "lib").readlink() == Path("usr/lib")
    assert sorted(path.name for path in (root / "lib" / "arm").iterdir()) == ["libc.so", "libc.so.6", "libssl.so"]
    assert (root / "lib" / "ld.so").resolve() == (root / "usr/lib/arm/libc.so").resolve()
    assert (root / "usr" / "lib" / "modules").readlink() == Path("arm")
    # The loader does not read the host's list of libraries.
    assert (root / LOADER_CACHE).read_bytes() == b""


def whole_root(root: Path) -> Path:
    """Make a root folder with a host program and everything that the program needs. Returns the program."""
    program = root / "usr" / "bin" / "redis-server"
    libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
    loader = root / "usr" / "lib64" / "ld-linux-x86-64.so.2"
    own = Path("/lib/x86_64-linux-gnu")
    for file, source in (
        (program, Path("/bin/true")),
        (loader, Path("/lib64") / loader.name),
        (libraries / loader.name, Path("/lib64") / loader.name),
        (libraries / "libc.so.6", own / "libc.so.6"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, file)
    close_root(root)
    return program


@pytest.mark.parametrize("lacking", ["libc.so.6", "ld-linux-x86-64.so.2"])
def test_a_server_that_would_use_a_library_of_this_machine_is_refused(lacking: str, tmp_path: Path) -> None:
    program = whole_root(tmp_path)
    refuse_incomplete(tmp_path, program, CATALOG.targets[ORACLE])
    for file in list(tmp_path.rglob(lacking)):
        file.unlink()
        # A link that leads out of the folder does not count.
        file.symlink_to(f"/lib/x86_64-linux-gnu/{lacking}")
    with pytest.raises(InfrastructureError, match=f"the packages do not contain .*{lacking}"):
        refuse_incomplete(tmp_path, program, CATALOG.targets[ORACLE])


def test_a_server_of_another_machine_or_a_script_is_refused(tmp_path: Path) -> None:
    program = whole_root(tmp_path)
    with pytest.raises(InfrastructureError, match="not a program of armv5"):
        refuse_incomplete(tmp_path, program, CATALOG.targets["armv5"])
    program.write_text("#!/bin/sh\nexec redis-server.real\n", "utf-8")
    with pytest.raises(InfrastructureError, match="not a program that a guest can run"):
        refuse_incomplete(tmp_path, program, CATALOG.targets[ORACLE])


def built(program: Path, root: Path | None) -> Build:
    return Build(
        key="",
        target=ORACLE,
        server="",
        optimisation="",
        folder=Path(),
        server_binary=program,
        command_line=[],
        root=root,
    )


def runs(target: Target, *options: str) -> Runner:
    return msgspec.structs.replace(fakes.unemulated(target), options=list(options))


def test_an_emulator_looks_for_libraries_in_the_root_folder() -> None:
    runner = runs(CATALOG.targets["armv5"], "-cpu", "arm926", "-L", "/cross", "-alignment", "x")
    found = runner_of(built(Path("/package/usr/bin/server"), Path("/package")), runner)
    assert found.options == ["-cpu", "arm926", "-L", "/package", "-alignment", "x"]
    assert runner_of(built(Path("/b"), None), runner) == runner


def test_a_packages_program_is_started_natively_with_the_packages_loader(tmp_path: Path) -> None:
    root = tmp_path / "root"
    program = root / "usr" / "bin" / "true"
    program.parent.mkdir(parents=True)
    shutil.copy2("/bin/true", program)
    loader = root / "lib64" / "ld-linux-x86-64.so.2"
    libraries = root / "lib" / "x86_64-linux-gnu"
    for file in (loader, libraries / "libc.so.6"):
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(f"/{file.relative_to(root)}", file)
    command = runner_of(built(program, root), runs(CATALOG.targets[ORACLE])).command(program, [])
    assert command[0] == str(loader)
    mapped = process.run([*command[:-1], shutil.copy2("/bin/cat", program), "/proc/self/maps"], deadline_seconds=30)
    assert mapped.code == 0, mapped.text
    assert str(libraries / "libc.so.6") in mapped.text
    assert " /usr/lib/x86_64-linux-gnu/libc.so.6" not in mapped.text


def test_a_program_without_a_loader_is_reported() -> None:
    with pytest.raises(InfrastructureError, match="names no dynamic loader"):
        runner_of(built(Path("/lib/x86_64-linux-gnu/libm.so.6"), Path("/")), runs(CATALOG.targets[ORACLE]))


def test_a_tree_of_a_package_has_no_suites_that_compile_it(tmp_path: Path) -> None:
    package = ServerPackage(suite="bookworm", name="redis-server", version="5:7.0.15-1")
    tree = msgspec.structs.replace(fakes.opened(tmp_path), package=package)
    absent = {name for name, suite in CATALOG.suites.items() if suite.absent_from(tree)}
    compiled = {name for name, suite in CATALOG.suites.items() if suite.program or suite.upstream or suite.programs}
    assert compiled
    assert compiled <= absent
    assert {"bitops", "protocol", "modules"}.isdisjoint(absent)


PACKAGE = ServerPackage(suite="bookworm", name="redis-server", version="5:7.0.15-1")
UNPACKED = "bookworm-redis-server-5_7.0.15-1-amd64"


def built_from(cache: Cache, tmp_path: Path, *, offline: bool = True) -> Build:
    tree = msgspec.structs.replace(fakes.opened(tmp_path), package=PACKAGE)
    target = CATALOG.targets[ORACLE]
    return ServerPackages(cache, fakes.quiet(), offline=offline).build(tree, CATALOG.toolchain_of(target), target)


def test_an_unpacked_package_is_reused_with_the_links_of_a_merged_usr(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")

    def unpack(into: Path) -> None:
        whole_root(into / "root")
        # The layout before /usr was merged.
        (into / "root" / "lib").unlink()
        (into / "root" / "usr" / "lib" / "x86_64-linux-gnu").rename(into / "root" / "usr" / "lib" / "other")
        (into / "root" / "lib").mkdir()
        (into / "root" / "usr" / "lib" / "other").rename(into / "root" / "lib" / "x86_64-linux-gnu")
        fakes.write(into / CONTENTS, "{}")

    cache.folder("packages", f"{UNPACKED}-debug", unpack)
    build = built_from(cache, tmp_path)
    assert build.root is not None
    assert (build.root / "lib").readlink() == Path("usr/lib")
    assert (build.folder / CONTENTS).read_text("utf-8") == "{}"
    assert build.root.name == f"root-{sha256_of(build.folder / CONTENTS)[:12]}"


def test_a_run_with_different_libraries_of_the_same_version_has_a_different_program(tmp_path: Path) -> None:
    """Regression: its functions were named by the libraries that were current when it was judged."""
    programs = set()
    for version in ("1", "2"):
        cache = Cache(tmp_path / version)

        def unpack(into: Path, version: str = version) -> None:
            whole_root(into / "root")
            fakes.write(into / CONTENTS, f'{{"libssl_{version}.deb": "{version}"}}')

        cache.folder("packages", f"{UNPACKED}-debug", unpack)
        programs.add(built_from(cache, tmp_path).server_binary.relative_to(cache.root))
    assert len(programs) == 2


@pytest.mark.parametrize(
    ("contains", "allocator"),
    [(b"\0jemalloc-5.3.0\0", "jemalloc"), (b"\0libc\0", "libc"), (b"\0jemalloc-bg-thread\0", "libc")],
    ids=["jemalloc", "libc", "a-parameter"],
)
def test_the_allocator_of_a_package_is_the_one_that_its_server_reports(
    contains: bytes, allocator: str, tmp_path: Path
) -> None:
    """Regression: every run of a package recorded libc, whichever allocator the distribution had linked."""
    cache = Cache(tmp_path / "cache")

    def unpack(into: Path) -> None:
        server = whole_root(into / "root-0")
        server.write_bytes(server.read_bytes() + contains)

    cache.folder("packages", f"{UNPACKED}-root", unpack)
    assert built_from(cache, tmp_path).allocator == allocator


def test_a_package_without_a_server_is_a_usage_error(tmp_path: Path) -> None:
    """Regression: `redis-sentinel` contains no server, so that every test failed and the verdict was FAIL."""
    cache = Cache(tmp_path / "cache")
    cache.folder("packages", f"{UNPACKED}-root", lambda into: whole_root(into / "root-0").unlink())
    with pytest.raises(UsageError, match="contains no server") as caught:
        built_from(cache, tmp_path)
    assert "usr/bin/redis-server" in str(caught.value)
    assert "--server debian:bookworm/redis-server" in str(caught.value)


APT_GET = """#!/bin/sh
case "$*" in
*indextargets*) echo 'http://debian.invalid|bookworm|main|'; exit 0 ;;
*update*) mkdir -p FOLDER/updated; exit 0 ;;
esac
for word do case $word in Dir::Cache::archives=*) into=${word#*=} ;; esac done
if [ ! -d FOLDER/updated ]; then cp FOLDER/libz_1.9.deb "$into"; echo 'E: 404'; exit 100; fi
cp FOLDER/libz_1.10.deb FOLDER/redis-server.deb "$into"
"""


def test_packages_of_an_outdated_index_are_not_mixed_with_those_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def package(name: str, root: Path) -> None:
        control = "Package: p\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody\nDescription: none\n"
        fakes.write(root / "DEBIAN" / "control", control)
        process.run_successfully(
            ["dpkg-deb", "--build", root, tmp_path / name], problem="no package", deadline_seconds=60
        )

    for version in ("1.9", "1.10"):
        fakes.write(tmp_path / version / "usr" / "lib" / "libz.so", version)
        package(f"libz_{version}.deb", tmp_path / version)
    whole_root(tmp_path / "server")
    package("redis-server.deb", tmp_path / "server")
    fakes.write(tmp_path / "bin" / "apt-get", APT_GET.replace("FOLDER", str(tmp_path)), mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    cache = Cache(tmp_path / "cache")
    fakes.write(cache.path("apt", "bookworm-amd64") / "lists" / "x_Packages", "")
    build = built_from(cache, tmp_path, offline=False)
    assert build.root is not None
    assert (build.root / "lib" / "libz.so").read_text("utf-8") == "1.10"
    assert "libz_1.9.deb" not in (build.folder / CONTENTS).read_text("utf-8")


def test_an_unsigned_index_is_refused_even_if_the_machine_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "debian" / "dists" / "bookworm"
    packages = fakes.write(dist / "main" / "binary-amd64" / "Packages", "")
    line = f" {sha256_of(packages)} 0 main/binary-amd64/Packages\n"
    fakes.write(dist / "Release", f"Codename: bookworm\nComponents: main\nArchitectures: amd64\nSHA256:\n{line}")
    listed = fakes.write(tmp_path / "sources.list", f"deb [trusted=yes] file:{tmp_path}/debian bookworm main\n")
    settings = {
        "Dir::Etc::sourcelist": listed,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": tmp_path / "lists",
        **dict.fromkeys(UNSIGNED, "true"),
    }
    config = fakes.write(tmp_path / "apt.conf", "".join(f'{key} "{value}";\n' for key, value in settings.items()))
    (tmp_path / "lists" / "partial").mkdir(parents=True)
    monkeypatch.setenv("APT_CONFIG", str(config))
    with pytest.raises(InfrastructureError, match="the index of bookworm cannot be read") as caught:
        Apt(tmp_path / "apt", "bookworm", "amd64").update()
    assert "not signed" in str(caught.value)
