"""Allocators: which ones are preloaded and which are linked, the block at an address, and refused combinations."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.analysis import allocator_log
from harness.build import allocator
from harness.build.emulators.runner import Runner
from harness.build.server_build import Builder
from harness.build.sources.source_tree import open_tree
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import UsageError
from harness.core.model import BuildSettings
from harness.judge.findings import judge
from harness.judge.reproducer import Reproducer
from harness.judge.verdict import cell_verdicts
from harness.plan.catalog import Catalog
from harness.record import stored_run
from tests.support import fakes
from tests.support.reproducers import reproducer
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from harness.core.model import Allocator, Build

MAKEFILE = 'redis-server:\n\techo $(MALLOC) $$(test -z "$$CONFIG_SITE" || cat $$CONFIG_SITE) >redis-server\n'
GUARD_LOG = b"noise\nplumbline-guard: blocks from 0x40a7f000 to 0x68a7f000\n7747:C 21 Nov 2026 ready\n"
SEGV_ACCERR = 2


@pytest.fixture(autouse=True)
def _compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.build import toolchain

    toolchain.version.cache_clear()
    fakes.fake_compiler(tmp_path / "bin", monkeypatch)


def build(
    tmp_path: Path, chosen: Allocator, *, configured: bool = True, makefile: str = MAKEFILE, options: str = ""
) -> Build:
    """`options`: a package's options of jemalloc's configure script."""
    path = fakes.server_tree(tmp_path / "redis-7.0.15")
    fakes.write(path / "src" / "Makefile", makefile)
    if configured:
        fakes.write(path / "deps" / "jemalloc" / "configure", "#!/bin/sh\n")
        fakes.write(path / "deps" / "Makefile", "jemalloc:\n\t./configure $(JEMALLOC_CONFIGURE_OPTS)\n")
    builder = Builder(Cache(tmp_path / "cache"), fakes.quiet())
    settings = BuildSettings(make=(f"{allocator.CONFIGURE_OPTIONS}={options}",) if options else ())
    tree = msgspec.structs.replace(open_tree(path), settings=settings)
    return builder.build(fakes.build_plan(tree, fakes.target(), allocator=chosen))


def test_an_adversarial_allocator_is_preloaded_for_the_binary_that_uses_libc(tmp_path: Path) -> None:
    plain, guarded, natural = (build(tmp_path, name) for name in ("libc", "guard", "guard-natural"))
    assert plain.preload is None
    assert guarded.server_binary == natural.server_binary == plain.server_binary
    assert guarded.server_binary.read_text("utf-8").strip() == "libc"
    assert guarded.preload
    assert natural.preload
    assert guarded.preload.parent != natural.preload.parent
    assert [one.allocator for one in (plain, guarded, natural)] == ["libc", "guard", "guard-natural"]


def test_jemalloc_is_linked_and_knows_the_target(tmp_path: Path) -> None:
    linked = build(tmp_path, "jemalloc")
    words = linked.server_binary.read_text("utf-8").split()
    assert words[0] == "jemalloc"
    assert {"cross_compiling=yes", "host_alias=fake", "AR=fake-ar", "je_cv_lg_page=12"} <= set(words)
    assert linked.preload is None
    assert linked.server_binary != build(tmp_path, "libc").server_binary


@pytest.mark.parametrize(
    ("options", "expected"), [("--enable-debug", True), ("--with-lg-page=16", False), ("--a --with-lg-page=16", False)]
)
def test_a_package_determines_the_size_of_jemallocs_pages(tmp_path: Path, options: str, expected: bool) -> None:
    linked = build(tmp_path, "jemalloc", options=options)
    words = linked.server_binary.read_text("utf-8").split()
    assert ("je_cv_lg_page=12" in words, "je_cv_static_page_shift=12" in words) == (expected, expected)
    assert "cross_compiling=yes" in words
    assert f"JEMALLOC_CONFIGURE_OPTS={options}" in linked.command_line


def test_jemallocs_page_size_is_part_of_the_builds_name() -> None:
    sizes = [
        allocator.jemalloc_settings(fakes.target(), fakes.toolchain(), options)
        for options in ([], ["--with-lg-page=12"])
    ]
    assert sizes[0] != sizes[1]


def test_options_of_jemalloc_without_jemalloc_are_refused(tmp_path: Path) -> None:
    for chosen in ("libc", "guard"):
        with pytest.raises(UsageError, match="JEMALLOC_CONFIGURE_OPTS would have no effect") as refused:
            build(tmp_path, chosen, options="--with-lg-page=16")
        assert (refused.value.where, "add --allocator jemalloc" in refused.value.remedy) == ("--make", True)
    fakes.write(tmp_path / "old" / "redis-7.0.15" / "deps" / "Makefile", "jemalloc:\n\t./configure\n")
    old = open_tree(fakes.server_tree(tmp_path / "old" / "redis-7.0.15"))
    settings = BuildSettings(make=("JEMALLOC_CONFIGURE_OPTS=--with-lg-page=16",))
    with pytest.raises(UsageError, match="would have no effect on redis-7") as refused:
        allocator.refuse_unused_options(old, settings, "jemalloc")
    assert refused.value.where == str(old.content / "deps" / "Makefile")
    allocator.refuse_unused_options(old, BuildSettings(make=("LDFLAGS=-s",)), "libc")


def test_options_of_jemalloc_are_refused_where_the_makefile_chooses_another_allocator(tmp_path: Path) -> None:
    for choice, expected in (("MALLOC=libc\n", "libc"), ("MALLOC:=tcmalloc_minimal\n", "tcmalloc_minimal")):
        with pytest.raises(UsageError, match="JEMALLOC_CONFIGURE_OPTS would have no effect") as refused:
            build(tmp_path / expected, "makefile", makefile=choice + MAKEFILE, options="--enable-debug")
        assert (refused.value.where, f"which chooses {expected}" in refused.value.because) == ("--make", True)
        # Without options the makefile decides.
        linked = build(tmp_path / expected, "makefile", makefile=choice + MAKEFILE)
        assert linked.server_binary.read_text("utf-8").split()[0] == expected
    linked = build(tmp_path, "makefile", makefile="MALLOC=jemalloc\n" + MAKEFILE, options="--enable-debug")
    assert linked.server_binary.read_text("utf-8").split()[0] == "jemalloc"


def test_the_last_options_count_and_must_be_quoted() -> None:
    given = BuildSettings(make=("JEMALLOC_CONFIGURE_OPTS=--a", "LDFLAGS=-s", "JEMALLOC_CONFIGURE_OPTS=--b 'c d'"))
    assert allocator.configure_options(given) == ["--b", "c d"]
    with pytest.raises(UsageError, match="not quoted as in a shell: --b 'c"):
        allocator.configure_options(BuildSettings(make=("JEMALLOC_CONFIGURE_OPTS=--b 'c",)))


def test_a_makefile_chooses_jemalloc_for_the_target_and_configures_it_for_the_target(tmp_path: Path) -> None:
    makefile = f"MALLOC=libc\nifneq ($(uname_M),{fakes.target().machine})\nMALLOC=jemalloc\nendif\n{MAKEFILE}"
    for text, chosen in ((makefile, "libc"), (makefile.replace("ifneq", "ifeq"), "jemalloc")):
        words = build(tmp_path / chosen, "makefile", makefile=text).server_binary.read_text("utf-8").split()
        assert words[0] == chosen
        assert {"cross_compiling=yes", "host_alias=fake"} <= set(words)
    bare = build(tmp_path / "bare", "makefile", makefile=makefile, configured=False)
    assert bare.server_binary.read_text("utf-8").split() == ["libc"]
    assert bare.preload is None


def test_a_tree_without_a_configured_jemalloc_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no configure script"):
        build(tmp_path, "jemalloc", configured=False)


@pytest.mark.parametrize(
    ("target", "chosen"),
    [("native-asan", "guard"), ("native-valgrind", "jemalloc"), ("armv5-kernel", "guard-natural")],
)
def test_an_impossible_allocator_is_refused_with_the_reason(target: str, chosen: Allocator) -> None:
    catalog = Catalog()
    named = catalog.targets[target]
    with pytest.raises(UsageError, match=f"allocator '{chosen}' is not available on {target}"):
        allocator.check_supported(chosen, named, catalog.toolchain_of(named))


def test_nothing_is_preloaded_into_a_static_program() -> None:
    catalog = Catalog()
    static = msgspec.structs.replace(catalog.toolchains["gcc"], is_static=True)
    with pytest.raises(UsageError, match="nothing can be preloaded"):
        allocator.check_supported("guard", catalog.targets["native"], static)
    allocator.check_supported("jemalloc", catalog.targets["native"], static)


@pytest.mark.parametrize(
    ("target", "chosen"), [("armv5-kernel", "jemalloc"), ("armv5", "guard"), ("native-asan", "libc")]
)
def test_other_allocators_are_not(target: str, chosen: Allocator) -> None:
    catalog = Catalog()
    named = catalog.targets[target]
    allocator.check_supported(chosen, named, catalog.toolchain_of(named))


def test_only_the_guest_preloads_an_object() -> None:
    catalog = Catalog()
    emulated = Runner(
        target=catalog.targets["armv5"],
        policy=catalog.policies["signal"],
        program=Path("/qemu-arm"),
        options=["-cpu", "arm926"],
        records_faults=True,
    )
    native = msgspec.structs.replace(emulated, program=None, options=[])
    preload = Path("/cache/guard.so")
    command = emulated.command(Path("/server"), ["--port", "0"], Path("/log"), preload=preload)
    assert command == [
        *("/qemu-arm", "-cpu", "arm926", "-E", "LD_PRELOAD=/cache/guard.so"),
        *("-fault-log", "/log", "/server", "--port", "0"),
    ]
    assert native.command(Path("/server"), [], preload=preload) == ["env", "LD_PRELOAD=/cache/guard.so", "/server"]
    assert native.command(Path("/server"), []) == ["/server"]


@pytest.mark.parametrize(
    ("address", "inside"),
    [(0x40A7EFFF, False), (0x40A7F000, True), (0x50000000, True), (0x68A7EFFF, True), (0x68A7F000, False), (0, False)],
)
def test_an_address_is_inside_or_outside_the_range_of_blocks(address: int, inside: bool) -> None:
    assert any(address in one for one in allocator_log.block_ranges(GUARD_LOG)) is inside


def test_the_adversarial_allocators_line_is_removed_from_a_programs_output() -> None:
    assert allocator_log.without_range(GUARD_LOG) == b"noise\n7747:C 21 Nov 2026 ready\n"
    assert allocator_log.without_range(b"a\nb\n") == b"a\nb\n"


def test_without_the_adversarial_allocators_line_no_address_is_in_a_block() -> None:
    assert allocator_log.block_ranges(b"7747:C ready\n") == []


def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: int) -> Path:
    """A run in which a guest with the adversary dies of SIGSEGV in bitcountCommand."""
    fakes.fake_symbols(tmp_path / "symbols", monkeypatch)
    run = StoredRun(tmp_path / "run")
    pc = run.place("armv5", "bitcountCommand")
    run.canary("armv5")
    run.log("armv5", "bitops", "guest-1", GUARD_LOG)
    record = fakes.fault(
        number=signal.SIGSEGV, code=SEGV_ACCERR, address=address, pc=pc, access="", access_class="", access_bytes=0
    )
    run.fault("armv5", "bitops", "guest-1", record)
    run.test("armv5", "bitops", "t", outcome="failed", guest="guest-1", faults=(0, 1), transcript=b"x")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGSEGV", test="t")
    return run.finish()


def test_a_fault_at_a_guard_page_is_an_access_outside_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((finding,), outcomes, _) = judge(stored_run.read(stored(tmp_path, monkeypatch, 0x40A80000)))
    assert (finding.kind, finding.id) == ("out-of-bounds", "out-of-bounds-bitcountCommand-load")
    assert finding.title == "load outside a block in bitcountCommand"
    assert (finding.function, finding.line, finding.origin) == ("bitcountCommand", 93, "server")
    assert {cell.suite: cell.verdict for cell in cell_verdicts(outcomes, [finding])} == {
        "canary": "PASS",
        "bitops": "FAIL",
    }


def test_any_other_address_is_a_sigsegv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((finding,), _, _) = judge(stored_run.read(stored(tmp_path, monkeypatch, 0x10)))
    assert finding.id == "sigsegv-bitcountCommand"


def test_a_reproducer_without_an_allocator_uses_libc() -> None:
    old = reproducer()
    text = json_codec.decode(json_codec.encode(old), dict)
    assert text.pop("allocator") == "libc"
    assert json_codec.decode(json_codec.encode(text), Reproducer) == old
