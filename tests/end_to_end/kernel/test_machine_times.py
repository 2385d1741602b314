"""The time from the request for a machine to the server's PONG is within the kernel tier's goals on every machine.

`pytest tests/end_to_end/kernel/test_machine_times.py -rP` prints the measured times. Waits for a processor are measured
separately and do not count, because they come from other work of this computer.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

from harness.build.server_build import Builder
from harness.build.sources.archives import Fetcher
from harness.build.workshop.build_plan import BuildPlan
from harness.core.cache import Cache
from harness.core.processes import scheduling
from harness.core.progress import Progress
from harness.run.vm.machine import Machine
from harness.run.vm.snapshot import snapshot
from harness.run.vm.vm_image import VmImage
from tests.end_to_end.kernel.test_machine import CATALOG, archive, built, serving
from tests.end_to_end.support.machines import KERNELS, beyond

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

COLD_SECONDS = 8.0
RESUMED_SECONDS = 3.0
MACHINES = {
    "versatile": "armv5",
    "realview": "armv6",
    "virt-armv7": "armv7",
    "virt-arm64": "aarch64",
    "sun4u": "sparc64",
    "virt-riscv64": "riscv64",
    "malta": "mips",
    "ccw-s390x": "s390x",
    "mac99": "powerpc",
    "pseries": "powerpc64le",
}
"""Machine -> the target whose server it runs."""


@pytest.mark.parametrize("resumed", [False, True], ids=["cold", "resumed"])
@pytest.mark.parametrize("name", [name if name in KERNELS else beyond(name) for name in MACHINES])
def test_a_server_answers_soon_after_its_machine_was_requested(name: str, *, resumed: bool, tmp_path: Path) -> None:
    cache, progress = Cache.default(), Progress()
    kernel, target = built(name), CATALOG.targets[MACHINES[name]]
    tree = Fetcher(cache, progress).server(CATALOG.servers["redis-7.0.15"])
    build = Builder(cache, progress).build(
        BuildPlan(tree=tree, target=target, tools=CATALOG.toolchain_of(target), optimisation="O2")
    )
    files = archive(kernel, target.name, {"/srv/server": build.server_binary})
    if resumed and not kernel.spec.machine.snapshots:
        pytest.skip("QEMU cannot save the state of this machine")
    state = snapshot(cache, kernel, files, sockets=tmp_path) if resumed else None
    started = time.monotonic()
    with Machine(
        VmImage(kernel=kernel, initramfs=files, snapshot=state), tmp_path / "machine", sockets=tmp_path
    ) as machine:
        boot = time.monotonic() - started - scheduling.waited_seconds(machine.emulator_pid)
        serving(machine)
        total = time.monotonic() - started - scheduling.waited_seconds(machine.emulator_pid)
    how = "resumed" if resumed else "cold"
    sys.stdout.write(f"{name} {how}: {boot:.2f} s to the machine, {total - boot:.2f} s from there to PONG\n")
    assert total <= (RESUMED_SECONDS if resumed else COLD_SECONDS)
