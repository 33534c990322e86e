"""Watches a model's rollouts, and remembers each time that a ready pod was ended though too few were left."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import kubernetes.client
import kubernetes.config
import kubernetes.watch

from support.kubelet import is_ready

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
        self._threads = [
            threading.Thread(target=self._follow, args=each, daemon=True)
            for each in (
                (core.list_namespaced_pod, self._judge_pod),
                (apps.list_namespaced_replica_set, self._judge_set),
            )
        ]
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

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _follow(self, listing: Callable[..., Any], judge: Callable[..., None]) -> None:
        version = None  # first come all that there are
        while not self._stopped:
            watch = kubernetes.watch.Watch()
            for event in watch.stream(listing, self._namespace, resource_version=version, timeout_seconds=1):
                judge(event["raw_object"], gone=event["type"] == "DELETED")
            version = watch.resource_version

    def _judge_pod(self, pod: Object, *, gone: bool) -> None:
        name = pod["metadata"]["name"]
        if not gone and "deletionTimestamp" not in pod["metadata"]:
            self._ready[name] = is_ready(pod)
        elif self._ready.pop(name, False):
            self.ended += 1
            if self.ready < self.floor:
                self.broken.append(f"{name} was ended with {self.ready} ready pods left of {self.floor}")

    def _judge_set(self, replica_set: Object, *, gone: bool) -> None:
        self._wants[replica_set["metadata"]["name"]] = 0 if gone else replica_set["spec"]["replicas"]
        if self.wanted > self.most:
            self.broken.append(f"more than {self.most} pods are wanted: {self._wants}")
