"""Certificates that each run creates: an authority, and keys with and without its signature."""

from __future__ import annotations

import datetime
import ipaddress
from functools import cache
from typing import TYPE_CHECKING, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Mapping

KeyKind = Literal["rsa", "ec"]
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
ADDRESS = "127.0.0.1"
AUTHORITY = "authority.crt"
STRANGER = "stranger"
"""The name of a key that a different authority signed."""
VALID_DAYS = 3


@cache
def files() -> Mapping[str, bytes]:
    """Name -> content: `authority.crt`, and `NAME.crt` and `NAME.key` for each kind of key and for the stranger."""
    authority = ec.generate_private_key(ec.SECP256R1())
    found = {AUTHORITY: _pem(_signed(authority, authority, "authority", "authority"))}
    keys: dict[str, PrivateKey] = {
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
    }
    for name, key in keys.items():
        found |= _pair(name, key, authority)
    return found | _pair(STRANGER, keys["ec"], ec.generate_private_key(ec.SECP256R1()))


def _pair(name: str, key: PrivateKey, authority: ec.EllipticCurvePrivateKey) -> dict[str, bytes]:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {f"{name}.crt": _pem(_signed(key, authority, name, "authority")), f"{name}.key": private}


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _signed(key: PrivateKey, authority: ec.EllipticCurvePrivateKey, name: str, issuer: str) -> x509.Certificate:
    now = datetime.datetime.now(tz=datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address(ADDRESS))
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(authority, hashes.SHA256())
    )
