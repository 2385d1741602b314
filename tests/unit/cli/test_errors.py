"""An error of the operating system counts as the machine's fault, whatever Plumbline requested."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ExitCode, InfrastructureError, is_machine_fault, machine_fault

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fakes import Plumb


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EMFILE", "ENFILE", "ENOMEM", "EIO", "EFBIG"])
def test_a_missing_resource_is_exit_7_and_names_the_place(
    plumb: Plumb, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number = getattr(errno, name)

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, "as C has it", "/a/file")

    monkeypatch.setattr("harness.cli.inventory.make_plan", refused)
    code, out, err = plumb("plan")
    assert (code, out) == (ExitCode.INFRASTRUCTURE, ""), err
    assert err.startswith(f"error: the operating system refuses: {os.strerror(number)} (/a/file)\n")


def test_an_invalid_file_name_is_exit_4(plumb: Plumb, tmp_path: Path) -> None:
    code, _, err = plumb("report", tmp_path / ("x" * 300))
    assert (code, "error: the file cannot be used: File name too long (/" in err) == (ExitCode.USAGE, True), err
    (tmp_path / "findings.json").mkdir()
    code, _, err = plumb("report", tmp_path)
    judgement = tmp_path / "findings.json"
    assert (code, err) == (ExitCode.USAGE, f"error: the file cannot be used: Is a directory ({judgement})\n")
    (tmp_path / "file").touch()
    code, _, err = plumb("report", tmp_path / "file")
    assert (code, "error: no judgement to report" in err) == (ExitCode.USAGE, True)


def test_a_name_that_is_not_utf8_is_exit_4_where_a_document_needs_it(
    plumb: Plumb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was a bug in Plumbline. Of a text that no file's name can be, it still is one."""
    name = os.fsdecode(b"/odd\xe9")

    def named(*_: object, **__: object) -> bytes:
        return f"exec gcc '-ffile-prefix-map={name}=/plumbline' -O2\n".encode()

    monkeypatch.setattr("harness.cli.inventory.make_plan", named)
    code, _, err = plumb("plan")
    assert (code, err.splitlines()[0]) == (ExitCode.USAGE, r"error: a name is not UTF-8 (/odd\udce9)"), err
    name = "\ud800"
    assert plumb("plan")[0] == ExitCode.HARNESS_BUG


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_no_memory_and_no_thread_are_exit_7(plumb: Plumb, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("harness.cli.inventory.make_plan", refused)
    code, _, err = plumb("plan")
    assert (code, "fewer --jobs" in err) == (ExitCode.INFRASTRUCTURE, True), err


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(errno.ECONNRESET, ""),
        ConnectionRefusedError(errno.ECONNREFUSED, ""),
        BrokenPipeError(errno.EPIPE, ""),
        TimeoutError(errno.ETIMEDOUT, ""),
        TimeoutError("timed out"),
        BlockingIOError(errno.EAGAIN, ""),
        FileNotFoundError(errno.ENOENT, ""),
        RuntimeError("dictionary changed size during iteration"),
        ValueError(),
    ],
)
def test_errors_from_a_server_that_ends_are_not_the_machines_fault(error: Exception) -> None:
    assert not is_machine_fault(error)


def test_an_error_with_a_stated_cause_is_unchanged() -> None:
    error = InfrastructureError("no compiler", remedy="plumb doctor")
    assert is_machine_fault(error)
    assert machine_fault(error) is error


def test_a_folder_that_could_not_be_copied_names_the_machines_fault(tmp_path: Path) -> None:
    """Regression: `plumb join` in a full TMPDIR was a bug in Plumbline, because the copy's error has no number."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}" * 100, "utf-8")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(shutil.Error) as raised:
            shutil.copytree(tmp_path / "run", tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert is_machine_fault(raised.value)
    assert "File too large" in str(machine_fault(raised.value))


def test_a_folder_whose_file_disappeared_is_not_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").symlink_to("nowhere")
    with pytest.raises(shutil.Error) as raised:
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert not is_machine_fault(raised.value)
