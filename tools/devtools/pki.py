"""A throw-away certificate authority and kubeconfigs for one test cluster."""

import base64
import datetime as dt
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

LIFETIME = dt.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates below one folder; nothing outside that cluster trusts it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "guidedmodel-test")])
        unsigned = _unsigned(self._name, self._name, self._key.public_key())
        unsigned = unsigned.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = _write(folder / "ca.crt", unsigned.sign(self._key, hashes.SHA256()))

    def issue(
        self, name: str, common_name: str, *, groups: Iterable[str] = (), hosts: Iterable[str] = ()
    ) -> Pair:
        """Return a certificate for a client (`groups` are its Kubernetes groups) or a server (`hosts`)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        unsigned = _unsigned(subject, self._name, key.public_key())
        if alternatives := [_alternative(host) for host in hosts]:
            unsigned = unsigned.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = _write(self._folder / f"{name}.crt", unsigned.sign(self._key, hashes.SHA256()))
        return Pair(certificate, _write_key(self._folder / f"{name}.key", key))

    def service_account_key(self) -> Path:
        """Return the key that signs service-account tokens."""
        return _write_key(
            self._folder / "sa.key", rsa.generate_private_key(public_exponent=65537, key_size=2048)
        )


def kubeconfig(path: Path, server: str, authority: Path, user: Pair) -> Path:
    """Write a kubeconfig for one user, everything embedded so that it can be moved; return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "guidedmodel",
        "clusters": [
            {
                "name": "guidedmodel",
                "cluster": {"server": server, "certificate-authority-data": _base64(authority)},
            }
        ],
        "users": [
            {
                "name": "user",
                "user": {
                    "client-certificate-data": _base64(user.certificate),
                    "client-key-data": _base64(user.key),
                },
            }
        ],
        "contexts": [{"name": "guidedmodel", "context": {"cluster": "guidedmodel", "user": "user"}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))  # JSON is YAML
    return path


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _write(path: Path, certificate: x509.Certificate) -> Path:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return path
