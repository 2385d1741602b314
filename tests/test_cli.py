"""The command line as a user meets it: messages, exit codes, one document on standard output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
import pytest

from harness import check as checking
from harness import codec, completion, process, toolchain
from harness import replay as replaying
from harness.build import BuildFailedError
from harness.cli import main
from harness.cli import plumb as group
from harness.errors import ExitCode, InfrastructureError, UsageError
from harness.load import ROOT, Catalog
from harness.replay import CannotTellError
from tests import fakes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.request import Request

    Plumb = Callable[..., tuple[int, str, str]]

TARGET = ("--target", "armv5")


@pytest.fixture
def plumb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plumb:
    """Run a command line in an empty folder with an empty cache: (exit code, standard output, standard error)."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PLUMBLINE_CACHE", str(tmp_path / "cache"))
    # The test run keeps its own signal handlers.
    monkeypatch.setattr(process, "stop_on_signals", lambda: None)

    def no_network(*_: object) -> None:
        raise InfrastructureError("the harness' own tests fetch nothing")

    monkeypatch.setattr("harness.fetch.Fetcher._download", no_network)

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err

    return run


def dpkg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, installed: bool) -> None:
    """A dpkg-query that has every package, or none."""
    status = "installed" if installed else "not-installed"
    script = f'#!/bin/sh\nshift 3\nfor name; do echo "$name {status}"; done\n'
    fakes.write(tmp_path / "dpkg" / "dpkg-query", script, mode=0o755)
    fakes.put_on_path(tmp_path / "dpkg", monkeypatch)


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that lacks no package."""
    toolchain.missing_packages.cache_clear()
    dpkg(tmp_path, monkeypatch, installed=True)
    yield
    toolchain.missing_packages.cache_clear()


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has no package."""
    toolchain.missing_packages.cache_clear()
    dpkg(tmp_path, monkeypatch, installed=False)
    yield
    toolchain.missing_packages.cache_clear()


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


def test_every_command_and_every_option_says_what_it_does() -> None:
    for name, command in group.commands.items():
        assert command.help, f"plumb {name} has no help"
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, f"plumb {name} {option.name}"


@pytest.mark.parametrize("command", sorted(group.commands))
def test_help_is_not_an_error(plumb: Plumb, command: str) -> None:
    code, out, err = plumb(command, "--help")
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
        (("tax", "--target", "armv5"), "error: armv5 has no kernel of its own (--target)\n  try: --target kernel"),
        (("tax", "--server", "redis-7.0.51"), "error: unknown server 'redis-7.0.51' (--server)\n  try: did you mean"),
        (
            ("port", "--target", "armv5-kernel"),
            "error: no porting report for armv5-kernel (--target)\n  because: the audit needs user-mode emulation",
        ),
        (
            ("port", "--target", "native"),
            "error: no porting report for native (--target)\n  because: it is this machine",
        ),
        (("port", *TARGET, "--server", "./absent"), "error: not a Redis or Valkey source tree ("),
        (
            ("shell", "armv5-kernel"),
            "error: no shell on armv5-kernel (TARGET)\n  because: a machine's stub sees its kernel, and no program",
        ),
        (("shell", "native-valgrind"), "error: no shell on native-valgrind (TARGET)\n  because: under Valgrind"),
        (("shell", "sparc46"), "error: unknown target 'sparc46' (--target)\n  try: did you mean 'sparc64'?"),
        (("shell", "armv5", "--run", "absent.json"), "error: no such reproducer (absent.json)\n  try: "),
        (("shell", "armv5", "--server", "redis-7.0.51"), "error: unknown server 'redis-7.0.51' (--server)"),
        (("shell", "armv5", "--policy", "lenient"), "error: unknown policy 'lenient' (--policy)"),
        (("chekc",), "error: No such command 'chekc'"),
        (("check", "--policy", "lenient"), "error: unknown policy 'lenient' (--policy)"),
        (("plan", "--nonsense"), "error: No such option"),
    ],
)
def test_a_wrong_request_is_exit_4_and_says_what_to_type(plumb: Plumb, words: tuple[str, ...], error: str) -> None:
    code, out, err = plumb(*words)
    assert (code, out) == (ExitCode.USAGE, "")
    # What `plumb` was doing may be told before.
    assert f"\n{error}" in f"\n{err}", err


@pytest.mark.usefixtures("complete")
@pytest.mark.parametrize("command", ["check", "build", "plan"])
def test_an_unknown_server_is_exit_4(plumb: Plumb, command: str) -> None:
    code, out, err = plumb(command, *TARGET, "--server", "redis-7.0.51")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "error: unknown server 'redis-7.0.51' (--server)\n  try: did you mean 'redis-7.0.15'?" in err


@pytest.mark.usefixtures("complete")
@pytest.mark.parametrize("run", [(), ("--run", "new/folder")], ids=["no run folder", "a new run folder"])
def test_a_path_that_is_no_server_is_exit_4_and_leaves_no_run_folder(
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
def test_a_wrong_server_is_told_before_anything_is_installed(plumb: Plumb) -> None:
    code, _, err = plumb("check", *TARGET, "--server", "redis-7.0.51", "--no-install")
    assert code == ExitCode.USAGE, err


@pytest.mark.usefixtures("complete")
def test_a_run_folder_that_holds_a_run_is_refused(plumb: Plumb, tmp_path: Path) -> None:
    stored = fakes.StoredRun(tmp_path / "here" / "old")
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
def test_a_shell_on_another_machine_asks_for_a_gdb_that_knows_it(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, *, wanted: bool
) -> None:
    fakes.write(tmp_path / "dpkg" / "gdb", "", mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'dpkg'}:/usr/bin:/bin")
    code, out, err = plumb("shell", target, "--no-install")
    assert (code, out) == (ExitCode.INFRASTRUCTURE, "")
    assert ("gdb-multiarch" in err.split("try: ")[1].split()) == wanted


def test_a_reproducer_of_a_unit_has_nothing_to_send(plumb: Plumb, tmp_path: Path) -> None:
    read = replaying.from_stream(fakes.write(tmp_path / "a.stream", "PING\n"), target="armv5", server="redis-7.0.15")
    path = tmp_path / "unit.json"
    path.write_bytes(codec.encode(msgspec.structs.replace(read, unit="sha1")))
    code, _, err = plumb("shell", "armv5", "--run", path)
    assert code == ExitCode.USAGE
    assert "error: the reproducer has no requests (--run)\n  because: it is one of the unit sha1, which" in err


@pytest.mark.usefixtures("bare")
def test_doctor_prints_the_command_and_exits_7(plumb: Plumb) -> None:
    code, out, _ = plumb("doctor", *TARGET)
    assert code == ExitCode.INFRASTRUCTURE
    assert out.startswith("missing: ")
    assert "apt-get install --yes --no-install-recommends " in out


@pytest.mark.usefixtures("bare")
def test_doctor_asks_only_for_what_the_chosen_target_needs(plumb: Plumb) -> None:
    assert "sparc64" not in plumb("doctor", *TARGET)[1]


@pytest.mark.usefixtures("bare")
def test_doctor_asks_for_a_browser_and_go_only_for_the_projects_own_tests_and_only_without_them(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "dpkg"))
    assert "golang-go" not in plumb("doctor", *TARGET)[1]
    assert "golang-go" in plumb("doctor", *TARGET, "--for-tests")[1]
    fakes.write(tmp_path / "dpkg" / "go", "", mode=0o755)
    assert "golang-go" not in plumb("doctor", *TARGET, "--for-tests")[1]
    assert "chromium" not in plumb("doctor", *TARGET)[1]
    assert "chromium-headless-shell" in plumb("doctor", *TARGET, "--for-tests")[1]
    fakes.write(tmp_path / "dpkg" / "google-chrome", "", mode=0o755)
    assert "chromium" not in plumb("doctor", *TARGET, "--for-tests")[1]


@pytest.mark.usefixtures("bare")
def test_doctor_tells_what_one_servers_self_tests_could_use_and_no_check_asks_for_it(plumb: Plumb) -> None:
    command, *others = plumb("doctor", *TARGET)[1].splitlines()[1:]
    assert ("googletest" in command, others) == (False, ["for Valkey 9's self-tests (suite selftests): googletest"])
    assert "googletest" in plumb("doctor", *TARGET, "--for-tests")[1].splitlines()[1]
    assert "googletest" not in plumb("check", *TARGET, "--no-install", "--emulator", "distro")[2]


@pytest.mark.usefixtures("complete")
def test_doctor_with_nothing_missing_exits_0(plumb: Plumb) -> None:
    assert plumb("doctor", *TARGET) == (0, "nothing is missing\n", "")


@pytest.mark.usefixtures("complete")
def test_offline_with_an_empty_cache_is_exit_7_and_says_what_to_fetch(plumb: Plumb) -> None:
    code, _, err = plumb("check", *TARGET, "--offline")
    assert code == ExitCode.INFRASTRUCTURE, err
    assert "the cache lacks the source of redis-7.0.15" in err
    assert "try: plumb fetch --server redis-7.0.15" in err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort(), process.StoppedError()])
def test_an_interruption_is_exit_2(plumb: Plumb, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("harness.commands.inventory.make_plan", interrupted)
    code, out, err = plumb("plan")
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert err.strip().startswith("interrupted")


def test_a_bug_of_the_harness_is_exit_3_without_a_traceback(plumb: Plumb, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("harness.commands.inventory.make_plan", broken)
    code, out, err = plumb("plan")
    assert (code, out) == (ExitCode.HARNESS_BUG, "")
    assert err.startswith("error: a bug in Plumbline: ZeroDivisionError: oops\n  try: ")
    assert "Traceback" not in err


def test_debug_shows_a_traceback_and_keeps_the_exit_code(plumb: Plumb) -> None:
    code, _, err = plumb("--debug", "plan", "--target", "sparc46")
    assert code == ExitCode.USAGE
    assert "Traceback" in err
    assert "unknown target 'sparc46'" in err


def test_debug_after_the_command_is_no_secret_option(plumb: Plumb) -> None:
    assert plumb("plan", "--debug")[0] == ExitCode.USAGE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BuildFailedError("does not compile"), 125),
        (CannotTellError("has no such unit"), 125),
        (InfrastructureError("the disk is full"), 255),
        (UsageError("not a source tree"), 255),
        (ZeroDivisionError(), 255),
        (KeyboardInterrupt(), 255),
        (process.StoppedError(), 255),
    ],
)
def test_a_bisection_skips_what_cannot_tell_and_stops_at_what_is_no_fault_of_the_tree(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("harness.replay.replay", fails)
    stream = fakes.write(tmp_path / "a.stream", "PING\n")
    assert plumb("replay", stream, "--target", "armv5", "--bisect")[:2] == (code, "")


def test_a_bisection_stops_without_its_reproducer(plumb: Plumb) -> None:
    code, _, err = plumb("replay", "absent.json", "--bisect")
    assert code == 255
    assert "no such reproducer" in err


def only_document(out: str) -> Any:
    """Standard output must be one JSON document and nothing else."""
    return json.loads(out)


def test_every_command_that_tells_something_can_tell_it_as_json() -> None:
    # These print one document by their nature, in a format of its own; `shell` is a conversation.
    others = {"report", "schema", "completion", "shell"}
    lacking = {
        name for name, command in group.commands.items() if "as_json" not in {one.name for one in command.params}
    }
    assert lacking == others


@pytest.mark.parametrize("what", ["targets", "toolchains", "servers", "suites"])
def test_list_names_everything_also_as_json(plumb: Plumb, what: str) -> None:
    names = list(getattr(Catalog(), what))
    code, out, err = plumb("list", what)
    assert (0, "", names) == (code, err, [line.split(" ")[0] for line in out.splitlines()])
    assert names == [noun["name"] for noun in only_document(plumb("list", what, "--json")[1])]


def test_plan_prints_a_cell_a_line_also_as_json(plumb: Plumb) -> None:
    code, out, _ = plumb("plan", *TARGET, "--suite", "bitops")
    assert (code, out) == (0, "armv5/redis-7.0.15/canary\narmv5/redis-7.0.15/bitops\n")
    read = only_document(plumb("plan", *TARGET, "--suite", "bitops", "--json")[1])
    assert [cell["suite"] for cell in read["cells"]] == ["canary", "bitops"]


@pytest.fixture
def stored(tmp_path: Path) -> fakes.StoredRun:
    run = fakes.StoredRun(tmp_path / "run")
    run.canary("armv5")
    return run


def test_judge_exits_0_for_pass(plumb: Plumb, stored: fakes.StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop")
    assert plumb("judge", stored.finish())[0] == ExitCode.PASS


def test_judge_exits_1_for_findings_and_writes_the_report_anew(plumb: Plumb, stored: fakes.StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    code, out, _ = plumb("judge", stored.finish())
    assert code == ExitCode.FINDINGS
    assert "wrong-result-test_bitop" in out
    for name in ("findings.json", "findings.sarif", "junit.xml", "report.html", "summary.md"):
        assert (stored.folder / name).is_file(), name


def test_judge_exits_6_for_silence(plumb: Plumb, stored: fakes.StoredRun) -> None:
    assert plumb("judge", stored.finish())[0] == ExitCode.INCONCLUSIVE


def test_judge_as_json_prints_one_document_the_same_as_the_file(plumb: Plumb, stored: fakes.StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    code, out, err = plumb("judge", stored.finish(), "--json")
    assert code == ExitCode.FINDINGS
    assert json.loads((stored.folder / "findings.json").read_text("utf-8")) == only_document(out)
    assert "judging" in err


def test_annotations_go_to_standard_error_and_leave_the_document_alone(plumb: Plumb, stored: fakes.StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    code, out, err = plumb("judge", stored.finish(), "--json", "--annotations", "github")
    assert code == ExitCode.FINDINGS
    only_document(out)
    told = "test_bitop: 1 != 2 on armv5 (1×)%0Aplumb replay "
    replay = f"{told}{stored.folder}/reproducers/wrong-result-test_bitop.json"
    assert [line for line in err.splitlines() if line.startswith("::")] == [
        f"::error title=wrong-result-test_bitop::{replay}"
    ]


def test_report_writes_every_file_anew_and_judges_nothing(plumb: Plumb, stored: fakes.StoredRun) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    plumb("judge", stored.finish())
    before = (stored.folder / "findings.json").read_bytes()
    files = ["findings.json", "summary.md", "junit.xml", "findings.sarif", "report.html"]
    for name in files[1:]:
        (stored.folder / name).unlink()
    (stored.folder / "armv5" / "bitops" / "events.jsonl").unlink()
    code, out, err = plumb("report", stored.folder)
    assert (code, err, out.splitlines()) == (0, "", [str(stored.folder / name) for name in files])
    assert before == (stored.folder / "findings.json").read_bytes()
    assert "wrong-result-test_bitop" in (stored.folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("json", "{"),
        ("sarif", "{"),
        ("junit", "<?xml"),
        ("markdown", "# redis-3.2.6: "),
        ("html", "<!doctype html>"),
        ("github", "::error title=wrong-result-test_bitop::"),
        ("throughput", "# Throughput of the suites\n"),
    ],
)
def test_report_prints_one_document(plumb: Plumb, stored: fakes.StoredRun, form: str, start: str) -> None:
    stored.test("armv5", "bitops", "test_bitop", outcome="failed", message="1 != 2")
    plumb("judge", stored.finish())
    (stored.folder / "report.html").unlink()
    code, out, err = plumb("report", stored.folder, "--format", form)
    assert (code, err, out[: len(start)]) == (0, "", start)
    assert not (stored.folder / "report.html").exists()


def test_report_of_a_run_that_was_not_judged_says_how(plumb: Plumb, stored: fakes.StoredRun) -> None:
    code, out, err = plumb("report", stored.finish())
    assert (code, out) == (ExitCode.USAGE, "")
    assert f"error: no judgement to report ({stored.folder})" in err
    assert f"try: plumb judge {stored.folder}" in err


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1}'])
def test_report_of_a_damaged_judgement_is_exit_4(plumb: Plumb, stored: fakes.StoredRun, text: str) -> None:
    fakes.write(stored.finish() / "findings.json", text)
    code, _, err = plumb("report", stored.folder)
    assert code == ExitCode.USAGE
    assert "error: the judgement is damaged (" in err


def test_annotations_name_files_from_the_repositorys_top(
    plumb: Plumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree in a folder of the checkout that CI works in."""
    fakes.fake_symbols(tmp_path / "bin", monkeypatch)
    run = fakes.StoredRun(tmp_path / "run", server=str(tmp_path / "here" / "vendor" / "redis"))
    run.canary("armv5")
    run.fault("armv5", "bitops", "guest-1", fakes.fault(pc=run.place("armv5", "bitopCommand")))
    run.test("armv5", "bitops", "test_a", outcome="failed", guest="guest-1", faults=(0, 1))
    plumb("judge", run.finish())
    assert "::error file=vendor/redis/src/bitops.c,line=93," in plumb("report", run.folder, "--format", "github")[1]


def test_schema_prints_the_published_one(plumb: Plumb) -> None:
    code, out, _ = plumb("schema")
    assert (code, out) == (0, (ROOT / "docs" / "schema" / "findings-1.json").read_text("utf-8"))


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


def test_bash_completes_with_the_script() -> None:
    """In a real bash, by the real command."""
    folder = Path(sys.executable).parent
    script = f"""PATH={folder}:$PATH; eval "$(plumb completion bash)"
COMP_WORDS=(plumb check --target armv5) COMP_CWORD=3; _plumb_completion plumb; echo "${{COMPREPLY[@]}}" """
    ended = process.run(["bash", "-c", script], deadline_seconds=60)
    assert (ended.code, ended.text.split()) == (0, ["armv5", "armv5-kernel"])


def test_a_known_list_that_is_not_there_is_exit_4(plumb: Plumb, stored: fakes.StoredRun) -> None:
    code, _, err = plumb("judge", stored.finish(), "--known", "absent.toml")
    assert code == ExitCode.USAGE, err
    assert "absent.toml" in err


def test_a_run_whose_record_is_damaged_is_exit_4_and_names_the_file(plumb: Plumb, stored: fakes.StoredRun) -> None:
    fakes.write(stored.finish() / "run.json", "{")
    code, _, err = plumb("judge", stored.folder)
    assert code == ExitCode.USAGE, err
    assert "run.json" in err


@pytest.mark.parametrize("text", ["", "{}", "not JSON"])
def test_a_file_that_is_no_reproducer_is_exit_4(plumb: Plumb, tmp_path: Path, text: str) -> None:
    code, _, err = plumb("replay", fakes.write(tmp_path / "file.json", text))
    assert code == ExitCode.USAGE
    assert err.startswith("error: not a reproducer (")


def test_clean_shows_sizes_and_removes_only_when_told(plumb: Plumb, tmp_path: Path) -> None:
    assert plumb("clean") == (0, "", "")
    kept = fakes.write(tmp_path / "cache" / "builds" / "key" / "file", "x" * 10)
    code, out, _ = plumb("clean")
    assert (code, kept.is_file()) == (0, True)
    sizes = only_document(plumb("clean", "--json")[1])
    assert sizes == [{"folder": str(tmp_path / "cache" / "builds"), "bytes": 10}]
    assert str(tmp_path / "cache" / "builds") in out
    plumb("clean", "--yes")
    assert not kept.exists()


def test_progress_shows_brackets_as_they_are() -> None:
    progress = fakes.quiet()
    progress.say("x.c:3: error: bad cast [-Werror=cast-align] [/root]")
    assert "[-Werror=cast-align] [/root]" in fakes.said(progress)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("fuzz", "--time", "soon"), "'soon' is not a time; as 90s, 10m or 2h"),
        (("fuzz", "--time", "0m"), "'0m' is not a time"),
        (("fuzz", "--count", "0"), "'--count'"),
        (("check", "--time", "10m"), "no time to be given (--time)\n  because: in tier quick every suite has an end"),
        (("replay", "a.stream"), "error: a stream does not say for which target (a.stream)\n  try: --target"),
        (("replay", "a.stream", *TARGET), "error: not a command stream (a.stream)\n  because: "),
        (("replay", "a.json", *TARGET), "error: a reproducer says itself for which target it is"),
    ],
)
def test_a_wrong_word_about_streams_is_exit_4(plumb: Plumb, words: tuple[str, ...], error: str) -> None:
    code, _, err = plumb(*words)
    assert code == ExitCode.USAGE
    assert error in err


def test_a_time_is_read_in_seconds_minutes_and_hours(plumb: Plumb, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []

    def remember(_self: object, _catalog: object, _store: object, _progress: object, request: Request) -> None:
        asked.append(request)
        raise InfrastructureError("enough is known")

    monkeypatch.setattr(checking.Check, "__init__", remember)
    for words in (("--time", "90s"), ("--time", "1.5m"), ("--time", "2h"), (), ("--count", "7")):
        plumb("fuzz", *TARGET, *words)
    day = 86400
    assert [(one.limit_seconds, one.limit_count) for one in asked[:4]] == [
        (90, None),
        (90, None),
        (7200, None),
        (600, None),
    ]
    plumb("check", *TARGET, "--tier", "thorough", "--time", "1h")
    assert (asked[5].tier, asked[5].limit_seconds, asked[5].learns) == ("thorough", 3600, False)
    assert asked[4].limit_count == 7
    assert (asked[4].limit_seconds or 0) >= day
    assert all(one.suites == ["fuzz"] and one.learns for one in asked[:5])


def test_plan_as_json_has_jobs_and_caches_in_this_machines_store(plumb: Plumb, tmp_path: Path) -> None:
    read = only_document(plumb("plan", *TARGET, "--suite", "bitops", "--json")[1])
    assert read["jobs"] == [{"name": "armv5", "targets": ["armv5"], "suites": ["bitops"]}]
    paths = [path for cache in read["caches"].values() for path in cache["paths"]]
    assert paths
    assert all(path.startswith(str(tmp_path / "cache")) for path in paths)


def judged(plumb: Plumb, folder: Path, target: str, outcome: Literal["passed", "failed"]) -> Path:
    stored = fakes.StoredRun(folder, targets=(target,))
    stored.canary(target)
    stored.test(target, "bitops", "test_bitop", outcome=outcome, message="" if outcome == "passed" else "1 != 2")
    plumb("judge", stored.finish())
    return folder


def test_join_exits_as_one_check_of_all_would_and_writes_what_ci_systems_read(plumb: Plumb, tmp_path: Path) -> None:
    good = judged(plumb, tmp_path / "good", "armv5", "passed")
    bad = judged(plumb, tmp_path / "bad", "sparc64", "failed")
    into = tmp_path / "joined"
    code, out, err = plumb("join", good, bad, "--into", into, "--json", "--annotations", "github")
    assert (code, err.count("::error ")) == (ExitCode.FINDINGS, 1)
    assert {cell["target"] for cell in only_document(out)["cells"]} == {"armv5", "sparc64"}
    assert sorted(path.name for path in into.iterdir()) == [
        "findings.json",
        "findings.sarif",
        "junit.xml",
        "summary.md",
    ]
    assert plumb("join", good)[0] == ExitCode.PASS
    plan = fakes.write(tmp_path / "plan", plumb("plan", "--target", "armv[56]", "--suite", "bitops", "--json")[1])
    code, out, _ = plumb("join", good, "--plan", plan)
    assert code == ExitCode.INCONCLUSIVE
    assert "no run has it" in out


def test_report_prints_a_steps_outputs(plumb: Plumb, tmp_path: Path) -> None:
    bad = judged(plumb, tmp_path / "bad", "sparc64", "failed")
    assert plumb("report", bad, "--format", "outputs") == (
        0,
        f"verdict=FAIL\nfindings=1\nrun={bad}\nreport={bad}/report.html\n",
        "",
    )
