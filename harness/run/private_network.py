"""A private network for a cell: a loopback interface that no other process can listen on, connect to or take ports
from.

Servers that listen on TCP ports, and the machines of the kernel tier, do not authenticate their clients. In a network
namespace (network_namespaces(7)) the cell's own processes are alone. Root may create one; other users may in a user
namespace (user_namespaces(7)). Where the machine forbids that, as many containers do, nothing changes, and
harness.record.proxy.peer_user guards the harness' own connections.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from harness.core.processes import process

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET, and CLONE_NEWUSER (linux/sched.h)."""
_NEW_USER = 0x10000000
_GET_FLAGS = 0x8913
"""SIOCGIFFLAGS, and SIOCSIFFLAGS (linux/sockios.h)."""
_SET_FLAGS = 0x8914
_UP = 1
"""IFF_UP (linux/if.h)."""
_REQUEST = struct.Struct("=16sH22x")
"""ifreq (netdevice(7)): an interface's name, its flags."""
TRIAL_SECONDS = 20.0


def enter() -> bool:
    """Move this process, and every process that it starts, to its own network. Returns whether the machine allows that.

    Call it before the process has threads: existing threads stay in the old network.
    """
    if os.geteuid() == 0:
        return enter_as_root()
    # A user namespace cannot be left again: another process tests whether everything works in it.
    trial = process.run(
        [sys.executable, "-I", "-B", "-m", "harness.run.private_network"], deadline_seconds=TRIAL_SECONDS
    )
    return trial.code == 0 and enter_as_user()


def enter_as_root() -> bool:
    """Enter a network namespace as root; after a failure nothing has changed."""
    try:
        with Path("/proc/self/ns/net").open("rb") as before:
            _call("unshare", _NEW_NETWORK)
            try:
                _raise_loopback()
            except OSError:
                _call("setns", before.fileno(), _NEW_NETWORK)
                return False
    except OSError:
        return False
    return True


def enter_as_user() -> bool:
    """Enter a network namespace by a user namespace; after a failure halfway the process has no usable network."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEW_USER | _NEW_NETWORK)
        Path("/proc/self/setgroups").write_bytes(b"deny")
        # User and group numbers are the same inside and outside: the owners of files and servers do not change.
        Path("/proc/self/uid_map").write_bytes(b"%d %d 1" % (user, user))
        Path("/proc/self/gid_map").write_bytes(b"%d %d 1" % (group, group))
        _raise_loopback()
    except OSError:
        return False
    return True


def _raise_loopback() -> None:
    """Switch loopback on: in a new namespace it is off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        _, flags = _REQUEST.unpack(fcntl.ioctl(any_socket, _GET_FLAGS, _REQUEST.pack(b"lo", 0)))
        fcntl.ioctl(any_socket, _SET_FLAGS, _REQUEST.pack(b"lo", flags | _UP))


def _call(name: str, *arguments: int) -> None:
    """Call a function of libc that sets errno. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library[name](*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


if __name__ == "__main__":
    sys.exit(0 if enter_as_user() else 1)
