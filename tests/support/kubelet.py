"""Plays the kubelet of one namespace on a control plane without nodes: pods run, get ready, crash and end.

Each pod gets a loopback address of its own, where a real HTTP server stands for its sidecar.
"""

import contextlib
import datetime as dt
import http.server
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import kubernetes.client
import kubernetes.config
import msgspec

from guided_contract import names, status
from guided_contract.wire import Patch

_POLL_S = 0.1
_HEARTBEAT_S = 10.0
_addresses = (f"127.77.{i // 250}.{i % 250 + 1}" for i in itertools.count())

Object = dict[str, Any]


def ready_page() -> status.PodStatus:
    """Return the page of a healthy sidecar with two ranks."""
    return status.PodStatus(
        ready=True,
        versions={"vllm": "0.32.0", "xgrammar": "0.2.8", "llguidance": "1.7.6", "modelRunner": "V2"},
        patches=[Patch(name="detach-grammar", state="Applied")],
        ranks=[status.RankStatus(rank=rank, state="Connected") for rank in range(2)],
        grammar_workers=status.WorkersStatus(ready=2, restarts=0),
    )


def is_ready(pod: Object) -> bool:
    """Say whether a pod's status has it ready."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


class Sidecar:
    """One pod's sidecar: serves `page` at /status of its own address."""

    def __init__(self, page: Callable[[], bytes], address: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = page()
                self.send_response(200 if self.path == "/status" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # a reader that had enough
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.address = address
        self._server = http.server.ThreadingHTTPServer((self.address, names.SIDECAR_PORT), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class Kubelet:
    """Plays with the pods of one namespace. New pods of the revision `unready_revision` do not get ready."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._client = kubernetes.config.new_client_from_config(str(kubeconfig))
        self._core = kubernetes.client.CoreV1Api(self._client)
        self._namespace = namespace
        self._node = f"played-for-{namespace}"  # cordoned: only our pods come, bound by us
        self._beat_at = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self._sidecars: dict[str, Sidecar] = {}
        self.unready_revision = ""
        self.say()

    def __enter__(self) -> Self:
        self._core.create_node({"metadata": {"name": self._node}, "spec": {"unschedulable": True}})
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for sidecar in self._sidecars.values():
            sidecar.close()
        self._core.delete_node(self._node)
        self._client.close()
        if self._error is not None:
            raise self._error

    def say(self, **changes: Any) -> None:
        """Let every sidecar say something else than that it is healthy; pods are as ready as they say."""
        self._told = msgspec.structs.replace(ready_page(), **changes)

    def _run(self) -> None:
        try:
            while not self._stop.wait(_POLL_S):
                self._beat()
                self._play()
        except BaseException as error:  # noqa: BLE001 - shown to the test at its end
            self._error = error

    def _beat(self) -> None:
        """Keep the node lifecycle controller from taking the node, and so its pods, for lost."""
        if time.monotonic() - self._beat_at < _HEARTBEAT_S:
            return
        self._beat_at = time.monotonic()
        now = dt.datetime.now(dt.UTC).isoformat()
        ready = {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now}
        self._core.patch_node_status(self._node, {"status": {"conditions": [ready]}}, _preload_content=False)

    def _play(self) -> None:
        answer = self._core.list_namespaced_pod(self._namespace, _preload_content=False)
        for pod in json.loads(answer.data)["items"]:
            with _gone_is_fine():
                if "deletionTimestamp" in pod["metadata"]:
                    self._end(pod["metadata"]["name"], pod["metadata"]["uid"])
                else:
                    self._show(pod, pod["metadata"]["name"], pod["metadata"]["uid"])

    def _end(self, name: str, uid: str) -> None:
        if sidecar := self._sidecars.pop(uid, None):
            sidecar.close()
        self._core.delete_namespaced_pod(
            name, self._namespace, grace_period_seconds=0, _preload_content=False
        )

    def _show(self, pod: Object, name: str, uid: str) -> None:
        if not pod["spec"].get("nodeName"):
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self._node}}
            self._core.create_namespaced_pod_binding(name, self._namespace, binding, _preload_content=False)
        if uid not in self._sidecars:
            self._sidecars[uid] = Sidecar(lambda: status.encode(self._told), next(_addresses))
        ready = {"type": "Ready", "status": str(self._told.ready)}
        was_ready = is_ready(pod)
        if pod["metadata"]["labels"].get(names.LABEL_REVISION) == self.unready_revision and not was_ready:
            ready["status"] = "False"
        if pod.get("status", {}).get("phase") != "Running" or was_ready != (ready["status"] == "True"):
            ip = self._sidecars[uid].address
            wanted = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready]}
            self._core.patch_namespaced_pod_status(
                name, self._namespace, {"status": wanted}, _preload_content=False
            )


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except kubernetes.client.ApiException as error:
        if error.status not in (404, 409):  # deleted, or written by a controller, meanwhile
            raise
        time.sleep(0.01)
