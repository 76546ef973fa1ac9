"""A certificate authority of one test run: made fresh, never kept."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority", "Pair"]

_DAY = dt.timedelta(days=1)
_ORGANISATION = "Knowledge Gateway tests"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files, and the name that it proves as a cluster writes it."""

    certificate: Path
    key: Path
    name: str


class Authority:
    """Issues certificates into a folder.

    Args:
        folder: must be there.
        name: of the authority; its certificate is `<name>.pem`.
    """

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        unsigned = _unsigned(self._name, self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(unsigned.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> Pair:
        """A certificate for a server on loopback, or for whoever calls one."""
        key = ec.generate_private_key(ec.SECP256R1())
        loopback = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        unsigned = _unsigned(_named(name), self._name, key)
        unsigned = unsigned.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        unsigned = unsigned.add_extension(x509.SubjectAlternativeName(loopback), critical=False)
        signed = unsigned.sign(self._key, hashes.SHA256())
        made = Pair(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem", signed.subject.rfc4514_string())
        made.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        # PKCS 8 without a password: what the server's parser takes.
        unlocked = serialization.NoEncryption()
        made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unlocked))
        made.key.chmod(0o600)
        return made


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION), x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - _DAY, now + _DAY)
