"""Servers from a distribution's packages: their names, refused options, and where their programs find libraries."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.emulators.package_root import runner_of
from harness.build.sources.server_package import close_root, debian_architecture, package_named, upstream_version
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.core.model import Build, ServerPackage
from harness.core.processes import process
from harness.core.target_model import ORACLE
from harness.plan.catalog import Catalog
from tests import fakes

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.core.target_model import Target
    from tests.fakes import Plumb

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
def test_what_looks_like_a_package_and_names_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no package") as caught:
        package_named(text)
    assert REDIS in str(caught.value)


@pytest.mark.parametrize(
    ("version", "release"),
    [("5:7.0.15-1~deb12u7", "7.0.15"), ("8.1.1+dfsg1-3+deb13u3", "8.1.1"), ("1:2.8.17-1", "2.8.17"), ("odd", "odd")],
)
def test_the_release_is_a_part_of_the_packages_version(version: str, release: str) -> None:
    assert upstream_version(ServerPackage(suite="s", name="redis-server", version=version)) == release


def test_a_target_has_packages_of_a_machine_as_wide_and_of_its_byte_order() -> None:
    big, wide = {"s390x"}, {"amd64", "arm64", "mips64el", "ppc64el", "riscv64", "s390x"}
    of = {name: CATALOG.toolchain_of(target).debian_architecture for name, target in CATALOG.targets.items()}
    assert {"armv5", "armv6", "armv7", "aarch64", "s390x", ORACLE} <= {name for name, found in of.items() if found}
    # Debian's hard-float packages are ARMv7's.
    assert (of["armv5"], of["armv6"], of["armv7"]) == ("armel", "armel", "armhf")
    for name, found in of.items():
        if found:
            assert (CATALOG.targets[name].width_bits == 64) == (found in wide), name
            assert (CATALOG.targets[name].endianness == "big") == (found in big), name


def test_a_target_without_packages_is_refused_and_told() -> None:
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
    assert "is a package, and this needs a source tree" in err
    assert f"plumb check --server {REDIS}" in err


def test_offline_a_package_that_was_not_fetched_is_no_finding(plumb: Plumb) -> None:
    code, _, err = plumb("check", "--offline", "--no-install", "--server", REDIS, "--target", "armv5")
    assert code == ExitCode.INFRASTRUCTURE
    assert "no index of bookworm" in err


def test_links_stay_in_the_root_folder_and_a_merged_usr_has_its_links(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fakes.write(root / "usr" / "lib" / "arm" / "libc.so", "")
    (root / "usr" / "lib" / "ld.so").symlink_to("/lib/arm/libc.so")
    (root / "etc").mkdir()
    (root / "etc" / "alternatives").symlink_to("../usr")
    close_root(root)
    assert (root / "lib").readlink() == Path("usr/lib")
    assert (root / "usr" / "lib" / "ld.so").resolve() == (root / "usr/lib/arm/libc.so").resolve()
    assert (root / "etc" / "alternatives").readlink() == Path("../usr")


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


def test_this_machine_starts_a_packages_program_through_its_own_loader(tmp_path: Path) -> None:
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


def test_a_program_without_a_loader_is_told() -> None:
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
