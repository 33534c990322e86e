"""The cluster that the user means, as kubectl finds it: kubeconfig and context, or the pod one is in."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubernetes.aio import client, config

from guided_operator.cli.cluster import kubeconfig as kubeconfig_files
from guided_operator.kube import kinds, transport
from guided_operator.kube.apiserver import ApiServer

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_COMPLETION_S: Final = 3.0  # nobody waits longer after pressing TAB

_MAX_CHARS: Final = 300  # of what a message quotes


class NoClusterError(Exception):
    """No cluster is configured, or not as it should be."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An API server, and the namespace that is meant where none is named."""

    api: ApiServer
    namespace: str


@asynccontextmanager
async def connected(kubeconfig: str | None, context: str | None) -> AsyncIterator[Connection]:
    """Connect; None: as kubectl chooses.

    Raises
    ------
    NoClusterError
        There is no kubeconfig, or no such context in it, or it cannot be used.
    """
    settings = client.Configuration()
    async with AsyncExitStack() as stack:
        try:
            namespace = await _configure(settings, kubeconfig, context)
            made = await stack.enter_async_context(transport.opened(settings, "guidedmodel-cli"))
        except NoClusterError:
            raise
        except Exception as error:
            raise NoClusterError(_told(kubeconfig_files.files(kubeconfig), error)) from error
        yield Connection(ApiServer(made), namespace)


def _told(files: str, error: Exception) -> str:
    """Return one line."""
    cause = str(error) if isinstance(error, config.ConfigException) else f"{type(error).__name__}: {error}"
    told = f"the kubeconfig {_short(files)} cannot be used: {_short(cause)}"
    return " ".join(told.split())


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."


async def _configure(settings: client.Configuration, kubeconfig: str | None, context: str | None) -> str:
    """Fill in how the API server is reached; return the namespace."""
    files, exists = kubeconfig_files.files(kubeconfig), bool(kubeconfig_files.existing(kubeconfig))
    if not exists and not kubeconfig and os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config(client_configuration=settings)
        return _NAMESPACE_FILE.read_text().strip()
    if not exists:
        raise NoClusterError(f"there is no kubeconfig {files}: name one by --kubeconfig or KUBECONFIG")
    loader = await config.load_kube_config(files, context, settings, persist_config=False)
    for text in (settings.host, settings.proxy, settings.tls_server_name):
        if not isinstance(text, str | None):
            raise TypeError(f"{text!r} must be text")
    if not re.match("https?://", settings.host):
        raise ValueError(f"{settings.host!r} is no address of a server")
    chosen = loader.current_context["context"]
    return str(chosen["namespace"]) if "namespace" in chosen else "default"


def names(kind: str, given: Mapping[str, Any]) -> list[str]:
    """Return the names of the cluster's models or namespaces, for completion.

    `given`: what else stands on the command line. [] where the cluster does not answer soon.
    """
    kubeconfig, context = given.get("kubeconfig"), given.get("context")
    try:
        return asyncio.run(asyncio.wait_for(_names(kind, given, kubeconfig, context), _COMPLETION_S))
    except Exception:  # noqa: BLE001 - pressing TAB is no time to be told what is wrong
        return []


async def _names(
    kind: str, given: Mapping[str, Any], kubeconfig: str | None, context: str | None
) -> list[str]:
    async with connected(kubeconfig, context) as cluster:
        namespace = given.get("namespace") or cluster.namespace
        everywhere = bool(given.get("all_namespaces"))
        path = (
            kinds.api_path("v1", "namespaces")
            if kind == "namespaces"
            else kinds.model_path("" if everywhere else namespace, "")
        )
        found = await cluster.api.read(path, metadata_only=True)
    return sorted(item["metadata"]["name"] for item in found["items"])
