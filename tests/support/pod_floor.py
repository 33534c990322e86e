"""Watches a model's rollouts, and remembers each time that a ready pod was ended though too few were left."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import kubernetes.client
import kubernetes.config
import kubernetes.watch

Object = dict[str, Any]


class PodFloor:
    """Judges every deletion in the order in which the API server tells of it.

    Attributes
    ----------
    floor
        As many ready pods must be left when one that is ready is told to end.
    most
        As many pods may ReplicaSets want together. Each makes and ends its own when it comes to it, so that
        for a moment there may be more: one to end is not yet told so.
    broken
        What went wrong, in words; [] so far nothing did.
    ended
        How many ready pods were told to end: 0 means that nothing was shown.
    """

    def __init__(self, kubeconfig: Path, namespace: str, *, floor: int, most: int) -> None:
        self._client = kubernetes.config.new_client_from_config(str(kubeconfig))
        core, apps = kubernetes.client.CoreV1Api(self._client), kubernetes.client.AppsV1Api(self._client)
        self._namespace = namespace
        self._followed = [
            _Followed(core.list_namespaced_pod, self._judge_pod),
            _Followed(apps.list_namespaced_replica_set, self._judge_set),
            _Followed(apps.list_namespaced_deployment, lambda *_, **__: None),
        ]
        self._threads = [
            threading.Thread(target=self._follow, args=(each,), daemon=True) for each in self._followed
        ]
        self._told: list[tuple[int, str]] = []
        self._ready: dict[str, bool] = {}
        self._wants: dict[str, int] = {}
        self._stopped = False
        self.floor = floor
        self.most = most
        self.broken: list[str] = []
        self.ended = 0

    @property
    def ready(self) -> int:
        """How many ready pods there are, those that end aside."""
        return sum(self._ready.values())

    @property
    def wanted(self) -> int:
        """How many pods ReplicaSets want together."""
        return sum(self._wants.values())

    @property
    def history(self) -> list[str]:
        """What became of Deployments, ReplicaSets and pods, in the order in which it was written."""
        return [line for _, line in sorted(self._told)]

    def __enter__(self) -> Self:
        for each in self._followed:
            answer = json.loads(each.listing(self._namespace, _preload_content=False).data)
            each.version = answer["metadata"]["resourceVersion"]
            for item in answer["items"]:
                each.judge(item, gone=False)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _follow(self, followed: "_Followed") -> None:
        while not self._stopped:
            for event in kubernetes.watch.Watch().stream(
                followed.listing, self._namespace, resource_version=followed.version, timeout_seconds=1
            ):
                item = event["raw_object"]
                followed.version = item["metadata"]["resourceVersion"]
                self._tell(event["type"], item)
                followed.judge(item, gone=event["type"] == "DELETED")

    def _tell(self, what: str, item: Object) -> None:
        written = int(item["metadata"]["resourceVersion"])  # etcd's count, in which several kinds compare
        self._told.append((written, f"{written} {what} {_line(item)}"))

    def _judge_pod(self, pod: Object, *, gone: bool) -> None:
        name, metadata = pod["metadata"]["name"], pod["metadata"]
        if not gone and "deletionTimestamp" not in metadata:
            self._ready[name] = _ready(pod) == "True"
        elif self._ready.pop(name, False):
            self.ended += 1
            if self.ready < self.floor:
                self.broken.append(f"{name} was ended with {self.ready} ready pods left of {self.floor}")

    def _judge_set(self, replica_set: Object, *, gone: bool) -> None:
        self._wants[replica_set["metadata"]["name"]] = 0 if gone else replica_set["spec"]["replicas"]
        if self.wanted > self.most:
            self.broken.append(f"more than {self.most} pods are wanted: {self._wants}")


class _Followed:
    def __init__(self, listing: Callable[..., Any], judge: Callable[..., None]) -> None:
        self.listing = listing
        self.judge = judge
        self.version = ""


def _ready(pod: Object) -> str:
    conditions = pod.get("status", {}).get("conditions", ())
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


def _line(item: Object) -> str:
    metadata, spec, told = item["metadata"], item["spec"], item.get("status", {})
    if "replicas" not in spec:
        return f"{metadata['name']} ready: {_ready(item)}{', ends' * ('deletionTimestamp' in metadata)}"
    counts = {name: told.get(name, 0) for name in ("observedGeneration", "replicas", "availableReplicas")}
    how = ", paused" * bool(spec.get("paused"))
    return f"{metadata['name']} {metadata['generation']} wants {spec['replicas']}{how}, says {counts}"
