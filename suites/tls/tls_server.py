"""Starts servers that accept only TLS on the network, and connects clients to them. Their Unix sockets remain without
TLS.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.sockets import connect
from harness.protocol.resp import Client
from suites.tls import certificates
from suites.tls.certificates import ADDRESS

if TYPE_CHECKING:
    from harness.run.extra_servers import StartGuest
    from harness.run.server_process import Guest
    from suites._shared.ports import Ports
    from suites.tls.certificates import KeyKind


def options(port: int, *, key: KeyKind = "ec") -> list[str]:
    """The options with which a server listens for TLS on a port, with a key in its folder."""
    named = ["--tls-cert-file", f"{key}.crt", "--tls-key-file", f"{key}.key"]
    return ["--tls-port", str(port), "--bind", ADDRESS, *named, "--tls-ca-cert-file", certificates.AUTHORITY]


def start(
    start_guest: StartGuest, ports: Ports, *more: str, target: str = "", key: KeyKind = "ec"
) -> tuple[Guest, int]:
    """A server that listens for TLS on one port and on no other, and that port."""
    port = ports.free()
    return start_guest(target=target, options=[*options(port, key=key), *more], files=certificates.files()), port


def context(*, name: str = "ec", version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A client's context with the certificate of that name, or without a certificate if the name is empty."""
    files = certificates.files()
    made = ssl.create_default_context(cadata=files[certificates.AUTHORITY].decode())
    if version is not None:
        made.minimum_version = made.maximum_version = version
    if name:
        # Python reads a client's key only from files.
        with tempfile.TemporaryDirectory() as folder:
            for file in (f"{name}.crt", f"{name}.key"):
                (Path(folder) / file).write_bytes(files[file])
            made.load_cert_chain(Path(folder) / f"{name}.crt", Path(folder) / f"{name}.key")
    return made


def connected(guest: Guest, port: int, by: ssl.SSLContext | None = None) -> ssl.SSLSocket:
    """A connection after the handshake, with a server certificate from the authority. Raises OSError."""
    plain = connect((ADDRESS, port), deadline_seconds=guest.deadline_seconds)
    try:
        return (by or context()).wrap_socket(plain, server_hostname=ADDRESS)
    except BaseException:
        plain.close()
        raise


def client(guest: Guest, port: int, by: ssl.SSLContext | None = None) -> Client:
    """A client that uses TLS."""
    return Client(connected(guest, port, by))
