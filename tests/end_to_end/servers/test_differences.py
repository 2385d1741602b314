"""Bytes in the wrong order are located and reproduced, and every function that is named as a writer exists."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from harness.build.sources.archives import Fetcher
from harness.core.cache import Cache
from harness.core.errors import ExitCode
from harness.plan.catalog import Catalog
from harness.workflows.mutation_testing import campaign, mutations
from suites._shared.formats import places
from tests.end_to_end.support.machines import quiet_workbench
from tests.end_to_end.support.plumb_runs import PLUMB, run
from tests.support import fakes

pytestmark = pytest.mark.end_to_end


@pytest.mark.slow(
    instead=(
        "test_a_missing_byte_swap_fails_a_self_test_only_on_a_big_endian_target_and_is_replayed; "
        "tests/suites/test_rdb.py; tests/unit/core/test_byte_diff.py"
    )
)
def test_a_time_in_the_wrong_byte_order_is_located_reproduced_and_absent_on_a_correct_target() -> None:
    planted = mutations.mutations()["rdb-expiry-byte-order"]
    row = campaign.mutate(quiet_workbench(), planted, targets=["sparc64"])
    assert row.caught
    (finding,) = json.loads((Path(row.run) / "findings.json").read_text("utf-8"))["findings"]
    difference = finding["difference"]
    assert difference["record"] == "time of expiry of string 'expires:0' of database 0"
    assert (difference["where"], difference["writer"], difference["function"]) == (
        "dump.rdb",
        "sparc64",
        "rdbSaveMillisecondTime",
    )
    assert bytes.fromhex(difference["actual"])[:8] == bytes.fromhex("0000020000000001")
    words = shlex.split(finding["replay"])[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS
    assert run(*words, "--server", planted.server, program=PLUMB).returncode == ExitCode.PASS


@pytest.mark.slow(instead="tests/suites/test_rdb.py; tests/unit/core/test_byte_diff.py")
def test_a_wrongly_loaded_value_is_reproduced_with_its_file() -> None:
    planted = mutations.mutations()["rdb-integer-signedness"]
    row = campaign.mutate(quiet_workbench(), planted, targets=["aarch64"])
    (finding,) = json.loads((Path(row.run) / "findings.json").read_text("utf-8"))["findings"]
    assert (finding["difference"]["writer"], finding["difference"]["reader"]) == ("native", "aarch64")
    words = shlex.split(finding["replay"])[1:]
    assert run(*words, program=PLUMB).returncode == ExitCode.FINDINGS
    assert run(*words, "--server", planted.server, program=PLUMB).returncode == ExitCode.PASS


@pytest.mark.parametrize("server", ["redis-5.0.6", "redis-7.0.15", "redis-8.0.6", "valkey-9.1.2"])
def test_every_function_named_as_a_writer_exists_in_the_source(server: str) -> None:
    tree = Fetcher(Cache.default(), fakes.quiet(), offline=False).server(Catalog().servers[server])
    names = ("rdb.c", "intset.c", "t_stream.c")
    source = "".join((tree.path / "src" / name).read_text("latin-1") for name in names)
    for function in set(places.WRITERS.values()):
        assert re.search(rf"^[a-z][^\n;]*\b{function}\(", source, re.MULTILINE), f"{server} has no {function}"
