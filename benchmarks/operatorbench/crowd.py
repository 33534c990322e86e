"""What a cluster holds beside what the operator has just made: older revisions, other people's ConfigMaps."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from kubernetes.aio import client, config

from guided_contract import names
from guided_operator.kube import kinds, transport
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.kinds import Kind

FOREIGN_BYTES: Final = (1 << 20) - 64  # an object's data has at most 1 MiB, with its key
_AT_ONCE: Final = 16
_SERVERS_OWN: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
Object = dict[str, Any]


@asynccontextmanager
async def _connected(kubeconfig: Path) -> AsyncIterator[ApiServer]:
    settings = client.Configuration()
    await config.load_kube_config(str(kubeconfig), None, settings, persist_config=False)
    async with transport.opened(settings, "operatorbench") as session:
        yield ApiServer(session)


def add_foreign(kubeconfig: Path, namespace: str, count: int) -> None:
    """Make ConfigMaps that nobody's GuidedModel refers to."""
    data = {"text": "x" * FOREIGN_BYTES}
    bodies = (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"foreign-{number}"}, "data": data}
        for number in range(count)
    )
    asyncio.run(_create(kubeconfig, namespace, ((kinds.CONFIG_MAP, body) for body in bodies)))


def add_history(kubeconfig: Path, namespace: str, revisions: int) -> None:
    """Give each model so many revisions more, with their ConfigMaps, as if its spec had changed as often."""
    asyncio.run(_add_history(kubeconfig, namespace, revisions))


async def _add_history(kubeconfig: Path, namespace: str, revisions: int) -> None:
    made = []
    async with _connected(kubeconfig) as api:
        for kind in (kinds.CONFIG_MAP, kinds.REVISION):
            own = {"labelSelector": names.LABEL_REVISION}
            listed = await api.read(kind.path(namespace, ""), params=own, timeout_s=120)
            made += [(kind, item) for item in listed["items"]]
    older = ((kind, _older(kind, item, number)) for kind, item in made for number in range(revisions))
    await _create(kubeconfig, namespace, older)


def _older(kind: Kind, item: Object, number: int) -> Object:
    """Return a revision, or its ConfigMap, of another key that was there before."""
    metadata = {field: value for field, value in item["metadata"].items() if field not in _SERVERS_OWN}
    key = metadata["labels"][names.LABEL_REVISION]
    other = hashlib.sha256(f"{key}{number}".encode()).hexdigest()[: len(key)]
    metadata |= {
        "name": metadata["name"].replace(key, other),
        "labels": metadata["labels"] | {names.LABEL_REVISION: other},
    }
    found = {**item, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    return found | ({"revision": 0} if kind is kinds.REVISION else {})


async def _create(kubeconfig: Path, namespace: str, bodies: Iterable[tuple[Kind, Object]]) -> None:
    left = iter(bodies)

    async def work(api: ApiServer) -> None:
        for kind, body in left:
            await api.create(kind.path(namespace, ""), body, timeout_s=60)

    async with _connected(kubeconfig) as api, asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work(api))
