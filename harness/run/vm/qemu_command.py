"""The command line of a machine's emulator, and the guest's ports on the host. Pure: it starts nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.core.target_model import MachineSpec
    from harness.run.vm.vm_image import VmImage

GUEST_ADDRESS = "10.0.2.15"
"""The guest's address in QEMU's user-mode network; init/setup.c has it too."""


def control_port(machine: MachineSpec) -> int | None:
    """The guest's TCP port that carries the control channel; None if it is a device."""
    kind, _, port = machine.control.partition("tcp:")
    return int(port) if not kind and port else None


def emulator_command(image: VmImage, socket_folder: Path, ports: Sequence[int]) -> list[str]:
    """The emulator's command line: stopped before its first instruction, or waiting for a saved state.

    The guest's `ports` are forwarded from ports on loopback that the kernel chooses.
    """
    kernel, machine = image.kernel, image.kernel.spec.machine
    # In the emulator's options a comma ends a value unless it is doubled.
    sockets = str(socket_folder).replace(",", ",,")
    forwards = "".join(f",hostfwd=tcp:127.0.0.1:0-{GUEST_ADDRESS}:{port}" for port in ports)
    # A panic resets the machine, and a reset ends the emulator; otherwise it would run until the deadline.
    append = [f"console={machine.console}", "panic=-1", f"control={machine.control}", *machine.append]
    tree = ["-dtb", str(kernel.device_tree)] if kernel.device_tree else []
    control = ["-chardev", f"socket,id=control,path={sockets}/control,server=on,wait=off"]
    return [
        *[machine.emulator, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-S"],
        *["-M", machine.machine, "-cpu", machine.cpu, "-m", str(machine.memory_mib)],
        *["-kernel", str(kernel.image), *tree, "-initrd", str(image.initramfs.archive)],
        *["-append", " ".join(append)],
        *["-chardev", "file,id=console,path=console"],
        *(control if control_port(machine) is None else []),
        *["-qmp", f"unix:{sockets}/qmp,server=on,wait=off"],
        *["-netdev", f"user,id=network,restrict=on{forwards}"],
        *machine.options,
        *(["-icount", "shift=0"] if image.counted else []),
        *(["-incoming", "defer"] if image.snapshot is not None else []),
    ]


def forwarded_ports(usernet: str) -> dict[int, int]:
    """Guest port -> host port, from what the monitor's `info usernet` prints."""
    pattern = rf"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s+{re.escape(GUEST_ADDRESS)}\s+(\d+)"
    return {int(guest): int(host) for host, guest in re.findall(pattern, usernet)}
