"""Where a cell's servers run: as processes of this host, in an emulated computer, or on a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.run.boards import reached_machine
from harness.run.boards.board_guest import BoardGuest
from harness.run.boards.reached_machine import ReachedMachine
from harness.run.boards.running_server import RunningGuest, RunningServer
from harness.run.server_process import Guest
from harness.run.vm import guest as vm_guest
from harness.run.vm.guest import VirtualMachine, VmGuest

if TYPE_CHECKING:
    from harness.build.emulators.runner import Runner
    from harness.run.boards.board_image import BoardImage
    from harness.run.servers.server_spec import ServerSpec
    from harness.run.vm.vm_image import VmImage

OtherMachine = VirtualMachine | ReachedMachine | RunningServer
"""A machine that is not this host. It outlives its servers."""


def other_machine(
    image: VmImage | None, board: BoardImage | None, folder: Path, *, sockets: Path
) -> OtherMachine | None:
    """The machine of a cell's servers; None if they are processes of this host. It starts on first use."""
    if board is not None:
        return RunningServer(board) if board.board.runs_already else ReachedMachine(board)
    return VirtualMachine(image, folder, sockets=sockets) if image is not None else None


def canary_place(host: OtherMachine) -> Path:
    """The path of the canary program on a machine."""
    return Path(vm_guest.CANARY if isinstance(host, VirtualMachine) else reached_machine.CANARY)


def guest_of(spec: ServerSpec, runner: Runner, folder: Path, *, host: OtherMachine | None, sockets: Path) -> Guest:
    """A guest of the kind that its target needs: on the machine `host`, under an emulator, or native."""
    if not runner.target.emulator.is_elsewhere:
        return Guest(spec, runner, folder, sockets=sockets)
    if isinstance(host, ReachedMachine):
        return BoardGuest(spec, runner, folder, host=host, sockets=sockets)
    if isinstance(host, RunningServer):
        return RunningGuest(spec, runner, folder, host=host, sockets=sockets)
    assert host is not None
    return VmGuest(spec, runner, folder, host=host)
