"""Which machines a campaign runs on: `--on local:N`, an address, or a cluster's file; and what may listen where.

Who reaches a scheduler can have any machine of the cluster run anything. Off the loopback interface, a scheduler
without TLS is therefore refused, unless the user insists.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import Record
from harness.core.strict_toml import read_toml

if TYPE_CHECKING:
    from distributed import Security

MOST_LOCAL = 64
CERTIFICATE, KEY = "cert.pem", "key.pem"
DEFAULT_PORT = 8786
_ADDRESS = re.compile(r"(?P<protocol>tcp|tls)://(?P<host>\[[0-9a-fA-F:]+\]|[^:/]+)(:(?P<port>\d+))?\Z")
_KEY_DAYS = 3650


class ClusterFile(Record, frozen=True):
    """The file that every machine of a cluster has: `plumb campaign scheduler`, `worker` and `--on` read it."""

    address: str
    """The scheduler's address, at which workers and campaigns reach it: `tls://10.0.0.1:8786`."""
    keys: str = ""
    """The folder of `cert.pem` and `key.pem`, relative to this file's folder (`plumb campaign keys` makes one). Anyone
    who has it belongs to the cluster. Without it there is no TLS.
    """
    store: str = ""
    """A folder, or an fsspec URL, to which every machine can write. Results, sources and the workers' builds go through
    it. Without it, results and sources go through the scheduler, and each worker builds for itself.
    """
    listen: str = ""
    """The address on which the scheduler listens, if that is not the host of `address`."""


class Cluster(Record, frozen=True):
    """A checked ClusterFile, or its equivalent for this host alone."""

    address: str
    keys: Path | None = None
    store: str = ""
    listen: str = ""
    local: int = 0
    """Number of workers to start on this host; 0 for a cluster that is already there."""

    @property
    def host(self) -> str:
        """The scheduler's host."""
        found = _ADDRESS.match(self.address)
        return found["host"].strip("[]") if found else ""

    @property
    def port(self) -> int:
        """The scheduler's port."""
        found = _ADDRESS.match(self.address)
        return int(found["port"] or DEFAULT_PORT) if found else DEFAULT_PORT


def read_cluster(text: str, *, insecure: bool) -> Cluster:
    """The cluster that `--on` names. Raises UsageError for other words, and for an unprotected address.

    `insecure`: the user accepts a scheduler without TLS on a network.
    """
    if text.startswith("local:"):
        number = text.removeprefix("local:")
        if not number.isdigit() or not 1 <= int(number) <= MOST_LOCAL:
            raise UsageError(
                "not a number of workers", where=f"--on {text}", remedy=f"--on local:2, at most {MOST_LOCAL}"
            )
        return Cluster(address="", local=int(number))
    if "://" in text:
        return _checked(Cluster(address=text), where=f"--on {text}", insecure=insecure)
    if text.endswith(".toml"):
        return read_file(Path(text), insecure=insecure)
    raise UsageError(
        "not a cluster",
        where=f"--on {text}",
        because="it is neither local:N, nor an address, nor a .toml file",
        remedy="--on local:2, --on tls://HOST:8786, or --on CLUSTER.toml",
    )


def read_file(path: Path, *, insecure: bool) -> Cluster:
    """The cluster of a file. Raises UsageError as `read_cluster` does."""
    file = read_toml(path, ClusterFile)
    keys = (path.parent / file.keys).resolve() if file.keys else None
    if keys is not None:
        for name in (CERTIFICATE, KEY):
            if not (keys / name).is_file():
                raise UsageError(
                    "the cluster's keys are missing",
                    where=str(keys / name),
                    remedy="copy the folder from a machine that has it, or make it: "
                    f"plumb campaign keys {shlex.quote(str(keys))}",
                )
        if (keys / KEY).stat().st_mode & 0o077:
            raise UsageError(
                "others can read the cluster's key",
                where=str(keys / KEY),
                remedy=f"chmod 600 {shlex.quote(str(keys / KEY))}",
            )
    cluster = Cluster(address=file.address, keys=keys, store=file.store, listen=file.listen)
    if keys is not None and not file.address.startswith("tls://"):
        raise UsageError("keys without TLS", where=f"{path}: address", remedy='address = "tls://HOST:8786"')
    return _checked(cluster, where=str(path), insecure=insecure)


def _checked(cluster: Cluster, *, where: str, insecure: bool) -> Cluster:
    if not _ADDRESS.match(cluster.address):
        raise UsageError("not a scheduler's address", where=where, because=cluster.address, remedy="tls://HOST:8786")
    if cluster.address.startswith("tcp://") and not insecure:
        for host in (cluster.host, cluster.listen or cluster.host):
            if not is_loopback(host):
                raise UsageError(
                    "a scheduler on a network without TLS",
                    where=where,
                    because=f"anyone who reaches {cluster.address} can run any program on all machines of the cluster",
                    remedy="plumb campaign keys FOLDER and a file with `keys`, or --insecure if the network is yours",
                )
    return cluster


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this host. Of names, only `localhost` is believed."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_keys(folder: Path) -> None:
    """Make a cluster's key and certificate. Raises UsageError if there is one already."""
    require_engine()
    from cryptography import x509  # noqa: PLC0415 - only the extra `cluster` has it
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    if (folder / KEY).exists():
        raise UsageError("the folder already contains keys", where=str(folder / KEY), remedy="name another folder")
    folder.mkdir(0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "plumbline-cluster")])
    now = datetime.datetime.now(tz=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Machines' clocks differ.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_KEY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    with os.fdopen(os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(private)
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def security_of(cluster: Cluster) -> Security | None:
    """What the engine needs to speak with a cluster; None if it speaks without TLS.

    Each machine shows the cluster's certificate and accepts no other. An address that was given alone takes the keys
    of the engine's own configuration.
    """
    from distributed import Security  # noqa: PLC0415 - loading it takes half a second

    if cluster.keys is None:
        return Security(require_encryption=True) if cluster.address.startswith("tls://") else None
    certificate, key = str(cluster.keys / CERTIFICATE), str(cluster.keys / KEY)
    shown: dict[str, Any] = {}
    for role in ("client", "scheduler", "worker"):
        shown |= {f"tls_{role}_cert": certificate, f"tls_{role}_key": key}
    return Security(tls_ca_file=certificate, require_encryption=True, **shown)


def require_engine() -> None:
    """Raise InfrastructureError if the optional packages are not installed."""
    import importlib.util  # noqa: PLC0415

    if missing := [name for name in ("distributed", "fsspec", "cryptography") if not importlib.util.find_spec(name)]:
        raise InfrastructureError(
            "campaigns need optional packages",
            because=f"missing from this Python: {', '.join(missing)}",
            remedy="pip install 'plumbline[cluster]'",
        )
