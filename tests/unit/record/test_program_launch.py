"""The files of a traced command are read back unchanged, and a shell accepts the printed environment."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import InconclusiveError
from harness.core.strict_toml import ROOT
from harness.judge.program_runs.program_evidence import program_doubts
from harness.judge.reproducer import ReplayedProgram
from harness.record import program_launch
from harness.record.program_launch import CommandRecord, ProcessNote
from harness.workflows.programs.cross_environment import VARIABLES, as_shell, cross_environment
from tests.support import fakes

if TYPE_CHECKING:
    from tests.support.fakes import Plumb

WORDS = ["17", "1700000000000", "/tree/below", "/tree/odd", "/tree/odd", "2", "./odd", "a b", "NEW=x=y", "HOME"]
END = b'{"event":"end","pid":17,"signal":0,"status":0}\n'


def guest(cell: Path, words: list[str], *, ends: str = "17 exited 0\n", log: bytes = END) -> Path:
    folder = cell / "guest-1"
    folder.mkdir(parents=True)
    (folder / program_launch.LAUNCH).write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (folder / program_launch.ENDS).write_text(ends, "utf-8")
    (folder / "faults.jsonl").write_bytes(log)
    return folder


def test_a_launch_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    launch = program_launch.read_launch(guest(tmp_path, WORDS))
    assert launch is not None
    assert (launch.pid, launch.folder, launch.program, launch.words) == (
        17,
        "/tree/below",
        "/tree/odd",
        ["./odd", "a b"],
    )
    assert launch.environment == {"NEW": "x=y", "HOME": None}
    assert launch.text == "./odd 'a b'"


def test_a_program_under_another_name_is_shown_by_its_path(tmp_path: Path) -> None:
    launch = program_launch.read_launch(guest(tmp_path, [*WORDS[:6], "another", *WORDS[7:]]))
    assert launch is not None
    assert launch.text == "/tree/odd 'a b'"


@pytest.mark.parametrize("count", range(8))
def test_a_truncated_launch_is_none_and_a_doubt(tmp_path: Path, count: int) -> None:
    program_launch.write_command(tmp_path, CommandRecord(words=["make"], folder="/tree"))
    folder = guest(tmp_path, WORDS[:count])
    assert program_launch.read_launch(folder) is None
    assert program_doubts(tmp_path) == ["guest-1: no record shows which program was executed, or whether it ran"]


@pytest.mark.parametrize(
    ("ends", "log", "silent"),
    [
        ("17 exited 0\n", END, None),
        ("17 exited 0\n", b"", ProcessNote(pid=17, how="exited", number=0)),
        ("17 killed 11\n", b"", ProcessNote(pid=17, how="killed", number=11)),
        # An emulator records no end if it is killed from outside or executes another program.
        ("17 killed 9\n", b"", None),
        ("17 replaced\n", b"", None),
        # A child of the same program.
        ("17 exited 0\n18 exited 1\n", END, ProcessNote(pid=18, how="exited", number=1)),
    ],
)
def test_a_process_whose_end_its_emulator_did_not_record_is_reported(
    tmp_path: Path, ends: str, log: bytes, silent: ProcessNote | None
) -> None:
    program_launch.write_command(tmp_path, CommandRecord(words=["make"], folder="/tree"))
    assert program_launch.unwatched(guest(tmp_path, WORDS, ends=ends, log=log)) == silent
    assert bool(program_doubts(tmp_path)) == (silent is not None)


@pytest.mark.parametrize(("path", "doubted"), [("/tree/odd", True), ("/tree/CMakeFiles/CMakeTmp/cmTC_1a2b", False)])
def test_a_program_that_outlives_its_command_is_a_doubt_unless_it_is_a_probe(
    tmp_path: Path, path: str, *, doubted: bool
) -> None:
    program_launch.write_command(tmp_path, CommandRecord(words=["make"], folder="/tree"))
    folder = guest(tmp_path, [*WORDS[:3], path, path, *WORDS[5:]])
    (folder / program_launch.LEFT).write_text("17\n", "utf-8")
    assert any("still ran when the command had ended" in why for why in program_doubts(tmp_path)) is doubted


def test_a_damaged_command_is_refused(tmp_path: Path) -> None:
    (tmp_path / program_launch.COMMAND).write_text("{", "utf-8")
    with pytest.raises(InconclusiveError, match="the record of the command is damaged"):
        program_launch.read_command(tmp_path)
    assert program_launch.read_command(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    ("path", "configure", "probe"),
    [
        ("/tree/conftest", "/tree/config.log", True),
        ("/tree/lt-conftest", "/tree/config.log", True),
        ("/tree/conftest", "", False),
        ("/tree/test", "/tree/config.log", False),
        ("/tree/CMakeFiles/CMakeScratch/TryCompile-a/cmTC_1a2b", "", True),
        ("/tree/CMakeFiles/CMakeTmp/cmTC_1a2b", "", True),
        ("/tree/cmTC_1a2b", "", False),
        ("/tree/meson-private/sanitycheckc.exe", "", True),
        ("/tree/meson-private/tmpabc/output.exe", "", True),
        ("/tree/sanitycheckc.exe", "", False),
    ],
)
def test_probes_of_build_systems_are_recognised_by_program_path_and_configure_log(
    tmp_path: Path, path: str, configure: str, *, probe: bool
) -> None:
    folder = guest(tmp_path, [*WORDS[:3], path, *WORDS[4:]])
    if configure:
        (folder / program_launch.CONFIGURE).write_text(f"{configure}\n", "utf-8")
    launch = program_launch.read_launch(folder)
    assert launch is not None
    assert launch.is_probe == probe


def test_bytes_that_are_not_text_are_shown_and_kept(tmp_path: Path) -> None:
    words = ["./odd", "\udcff%", "ö b"]
    command = CommandRecord(words=words, folder="/tree/\udcfe")
    program_launch.write_command(tmp_path, command)
    assert program_launch.read_command(tmp_path) == command
    assert command.text == f"./{command.title}" == r"./odd '\xff%' 'ö b'"
    launch = ReplayedProgram(
        words=words, program="/p", file="/p", folder="/", environment={"A": "\udcff", "B": None, "C": "%41"}
    )
    kept = launch.as_json_can_hold()
    assert json_codec.decode(json_codec.encode(kept), ReplayedProgram).as_executed() == launch


def test_text_is_recorded_unchanged() -> None:
    launch = ReplayedProgram(words=["./odd", "ö %41"], program="/p", file="/p", folder="/", environment={"A": "%41"})
    assert launch.as_json_can_hold() == launch.as_executed() == launch


def test_a_shell_accepts_any_value() -> None:
    values = {"PLAIN": "arm-gcc -E", "HARD": "a'b\"c $(echo x) \\ `y`\nz *", "EMPTY": ""}
    script = f'{as_shell(values)}for name in PLAIN HARD EMPTY; do printenv "$name"; done'
    shown = subprocess.run(["sh", "-c", script], capture_output=True, encoding="utf-8", check=True).stdout
    assert shown == "".join(f"{value}\n" for value in values.values())


@pytest.mark.costly
@pytest.mark.parametrize("words", [["--target", "no-such-target"], ["--taget", "armv5"], [], ["--target", "native"]])
def test_a_shell_that_gets_no_variables_loses_those_of_another_target_and_fails(words: list[str]) -> None:
    """`eval ""` succeeds: without this, a script would continue with the previous target's compiler."""
    plumb = [sys.executable, "-m", "harness.cli", "env", *words]
    assignments = as_shell(dict.fromkeys(VARIABLES, "of another target"))
    script = f"""{assignments}eval "$({shlex.join(plumb)})"; echo "$?"; printenv {" ".join(VARIABLES)}"""
    ran = subprocess.run(["sh", "-c", script], capture_output=True, encoding="utf-8", check=False, cwd=ROOT)
    assert "error: " in ran.stderr
    assert ran.stdout == "1\n"


def test_a_targets_variables_are_printed_for_a_shell_or_as_json(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gcc", "g++"):
        fakes.write(tmp_path / "bin" / f"{fakes.TRIPLE}-{name}", "#!/bin/sh\necho 1.0\n", mode=0o755)
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    as_json = plumb("env", "--target", "armv5", "--json")[1]
    for_shell = plumb("env", "--target", "armv5")[1]
    shown = subprocess.run(
        ["sh", "-c", f"{for_shell} printenv CC CXX"], capture_output=True, encoding="utf-8", check=True
    ).stdout
    variables = json_codec.decode(as_json.encode(), dict[str, str])
    assert shown.splitlines() == [variables["CC"], variables["CXX"]]


@pytest.mark.parametrize("words", [["--help"], ["--target", "no-such-target", "--json"]])
def test_output_that_no_shell_evaluates_unsets_nothing(plumb: Plumb, words: list[str]) -> None:
    assert "unset" not in " ".join(plumb("env", *words)[1].split()).replace("that unset the variables", "")


def test_every_variable_of_a_target_is_one_that_a_failure_unsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes.fake_compiler(tmp_path / "bin", monkeypatch)
    cache, root = Cache(tmp_path / "cache"), tmp_path / "root"
    made = cross_environment(cache, fakes.target(), fakes.toolchain())
    with_libraries = cross_environment(cache, fakes.target(), fakes.toolchain(), root)
    assert set(made) < set(with_libraries) == set(VARIABLES)


def test_every_build_system_looks_for_libraries_in_the_root_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes.fake_compiler(tmp_path / "bin", monkeypatch)
    cache, root = Cache(tmp_path / "cache"), tmp_path / "root"
    made = cross_environment(cache, fakes.target(), fakes.toolchain(), root)
    usual = cross_environment(cache, fakes.target(), fakes.toolchain())
    folders = [f"{root}/usr/lib/fake/pkgconfig", f"{root}/usr/share/pkgconfig"]
    assert (made["PKG_CONFIG_SYSROOT_DIR"], made["PKG_CONFIG_LIBDIR"].split(":")) == (str(root), folders)
    assert f"--sysroot={root}" in Path(made["CC"]).read_text("utf-8")
    assert f'set(CMAKE_SYSROOT "{root}")' in Path(made["CMAKE_TOOLCHAIN_FILE"]).read_text("utf-8")
    assert f"sys_root = '{root}'" in Path(made["MESON_CROSS_FILE"]).read_text("utf-8")
    for name in ("CC", "CMAKE_TOOLCHAIN_FILE", "MESON_CROSS_FILE"):
        assert str(root) not in Path(usual[name]).read_text("utf-8")


def test_a_long_output_is_read_for_places_and_shown_by_its_last_lines(tmp_path: Path) -> None:
    lines = ["thread 'main' panicked at src/main.rs:4:5:", *map(str, range(30))]
    (tmp_path / program_launch.OUTPUT).write_text("\n".join(lines) + "\n", "utf-8")
    assert program_launch.read_said(tmp_path).splitlines() == lines
    assert program_launch.read_output(tmp_path).splitlines() == lines[-20:]


def test_an_output_whose_beginning_was_not_kept_is_read_from_its_first_whole_line(tmp_path: Path) -> None:
    rest = "in a line\n" + "x" * (program_launch.LONGEST_OUTPUT - 10)
    for output, said in ((rest, rest[10:]), (rest[:-1], rest[:-1])):
        (tmp_path / program_launch.OUTPUT).write_text(output, "utf-8")
        assert program_launch.read_said(tmp_path) == said
