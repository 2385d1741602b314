"""A distribution's server package, as apt installs it: its bugs are found, compared with the host's package, and
replayed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core import json_codec
from harness.core.errors import ExitCode
from harness.record import run_folder
from tests.end_to_end.support.plumb_runs import document, run

if TYPE_CHECKING:
    from typing import Any

pytestmark = pytest.mark.end_to_end

REDIS = "debian:bookworm/redis-server"
SHORT = ["--suite", "protocol", "--test", "scriptlibraries-3.", "--seed", "1", "--json"]


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A check of the package on an ARM whose packages Debian calls armel."""
    folder = tmp_path_factory.mktemp("package") / "run"
    finished = run("check", "--server", REDIS, "--target", "armv5", *SHORT, "--run", folder)
    assert finished.returncode == ExitCode.PASS, finished.stdout + finished.stderr
    return folder, document(finished)


@pytest.mark.slow(
    instead=(
        "tests/unit/build/test_server_package.py; "
        "test_redis_3_2_6_misaligns_in_bitops_on_armv5_and_the_replay_reproduces_it"
    )
)
def test_a_bug_of_the_release_is_found_in_the_installed_package(checked: tuple[Path, dict[str, Any]]) -> None:
    _, judgement = checked
    (found,) = judgement["findings"]
    assert found["id"] == "wrong-result-protocol_scriptlibraries.testsuite_scriptlibraries_3.4"
    assert found["known"].startswith("Lua's struct library")


@pytest.mark.slow(instead="tests/unit/build/test_server_package.py")
def test_the_run_names_the_packages_version_and_compares_it_with_the_hosts_package(
    checked: tuple[Path, dict[str, Any]],
) -> None:
    record = run_folder.read_run(checked[0])
    assert record.server.startswith(f"{REDIS}=5:7.0.15-")
    folders = {target: Path(binary).parents[3] for target, binary in record.binaries.items()}
    assert {target: folder.name.split("-")[-2:] for target, folder in folders.items()} == {
        "armv5": ["armel", "root"],
        "native": ["amd64", "root"],
    }
    for folder in folders.values():
        hashes = json_codec.decode((folder / "packages.json").read_bytes(), dict[str, str])
        assert any(name.startswith("libc6-dbg_") for name in hashes)
        assert any(name.startswith("redis-tools_") for name in hashes)
        assert all(len(value) == 64 for value in hashes.values())


@pytest.mark.slow(instead="tests/unit/build/test_server_package.py")
def test_a_reproducer_starts_the_same_package(checked: tuple[Path, dict[str, Any]]) -> None:
    (reproducer,) = (checked[0] / "reproducers").glob("*.json")
    finished = run("replay", reproducer)
    assert finished.returncode == ExitCode.FINDINGS, finished.stdout + finished.stderr
    assert "reproduced" in finished.stdout
    assert run("replay", reproducer, "--offline").returncode == ExitCode.FINDINGS


@pytest.mark.slow(instead="tests/unit/build/test_server_package.py")
def test_the_c_library_has_lines_and_the_stack_continues_into_the_server(tmp_path: Path) -> None:
    """Debian's ARM libc has no unwind table for its frames. The lines and the table come from libc6-dbg."""
    service = ["--environment", "debian-service", "--suite", "persistence", "--test", "synchronised_meanwhile"]
    finished = run("check", "--server", REDIS, "--target", "armv7", *service, "--json", "--run", tmp_path / "run")
    assert finished.returncode == ExitCode.FINDINGS, finished.stdout + finished.stderr
    judgement = document(finished)
    assert judgement["optimisation"] == "", "nothing was compiled here"
    (found,) = [one for one in judgement["findings"] if one["id"] == "forbidden-call-arm_sync_file_range"]
    stack = found["witnesses"][0]["backtrace"]
    (called,) = [frame for frame in stack if frame["function"] == "sync_file_range"]
    assert called["file"].endswith("sysdeps/unix/sysv/linux/sync_file_range.c")
    assert called["line"] > 0
    assert called["origin"] == "libc"
    assert stack.index(called) < len(stack) - 1, "the stack ends in the C library"
    assert stack[-1]["function"].startswith("redis-check-rdb+0x"), (
        "the server's symbols are in a separate package, which is not installed"
    )


@pytest.mark.slow(instead="tests/unit/build/test_server_package.py")
def test_an_allocators_build_options_are_no_difference_between_machines(tmp_path: Path) -> None:
    """Debian compiles libjemalloc2 with different options per architecture, and MEMORY MALLOC-STATS prints them."""
    affairs = ["--suite", "limits", "--test", "the server's own affairs"]
    finished = run("check", "--server", REDIS, "--target", "armv5", *affairs, "--json", "--run", tmp_path / "run")
    assert finished.returncode == ExitCode.PASS, finished.stdout + finished.stderr
    assert document(finished)["findings"] == []


def test_a_package_that_the_distribution_lacks_is_reported() -> None:
    finished = run("check", "--server", "debian:bookworm/nosuch-server", "--target", "armv5")
    assert finished.returncode == ExitCode.USAGE
    assert "has no package nosuch-server" in finished.stderr


def test_a_package_of_a_release_that_is_not_in_the_catalog_is_reported() -> None:
    finished = run("check", "--server", f"{REDIS}=5:1.2.3-4", "--target", "aarch64")
    assert finished.returncode == ExitCode.USAGE
    assert "redis 1.2.3, which is not a release in the catalog" in finished.stderr
