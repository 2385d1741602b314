"""A server's commands and options are read from its source, in every historical style. They date development trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import pytest

from harness.build.sources.source_tree import open_tree
from harness.build.sources.tree_features import abilities_of, age_of, landmarks
from harness.core.model import Abilities
from harness.plan.catalog import Catalog
from harness.run.server_process import Guest, StartError
from harness.run.servers.endings import last_words
from harness.run.servers.server_spec import ServerSpec
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.sources.tree_features import Landmark

CONFIGS = {
    "compared with the first word, to 5.0": """
    if (!strcasecmp(argv[0],"port") && argc == 2) {{
    }} else if ((!strcasecmp(argv[0],"slaveof") || !strcasecmp(argv[0],"{name}")) && argc == 2) {{
""",
    "rows of an array, between 5.0 and 6.0": """
typesOfConfig switches[] = {{
    {{"{name}",NULL,&server.one,1,CONFIG_DEFAULT_ONE}},
""",
    "macros, since 6.0": """
    createBoolConfig("{name}", NULL, MODIFIABLE_CONFIG, server.one, 0, NULL, NULL),
""",
    "macros with another name": """
    createSpecialConfig("replicaof", "{name}", IMMUTABLE_CONFIG | MULTI_ARG_CONFIG, setOne, getOne, NULL, NULL),
""",
    "no option any more, and not refused": """
    {{"{name}", 2, 2}},
""",
}


@pytest.mark.parametrize("era", CONFIGS)
def test_an_option_is_found_however_a_release_writes_its_table(tmp_path: Path, era: str) -> None:
    fakes.write(tmp_path / "src" / "config.c", CONFIGS[era].format(name="some-option"))
    assert "some-option" in abilities_of(tmp_path).options
    assert "other-option" not in abilities_of(tmp_path).options


@pytest.mark.parametrize("file", ["redis.c", "server.c"])
def test_commands_are_those_of_the_table_before_7_0(tmp_path: Path, file: str) -> None:
    table = """
struct redisCommand table[] = {
    {"get",getCommand,2,"rF",0,NULL,1,1,1,0,0},
    {"georadius_ro", georadiusroCommand, -6,
     "read-only", 0},
    {"pubsub",NULL,-2,
     "",
     .subcommands=pubsubSubcommands},
    {"no",NULL},
"""
    fakes.write(tmp_path / "src" / file, table)
    assert abilities_of(tmp_path).commands == ("georadius_ro", "get", "pubsub")


def test_commands_are_those_with_a_description_since_7_0(tmp_path: Path) -> None:
    fakes.write(tmp_path / "src" / "server.c", '{"stale",staleCommand,1},\n')
    describe(tmp_path, "GET", "1.0.0")
    describe(tmp_path, "NO-TOUCH", "7.2.0", container="CLIENT")
    fakes.write(tmp_path / "src" / "commands" / "half.json", '{"HALF": {')
    assert abilities_of(tmp_path).commands == ("client|no-touch", "get")


def describe(tree: Path, name: str, since: str, *, container: str = "") -> None:
    text = f'{{"{name}": {{"since": "{since}", "container": "{container}"}}}}'
    fakes.write(tree / "src" / "commands" / f"{container}-{name}.json", text)


def known(family: str) -> list[Landmark]:
    found: list[Landmark] = getattr(landmarks(), family)
    return found


def numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def between(family: str, release: str) -> Abilities:
    """The features of a tree that has all landmarks of a release, and all of the next release but the last."""
    names = [one.release for one in known(family)]
    at = names.index(release)
    following = known(family)[at + 1 : at + 2]
    commands = [name for one in known(family)[: at + 1] for name in one.commands]
    options = [name for one in known(family)[: at + 1] for name in one.options]
    for one in following:
        kept = [*one.commands, *one.options][:-1]
        commands += kept[: len(one.commands)]
        options += kept[len(one.commands) :]
    return Abilities(commands=tuple(commands), options=tuple(options))


@pytest.mark.parametrize(
    ("family", "release"), [(family, one.release) for family in ("redis", "valkey") for one in known(family)]
)
def test_a_tree_counts_as_the_newest_release_all_of_whose_landmarks_it_has(
    tmp_path: Path, family: str, release: str
) -> None:
    version, by = age_of(tmp_path, "valkey" if family == "valkey" else "redis", between(family, release))
    assert version == numbers(release)
    last = release == known(family)[-1].release
    assert ("it lacks " in by) != last


def test_landmarks_are_in_order() -> None:
    for family in ("redis", "valkey"):
        releases = [numbers(one.release) for one in known(family)]
        assert releases == sorted(set(releases))
        assert all(one.commands or one.options for one in known(family))


NOTES = {
    "--[ Redis 2.8.17 ] Release date: 19 Sep 2014\n--[ Redis 2.8.16 ] Release date\n": ("2.8.13", "2.8.17"),
    "Redis 3.0 release notes\n=====\nRedis 3.0.1     Released Tue\nRedis 3.0.0     Released\n": ("3.0.0", "3.0.1"),
    "Redis 3.1 RC2   Released Tue Apr 5 12:00:00 2016\n": ("3.0.0", "3.1"),
    "Redis Open Source 3.1 release notes\n": ("3.0.0", "3.1"),
    "Valkey 8.0.1  -  Released Tue\nValkey 8.0.0 GA  -  Released Mon\n": ("8.0.0", "8.0.1"),
    "Valkey 8.0.2-rc1 - Released Mon\nRedis 8.0.9 Released\n": ("8.0.0", "8.0.2"),
}


@pytest.mark.parametrize("text", NOTES)
def test_the_newest_release_note_counts_if_it_is_more_precise_than_the_source(tmp_path: Path, text: str) -> None:
    before, expected = NOTES[text]
    family: Literal["redis", "valkey"] = "valkey" if text.startswith("Valkey") else "redis"
    fakes.write(tmp_path / "00-RELEASENOTES", text)
    version, by = age_of(tmp_path, family, between(family, before))
    assert version == numbers(expected)
    assert by.startswith("its newest release note; it lacks ")


@pytest.mark.parametrize(
    "text",
    [
        "Hello! Of this branch there are no release notes; Redis 9.9 release notes are elsewhere.\n",
        "Redis 9.9.9 fixes a bug of all releases since 2.6.\n",
        "Migrating from 9.8 to 9.9\n",
        "Redis 9.9.9 Released by mistake: what it brought is not in the source.\n",
        "",
    ],
)
def test_an_invalid_note_or_one_that_contradicts_the_source_does_not_count(tmp_path: Path, text: str) -> None:
    fakes.write(tmp_path / "00-RELEASENOTES", text)
    assert age_of(tmp_path, "redis", between("redis", "4.0.0"))[0] == (4, 0, 0)


def test_after_the_last_landmark_the_newest_commands_since_field_counts(tmp_path: Path) -> None:
    describe(tmp_path, "NEWEST", "77.1.0")
    describe(tmp_path, "PLANNED", "255.255.255")
    newest = known("redis")[-1].release
    assert age_of(tmp_path, "redis", between("redis", newest)) == ((77, 1, 0), "its newest command")


def test_a_tree_without_dated_commands_counts_as_the_newest_release_with_a_message(tmp_path: Path) -> None:
    version, by = age_of(tmp_path, "redis", Abilities())
    assert version == numbers(known("redis")[-1].release)
    assert by == "the latest landmark, since its source lists no commands"


def development_tree(path: Path, *, version: str, commands: list[str], config: str = "") -> Path:
    tree = fakes.server_tree(path, version=version)
    rows = "".join(f'    {{"{name}",{name}Command,2,"r"}},\n' for name in commands)
    fakes.write(tree / "src" / "server.c", f"struct redisCommand table[] = {{\n{rows}}};\n")
    fakes.write(tree / "src" / "config.c", "".join(f'createBoolConfig("{name}", NULL),\n' for name in config.split()))
    return tree


@pytest.mark.parametrize("version", ["999.999.999", "255.255.255"])
def test_a_development_tree_is_reported_with_its_assumed_version_and_the_reason(tmp_path: Path, version: str) -> None:
    has = between("redis", "4.0.0")
    path = development_tree(tmp_path / "t", version=version, commands=list(has.commands), config=" ".join(has.options))
    tree = open_tree(path)
    assert tree.version == (4, 0, 0)
    start = f"a development tree ({version}), treated as 4.0.0 because of the features of its source; it lacks "
    assert tree.development.startswith(start)
    assert tree.development.endswith(", which came with 5.0.0")


def test_a_release_is_not_a_development_tree(tmp_path: Path) -> None:
    assert open_tree(fakes.server_tree(tmp_path / "tree")).development == ""


def test_a_development_tree_that_lacks_the_oldest_landmarks_is_not_refused(tmp_path: Path) -> None:
    tree = open_tree(development_tree(tmp_path / "tree", version="999.999.999", commands=["get", "set"]))
    assert tree.version == (2, 8)
    assert "it lacks SCAN, which came with 2.8.0" in tree.development


@pytest.mark.parametrize("version", [(3, 2, 6), (7, 0, 15), (255, 255, 255)])
@pytest.mark.parametrize("knows", [True, False])
def test_a_guest_is_started_with_options_that_its_source_has_whatever_its_version(
    tmp_path: Path, version: tuple[int, ...], *, knows: bool
) -> None:
    options = ("crash-memcheck-enabled", "enable-debug-command", "ignore-warnings") if knows else ("port",)
    build = msgspec.structs.replace(fakes.build(tmp_path), abilities=Abilities(options=options))
    runner = fakes.unemulated(Catalog().targets["aarch64"])
    quick = ServerSpec(build=build, version=version, tests_memory=False)
    guest = Guest(quick, runner, tmp_path / "guest-1", sockets=tmp_path)
    words = guest.arguments()
    assert ("--enable-debug-command" in words) is knows
    assert ("--ignore-warnings" in words) is knows
    assert ("--crash-memcheck-enabled" in words) is knows
    assert guest.hides_crash_maps is not knows
    thorough = Guest(ServerSpec(build=build, version=version), runner, tmp_path / "guest-2", sockets=tmp_path)
    assert not thorough.hides_crash_maps


def test_a_guest_loads_the_module_that_its_makefile_split_off_from_the_server(tmp_path: Path) -> None:
    module = tmp_path / "libvalkeylua.so"
    build = msgspec.structs.replace(fakes.build(tmp_path), modules=(module,))
    runner = fakes.unemulated(Catalog().targets["aarch64"])
    guest = Guest(ServerSpec(build=build, version=(9, 1, 2)), runner, tmp_path / "guest-1", sockets=tmp_path)
    words = guest.arguments()
    assert words[words.index("--loadmodule") + 1] == str(module)


COMPLAINT = """
*** FATAL CONFIG FILE ERROR ***
Reading the configuration file, at line 6
>>> 'enable-debug-command "yes"'
Bad directive or wrong number of arguments
"""
LINES = (
    "Reading the configuration file, at line 6 >>> 'enable-debug-command \"yes\"' "
    "Bad directive or wrong number of arguments"
)
REPORT = """4816:M 22 Nov 2026 19:14:54.087 # === ASSERTION FAILED ===
4816:M 22 Nov 2026 19:14:54.087 # ==> module.c:12256 'retval == C_OK' is not true
=== REDIS BUG REPORT END. Make sure to include from START to END. ===
  Some other issues could be detected by redis-server --check-system
"""
STAMPED = """1234:C 01 Jan 2020 00:00:00.000 # oO0OoO0OoO0Oo Redis is starting oO0OoO0OoO0Oo
1234:M 01 Jan 2020 00:00:00.123 # Can't open the append-only file: Permission denied

"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            f"a line before\n{COMPLAINT}",
            f"*** FATAL CONFIG FILE ERROR *** {LINES}",
        ),
        (STAMPED, "Can't open the append-only file: Permission denied"),
        (
            "[77] 01 Jan 00:00:00.123 # Wrong signature trying to load DB from file\n",
            "Wrong signature trying to load DB from file",
        ),
        ("", ""),
        (REPORT, "module.c:12256 'retval == C_OK' is not true"),
        (
            "4816:M 22 Nov 2026 19:14:54.087 # Guru Meditation: no type #rdb.c:7\ncrashed",
            "Guru Meditation: no type #rdb.c:7",
        ),
        ("\n \n", ""),
        ("x" * 1000, "x" * 299 + "…"),
    ],
)
def test_the_last_words_of_a_server_that_did_not_start_are_one_line(log: str, expected: str) -> None:
    assert expected == last_words(log)


def test_a_server_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    program = fakes.write(tmp_path / "server", f"#!/bin/sh\ncat <<'END'\n{COMPLAINT}END\nexit 1\n", mode=0o755)
    runner = fakes.unemulated(fakes.target())
    guest = Guest(
        ServerSpec(build=fakes.build(tmp_path, binary=program.name), version=(7,)),
        runner,
        tmp_path / "g",
        sockets=tmp_path,
    )
    with pytest.raises(StartError) as caught:
        guest.__enter__()
    assert caught.value.detail == f"exit status 1; {last_words(COMPLAINT)}"
