"""Builds the kernel tier's kernels from the pinned Linux source with the project's compilers, and stores them.

toolchains/kernels/*.toml defines the configurations and their machines. A kernel whose configuration lost an option
that its fragments request is refused: Linux silently drops options whose dependencies are off.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import build_progress, toolchain
from harness.core.cache_entries import plain_path
from harness.core.digests import key_of, refuse_edited, sha256_of
from harness.core.errors import UsageError
from harness.core.model import ArchivePlace, Record
from harness.core.processes import environment, process
from harness.core.processes.timeouts import if_slow
from harness.core.strict_toml import ROOT, read_toml
from harness.core.target_model import KernelSpec  # noqa: TC001 - msgspec reads the annotations when it decodes

if TYPE_CHECKING:
    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.progress import Progress
    from harness.core.target_model import Toolchain

KERNELS_FOLDER = ROOT / "toolchains" / "kernels"
SOURCE_FILE = KERNELS_FOLDER / "linux" / "linux.toml"
BUILD_SECONDS = 3600
# The kernel's first line names its builder, place and time: fixed values keep builds identical.
_REPRODUCIBLE = {
    "KBUILD_BUILD_USER": "plumbline",
    "KBUILD_BUILD_HOST": "plumbline",
    "KBUILD_BUILD_TIMESTAMP": "@0",
    # The source is in the cache, where nothing may be added.
    "PYTHONDONTWRITEBYTECODE": "1",
}


class LinuxSource(Record, frozen=True):
    """Toolchains/kernels/linux/linux.toml: the source of all kernels."""

    version: str
    sha256: str
    packages: list[str]
    """Debian packages that Linux builds with, beyond the compiler."""
    places: list[ArchivePlace]
    left_out: list[str]
    """Globs of folders that no kernel here compiles: only the files of the build system are unpacked from them."""


class Kernel(Record, frozen=True):
    """A built kernel in the cache."""

    spec: KernelSpec
    key: str
    image: Path
    device_tree: Path | None
    seconds: float
    """The duration of the build."""


def linux_source() -> LinuxSource:
    """The pinned source."""
    return read_toml(SOURCE_FILE, LinuxSource)


def needed_packages(spec: KernelSpec) -> list[str]:
    """Debian packages that a machine needs: its kernel's build dependencies, and the emulator that it runs in."""
    return sorted({*linux_source().packages, *spec.machine.packages})


class Kernels:
    """The kernels of the kernel tier, built on demand."""

    def __init__(self, cache: Cache, fetcher: Fetcher, progress: Progress) -> None:
        self.cache = cache
        self.fetcher = fetcher
        self.progress = progress

    def build(self, spec: KernelSpec, tools: Toolchain) -> Kernel:
        """The kernel, built unless it is cached. Raises InfrastructureError when the build fails."""
        linux = linux_source()
        key = kernel_key(spec, tools, linux)

        def fill(into: Path) -> None:
            seconds = self._build(spec, tools, linux, key, into)
            (into / "seconds").write_text(f"{seconds:.1f}\n", "utf-8")

        folder = self.cache.folder("kernels", kernel_name(spec, key), fill)
        device_tree = folder / Path(spec.device_tree).name if spec.device_tree else None
        return Kernel(
            spec=spec,
            key=key,
            image=folder / Path(spec.image).name,
            device_tree=device_tree,
            seconds=float((folder / "seconds").read_text("utf-8")),
        )

    def _build(self, spec: KernelSpec, tools: Toolchain, linux: LinuxSource, key: str, into: Path) -> float:
        log = self.cache.log(f"kernel-{spec.name}-{key}")
        plain_path.refuse_odd(self.cache.root)
        source = self.fetcher.tree(f"linux-{linux.version}", linux.sha256, linux.places, left_out=linux.left_out)
        seconds = 0.0
        with (
            # Quiet make counts nothing.
            build_progress.counted_stage(
                self.cache,
                self.progress,
                "kernel",
                f"building Linux {linux.version} for {spec.name}",
                history=["linux", linux.version, spec.name],
            ),
            self.cache.work(f"kernel-{spec.name}-{key}") as work,
        ):
            fragments = work / "fragments"
            fragments.write_text("".join(_fragment(name).read_text("utf-8") for name in spec.fragments), "utf-8")
            make = [
                "make",
                "--silent",
                f"--directory={source}",
                f"O={work}",
                f"ARCH={spec.architecture}",
                f"CROSS_COMPILE={tools.triple}-",
                f"--jobs={os.cpu_count() or 1}",
            ]
            for targets in (["allnoconfig"], spec.make):
                seconds += process.run_successfully(
                    [*make, *targets],
                    problem=f"the kernel for {spec.name} does not build here",
                    deadline_seconds=tools.deadline_seconds(BUILD_SECONDS),
                    log=log,
                    folder=work,
                    environment=environment.for_build(KCONFIG_ALLCONFIG=str(fragments), **_REPRODUCIBLE),
                    remedy="plumb doctor --target TARGET names missing packages; then run again",
                    remedy_if_late=if_slow(tools.timeout_multiplier),
                ).seconds
                if targets == ["allnoconfig"]:
                    refuse_lost_options(fragments.read_text("utf-8"), (work / ".config").read_text("utf-8"), spec)
            refuse_edited(kernel_key(spec, tools, linux), key, str(KERNELS_FOLDER))
            for name in filter(None, (spec.image, spec.device_tree)):
                shutil.copy2(work / name, into)
            shutil.copy2(work / ".config", into / "config")
        return seconds


def kernel_name(spec: KernelSpec, key: str) -> str:
    """The name of a kernel's folder in the cache."""
    return f"{spec.name}-{key}"


def kernel_key(spec: KernelSpec, tools: Toolchain, linux: LinuxSource) -> str:
    """Content address of a kernel: source, configuration, compiler."""
    fragments = [sha256_of(_fragment(name)) for name in spec.fragments]
    # Not the whole identity: a kernel contains nothing of a C library.
    compiler = toolchain.version(toolchain.tool(tools, "gcc"))
    return key_of([linux.sha256, *fragments, spec.architecture, *spec.make, compiler])


def _fragment(name: str) -> Path:
    path = KERNELS_FOLDER / name
    if not path.is_file():
        known = ", ".join(sorted(fragment.name for fragment in KERNELS_FOLDER.glob("*.config")))
        raise UsageError(f"no configuration fragment '{name}'", where=str(KERNELS_FOLDER), remedy=f"known: {known}")
    return path


def options(text: str) -> dict[str, str]:
    """Option -> value of a kernel configuration; an option marked as not set has the value `n`."""
    found = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", text, re.MULTILINE))
    found |= dict.fromkeys(re.findall(r"^# (CONFIG_\w+) is not set$", text, re.MULTILINE), "n")
    return found


def refuse_lost_options(requested: str, configured: str, spec: KernelSpec) -> None:
    """Raise UsageError when a configuration lacks an option that its fragments request."""
    has = options(configured)
    lost = [f"{name}={value}" for name, value in options(requested).items() if has.get(name, "n") != value]
    if lost:
        raise UsageError(
            f"the kernel for {spec.name} loses {len(lost)} of its options:  {', '.join(lost)}",
            where=f"toolchains/kernels: {', '.join(spec.fragments)}",
            because="a dependency of theirs is off, or another option overrides them",
            remedy="look at `depends on` in the option's Kconfig file, and add that option to the fragment",
        )
