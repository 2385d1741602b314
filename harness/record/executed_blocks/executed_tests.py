"""CELL/executed.jsonl: a line for each test of a cell, with the addresses of the server's program that it executed."""

from __future__ import annotations

import base64
import zlib
from array import array
from typing import TYPE_CHECKING

from harness.core import json_codec
from harness.core.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME = "executed.jsonl"


class ExecutedTest(Record, frozen=True):
    """The code that the target's servers executed during one test."""

    test: str
    failed: bool
    packed: str
    """The addresses, in order, as 64-bit numbers in the host's byte order, compressed by zlib, in base 64."""

    @classmethod
    def of(cls, test: str, addresses: Iterable[int], *, failed: bool) -> ExecutedTest:
        """The record of a test, from addresses of the server's program."""
        content = array("Q", sorted(addresses)).tobytes()
        return cls(test=test, failed=failed, packed=base64.b64encode(zlib.compress(content)).decode())

    @property
    def addresses(self) -> frozenset[int]:
        """The addresses; see harness.analysis.executed_code."""
        numbers = array("Q")
        numbers.frombytes(zlib.decompress(base64.b64decode(self.packed)))
        return frozenset(numbers)


def append_executed(folder: Path, executed: ExecutedTest) -> None:
    """Add a test to a cell's folder."""
    with (folder / NAME).open("ab") as file:
        file.write(json_codec.encode(executed) + b"\n")


def read_executed(folder: Path) -> list[ExecutedTest]:
    """The tests of a cell's folder in their order; none if nothing was recorded. Raises msgspec.DecodeError."""
    path = folder / NAME
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return [json_codec.decode(line, ExecutedTest) for line in lines]
