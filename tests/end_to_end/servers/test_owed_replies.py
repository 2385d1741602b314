"""A reply that a real server has lost ends its test early. One that is still to come is awaited."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.core.cache import Cache
from harness.core.processes import environment, process
from harness.plan.catalog import Catalog
from harness.run.tcl.client import compile_client
from harness.run.tcl.suite import RUNNER
from tests.end_to_end.support.native_server import native_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.run.server_process import Guest

pytestmark = pytest.mark.end_to_end

DEADLINE = 60
# CLIENT REPLY OFF has no reply. In the second test no client is blocked for long, but the server has much to do.
SUITE = """
::resp::onSilence 0.3 ::endpoint::MayOwe
test planted-1.1 {no reply} -body { ask CLIENT REPLY OFF }
test planted-1.2 {a blocked client} -body { ask BLPOP [key list] 2 } -result (nil)
test planted-1.3 {a long script} -body {
    ask EVAL {local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + 1 end return n} 0 60000000
} -result 60000000
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with native_server(tmp_path_factory.mktemp("server")) as guest:
        yield guest


def test_only_a_reply_that_cannot_come_ends_the_wait_before_the_deadline(server: Guest, tmp_path: Path) -> None:
    file = tmp_path / "planted.testsuite"
    file.write_text(SUITE, "utf-8")
    client = compile_client(Cache.default(), Catalog().toolchains["gcc"])
    options = ["--endpoint", str(server.access.path), "--deadline-seconds", str(DEADLINE), "--client", str(client)]
    said = process.run(
        ["tclsh", RUNNER, *options, file],
        deadline_seconds=5 * DEADLINE,
        environment={**process.PLAIN_ENVIRONMENT, **environment.CELL_SETTINGS},
    ).text
    assert re.search(r"Total\s3\sPassed\s2\sSkipped\s0\sFailed\s1$", said, re.MULTILINE), said
    late = re.search(r"the server did not finish its reply within (\d+) seconds", said)
    assert late is not None, said
    assert int(late[1]) < DEADLINE
