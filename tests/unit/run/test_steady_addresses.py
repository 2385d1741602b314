"""Only emulators that keep translated code start at fixed addresses; no other program of the harness does."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.unit_drivers import Units
from harness.core.processes import process
from harness.core.processes.process_tree import ADDR_NO_RANDOMIZE
from harness.run import unit_runner
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner

pytestmark = pytest.mark.skipif(
    process.run(["setarch", platform.machine(), "-R", "true"], deadline_seconds=10).code != 0,
    reason="seccomp keeps programs from steady addresses: this container keeps no code",
)


def runner_in(cache: Path, *, keeps: bool) -> Runner:
    """A runner with an emulator that prints its personality."""
    emulator = fakes.write(cache / "emulators" / "says", "#!/bin/sh\ncat /proc/self/personality\n", mode=0o755)
    runner = fakes.unemulated(fakes.target())
    return msgspec.structs.replace(runner, program=emulator, translations=cache / "translations" if keeps else None)


def is_steady(said: str) -> bool:
    return bool(int(said, 16) & ADDR_NO_RANDOMIZE)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_unit_has_fixed_addresses_only_if_its_translated_code_is_kept(tmp_path: Path, *, keeps: bool) -> None:
    units = Units(program=tmp_path / "units" / "program", absent={}, broken={})
    ran = unit_runner.run_emulated(units, runner_in(tmp_path, keeps=keeps), "crc64", tmp_path / "unit")
    assert is_steady(ran.output.decode()) == keeps


@pytest.mark.parametrize("keeps", [True, False])
def test_a_server_has_fixed_addresses_only_if_its_translated_code_is_kept(tmp_path: Path, *, keeps: bool) -> None:
    build = fakes.build(tmp_path / "builds")
    (tmp_path / "guest").mkdir()
    guest = Guest(
        ServerSpec(build=build, version=(7, 0, 15)),
        runner_in(tmp_path, keeps=keeps),
        tmp_path / "guest",
        sockets=tmp_path,
    )
    guest.launch()
    try:
        assert guest.await_end() == 0
        assert is_steady(guest.evidence.log.read_text("utf-8")) == keeps
    finally:
        guest.__exit__()
