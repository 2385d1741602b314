"""A network of one's own: loopback, on which nobody else can listen, connect or take a port.

Servers of the replication and cluster suites, and the machines of the kernel tier, listen on TCP ports, and none of
them asks who connects. In a network namespace (network_namespaces(7)) nobody but the cell's own processes is there.
Root may make one; other users may in a user namespace (user_namespaces(7)). Where the machine forbids that, as many
containers do, everything stays as it was, and harness.record.peer_user guards what is the harness' own.
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
    """Give this process, and whatever it will start, a network of its own; whether the machine allows that.

    Call it before the process has threads: those that it has stay where they are.
    """
    if os.geteuid() == 0:
        return enter_as_root()
    # From a user namespace there is no way back: another process finds out whether everything works in it.
    trial = process.run(
        [sys.executable, "-I", "-B", "-m", "harness.run.private_network"], deadline_seconds=TRIAL_SECONDS
    )
    return trial.code == 0 and enter_as_user()


def enter_as_root() -> bool:
    """What root does; if it fails, nothing has changed."""
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
    """What others do; if it fails halfway, the process has no use of its network."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEW_USER | _NEW_NETWORK)
        Path("/proc/self/setgroups").write_bytes(b"deny")
        # The same numbers inside as outside: whose a file is, and as whom servers run, does not change.
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
    """A function of libc's that sets errno. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library[name](*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


if __name__ == "__main__":
    sys.exit(0 if enter_as_user() else 1)
