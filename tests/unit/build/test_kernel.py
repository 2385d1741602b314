"""Kernel configurations are complete and explained, and the archive that they boot depends only on its files."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

import pytest

from harness.build import kernel
from harness.build.initramfs import assemble, cpio
from harness.core.cache import Cache
from harness.core.errors import InfrastructureError, UsageError
from harness.plan.catalog import Catalog
from harness.record import fault_log
from harness.run.vm import machine, qemu_command
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = Catalog().kernels


def test_the_source_is_pinned_by_a_full_hash() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", kernel.linux_source().sha256)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_builds_its_image_and_names_its_control_files(name: str) -> None:
    spec = KERNELS[name]
    assert spec.image.rpartition("/")[2] in spec.make
    assert not spec.device_tree or spec.device_tree.rpartition("/")[2] in spec.make
    assert spec.machine.control.startswith(("/dev/", "tcp:"))
    assert any("netdev=network" in option for option in spec.machine.options)
    assert all((kernel.KERNELS_FOLDER / fragment).is_file() for fragment in spec.fragments)
    assert spec.machine.emulator.startswith("qemu-system-")


@pytest.mark.parametrize("path", sorted(kernel.KERNELS_FOLDER.glob("*.config")), ids=lambda path: path.stem)
def test_no_option_occurs_twice_and_every_group_of_options_is_explained(path: Path) -> None:
    names = re.findall(r"^(CONFIG_\w+)=", path.read_text("utf-8"), re.MULTILINE)
    assert sorted(set(names)) == sorted(names)
    assert path.read_text("utf-8").startswith("# ")


def test_an_option_that_the_kernel_drops_is_an_error_that_names_it() -> None:
    requested = "CONFIG_A=y\n# Why.\nCONFIG_B=n\nCONFIG_C=12\n"
    spec = KERNELS["versatile"]
    kernel.refuse_lost_options(requested, "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=12\n", spec)
    kernel.refuse_lost_options(requested, "CONFIG_A=y\nCONFIG_C=12\n", spec)
    with pytest.raises(UsageError, match="loses 2 of its options:  CONFIG_A=y, CONFIG_C=12"):
        kernel.refuse_lost_options(requested, "# CONFIG_A is not set\n", spec)


def entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Name -> mode and content, read in the way of the kernel."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        values = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = values[1], values[6], values[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        data = at + (110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return found
        found[name] = mode, archive[data : data + size]
        at = data + (size + 3) // 4 * 4


def test_an_archive_has_folders_before_their_files_and_the_console() -> None:
    files = {"/init": b"program", "/srv/a/server": b"x" * 5, "/lib/libc.so.6": b""}
    found = entries(cpio(files))
    assert {"/" + name: data for name, (mode, data) in found.items() if stat.S_ISREG(mode)} == files
    assert all(mode & 0o111 for mode, _ in found.values() if stat.S_ISREG(mode))
    assert stat.S_ISCHR(found["dev/console"][0])
    names = list(found)
    for name in names:
        parent = name.rpartition("/")[0]
        assert not parent or names.index(parent) < names.index(name), f"{name} comes before its folder"


def test_an_archive_depends_on_nothing_but_its_content() -> None:
    one, other = {"/b": b"1", "/a": b"2"}, {"/a": b"2", "/b": b"1"}
    assert cpio(one) == cpio(other)


def test_an_archive_that_is_too_large_for_the_machine_is_refused(tmp_path: Path) -> None:
    init = fakes.write(tmp_path / "init", "x" * 1000)
    with pytest.raises(InfrastructureError, match="too large for the machine"):
        assemble(Cache(tmp_path / "cache"), init, {}, memory_bytes=1000)


def test_forwarded_ports_are_read_from_the_monitor() -> None:
    text = """Hub -1 (network):
  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
  TCP[ESTABLISHED]   82       127.0.0.1 41943       10.0.2.15  6379     0     0
  TCP[HOST_FORWARD]  10       127.0.0.1 41943       10.0.2.15  6379     0     0
  TCP[HOST_FORWARD]  11       127.0.0.1 40001       10.0.2.15     1     0     0
"""
    assert qemu_command.forwarded_ports(text) == {6379: 41943, 1: 40001}


def test_a_record_names_the_hosts_files(tmp_path: Path) -> None:
    maps = [
        fault_log.MapRecord(start=0, end=1, offset=0, path="/srv/server"),
        fault_log.MapRecord(start=2, end=3, offset=0, path="/x"),
    ]
    fault = fault_log.Fault(
        event="fault",
        pid=1,
        tid=1,
        signal=fakes.SIGBUS,
        code=fakes.ADRALN,
        address=1,
        access="",
        handled=False,
        pc=0,
        instruction="",
        registers=[],
        stack_address=0,
        stack="",
        maps=maps,
    )
    translated = machine.with_host_paths(fault, {"/srv/server": tmp_path / "server"})
    assert [one.path for one in translated.maps] == [str(tmp_path / "server"), "/x"]
