"""The catalog is strict, suggests the nearest known key, and is documented."""

from __future__ import annotations

import functools
import re
import shutil
from typing import TYPE_CHECKING

import click
import msgspec
import pytest

from harness.build.emulators.qemu_source import pinned_qemu
from harness.cli.group import plumb
from harness.core.errors import ExitCode, NothingSelectedError, UsageError
from harness.core.strict_toml import ROOT, read_toml
from harness.core.target_model import Target, Toolchain
from harness.isa.rules import applies
from harness.plan.catalog import Catalog
from harness.plan.name_selection import select, target_groups
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the catalog that a test may damage."""
    for folder in ("targets", "toolchains", "harness/plan/servers", "harness/plan/policies"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def damage(path: Path, old: str, new: str) -> Path:
    text = path.read_text("utf-8")
    assert old in text, f"{path} has no {old!r}: fix this test"
    path.write_text(text.replace(old, new, 1), "utf-8")
    return path


@pytest.mark.parametrize(("machine", "debian"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_a_target_without_an_emulator_is_that_of_the_host(
    monkeypatch: pytest.MonkeyPatch, machine: str, debian: str
) -> None:
    """The oracle of a distribution's package is the host's package, and makefiles get the host's machine name."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    catalog = Catalog()
    here = [target for target in catalog.targets.values() if target.emulator.runs_here]
    hosts = [target for target in here if not target.emulator.hosts]
    assert {target.machine for target in hosts} == {machine}
    # Targets that name their hosts are machines of their own.
    assert {target.machine for target in here if target.emulator.hosts} == {"i686", "x86_64"}
    assert {catalog.toolchain_of(target).debian_architecture for target in hosts} == {debian}
    assert (catalog.targets["armv5"].machine, catalog.toolchains["gcc-sparc64-linux-gnu"].debian_architecture) == (
        Catalog().targets["armv5"].machine,
        "",
    )


@pytest.mark.parametrize(("machine", "isa"), [("x86_64", "x86_64"), ("aarch64", "aarch64")])
def test_the_canary_of_a_native_target_has_the_instructions_of_its_machine(
    monkeypatch: pytest.MonkeyPatch, machine: str, isa: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    targets = Catalog().targets
    native = {
        name: target for name, target in targets.items() if target.emulator.runs_here and not target.emulator.hosts
    }
    assert {target.isa for target in native.values()} == {isa}
    assert {name: targets[name].isa for name in ("i386", "x86_64")} == {"i386": "i386", "x86_64": "x86_64"}
    demand = targets["aarch64"].demand if machine == "aarch64" else {}
    for target in native.values():
        assert target.demand == demand, target.name
        assert sorted(name for one in target.demand_sources for name in one.classes) == sorted(target.demand)


def test_a_machine_that_cannot_run_x86_has_no_native_x86_target(monkeypatch: pytest.MonkeyPatch) -> None:
    of_x86 = {"i386", "i386-time64", "x86_64"}
    assert of_x86 <= {*Catalog().select_targets(["all"])}
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    catalog = Catalog()
    others = catalog.select_targets(["all"])
    assert catalog.targets.keys() - {*others} == of_x86
    assert catalog.select_targets(["32-bit", "native"]) == [
        name for name in others if name == "native" or "32-bit" in catalog.targets[name].groups
    ]
    for patterns in (["i386"], ["armv5", "i386"], ["i386*"]):
        with pytest.raises(UsageError, match="cannot run programs for i386") as caught:
            catalog.select_targets(patterns)
        assert "its processor is aarch64" in str(caught.value)


def test_every_file_of_the_catalog_loads() -> None:
    catalog = Catalog()
    loaded = {
        "targets": sorted(catalog.targets),
        "toolchains": sorted(catalog.toolchains),
        "harness/plan/servers": sorted(catalog.servers),
    }
    expected = {folder: sorted(path.stem for path in (ROOT / folder).glob("*.toml")) for folder in loaded}
    assert expected == loaded
    assert sorted(path.parent.name for path in (ROOT / "suites").glob("*/suite.toml")) == sorted(catalog.suites)
    assert re.fullmatch(r"[0-9a-f]{64}", pinned_qemu().sha256)


def test_a_suite_that_runs_tests_of_an_unknown_one_is_an_error(copied: Path) -> None:
    shutil.copytree(ROOT / "suites", copied / "suites", ignore=shutil.ignore_patterns("golden", "*.py"))
    path = damage(copied / "suites/threads/suite.toml", '"protocol"', '"protokol"')
    with pytest.raises(UsageError, match="unknown suite 'protokol'") as caught:
        Catalog(copied, copied / "harness").suites  # noqa: B018 - it is read when it is first asked for
    assert str(path) in str(caught.value)
    assert "did you mean 'protocol'?" in str(caught.value)


def test_every_server_is_pinned_by_a_full_hash_and_its_name_has_its_version() -> None:
    for name, server in Catalog().servers.items():
        assert re.fullmatch(r"[0-9a-f]{64}", server.sha256), f"{name}: sha256 is not 64 hexadecimal digits"
        assert name == f"{server.family}-{server.version}"
        assert server.places, f"{name}: no download place"


def test_every_targets_demands_are_powers_of_two() -> None:
    for target in Catalog().targets.values():
        assert all(demand in {2, 4, 8, 16, 32} for demand in target.demand.values()), target.name


def test_every_demand_has_one_source_and_a_core_where_the_source_leaves_it_open() -> None:
    for target in Catalog().targets.values():
        classes = [name for one in target.demand_sources for name in one.classes]
        assert sorted(classes) == sorted(target.demand), target.name
        assert target.demand_sources, f"{target.name}: no source says that all accesses are allowed"
        for one in target.demand_sources:
            is_open = re.search("UNPREDICTABLE|IMPLEMENTATION DEFINED|implementation-dependent|undefined", one.source)
            assert one.core or not is_open, f"{target.name}: no core for {one.source}"


def test_exactly_the_targets_that_demand_aligned_words_and_halfwords_are_strict() -> None:
    for target in Catalog().targets.values():
        demands = target.demand.get("half") == 2 and target.demand.get("word") == 4
        assert ("strict" in target.groups) == (demands and target.emulator.is_qemu_user), target.name


def test_the_groups_of_width_and_byte_order_match_the_targets() -> None:
    for target in Catalog().targets.values():
        if not target.emulator.has_kernel:
            assert (target.width_bits == 64) == ("64-bit" in target.groups), target.name
            assert (target.width_bits == 32) == ("32-bit" in target.groups), target.name
            assert (target.endianness == "big") == ("big-endian" in target.groups), target.name


def test_a_variant_differs_from_its_target_only_in_compiler_flags_page_size_and_byte_order() -> None:
    targets = Catalog().targets
    variants = [target for target in targets.values() if target.variant_of]
    assert variants
    for variant in variants:
        usual = targets[variant.variant_of]
        own = {
            "name": variant.name,
            "title": variant.title,
            "groups": variant.groups,
            "compiler_flags": variant.compiler_flags,
            "page_size_bytes": variant.page_size_bytes,
            "variant_of": variant.variant_of,
        }
        if variant.endianness != usual.endianness:
            emulator = msgspec.structs.replace(usual.emulator, qemu=variant.emulator.qemu)
            own |= {"endianness": variant.endianness, "emulator": emulator, "machine": variant.machine}
            own |= {"toolchain": variant.toolchain}
        assert variant == msgspec.structs.replace(usual, **own)
        assert set(usual.groups) - {"required"} <= set(variant.groups)
        assert variant.compiler_flags[: len(usual.compiler_flags)] == usual.compiler_flags
        assert variant.compiler_flags != usual.compiler_flags or variant.page_size_bytes != usual.page_size_bytes


def test_every_policy_belongs_to_a_target_and_names_its_documentation() -> None:
    targets = Catalog().targets.values()
    for policy in Catalog().policies.values():
        assert any(applies(policy, target) for target in targets), policy.name
        assert len(policy.source) > 20, policy.name
        assert set() == set(policy.fixup) & set(policy.ignore), policy.name


def test_a_wrong_key_of_a_policy_is_an_error_that_names_the_policy(copied: Path) -> None:
    damage(copied / "harness" / "plan" / "policies" / "linux-arm.toml", "fixup = [", "fixups = [")
    with pytest.raises(UsageError) as caught:
        Catalog(copied, copied / "harness").policies  # noqa: B018
    assert "linux-arm-2" in str(caught.value)
    assert "'fixup' is the nearest known key" in str(caught.value)


def test_an_unknown_effective_policy_is_an_error(copied: Path) -> None:
    damage(
        copied / "harness" / "plan" / "policies" / "linux-arm.toml",
        '{ armv6 = "linux-arm-2"',
        '{ armv6 = "linux-arm-9"',
    )
    with pytest.raises(UsageError, match="linux-arm-9"):
        Catalog(copied, copied / "harness").policies  # noqa: B018


def test_a_policy_is_defined_once(copied: Path) -> None:
    damage(copied / "harness" / "plan" / "policies" / "linux-arm.toml", 'name = "linux-arm-2"', 'name = "signal"')
    with pytest.raises(UsageError, match="'signal' is defined twice"):
        Catalog(copied, copied / "harness").policies  # noqa: B018


def test_a_targets_kernel_is_a_policy(copied: Path) -> None:
    damage(copied / "targets" / "armv5.toml", 'kernel = "linux-arm-2"', 'kernel = "linux-arm-22"')
    with pytest.raises(UsageError, match="did you mean 'linux-arm-2'"):
        Catalog(copied, copied / "harness").targets  # noqa: B018


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("compiler_flag = []", "compiler_flags"),
        ("slow_down = 3", "slowdown"),
        ("compiler-flags = []", "compiler_flags"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_file_and_the_nearest_key(
    copied: Path, written: str, nearest: str
) -> None:
    path = damage(copied / "targets" / "armv5.toml", "slowdown = ", f"{written}\nslowdown = ")
    with pytest.raises(UsageError) as caught:
        Catalog(copied, copied / "harness").targets  # noqa: B018 - reading is what is tested
    message = str(caught.value)
    assert str(path) in message
    assert written.split(" ", maxsplit=1)[0] in message
    assert f"'{nearest}' is the nearest known key" in message


def test_an_unknown_key_of_an_inner_table_is_an_error_too(copied: Path) -> None:
    damage(copied / "targets" / "armv5.toml", 'cpu = "', 'cpus = "')
    with pytest.raises(UsageError, match="'cpu' is the nearest known key"):
        Catalog(copied, copied / "harness").targets  # noqa: B018


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("slowdown = 15", 'slowdown = "15"', "slowdown"),
        ("width_bits = 32", "width_bits = 33", "width_bits"),
        ('endianness = "little"', 'endianness = "middle"', "endianness"),
        ('machine = "armv5tel"\n', "", "machine"),
    ],
)
def test_a_wrong_or_missing_value_is_an_error_that_names_the_file_and_the_key(
    copied: Path, old: str, new: str, message: str
) -> None:
    path = damage(copied / "targets" / "armv5.toml", old, new)
    with pytest.raises(UsageError) as caught:
        Catalog(copied, copied / "harness").targets  # noqa: B018
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_the_name_in_the_file_name_cannot_be_set_in_the_file(copied: Path) -> None:
    damage(copied / "targets" / "armv5.toml", "title = ", 'name = "other"\ntitle = ')
    with pytest.raises(UsageError, match="key 'name' cannot be set in a file"):
        Catalog(copied, copied / "harness").targets  # noqa: B018


def test_invalid_toml_is_an_error_that_names_the_file_and_the_line(copied: Path) -> None:
    path = damage(copied / "targets" / "armv5.toml", "title = ", "title = = ")
    with pytest.raises(UsageError) as caught:
        Catalog(copied, copied / "harness").targets  # noqa: B018
    assert "not valid TOML" in str(caught.value)
    assert str(path) in str(caught.value)
    assert "line 1" in str(caught.value)


def test_a_file_that_is_not_there_is_a_usage_error_not_a_bug(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_toml(tmp_path / "absent.toml", Target, name="absent")
    assert str(tmp_path / "absent.toml") in str(caught.value)


@pytest.mark.parametrize(
    ("file", "name", "near", "kind"),
    [
        ("armv5", "gcc-arm-linux-gnueabi", "gcc-arm-linux-gnuabi", "toolchain"),
        ("armv5", "linux-arm-2", "linux-arm-22", "policy"),
        ("armv5-kernel", '"versatile"', '"versatil"', "kernel"),
        ("armv5-kernel", 'userland = "armv5"', 'userland = "armv55"', "target"),
        ("armv7-time64", 'variant_of = "armv7"', 'variant_of = "armv77"', "target"),
    ],
)
def test_an_unknown_name_in_a_target_is_an_error_with_a_suggestion(
    copied: Path, file: str, name: str, near: str, kind: str
) -> None:
    damage(copied / "targets" / f"{file}.toml", name, near)
    with pytest.raises(UsageError) as caught:
        Catalog(copied, copied / "harness").targets  # noqa: B018
    wrong, right = near.rpartition("= ")[2].strip('"'), name.rpartition("= ")[2].strip('"')
    assert f"unknown {kind} '{wrong}' (targets/{file}.toml)" in str(caught.value)
    assert f"did you mean '{right}'?" in str(caught.value)


def test_an_unknown_toolchain_of_a_kernel_is_an_error_with_a_suggestion(copied: Path) -> None:
    file = copied / "toolchains" / "kernels" / "versatile.toml"
    damage(file, 'toolchain = "gcc-arm-linux-gnueabi"', 'toolchain = "gcc-arm-linux-gnuabi"')
    with pytest.raises(UsageError) as caught:
        Catalog(copied, copied / "harness").kernels  # noqa: B018
    assert "'gcc-arm-linux-gnuabi' (toolchains/kernels/versatile.toml)" in str(caught.value)
    assert "did you mean 'gcc-arm-linux-gnueabi'?" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "named", "variant"),
    [
        ("sparc32plus-time64", 'variant_of = "sparc32plus"', 'variant_of = "armv7-time64"'),
        ("armv7-kernel", 'userland = "armv7"', 'userland = "armv7-time64"'),
    ],
)
def test_a_variant_cannot_stand_for_a_machine(copied: Path, file: str, named: str, variant: str) -> None:
    """Otherwise a canary would silently lack half of the accesses."""
    damage(copied / "targets" / f"{file}.toml", named, variant)
    with pytest.raises(UsageError, match="a variant is named where a target is expected"):
        Catalog(copied, copied / "harness").select_targets(["all"])


def test_a_toolchain_is_checked_as_strictly_as_a_target(tmp_path: Path) -> None:
    path = tmp_path / "gcc.toml"
    path.write_text('tripel = "x"\npackages = []\n[sysroot]\n', "utf-8")
    with pytest.raises(UsageError, match="'triple' is the nearest known key"):
        read_toml(path, Toolchain, name="gcc")


NAMES = ["armv5", "armv6", "sparc32plus", "sparc64"]
GROUPS = {"strict": ["armv5", "sparc32plus", "sparc64"], "all": NAMES}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["armv5"], ["armv5"]),
        (["sparc*"], ["sparc32plus", "sparc64"]),
        (["strict"], ["armv5", "sparc32plus", "sparc64"]),
        (["sparc64", "armv5", "armv*"], ["armv5", "armv6", "sparc64"]),
        (["*"], NAMES),
        (["armv[56]"], ["armv5", "armv6"]),
    ],
)
def test_select_expands_globs_and_groups_in_catalog_order_once_each(patterns: list[str], expected: list[str]) -> None:
    assert expected == select("target", patterns, NAMES, GROUPS)


def test_select_suggests_a_name_for_an_unknown_word() -> None:
    with pytest.raises(UsageError) as caught:
        select("target", ["sparc46"], NAMES, GROUPS)
    assert "unknown target 'sparc46' (--target)" in str(caught.value)
    assert "did you mean 'sparc64'? All: plumb list targets" in str(caught.value)


def test_a_prefix_suggests_only_the_near_names() -> None:
    with pytest.raises(UsageError) as caught:
        select("target", ["arm"], NAMES, GROUPS)
    assert "did you mean 'armv5'? Also near: armv6. All: plumb list targets" in str(caught.value)


def test_select_does_not_let_a_known_word_hide_an_unknown_one() -> None:
    with pytest.raises(UsageError, match="unknown target 'riscv'"):
        select("target", ["armv5", "riscv"], NAMES, GROUPS)


def test_a_glob_that_matches_nothing_selects_nothing() -> None:
    with pytest.raises(NothingSelectedError, match=r"no target matches mips\*"):
        select("target", ["mips*"], NAMES, GROUPS)


def test_a_glob_that_matches_nothing_is_not_hidden_by_one_that_matches() -> None:
    with pytest.raises(NothingSelectedError, match=r"no target matches mips\*"):
        select("target", ["armv*", "mips*"], NAMES, GROUPS)


def test_no_pattern_selects_nothing() -> None:
    with pytest.raises(NothingSelectedError, match="no target is named"):
        select("target", [], NAMES, GROUPS)


def test_every_target_is_in_the_group_all_and_the_required_group_has_the_six_of_the_mission() -> None:
    groups = target_groups(Catalog().targets)
    assert list(Catalog().targets) == groups["all"]
    assert {"armv5", "armv6", "armv7", "aarch64", "sparc32plus", "sparc64"} == set(groups["required"])


# The documentation is complete: it mentions everything that a user can type, select or receive.


@functools.cache
def documentation() -> str:
    # Pages that are generated from the code mention everything, but explain nothing.
    generated = {ROOT / "docs" / "cli.md", ROOT / "docs" / "toml.md"}
    files = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if path not in generated]
    return "\n".join(path.read_text("utf-8") for path in files)


def mentioned(word: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", documentation()) is not None


def supported() -> list[str]:
    catalog = Catalog()
    nouns = [
        *(f"target {name}" for name in catalog.targets),
        *(f"group {name}" for name in target_groups(catalog.targets)),
        *(f"server {name}" for name in catalog.servers),
        *(f"suite {name}" for name in catalog.suites),
        *(f"policy {name}" for name in catalog.policies),
    ]
    commands: dict[str, click.Command] = dict(plumb.commands)
    for name, command in plumb.commands.items():
        if isinstance(command, click.Group):
            commands |= {f"{name} {inner}": one for inner, one in command.commands.items()}
    for name, command in sorted(commands.items()):
        nouns.append(f"command plumb {name}")
        options = [option for option in command.params if isinstance(option, click.Option)]
        nouns += [f"option {option.opts[0]} of {name}" for option in options]
        choices = [(o, o.type.choices) for o in options if isinstance(o.type, click.Choice)]
        nouns += [f"choice {choice} of {option.opts[0]} of {name}" for option, found in choices for choice in found]
    return nouns


@pytest.mark.parametrize("what", supported())
def test_everything_supported_is_documented(what: str) -> None:
    kind, _, rest = what.partition(" ")
    word = rest if kind == "command" else rest.split(" ")[0]
    assert mentioned(word), f"neither README.md nor docs/*.md mentions {kind} {rest}"


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_documented_by_number_and_meaning(code: ExitCode) -> None:
    meaning = code.name.lower().replace("_", " ").split(" ")[0][:7]
    lines = [line for line in documentation().splitlines() if re.search(rf"(?<![\w.]){code.value}(?![\w.])", line)]
    assert any(meaning in line.lower() for line in lines), (
        f"no line of README.md or docs/*.md has exit code {code.value} together with a word like '{meaning}'"
    )


def test_ci_test_installs_the_compilers_of_the_machines_that_the_tests_run() -> None:
    named = re.search(r"^ *for target in (.*); do needs", (ROOT / "ci" / "test").read_text("utf-8"), re.MULTILINE)
    assert named
    assert named[1].split() == machines.OTHERS


@pytest.mark.parametrize("names", [[], ["another"], ["canary", "another"]])
def test_exactly_one_suite_named_canary_has_the_canary_role(tmp_path: Path, names: list[str]) -> None:
    for name in ["bitops", *names]:
        folder = tmp_path / "suites" / name
        folder.mkdir(parents=True)
        role = 'role = "canary"\n' if name in names else ""
        (folder / "suite.toml").write_text(f'title = "{name}"\nneeds_server = false\n{role}', "utf-8")
    with pytest.raises(UsageError, match="must be canary"):
        _ = Catalog(tmp_path).canary


def test_a_program_belongs_to_a_suite(tmp_path: Path) -> None:
    assert Catalog().suite_of_program("units").path.name == "units"
    with pytest.raises(UsageError, match="no suite has the program"):
        Catalog(tmp_path).suite_of_program("units")
