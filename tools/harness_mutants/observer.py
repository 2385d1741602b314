"""Records which functions of the harness each Python process of a trial enters, and the test that runs meanwhile.

A `.pth` file of the trial's environment imports this module in every process: variables of the environment do not reach
the processes of cells. It imports nothing that is not Python's. Without orders beside it, it does nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, FrameType

ORDERS = "orders.json"
"""Beside this file: what to do."""
ENTERED, CURRENT = "entered", "current"
"""In the folder of results: lines of test, file and function, one file a process; and the test that runs."""


class Observer:
    """The observer of one process."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        self.folder = Path(orders["folder"])
        self._root = orders["root"] + os.sep
        self._seen: set[CodeType] = set()
        self._test = self._current()
        self._file = self._own_file()
        if orders["functions"]:
            os.register_at_fork(after_in_child=self._forked)
            threading.setprofile(self._profile)
            sys.setprofile(self._profile)

    @property
    def test(self) -> str:
        """The test that runs; empty before the first."""
        return self._test

    def begin(self, test: str) -> None:
        """What this process and those that it starts enter from here on belongs to this test."""
        (self.folder / CURRENT).write_text(test, "utf-8")
        self._test = test
        self._seen = set()

    def stop(self) -> None:
        """Observe this process no longer."""
        threading.setprofile(None)
        sys.setprofile(None)

    def _current(self) -> str:
        try:
            return (self.folder / CURRENT).read_text("utf-8")
        except OSError:
            return ""

    def _own_file(self) -> Path:
        return self.folder / ENTERED / str(os.getpid())

    def _forked(self) -> None:
        self._file = self._own_file()
        self._test = self._current()
        self._seen = set()

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if code in self._seen or event != "call":
            return
        self._seen.add(code)
        if code.co_filename.startswith(self._root + "harness" + os.sep):
            entry = "\t".join((self._test, code.co_filename.removeprefix(self._root), code.co_qualname))
            try:
                # At once: many of these processes are killed.
                with self._file.open("a", encoding="utf-8") as stream:
                    stream.write(entry + "\n")
            except OSError:
                # A process of another user, or in another root, remains unobserved.
                self.stop()


def _observer() -> Observer | None:
    path = Path(__file__).with_name(ORDERS)
    return Observer(json.loads(path.read_text("utf-8"))) if path.is_file() else None


OBSERVER = _observer()
