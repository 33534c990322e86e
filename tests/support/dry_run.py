"""Asks an API server whether it would take an object: in milliseconds, where kubectl takes a hundred more."""

import base64
import http.client
import json
import ssl
import tempfile
from typing import Any

import yaml

from support.cluster import Cluster


class DryRun:
    """One connection, as the cluster's admin. Close it."""

    def __init__(self, cluster: Cluster) -> None:
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=_text(server["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w") as file:  # the library reads files only
            file.write(_text(user["client-certificate-data"]) + _text(user["client-key-data"]))
            file.flush()
            context.load_cert_chain(file.name)
        self._connection = http.client.HTTPSConnection(
            server["server"].removeprefix("https://"), context=context, timeout=60
        )

    def refusal(self, path: str, wanted: dict[str, Any]) -> str:
        """Return why an object would not be created at `path`, "" if it would; nothing is stored.

        Unknown fields are refused, as `kubectl` has it by default.
        """
        self._connection.request(
            "POST",
            f"{path}?dryRun=All&fieldValidation=Strict",
            body=json.dumps(wanted),
            headers={"Content-Type": "application/json"},
        )
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        return "" if response.status == 201 else str(answer["message"])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _text(data: str) -> str:
    return base64.b64decode(data).decode()
