"""Finds emulators in the cache, in an installed wheel or in the distribution, and has the missing ones compiled."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build.emulators.compilation import QemuCompiler
from harness.build.emulators.qemu_source import pinned_qemu, qemu_key
from harness.build.sources import emulator_wheel
from harness.core.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.build.emulators.compilation import CrossHost
    from harness.build.emulators.qemu_source import Qemu
    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.model import Flavour
    from harness.core.progress import Progress
    from harness.core.target_model import EmulatorSpec


class Emulators:
    """The emulators of a flavour, built on demand and kept in the cache."""

    def __init__(
        self,
        cache: Cache,
        fetcher: Fetcher,
        progress: Progress,
        *,
        flavour: Flavour = "pinned",
        host: CrossHost | None = None,
        timeout_multiplier: float = 1.0,
    ) -> None:
        """`host`: the kind of host that will run the emulators; None: this one. `timeout_multiplier`: how many times
        longer than usual a compilation may take.
        """
        self.cache = cache
        self.progress = progress
        self.flavour = flavour
        self.compiler = QemuCompiler(cache, fetcher, progress, host, timeout_multiplier=timeout_multiplier)

    def prepare(self, specs: Sequence[EmulatorSpec]) -> dict[str, Path]:
        """QEMU name -> emulator program, for every user-mode emulator among the specs.

        Raises InfrastructureError for one that does not build here, or that the distribution lacks.
        """
        names = sorted({spec.qemu for spec in specs if spec.is_qemu_user})
        if self.flavour == "distro":
            return {name: _distribution_qemu(name) for name in names}
        qemu = pinned_qemu()
        key = self.compiler.key(qemu)
        if self._absent(key, names):
            with self.cache.lock(f"qemu-{key}"):
                # Another run may have built them while this one waited.
                if self.compiler.host is None and (absent := self._absent(key, names)):
                    self._take_installed(key, absent)
                if absent := self._absent(key, names):
                    self._compile(qemu, key, absent)
        return {name: emulator_folder(self.cache, key, name) / f"qemu-{name}" for name in names}

    def cached(self, specs: Sequence[EmulatorSpec]) -> set[str]:
        """The QEMU names of those user-mode emulators among the specs that need no build.

        They are in the cache or in an installed wheel.
        """
        names = sorted({spec.qemu for spec in specs if spec.is_qemu_user})
        key = self.compiler.key(pinned_qemu())
        absent = self._absent(key, names)
        return {*names} - ({*absent} - emulator_wheel.search(key, absent).programs.keys())

    def _absent(self, key: str, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.cache.entry("emulators", f"{key}-{name}") is None]

    def _take_installed(self, key: str, names: list[str]) -> None:
        """Put the emulators of an installed wheel into the cache, if they were built from these sources."""
        found = emulator_wheel.search(key, names)
        self._publish(key, found.programs)
        if found.programs:
            listed = ", ".join(found.programs)
            self.progress.say(f"using the emulators for {listed} from the package {emulator_wheel.DISTRIBUTION}")
        if found.problem:
            self.progress.say(f"compiling QEMU, although {emulator_wheel.DISTRIBUTION} is installed: {found.problem}")

    def _compile(self, qemu: Qemu, key: str, names: list[str]) -> None:
        self.progress.say(
            f"no emulator for {', '.join(names)} yet: QEMU is compiled once, which takes about four minutes on two "
            "processors"
        )
        with self.compiler.compiled(qemu, key, names) as programs:
            self._publish(key, programs)

    def _publish(self, key: str, programs: dict[str, Path]) -> None:
        """Put emulators, by their QEMU names, into the cache."""
        for name, program in programs.items():
            self.cache.folder("emulators", f"{key}-{name}", partial(_copy, program))


def compiles(names: Sequence[str]) -> bool:
    """Whether QEMU must be compiled for emulators that the cache lacks. It need not be if an installed wheel contains
    all of them.
    """
    found = emulator_wheel.search(qemu_key(pinned_qemu()), names)
    return found.programs.keys() != {*names}


def emulator_folder(cache: Cache, key: str, name: str) -> Path:
    """The path of emulator `name` for a `qemu_key`, whether or not it exists."""
    return cache.path("emulators", f"{key}-{name}")


def _copy(program: Path, into: Path) -> None:
    shutil.copy2(program, into)


def _distribution_qemu(name: str) -> Path:
    found = shutil.which(f"qemu-{name}-static") or shutil.which(f"qemu-{name}")
    if found is None:
        raise InfrastructureError(
            f"the distribution's qemu-{name} is not installed",
            remedy="apt-get install --yes --no-install-recommends qemu-user-static",
        )
    return Path(found)
