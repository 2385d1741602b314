"""Writes the requests of a workload: the same ones for every server, target and round."""

from __future__ import annotations

import itertools
import random
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.plan.workloads import BenchWorkload

SEED = 1


class WorkloadRequests:
    """The requests of one round, each a list of words."""

    def __init__(self, workload: BenchWorkload) -> None:
        self.workload = workload
        self._generator = random.Random(SEED)
        self._value = self._generator.randbytes(workload.payload_bytes)
        self._numbers = itertools.count()
        self._commands = itertools.cycle(workload.commands)

    def prepared(self, *, at_once: int) -> Iterator[list[list[bytes]]]:
        """The requests that come before all others, in pipelines of at most so many."""
        workload = self.workload
        requests = (self._words(words, key, key) for key in range(workload.keys) for words in workload.prepare)
        while several := list(itertools.islice(requests, at_once)):
            yield several

    def next(self) -> list[bytes]:
        """The next request."""
        number = next(self._numbers)
        in_order = self.workload.drawn == "in-order"
        key = number % self.workload.keys if in_order else self._generator.randrange(self.workload.keys)
        return self._words(next(self._commands), key, number)

    def _words(self, words: Sequence[str], key: int, number: int) -> list[bytes]:
        return [self._word(word, key, number) for word in words]

    def _word(self, word: str, key: int, number: int) -> bytes:
        if word == "{value}":
            return self._value
        if word == "{floats}":
            generator = random.Random(key)
            dimensions = self.workload.payload_bytes // 4
            return struct.pack(f"<{dimensions}f", *(generator.uniform(-1, 1) for _ in range(dimensions)))
        # As redis-benchmark writes keys: with twelve digits, so that every key has the same length.
        return word.replace("{key}", f"{key:012d}").replace("{number}", f"{number:012d}").encode()
