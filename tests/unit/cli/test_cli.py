"""The command line from a user's view: messages, exit codes, one document on standard output."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from harness.cli.commands import FORMER_NAMES, SECTIONS
from harness.cli.group import plumb as group
from harness.cli.parameters import completion
from harness.cli.run_options import may_install
from harness.core.errors import ExitCode, InfrastructureError
from harness.core.model import BuildSettings
from harness.core.processes import process
from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from harness.workflows import check as check_workflow
from harness.workflows.porting import survey
from tests.support import fakes
from tests.support.stored import StoredRun

if TYPE_CHECKING:
    from harness.plan.request import Request
    from tests.support.fakes import Plumb

TARGET = ("--target", "armv5")


def test_the_exit_codes_are_the_documented_ones() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "PASS": 0,
        "FINDINGS": 1,
        "INTERRUPTED": 2,
        "HARNESS_BUG": 3,
        "USAGE": 4,
        "NOTHING_SELECTED": 5,
        "INCONCLUSIVE": 6,
        "INFRASTRUCTURE": 7,
    }


def commands() -> dict[str, click.Command]:
    """Every command by its words. Groups such as `known` have several commands."""
    found = {name: one for name, one in group.commands.items() if not isinstance(one, click.Group)}
    groups = [(name, one) for name, one in group.commands.items() if isinstance(one, click.Group)]
    return found | {f"{name} {inner}": one for name, outer in groups for inner, one in outer.commands.items()}


def test_every_command_and_every_option_has_a_help_text() -> None:
    for name, command in commands().items():
        assert command.help, f"plumb {name} has no help"
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, f"plumb {name} {option.name}"


def test_a_commands_summary_is_the_first_sentence_of_its_help() -> None:
    summaries = {entry.name: entry.summary for section in SECTIONS.values() for entry in section}
    first_lines = {name: (command.help or "").strip().splitlines()[0] for name, command in group.commands.items()}
    assert {name: f"{summary}." for name, summary in summaries.items()} == first_lines


def test_the_overview_is_grouped_and_truncates_no_summary_at_80_columns(plumb: Plumb) -> None:
    code, out, err = plumb("--help")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", *SECTIONS]
    listed = [line.strip() for line in lines[lines.index("Check a server:") :] if line.startswith("  ")]
    entries = [entry for section in SECTIONS.values() for entry in section]
    assert [" ".join(line.split()) for line in listed] == [f"{entry.name} {entry.summary}" for entry in entries]


def test_plumb_alone_shows_the_overview_and_is_no_pass(plumb: Plumb) -> None:
    """A script that lacks the command's name has checked nothing."""
    assert plumb() == (ExitCode.USAGE, plumb("--help")[1], "")


@pytest.mark.parametrize(("former", "present"), FORMER_NAMES.items())
def test_a_former_name_runs_the_current_command_with_a_remark(plumb: Plumb, former: str, present: str) -> None:
    code, out, err = plumb(former, "--help")
    assert (code, out) == (0, plumb(present, "--help")[1])
    assert err == f"note: `plumb {former}` is now `plumb {present}`; the next release drops the old name\n"


def test_former_names_are_hidden(plumb: Plumb, monkeypatch: pytest.MonkeyPatch) -> None:
    overview = {line.split()[0] for line in plumb("--help")[1].splitlines() if line.startswith("  ")}
    assert not overview & set(FORMER_NAMES)
    assert set(group.commands) == {entry.name for section in SECTIONS.values() for entry in section}
    monkeypatch.setenv("_PLUMB_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "plumb ta")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert plumb()[1].split() == []


HELP_SECONDS = 0.35


def test_the_overview_costs_at_most_a_third_of_a_second_of_processor_time() -> None:
    """It takes 0.12 s; importing all commands took 0.55 s. The minimum of three runs does not depend on the load."""
    command = [sys.executable, "-m", "harness.cli", "--help"]
    taken = []
    for _ in range(3):
        before = os.times()
        assert process.run(command, deadline_seconds=60, folder=ROOT).code == 0
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(taken) <= HELP_SECONDS


def test_the_overview_imports_no_command() -> None:
    code = "import sys; from harness.cli import group; group.run(['--help']); print(*sys.modules)"
    ended = process.run([sys.executable, "-c", code], deadline_seconds=60, folder=ROOT)
    imported = {name for name in ended.text.splitlines()[-1].split() if name.startswith("harness.")}
    packages = {name.split(".")[1] for name in imported}
    assert (ended.code, packages) == (0, {"cli", "core"})


def test_slow_imports_happen_only_in_the_processes_of_a_cluster() -> None:
    """Otherwise every command with the option `--on` would import it."""
    code = "import sys; import harness.cli.checks; print(*sys.modules)"
    ended = process.run([sys.executable, "-c", code], deadline_seconds=60, folder=ROOT)
    imported = set(ended.text.split())
    assert "harness.workflows.campaign.engine.engine_process" in imported
    assert not imported & {"asyncio", "dask", "distributed"}


@pytest.mark.parametrize("command", sorted({*commands(), *group.commands}))
def test_help_is_not_an_error(plumb: Plumb, command: str) -> None:
    code, out, err = plumb(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert f"plumb {command}" in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("plan", "--target", "sparc46"), "error: unknown target 'sparc46' (--target)\n  try: did you mean 'sparc64'?"),
        (
            ("check", "--target", "sparc46"),
            "error: unknown target 'sparc46' (--target)\n  try: did you mean 'sparc64'?",
        ),
        (
            ("plan", *TARGET, "--suite", "bitop"),
            "error: unknown suite 'bitop' (--suite)\n  try: did you mean 'bitops'?",
        ),
        (("fetch", "--server", "redis-7.0.51"), "error: unknown server 'redis-7.0.51' (--server)\n  try: did you mean"),
        (("replay", "absent.json"), "error: no such reproducer (absent.json)\n  try: "),
        (("judge", "absent"), "error: not a run folder (absent)\n  because: "),
        (("report", "--json"), "error: No such option '--json'.\n  try: plumb report --help"),
        (("chekc",), "error: No such command 'chekc'. Did you mean 'check'?\n  try: plumb --help"),
        (
            ("fixup-cost", "--target", "armv5"),
            "error: armv5 has no kernel of its own (--target)\n  try: --target kernel",
        ),
        (
            ("fixup-cost", "--server", "redis-7.0.51"),
            "error: unknown server 'redis-7.0.51' (--server)\n  try: did you mean",
        ),
        (
            ("measure", "--target", "native-valgrind"),
            "error: nothing counts the instructions of native-valgrind (--target)\n  because: the counter",
        ),
        (
            ("measure", "--html", "nowhere/page.html"),
            "error: there is no such folder (--html nowhere/page.html)\n  try: mkdir --parents nowhere",
        ),
        (
            ("measure", "--server", "redis-7.0.15", "--server", "redis-8.0.6", "--against", "redis-6.2.14"),
            "error: --against compares one server, not 2 (--server)",
        ),
        (
            ("measure", "--workload", "pi-1-plane"),
            "error: unknown workload 'pi-1-plane' (--workload)\n  try: did you mean 'pi-1-plain'?",
        ),
        (("measure", "--limit", "3"), "error: Invalid value for '--limit': '3' is not a percentage such as 3% or 0.5%"),
        (
            ("measure", "--against", "redis-7.0.51"),
            "error: unknown server 'redis-7.0.51' (--server)\n  try: did you mean",
        ),
        (
            ("port", "--target", "armv5-kernel"),
            "error: no porting report for armv5-kernel (--target)\n  because: the audit needs user-mode emulation",
        ),
        (
            ("port", "--target", "native"),
            "error: no porting report for native (--target)\n  because: it runs natively",
        ),
        (("port", *TARGET, "--server", "./absent"), "error: not a Redis or Valkey source tree ("),
        (
            ("shell", "armv5-kernel"),
            (
                "error: plumb shell does not support armv5-kernel (TARGET)\n"
                "  because: a machine's gdb stub sees its kernel but no programs"
            ),
        ),
        (
            ("shell", "native-valgrind"),
            "error: plumb shell does not support native-valgrind (TARGET)\n  because: under Valgrind",
        ),
        (("shell", "sparc46"), "error: unknown target 'sparc46' (--target)\n  try: did you mean 'sparc64'?"),
        (("shell", "armv5", "--run", "absent.json"), "error: no such reproducer (absent.json)\n  try: "),
        (("shell", "armv5", "--server", "redis-7.0.51"), "error: unknown server 'redis-7.0.51' (--server)"),
        (("shell", "armv5", "--policy", "lenient"), "error: unknown policy 'lenient' (--policy)"),
        (("chekc",), "error: No such command 'chekc'"),
        (("check", "--policy", "lenient"), "error: unknown policy 'lenient' (--policy)"),
        (("plan", "--nonsense"), "error: No such option"),
        # These errors come before anything runs.
        (("check", "--offline", "--known", "absent.toml"), "error: the file cannot be read (absent.toml)"),
        (
            ("exec", *TARGET, "--offline", "--known", "absent.toml", "true"),
            "error: the file cannot be read (absent.toml)",
        ),
        (("check", "--offline", "--known", "/dev/null"), "error: the file cannot be read (/dev/null)"),
    ],
)
def test_a_wrong_request_is_exit_4_with_advice(plumb: Plumb, words: tuple[str, ...], error: str) -> None:
    code, out, err = plumb(*words)
    assert (code, out) == (ExitCode.USAGE, "")
    # Progress messages may precede the error.
    assert f"\n{error}" in f"\n{err}", err


@pytest.mark.usefixtures("complete")
@pytest.mark.parametrize("command", ["check", "build", "plan", "bench"])
def test_an_unknown_server_is_exit_4(plumb: Plumb, command: str) -> None:
    code, out, err = plumb(command, *TARGET, "--server", "redis-7.0.51")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "error: unknown server 'redis-7.0.51' (--server)\n  try: did you mean 'redis-7.0.15'?" in err


@pytest.mark.usefixtures("complete")
@pytest.mark.parametrize("run", [(), ("--run", "new/folder")], ids=["no run folder", "a new run folder"])
def test_a_path_that_is_not_a_server_is_exit_4_and_leaves_no_run_folder(
    plumb: Plumb, tmp_path: Path, run: tuple[str, ...]
) -> None:
    (tmp_path / "here" / "empty").mkdir()
    code, out, err = plumb("check", *TARGET, "--server", "./empty", *run)
    assert (code, out) == (ExitCode.USAGE, ""), err
    assert "error: not a Redis or Valkey source tree (" in err
    assert "because: it has no src/version.h" in err
    assert "try: " in err
    left = {path.name for path in (tmp_path / "here").rglob("*")} - {"empty"}
    assert left <= {"runs"}


@pytest.mark.usefixtures("bare")
def test_a_wrong_server_is_reported_before_anything_is_installed(plumb: Plumb) -> None:
    code, _, err = plumb("check", *TARGET, "--server", "redis-7.0.51", "--no-install")
    assert code == ExitCode.USAGE, err


@pytest.mark.usefixtures("complete")
def test_a_folder_that_contains_a_run_is_refused(plumb: Plumb, tmp_path: Path) -> None:
    stored = StoredRun(tmp_path / "here" / "old")
    stored.canary("armv5")
    before = (stored.finish() / "run.json").read_bytes()
    code, _, err = plumb("check", *TARGET, "--offline", "--run", "old")
    assert (ExitCode.USAGE, before) == (code, (tmp_path / "here" / "old" / "run.json").read_bytes()), err


@pytest.mark.parametrize(
    "words",
    [("plan", "--target", "vax*"), ("check", "--target", "vax*"), ("plan", *TARGET, "--suite", "z*")],
)
def test_a_glob_that_matches_nothing_is_exit_5(plumb: Plumb, words: tuple[str, ...]) -> None:
    code, out, err = plumb(*words)
    assert (code, out) == (ExitCode.NOTHING_SELECTED, "")
    assert err.startswith("error: no ")
    assert "try: plumb list" in err


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("command", ["check", "build"])
def test_missing_packages_are_exit_7_with_the_exact_command(plumb: Plumb, command: str) -> None:
    code, out, err = plumb(command, *TARGET, "--no-install", "--emulator", "distro")
    assert (code, out) == (ExitCode.INFRASTRUCTURE, "")
    line = next(line for line in err.splitlines() if line.startswith("  try: "))
    assert "apt-get update && " in line
    words = line.split("apt-get install --yes --no-install-recommends ")[1].split()
    assert sorted(words) == words
    for package in (*Catalog().toolchains["gcc-arm-linux-gnueabi"].packages, "gcc", "qemu-user-static", "tcl"):
        assert package in words


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("target", "wanted"), [("armv5", True), ("native", False)])
def test_a_shell_on_another_machine_requires_a_gdb_that_supports_it(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, *, wanted: bool
) -> None:
    fakes.write(tmp_path / "dpkg" / "gdb", "", mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'dpkg'}:/usr/bin:/bin")
    code, out, err = plumb("shell", target, "--no-install")
    assert (code, out) == (ExitCode.INFRASTRUCTURE, "")
    assert ("gdb-multiarch" in err.split("try: ")[1].split()) == wanted


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("words", "wanted"), [([], False), (["--for-tests"], True)])
def test_the_projects_own_tests_need_a_debugger(plumb: Plumb, words: list[str], *, wanted: bool) -> None:
    _, out, err = plumb("doctor", *TARGET, *words)
    assert "gcc-arm-linux-gnueabi" in (said := (out + err).split())
    assert ("gdb-multiarch" in said) == wanted


@pytest.mark.usefixtures("complete")
def test_offline_with_an_empty_cache_is_exit_7_and_says_what_to_fetch(plumb: Plumb) -> None:
    code, _, err = plumb("check", *TARGET, "--offline")
    assert code == ExitCode.INFRASTRUCTURE, err
    assert "the source of redis-7.0.15 is not in the cache" in err
    assert "try: plumb fetch --server redis-7.0.15" in err


@pytest.mark.parametrize(("user", "offline", "wanted"), [(0, False, True), (0, True, False), (1000, False, False)])
def test_packages_are_installed_offline_only_on_request(
    monkeypatch: pytest.MonkeyPatch, user: int, *, offline: bool, wanted: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert may_install(None, offline=offline) == wanted
    assert may_install(True, offline=offline)
    assert not may_install(False, offline=offline)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort(), process.StoppedError()])
def test_an_interruption_is_exit_2(plumb: Plumb, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("harness.cli.inventory.make_plan", interrupted)
    code, out, err = plumb("plan")
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert err.strip().startswith("interrupted")


def test_a_bug_of_the_harness_is_exit_3_without_a_traceback(plumb: Plumb, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("harness.cli.inventory.make_plan", broken)
    code, out, err = plumb("plan", "--target", "spa*")
    assert (code, out) == (ExitCode.HARNESS_BUG, "")
    assert err == "error: a bug in Plumbline: ZeroDivisionError: oops\n  try: plumb --debug plan --target 'spa*'\n"


def test_debug_shows_a_traceback_and_keeps_the_exit_code(plumb: Plumb) -> None:
    code, _, err = plumb("--debug", "plan", "--target", "sparc46")
    assert code == ExitCode.USAGE
    assert "Traceback" in err
    assert "unknown target 'sparc46'" in err


def test_debug_after_the_command_is_not_an_option(plumb: Plumb) -> None:
    assert plumb("plan", "--debug")[0] == ExitCode.USAGE


def test_every_command_with_a_result_can_print_it_as_json() -> None:
    # These print a single document in its own format; `shell` is interactive.
    others = {"report", "schema", "completion", "shell"}
    # These print no result, because they make files or run until they are stopped.
    others |= {"campaign keys", "campaign scheduler", "campaign worker"}
    lacking = {name for name, command in commands().items() if "as_json" not in {one.name for one in command.params}}
    assert lacking == others


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_completion_script_asks_plumb_itself(plumb: Plumb, shell: str) -> None:
    code, out, err = plumb("completion", shell)
    assert (code, err) == (0, "")
    assert f"_PLUMB_COMPLETE={shell}_complete" in out


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("plumb che", ["check"]),
        ("plumb check --target sparc6", ["sparc64", "sparc64-kernel"]),
        ("plumb check --target req", ["required"]),
        ("plumb check --server redis-3", ["redis-3.0.5", "redis-3.2.6"]),
        ("plumb check --suite bit", ["bitops"]),
        ("plumb check --policy linux-sp", ["linux-sparc"]),
        ("plumb replay x --server valkey-9", ["valkey-9.1.2"]),
        ("plumb port --target sparc6", ["sparc64", "sparc64-kernel"]),
        ("plumb shell sparc6", ["sparc64", "sparc64-kernel"]),
        ("plumb shell armv5 --policy linux-sp", ["linux-sparc"]),
        ("plumb report runs --format s", ["sarif"]),
        ("plumb completion z", ["zsh"]),
        ("plumb check --server ./", ["./"]),
    ],
)
def test_tab_offers_the_catalogs_names(
    plumb: Plumb, monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
) -> None:
    monkeypatch.setenv("_PLUMB_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    _, out, err = plumb()
    assert ([word.partition(",")[2] for word in out.splitlines()], err) == (offered, "")


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    """In a real bash, with the real command and an empty cache. A full cache would cause a message."""
    folder = Path(sys.executable).parent
    path, cache = shlex.quote(str(folder)), shlex.quote(str(tmp_path))
    script = f"""export PATH={path}:$PATH PLUMBLINE_CACHE={cache}; eval "$(plumb completion bash)"
COMP_WORDS=(plumb check --target armv5) COMP_CWORD=3; _plumb_completion plumb; echo "${{COMPREPLY[@]}}" """
    ended = process.run(["bash", "-c", script], deadline_seconds=60)
    assert (ended.code, ended.text.split()) == (0, ["armv5", "armv5-kernel"])


def test_progress_shows_brackets_unchanged() -> None:
    progress = fakes.quiet()
    progress.say("x.c:3: error: bad cast [-Werror=cast-align] [/root]")
    assert "[-Werror=cast-align] [/root]" in fakes.printed(progress)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("fuzz", "--time", "soon"), "'soon' is not a duration such as 90s, 10m or 2h"),
        (("fuzz", "--time", "0m"), "'0m' is not a duration"),
        (("fuzz", "--count", "0"), "'--count'"),
        (
            ("check", "--time", "10m"),
            "a time limit is not possible (--time)\n  because: no suite of tier quick is open-ended",
        ),
        (("replay", "a.stream"), "error: a stream names no target (a.stream)\n  try: --target"),
        (("replay", "a.stream", *TARGET), "error: not a command stream (a.stream)\n  because: "),
        (
            ("replay", "a.json", *TARGET),
            "error: a reproducer already names its target (--target)\n  try: leave --target out",
        ),
    ],
)
def test_a_wrong_word_about_streams_is_exit_4(plumb: Plumb, words: tuple[str, ...], error: str) -> None:
    code, _, err = plumb(*words)
    assert code == ExitCode.USAGE
    assert error in err


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("--target", "armv5", "--suite", "units"), "no selected suite runs a server"),
        (("--target", "armv5-kernel", "--tier", "kernel"), "the way to servers on another machine is fixed"),
    ],
)
def test_a_transport_without_effect_is_refused(plumb: Plumb, words: tuple[str, ...], because: str) -> None:
    code, _, err = plumb("check", *words, "--io", "tcp")
    assert (code, err) == (
        ExitCode.USAGE,
        f"error: --io tcp has no effect here (--io)\n  because: {because}\n  try: leave it out\n",
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--cflags", "march=armv7-a"), "'march=armv7-a' is not compiler flags such as '-D_FORTIFY_SOURCE=2"),
        (("--cflags", ""), "'' is not compiler flags such as"),
        (("--cflags", "-DX='a"), "is not quoted as in a shell: no closing quotation"),
        (("--cflags", "-g -O3"), "-O3: the level is part of a build's name: --optimisation O3"),
        (("--cflags", "-c"), "-c: the makefile says what is made: leave it out"),
        (("--cflags", "-fomit-frame-pointer"), "findings need names, lines and stacks: leave it out"),
        (("--make", "BUILD_TLS"), "'BUILD_TLS' is not NAME=VALUE, such as USE_SYSTEMD=yes"),
        (("--make", "-j8=x"), "'-j8=x' is not NAME=VALUE"),
        (("--make", "MALLOC=jemalloc"), "MALLOC is given to every build: use --allocator"),
        (("--make", "OPTIMIZATION=-O3"), "OPTIMIZATION is given to every build: use --optimisation"),
    ],
)
def test_wrong_build_settings_of_a_distribution_are_refused_with_advice(
    plumb: Plumb, words: tuple[str, ...], error: str
) -> None:
    code, _, err = plumb("port", *words)
    assert code == ExitCode.USAGE
    assert error in err
    assert "port --help" in err


def test_port_gets_each_flag_separately(plumb: Plumb, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Request] = []

    def remember(_bench: object, request: Request) -> None:
        requests.append(request)
        raise InfrastructureError("enough is known")

    monkeypatch.setattr(survey, "make_report", remember)
    words = ("--cflags", "-DX='a b'  -march=armv7-a", "--make", "BUILD_TLS=yes", "--make", "LDFLAGS=-Wl,-z,now -s")
    plumb("port", "--target", "armv5", *words)
    settings = BuildSettings(cflags=("-DX=a b", "-march=armv7-a"), make=("BUILD_TLS=yes", "LDFLAGS=-Wl,-z,now -s"))
    assert requests[0].settings == settings
    assert settings.words == [
        "--cflags='-DX=a b' -march=armv7-a",
        "--make=BUILD_TLS=yes",
        "--make=LDFLAGS=-Wl,-z,now -s",
    ]


def test_a_time_is_read_in_seconds_minutes_and_hours(plumb: Plumb, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Request] = []

    def remember(_self: object, _bench: object, request: Request) -> None:
        requests.append(request)
        raise InfrastructureError("enough is known")

    monkeypatch.setattr(check_workflow.Check, "__init__", remember)
    for words in (("--time", "90s"), ("--time", "1.5m"), ("--time", "2h"), (), ("--count", "7")):
        plumb("fuzz", *TARGET, *words)
    day = 86400
    assert [(one.limit_seconds, one.limit_count) for one in requests[:4]] == [
        (90, None),
        (90, None),
        (7200, None),
        (600, None),
    ]
    plumb("check", *TARGET, "--tier", "thorough", "--time", "1h")
    assert (requests[5].tier, requests[5].limit_seconds, requests[5].learns) == ("thorough", 3600, False)
    assert requests[4].limit_count == 7
    assert (requests[4].limit_seconds or 0) >= day
    assert all(one.plan.suites == ["canary", "fuzz"] and one.learns for one in requests[:5])


def test_workers_are_not_asked_to_measure_the_trees_of_several_servers(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.cli.measures.server_costs.campaign_spread.commands_on", None)
    one, other = (fakes.server_tree(tmp_path / name) for name in ("one", "other"))
    servers = ("--server", one, "--server", other, "--server", "redis-7.0.15")
    code, _, err = plumb("measure", "--workload", "pi-1-plain", *servers, "--on", "tcp://127.0.0.1:1")
    assert code == ExitCode.USAGE
    assert f"{one} and {other} are paths" in err
