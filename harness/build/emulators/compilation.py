"""Compiles the pinned QEMU with Plumbline's changes, for the host or for another host architecture."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from harness.build import build_progress
from harness.build.emulators.qemu_source import QEMU_FOLDER, qemu_key, unpacked_source
from harness.core.cache_entries import plain_path
from harness.core.digests import key_of, refuse_edited
from harness.core.model import Record
from harness.core.processes import environment, process
from harness.core.processes.timeouts import if_slow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from harness.build.emulators.qemu_source import Qemu
    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.progress import Progress

BUILD_SECONDS = 3600
OLDEST_DEBIAN = "bookworm"
"""The release whose libraries emulators for another host architecture are linked with: every later release also has
them.
"""


class CrossHost(Record, frozen=True):
    """Another host architecture, for which this host compiles emulators."""

    machine: str
    """Its processor, in the words of `uname --machine`."""
    triple: str
    """The prefix of its cross compiler: `TRIPLE-gcc`."""
    debian_architecture: str


class QemuCompiler:
    """Compiles emulators for one kind of machine."""

    def __init__(
        self,
        cache: Cache,
        fetcher: Fetcher,
        progress: Progress,
        host: CrossHost | None = None,
        *,
        timeout_multiplier: float = 1.0,
    ) -> None:
        """`host`: the kind of host that will run the emulators; None: this one. `timeout_multiplier`: how many times
        longer than usual a compilation may take.
        """
        self.cache = cache
        self.fetcher = fetcher
        self.progress = progress
        self.host = host
        self.timeout_multiplier = timeout_multiplier

    def key(self, qemu: Qemu) -> str:
        """Content address of the emulators that it would compile now."""
        return qemu_key(qemu) if self.host is None else f"{qemu_key(qemu)}-for-{self.host.machine}"

    @contextmanager
    def compiled(self, qemu: Qemu, key: str, names: Sequence[str]) -> Iterator[dict[str, Path]]:
        """QEMU name -> program, for emulators that share a build folder because they share most of the work.

        The folder is removed afterwards. Raises InfrastructureError if QEMU does not build on the host or in this
        cache, or if its sources have changed meanwhile.
        """
        plain_path.refuse_odd(self.cache.root)
        log = self.cache.log(f"qemu-{key}")
        source = unpacked_source(self.fetcher, qemu)
        cross = _CrossBuild(self.host, self.fetcher, qemu) if self.host is not None else None
        with (
            build_progress.counted_stage(
                self.cache,
                self.progress,
                "emulator",
                f"building QEMU {qemu.version} for {', '.join(names)}",
                history=["qemu", qemu.version, *names],
                verb="compiling",
            ) as steps,
            self.cache.work(f"qemu-{key}-{key_of(names)}") as work,
        ):
            steps.counts(partial(build_progress.ninja_steps, log))
            shutil.copytree(source, work / "source", symlinks=True)
            (work / "build").mkdir()
            for number, command in enumerate(_build_commands(qemu, work, names, cross)):
                process.run_successfully(
                    command,
                    problem="QEMU does not build here",
                    deadline_seconds=BUILD_SECONDS * self.timeout_multiplier,
                    log=log,
                    folder=work / "source" if number == 0 else work / "build",
                    environment={
                        **environment.for_registry(),
                        **_object_cache(self.cache, work),
                        **(cross.environment if cross is not None else {}),
                    },
                    remedy="plumb doctor; or --emulator distro, which enforces less, as its canaries will show",
                    remedy_if_late=if_slow(self.timeout_multiplier),
                )
            refuse_edited(self.key(qemu), key, str(QEMU_FOLDER))
            yield {name: work / "build" / f"qemu-{name}" for name in names}


def _object_cache(cache: Cache, work: Path) -> dict[str, str]:
    """The environment with which ccache finds objects independently of the build folder's path."""
    return {"CCACHE_DIR": str(cache.root / "ccache"), "CCACHE_BASEDIR": str(work)}


class _CrossBuild:
    """The options of QEMU's configure script for another machine and its libraries."""

    def __init__(self, host: CrossHost, fetcher: Fetcher, qemu: Qemu) -> None:
        root = fetcher.packages(OLDEST_DEBIAN, host.debian_architecture, qemu.libraries)
        folders = [root / one / host.triple for one in ("usr/lib", "lib")]
        self.compiler = f"{host.triple}-gcc"
        searched = [f"-L{folders[0]}", *(f"-Wl,-rpath-link,{folder}" for folder in folders)]
        self.options = [f"--cross-prefix={host.triple}-", f"--extra-ldflags={' '.join(searched)}"]
        self.environment = {
            "PKG_CONFIG": "pkg-config",
            "PKG_CONFIG_SYSROOT_DIR": str(root),
            "PKG_CONFIG_LIBDIR": ":".join([f"{folders[0]}/pkgconfig", f"{root}/usr/share/pkgconfig"]),
        }


def _build_commands(qemu: Qemu, work: Path, names: Sequence[str], cross: _CrossBuild | None = None) -> list[list[str]]:
    """Commands that patch the source, then prepare tools, configure and compile in the build folder.

    If the host has ccache, one of Plumbline's changes recompiles only the files that it affects.
    """
    python = str(work / "python" / "bin" / "python")
    targets = ",".join(f"{name}-linux-user" for name in names)
    overlay = str(QEMU_FOLDER / "overlay") + "/."
    jobs = str(os.cpu_count() or 1)
    compiler = [f"--cc=ccache {cross.compiler if cross else 'cc'}"] if shutil.which("ccache") else []
    return [
        ["patch", "--strip=1", "--fuzz=0", f"--input={QEMU_FOLDER / 'hooks.patch'}"],
        ["cp", "--recursive", overlay, str(work / "source")],
        ["python3", "-m", "venv", str(work / "python")],
        [python, "-m", "pip", "install", "--quiet", *qemu.python_packages],
        [
            str(work / "source" / "configure"),
            f"--python={python}",
            f"--target-list={targets}",
            *compiler,
            *(cross.options if cross else []),
            *qemu.configure,
        ],
        ["ninja", "-j", jobs, *[f"qemu-{name}" for name in names]],
    ]
