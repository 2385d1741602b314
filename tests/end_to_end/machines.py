"""What an end-to-end test needs to run programs of its own on a target: emulator, toolchain, cache."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from harness.emulator import Emulators, Runner
from harness.fetch import Fetcher
from harness.load import Catalog
from harness.model import Policy
from harness.store import Store
from tests import fakes

if TYPE_CHECKING:
    from pathlib import Path

SIGNAL = Policy.SIGNAL
REQUIRED = [target.name for target in Catalog().targets.values() if "required" in target.groups]


@cache
def _programs() -> tuple[Emulators, dict[str, Path]]:
    store, progress = Store.default(), fakes.quiet()
    emulators = Emulators(store, Fetcher(store, progress), progress)
    return emulators, emulators.prepare([Catalog().targets[name].emulator for name in REQUIRED])


def runner(target: str, policy: Policy = SIGNAL) -> Runner:
    """The pinned emulator for a target; built if it is not in the cache."""
    emulators, programs = _programs()
    catalog = Catalog()
    found = catalog.targets[target]
    return emulators.runner(found, catalog.toolchain_of(found), policy, programs)
