"""Families of toolchains: their targets, the sources of their compilers, and what a run records about them."""

from __future__ import annotations

import os
import platform
import shlex
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build import toolchain
from harness.build.server_build import build_key
from harness.build.sources.archives import Fetcher
from harness.build.sources.family_compiler import provide_family
from harness.build.sources.source_tree import open_tree
from harness.build.workshop.build_plan import BuildPlan
from harness.core.cache import Cache
from harness.core.digests import sha256_of
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.core.model import ArchivePlace
from harness.core.processes import process
from harness.core.target_model import (
    DEFAULT_FAMILY,
    ORACLE,
    CompilerPackage,
    FamilyTarget,
    HostCompiler,
    ToolchainFamily,
)
from harness.isa import rules
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.workflows.workbench import Workbench
from tests.support import fakes
from tests.support.fakes import put_on_path, quiet, write

if TYPE_CHECKING:
    from tests.support.fakes import Plumb

PROGRAM = """#!/bin/sh
echo "$KEPT: $*"
test -d "$CALL" && test "$CALL" != "$KEPT" && touch "$CALL/object" && exit 3
"""
"""A compiler that prints how it was called."""


def wheel(folder: Path, text: str = PROGRAM) -> Path:
    """A wheel with one executable file and one that is not executable."""
    path = folder / "compiler-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, content, mode in (("compiler/cc", text, 0o755), ("compiler/LICENSE", "free", 0o644)):
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            file.writestr(member, content)
    return path


def compiler_in(archive: Path, machine: str = platform.machine()) -> CompilerPackage:
    """A compiler package whose compiler is in an archive."""
    place = ArchivePlace(registry="pypi", package="compiler", file=archive.name, version="1")
    host = HostCompiler(sha256=sha256_of(archive), places=[place])
    return CompilerPackage(name="package", program="compiler/cc", hosts={machine: host})


def family_of(archive: Path, *, is_static: bool = True) -> ToolchainFamily:
    """A family whose compiler is in an archive. Without `is_static`, the family builds no C library."""
    return ToolchainFamily(
        name="other",
        folder=archive.parent,
        title="Another compiler",
        compiler="package",
        commands={"gcc": ("cc",), "g++": ("c++", "at {folder}")},
        flags=("-first",),
        library_cache="KEPT" if is_static else "",
        object_cache="CALL" if is_static else "",
        is_static=is_static,
        targets={"armv5": FamilyTarget(flags=("-mine",)), "s390x": FamilyTarget(flags=())},
    )


def fetched(archive: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    """A fetcher whose registry contains the archive."""

    def download(_place: ArchivePlace, into: Path) -> Path:
        (into / archive.name).write_bytes(archive.read_bytes())
        return into / archive.name

    monkeypatch.setattr("harness.build.sources.archives._from_pypi", download)
    return Fetcher(cache, quiet())


def test_a_wheel_becomes_two_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, cache = wheel(tmp_path), Cache(tmp_path / "cache")
    folder = Path(provide_family(cache, fetched(archive, cache, monkeypatch), family_of(archive), compiler_in(archive)))
    kept = cache.path("compiler-libraries", "other")
    where = next(cache.path("sources", "").glob("package-*/compiler"))
    for name, words in (("gcc", "cc"), ("g++", f"c++ at {where}")):
        said = process.run([folder / name, "-c", "a file"], deadline_seconds=20)
        assert (said.text, said.code) == (f"{kept}: {words} -c a file\n", 3)
    assert list(kept.iterdir()) == [], "objects are stored twice"
    assert provide_family(
        cache, Fetcher(cache, quiet(), offline=True), family_of(archive), compiler_in(archive)
    ) == str(folder)
    assert not os.access(next(cache.path("sources", "").glob("package-*/compiler/LICENSE")), os.X_OK)
    assert cache.damage(read_again=True) == []


def test_a_compiler_that_is_not_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, cache = wheel(tmp_path), Cache(tmp_path / "cache")
    family, compiler = family_of(archive), compiler_in(archive)
    wheel(tmp_path, "#!/bin/sh\necho other\n")
    with pytest.raises(InfrastructureError, match="no registry has the pinned source of package") as refused:
        provide_family(cache, fetched(archive, cache, monkeypatch), family, compiler)
    assert "pypi compiler: SHA-256 is" in refused.value.because


def test_a_damaged_wheel_and_an_unsupported_machine_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    broken = write(tmp_path / "compiler-1-py3-none-any.whl", "no wheel")
    with pytest.raises(InfrastructureError, match="cannot be unpacked"):
        provide_family(cache, fetched(broken, cache, monkeypatch), family_of(broken), compiler_in(broken))
    with pytest.raises(InfrastructureError, match="does not run on") as refused:
        provide_family(cache, Fetcher(cache, quiet()), family_of(broken), compiler_in(broken, machine="vax"))
    assert refused.value.remedy == "use a machine with one of these processors: vax"


def test_a_target_keeps_its_machine_and_gets_other_tools(tmp_path: Path) -> None:
    catalog = Catalog()
    other = catalog.through(family_of(wheel(tmp_path)), "/compilers", {"armv5": ("/lib.a",), "s390x": ()})
    assert list(other.targets) == [ORACLE, "armv5", "s390x"]
    assert other.targets[ORACLE] == catalog.targets[ORACLE]
    own, mine = catalog.targets["armv5"], other.targets["armv5"]
    assert mine.compiler_flags == ["-first", "-mine"]
    kept = msgspec.structs.replace(mine, toolchain=own.toolchain, compiler_flags=own.compiler_flags)
    assert kept == own
    tools = other.toolchain_of(mine)
    assert (toolchain.tool(tools, "gcc"), toolchain.tool(tools, "g++")) == ("/compilers/gcc", "/compilers/g++")
    assert toolchain.tool(tools, "addr2line") == toolchain.tool(catalog.toolchain_of(own), "addr2line")
    assert (tools.sysroot, tools.libraries, tools.is_static) == ({}, ("/lib.a",), True)
    assert other.family == "other"
    assert catalog.family == DEFAULT_FAMILY


def test_a_family_without_a_c_library_uses_the_targets_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, cache = wheel(tmp_path, '#!/bin/sh\necho "$*"\n'), Cache(tmp_path / "cache")
    family = family_of(archive, is_static=False)
    catalog = Catalog()
    other = catalog.through(family, "/compilers", {"armv5": ("/lib.a",)})
    for name, libraries in (("armv5", ("/lib.a", "-latomic")), ("s390x", ("-latomic",))):
        own, mine = (each.toolchain_of(each.targets[name]) for each in (catalog, other))
        assert (mine.sysroot, mine.debian_architecture) == (own.sysroot, own.debian_architecture)
        assert (mine.libraries, mine.is_static) == (libraries, False)
    fetcher = fetched(archive, cache, monkeypatch)
    folder = Path(provide_family(cache, fetcher, family, compiler_in(archive)))
    assert process.run([folder / "gcc", "a file"], deadline_seconds=20).text == "cc a file\n"
    assert not cache.path("compiler-libraries", "other").exists()


def test_a_target_without_a_distribution_compiler_uses_its_familys_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, cache = wheel(tmp_path, '#!/bin/sh\necho "$KEPT: $*"\n'), Cache(tmp_path / "cache")
    fetched(archive, cache, monkeypatch)
    bench = Workbench(catalog=Catalog(), cache=cache, progress=quiet())
    target = bench.catalog.targets["loongarch64"]
    assert bench.catalog.toolchain_of(target).compilers == "", "making a plan fetches nothing"
    package = msgspec.structs.replace(compiler_in(archive), name="ziglang", program="compiler/cc")
    bench.catalog.compilers = {"ziglang": package}
    tools = bench.toolchain_of(target)
    assert process.run([toolchain.tool(tools, "gcc"), "a file"], deadline_seconds=20).text.endswith(": cc a file\n")
    assert [toolchain.tool(tools, name) for name in ("objdump", "gcc-ar")] == [
        "llvm-objdump-19",
        "llvm-ar-19",
    ]
    assert tools.prefix == "", "the host's addr2line finds the lines"
    # With `--toolchain clang-musl` it is the same.
    family = bench.catalog.families["clang-musl"]
    asked = bench.catalog.through(family, tools.compilers, {"loongarch64": tools.libraries})
    assert asked.toolchain_of(asked.targets["loongarch64"]) == tools
    assert asked.targets["loongarch64"].compiler_flags == target.compiler_flags
    own = bench.catalog.targets["aarch64"]
    assert bench.toolchain_of(own) == bench.catalog.toolchain_of(own)


def test_parts_that_a_familys_c_library_lacks_are_compiled_without_the_targets_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, cache = wheel(tmp_path, '#!/bin/sh\necho "$*"\n'), Cache(tmp_path / "cache")
    fetched(archive, cache, monkeypatch)
    write(tmp_path / "own.c", "int own;\n")
    bench = Workbench(catalog=Catalog(), cache=cache, progress=quiet())
    bench.catalog.families = {"other": msgspec.structs.replace(family_of(archive), sources=("own.c",))}
    bench.catalog.compilers = {"package": compiler_in(archive)}
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    other = bench.with_toolchain("other")
    for name in ("armv5", "s390x"):
        (linked,) = other.toolchain_of(other.catalog.targets[name]).libraries
        assert Path(linked).name == "own.o"
        assert Path(linked).parent.name.startswith(f"other-{name}-")


def test_a_level_that_a_toolchain_lacks_is_refused() -> None:
    tools = msgspec.structs.replace(fakes.toolchain(), has_lto=False)
    toolchain.check_level(tools, "O3")
    toolchain.check_level(fakes.toolchain(), "O3-lto")
    with pytest.raises(UsageError, match="fake does not support link-time optimisation") as refused:
        toolchain.check_level(tools, "O3-lto")
    assert refused.value.remedy == "--optimisation O3, or another --toolchain"


def test_natural_alignment_is_not_required_of_a_statically_linked_c_library(tmp_path: Path) -> None:
    own = Catalog()
    other = own.through(family_of(wheel(tmp_path)), "/compilers", {"armv5": (), "s390x": ()})
    target = own.targets["armv5"]
    static = other.toolchain_of(other.targets["armv5"])
    names = ["strict", "signal", "audit-strict"]
    strict, signal, audit = (rules.policy_for(own.policies, name, target) for name in names)
    with pytest.raises(UsageError, match="policy strict is not available on armv5") as refused:
        rules.check_toolchain(strict, target, static)
    assert refused.value.remedy.startswith("plumb audit --policy strict")
    for policy, tools in ((signal, static), (audit, static), (strict, own.toolchain_of(target))):
        rules.check_toolchain(policy, target, tools)


def test_a_target_that_a_family_lacks_is_refused_by_name_and_left_out_of_groups(tmp_path: Path) -> None:
    other = Catalog().through(family_of(wheel(tmp_path)), "/compilers", {"armv5": (), "s390x": ()})
    assert make_plan(other, targets=["required"], server="redis-7.0.15", suites=["sds"]).targets == ["armv5"]
    with pytest.raises(UsageError, match="other does not compile for sparc64"):
        other.select_targets(["sparc64"])
    with pytest.raises(UsageError, match="unknown target 'sparc6'"):
        other.select_targets(["sparc6"])


def test_a_different_compiler_or_library_makes_a_different_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, cache = wheel(tmp_path), Cache(tmp_path / "cache")
    compilers = provide_family(cache, fetched(archive, cache, monkeypatch), family_of(archive), compiler_in(archive))
    tree = open_tree(fakes.server_tree(tmp_path / "tree"))

    def key(folder: str, libraries: tuple[str, ...]) -> str:
        catalog = Catalog().through(family_of(archive), folder, {"armv5": libraries, "s390x": ()})
        target = catalog.targets["armv5"]
        return build_key(BuildPlan(tree=tree, target=target, tools=catalog.toolchain_of(target), optimisation="O2"))

    wheel(tmp_path, PROGRAM + "# newer\n")
    newer = provide_family(
        Cache(tmp_path / "new"),
        fetched(archive, Cache(tmp_path / "new"), monkeypatch),
        family_of(archive),
        compiler_in(archive),
    )
    keys = {key(compilers, ()), key(compilers, ("/lib.a",)), key(newer, ())}
    assert len(keys) == 3


def test_a_different_gcc_that_links_makes_a_different_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilers, own = tmp_path / "compilers", tmp_path / "bin"
    write(compilers / "gcc", "#!/bin/sh\necho clang 1\n", mode=0o755)
    put_on_path(own, monkeypatch)

    def identities(version: str) -> list[str]:
        write(own / "arm-linux-gnueabi-gcc", f"#!/bin/sh\necho gcc {version}\n", mode=0o755)
        toolchain.version.cache_clear()
        families = [family_of(wheel(tmp_path), is_static=static) for static in (True, False)]
        catalogs = [Catalog().through(family, str(compilers)) for family in families]
        return [toolchain.identity(each.toolchain_of(each.targets["armv5"])) for each in catalogs]

    before, after = identities("12"), identities("13")
    toolchain.version.cache_clear()
    assert before[0] == after[0], "a program that contains its C library does not depend on the target's GCC"
    assert before[1] != after[1]


LINKING = ("as", "ld", "crt1.o", "libc_nonshared.a", "libc.so.6")


@pytest.mark.parametrize("changed", [*LINKING, "lib/libc.so.6", "none of them"])
def test_a_different_installed_linker_or_c_library_makes_a_different_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    there = tmp_path / "there"
    answers = "".join(f"*={name}) echo {shlex.quote(str(there / name))};;" for name in LINKING)
    write(tmp_path / "bin" / "fake-gcc", f"#!/bin/sh\ncase $1 in {answers} *) echo gcc 1;; esac\n", mode=0o755)
    put_on_path(tmp_path / "bin", monkeypatch)
    for name in (*LINKING, "lib/libc.so.6"):
        write(there / name, "package 1\n", mode=0o755)
    tools = msgspec.structs.replace(fakes.toolchain(), sysroot={"lib": str(there / "lib")})

    def identity() -> str:
        toolchain.version.cache_clear()
        toolchain.digest_of_linked.cache_clear()
        return toolchain.identity(tools)

    before = identity()
    if changed in {*LINKING, "lib/libc.so.6"}:
        write(there / changed, "package 2\n", mode=0o755)
    after = identity()
    toolchain.version.cache_clear()
    toolchain.digest_of_linked.cache_clear()
    assert (before == after) == (changed == "none of them")


def test_what_this_machines_compiler_links_with_is_known() -> None:
    tools = Catalog().toolchains["gcc"]
    assert toolchain.identity(tools) != toolchain.version("gcc")
    names = {Path(name).name for name in toolchain.linked_files("gcc", ())}
    assert names >= {"crt1.o", "libc_nonshared.a", "libc.so.6"}


def test_libraries_are_passed_only_to_the_linker(tmp_path: Path) -> None:
    said = write(tmp_path / "family" / "gcc", '#!/bin/sh\necho "$@"\n', mode=0o755)
    family = msgspec.structs.replace(fakes.toolchain(), compilers=str(said.parent))
    toolchain.write_wrapper(tmp_path / "gcc", family, "gcc", ["-O2"], ["/lib.a"])
    assert process.run([tmp_path / "gcc", "a.o", "-o", "a"], deadline_seconds=20).text == "a.o -o a -O2 /lib.a\n"
    for word in ("-c", "-S", "-E"):
        assert process.run([tmp_path / "gcc", word, "a.c"], deadline_seconds=20).text == f"{word} a.c -O2\n"


def test_every_family_is_documented_with_its_targets(plumb: Plumb) -> None:
    catalog = Catalog()
    reference = (catalog.root / "docs" / "reference.md").read_text("utf-8")
    code, out, _ = plumb("list", "toolchains")
    assert (code, bool(catalog.families)) == (ExitCode.PASS, True)
    for family in catalog.families.values():
        (row,) = (line for line in reference.splitlines() if line.startswith(f"| `{family.name}` |"))
        assert all(f"`{target}`" in row for target in family.targets), row
        assert f"{family.title}  [{', '.join(family.targets)}]" in out


def test_an_unknown_toolchain_is_a_usage_error(plumb: Plumb) -> None:
    code, _, err = plumb("check", "--toolchain", "clang-msul", "--target", "armv5")
    assert code == ExitCode.USAGE
    assert "unknown toolchain 'clang-msul'" in err
    assert "clang-musl" in err
