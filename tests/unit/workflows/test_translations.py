"""When emulators keep translated code, which tests/end_to_end/emulator/test_translations.py shows to be correct."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from harness.build.emulators.runner import Runner, with_alignment
from harness.core.cache import Cache
from harness.plan.catalog import Catalog
from harness.workflows import cache_upkeep
from tests.support import fakes

CACHE = Path("/c")
RUNNER = Runner(
    target=fakes.target(),
    policy=Catalog().policies["signal"],
    program=Path("/c/emulators/qemu-arm"),
    options=["-cpu", "arm926", "-alignment", "demand=arch"],
    records_faults=True,
    translations=CACHE / "translations",
)
SERVER = CACHE / "builds" / "redis" / "redis-server"


def kept(runner: Runner, program: Path, *, coverage: Path | None = None) -> str | None:
    words = runner.command(program, ["x"], Path("/r/faults"), coverage)
    return words[words.index("-translations") + 1] if "-translations" in words else None


def test_code_is_kept_for_each_program_and_for_each_way_to_run_it() -> None:
    other_policy = with_alignment(RUNNER.options, Catalog().policies["strict"])
    runners = [
        RUNNER,
        msgspec.structs.replace(RUNNER, options=other_policy),
        msgspec.structs.replace(RUNNER, options=["-cpu", "arm1176", *RUNNER.options[2:]]),
        msgspec.structs.replace(RUNNER, program=Path("/c/emulators/another/qemu-arm")),
    ]
    files = {kept(runner, program) for runner in runners for program in (SERVER, SERVER.with_name("redis-cli"))}
    assert len(files) == 8
    assert None not in files
    assert kept(RUNNER, SERVER) == kept(RUNNER, SERVER)
    assert Path(str(kept(RUNNER, SERVER))).parents[1] == CACHE / "translations"


def test_code_is_not_kept_for_temporary_programs_nor_with_edges_nor_by_other_emulators() -> None:
    assert kept(RUNNER, Path("/elsewhere/program")) is None
    assert kept(RUNNER, SERVER, coverage=Path("/r/edges")) is None
    assert kept(msgspec.structs.replace(RUNNER, translations=None), SERVER) is None


def test_the_cache_may_remove_kept_code(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    folder = tmp_path / "translations" / "redis-server-armv5-1"
    folder.mkdir(parents=True)
    (folder / "code").write_bytes(b"x" * 1000)
    # What was used within the last hour stays.
    before = time.time() - 7200
    os.utime(folder, (before, before))
    holding = cache_upkeep.look(cache)
    assert [(entry.name, entry.bytes) for entry in holding.entries] == [("translations/redis-server-armv5-1", 1000)]
    assert cache_upkeep.remove(cache, cache_upkeep.beyond_limit(holding, 0)) == holding.entries
    assert list((tmp_path / "translations").iterdir()) == []
