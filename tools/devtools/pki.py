"""A throw-away certificate authority and kubeconfigs for one test cluster."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates below one folder; nothing outside that cluster trusts it."""

    def __init__(self, folder: Path) -> None:
        import trustme  # noqa: PLC0415 - devtools.prebuild begins before anything is installed

        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self._rsa = trustme.KeyType.RSA
        self.certificate = _written(folder / "ca.crt", self._ca.cert_pem)

    def issue(
        self, name: str, common_name: str, *, group: str | None = None, hosts: Iterable[str] = ()
    ) -> Pair:
        """Return a certificate for a client (`group` is its Kubernetes group) or a server (`hosts`)."""
        # A client gets a host too, that nobody has: Go refuses a critical list of hosts that is empty.
        known_as = [*hosts] or [f"{name}.invalid"]
        made = self._ca.issue_cert(*known_as, common_name=common_name, organization_name=group)
        return Pair(
            _written(self._folder / f"{name}.crt", made.cert_chain_pems[0]),
            _written(self._folder / f"{name}.key", made.private_key_pem),
        )

    def service_account_key(self) -> Path:
        """Return the key that signs service-account tokens."""
        made = self._ca.issue_cert(common_name="service-accounts", key_type=self._rsa)
        return _written(self._folder / "sa.key", made.private_key_pem)


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


def _written(path: Path, pem: Any) -> Path:
    path.touch(mode=0o600)
    pem.write_to_path(path)
    return path
