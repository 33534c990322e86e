"""Plays the LeaderWorkerSet's controller in one namespace: makes the groups' pods, and tells their status.

The real one cannot be had here. What is played: a leader and workers per group with the controller's names,
labels and environment; a group whose template or size has changed, or whose containers restart, is made anew;
groups beyond replicas go. What its webhook would refuse is an error of the test.
"""

import hashlib
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import kubernetes.client
import kubernetes.config

from guided_contract import names
from support.worker_set_rules import is_recreated, refusals

_POLL_S = 0.1
_GROUP, _VERSION, _PLURAL = "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"
_NAME = "leaderworkerset.sigs.k8s.io/name"
_TEMPLATE = "played-template"

Object = dict[str, Any]


class WorkerSets:
    """Plays while the context lasts."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._client = kubernetes.config.new_client_from_config(str(kubeconfig))
        self._core = kubernetes.client.CoreV1Api(self._client)
        self._custom = kubernetes.client.CustomObjectsApi(self._client)
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(_POLL_S):
                sets = self._custom.list_namespaced_custom_object(_GROUP, _VERSION, self._namespace, _PLURAL)
                for each in sets["items"]:
                    self._play(each)
        except kubernetes.client.ApiException as error:
            if error.status != 404:  # the API is uninstalled while the test ends
                self._error = error
        except BaseException as error:  # noqa: BLE001 - shown to the test at its end
            self._error = error

    def _play(self, workers: Object) -> None:
        if refused := refusals(workers):
            raise AssertionError(f"the webhook refuses {workers['metadata']['name']}: {', '.join(refused)}")
        spec = workers["spec"]
        size = spec["leaderWorkerTemplate"]["size"]
        text = json.dumps(spec["leaderWorkerTemplate"], sort_keys=True)
        template = hashlib.sha256(text.encode()).hexdigest()[:10]
        selector = f"{_NAME}={workers['metadata']['name']}"
        answer = self._core.list_namespaced_pod(
            self._namespace, label_selector=selector, _preload_content=False
        )
        pods = {pod["metadata"]["name"]: pod for pod in json.loads(answer.data)["items"]}
        wanted = {
            self._pod_name(workers, group, node): (group, node)
            for group in range(spec["replicas"])
            for node in range(size)
        }
        restarting = self._restarting(workers, pods.values())
        for name, pod in pods.items():
            labels = pod["metadata"]["labels"]
            stale = labels[_TEMPLATE] != template or labels[names.LABEL_GROUP] in restarting
            if (name not in wanted or stale) and "deletionTimestamp" not in pod["metadata"]:
                self._quietly(self._core.delete_namespaced_pod, name, self._namespace)
        for name, (group, node) in wanted.items():
            if name not in pods:
                body = self._pod(workers, name, group, node, template)
                self._quietly(self._core.create_namespaced_pod, self._namespace, body)
        self._tell(
            workers, [pod for pod in pods.values() if pod["metadata"]["labels"][_TEMPLATE] == template]
        )

    @staticmethod
    def _restarting(workers: Object, pods: Iterable[Object]) -> set[str]:
        groups: dict[str, list[Object]] = {}
        for pod in pods:
            groups.setdefault(pod["metadata"]["labels"][names.LABEL_GROUP], []).append(pod)
        return {group for group, members in groups.items() if is_recreated(workers, members)}

    @staticmethod
    def _pod_name(workers: Object, group: int, node: int) -> str:
        leader = f"{workers['metadata']['name']}-{group}"
        return f"{leader}-{node}" if node else leader

    def _pod(self, workers: Object, name: str, group: int, node: int, template: str) -> Object:
        metadata, made = workers["metadata"], workers["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        ours = {
            _NAME: metadata["name"],
            _TEMPLATE: template,
            names.LABEL_GROUP: str(group),
            names.LABEL_NODE: str(node),
        }
        owner = {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": "LeaderWorkerSet",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        leader = f"{self._pod_name(workers, group, 0)}.{metadata['name']}.{self._namespace}"
        place = [
            {"name": names.ENV_LEADER, "value": leader},
            {"name": names.ENV_NODE, "value": str(node)},
        ]
        spec: Object = {**made["spec"], "subdomain": metadata["name"], "hostname": name}
        for part in ("containers", "initContainers"):
            spec[part] = [{**one, "env": [*place, *one.get("env", ())]} for one in spec[part]]
        labels = {**made["metadata"]["labels"], **ours}
        return {
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": spec,
        }

    def _tell(self, workers: Object, pods: list[Object]) -> None:
        replicas = len({pod["metadata"]["labels"][names.LABEL_GROUP] for pod in pods})
        told = {"observedGeneration": workers["metadata"]["generation"], "replicas": replicas}
        if (workers.get("status") or {}).items() >= told.items():
            return
        name = workers["metadata"]["name"]
        patch = self._custom.patch_namespaced_custom_object_status
        self._quietly(patch, _GROUP, _VERSION, self._namespace, _PLURAL, name, {"status": told})

    @staticmethod
    def _quietly(call: Any, *arguments: Any) -> None:
        try:
            call(*arguments)
        except kubernetes.client.ApiException as error:
            if error.status not in (403, 404, 409):  # gone, there, or its namespace is going
                raise
