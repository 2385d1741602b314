"""The data set has a value in every encoding that a release's source names."""

from __future__ import annotations

import re

import pytest

from harness.plan.catalog import Catalog
from suites._shared.keyspace import dataset
from tests.end_to_end.support import machines

pytestmark = pytest.mark.end_to_end
SERVERS = Catalog().servers
OF_EVERY_RUN = {"redis-3.2.6", "redis-7.0.15"}
"""Releases that other tests also fetch."""


@pytest.mark.parametrize("name", [name if name in OF_EVERY_RUN else machines.beyond(name) for name in sorted(SERVERS)])
def test_every_encoding_that_a_source_names_is_listed(name: str) -> None:
    source = (machines.release(name) / "src" / "object.c").read_text("utf-8", "replace")
    named = set(re.findall(r'case \w*ENCODING_\w+:\s*return "(\w+)"', source))
    version = tuple(map(int, SERVERS[name].version.split(".")))
    listed = {encoding for _, encoding in dataset.encodings(version, SERVERS[name].family)}
    # Redis 5 has streams, but no name for their encoding.
    assert listed - {"unknown"} == named
