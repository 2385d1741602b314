"""Saved states of machines that have just booted, in the cache: a run resumes from one instead of booting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.build import toolchain
from harness.core import json_codec
from harness.core.digests import key_of
from harness.run.vm.machine import Machine
from harness.run.vm.vm_image import VmImage

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.initramfs import Initramfs
    from harness.build.kernel import Kernel
    from harness.core.cache import Cache


def snapshot(
    cache: Cache, kernel: Kernel, initramfs: Initramfs, *, sockets: Path, timeout_multiplier: float = 1.0
) -> Path | None:
    """The saved state of a machine that has just booted, made if it is not in the cache; None if the machine cannot
    have one.

    `timeout_multiplier`: how many times longer than usual its boot may take.

    Raises InfrastructureError when the machine does not boot, or its state cannot be saved.
    """
    if not kernel.spec.machine.snapshots:
        return None
    emulator = toolchain.version(kernel.spec.machine.emulator)
    key = key_of([kernel.key, initramfs.key, emulator, json_codec.encode(kernel.spec.machine).decode()])

    def fill(into: Path) -> None:
        image = VmImage(kernel=kernel, initramfs=initramfs, timeout_multiplier=timeout_multiplier)
        with Machine(image, into / "machine", sockets=sockets) as machine:
            machine.save(into / "state")

    return cache.folder("snapshots", f"{kernel.spec.name}-{key}", fill) / "state"
