"""Scaling to none and back by the real KEDA and Kubernetes' own autoscaler, on the real API server.

KEDA=real (make test-keda) alone: building it takes minutes.
"""

import functools
import json
import os
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from support import keda
from support.audit import Audit
from support.cluster import Cluster
from support.resources import await_condition, items, model
from support.waiting import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.usefixtures("operator", "kubelet"),
    pytest.mark.skipif(os.environ.get("KEDA") != "real", reason="KEDA=real (make test-keda) runs it"),
]
SAMPLE = Path(__file__).parents[2] / "manifests/samples/scaling/keda.yaml"
MAX = 3  # as in the sample
A_PODS_SHARE = 5


class Queue:
    """What KEDA is told to look at: a page that says how many requests wait."""

    def __init__(self, folder: Path) -> None:
        self._page = folder / "queue.json"
        page = functools.partial(SimpleHTTPRequestHandler, directory=folder)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), page)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/queue.json"
        self.wait(0)

    def wait(self, requests: int) -> None:
        """Have so many requests wait."""
        self._page.write_text(json.dumps({"waiting": requests}))


def test_scale_by_keda_to_none_and_back(api_server: Cluster, namespace: str, tmp_path: Path) -> None:
    def replicas() -> int:
        found: int = api_server.get("gm", "m", "-n", namespace)["spec"]["replicas"]
        return found

    def uids() -> set[str]:
        return {each["metadata"]["uid"] for each in items(api_server, namespace, "pods")}

    def scaled(count: int) -> None:
        eventually(lambda: replicas() == count, timeout_s=90, what=f"KEDA scales to {count}")

    queue = Queue(tmp_path)
    sample = yaml.safe_load(SAMPLE.read_text())
    sample["metadata"]["namespace"] = namespace
    sample["spec"]["scaleTargetRef"]["name"] = "m"
    # As the sample, but for what there is to ask here, and how often.
    asked = {"url": queue.url, "valueLocation": "waiting", "targetValue": str(A_PODS_SHARE)}
    sample["spec"] |= {
        "pollingInterval": 1,
        "cooldownPeriod": 3,
        "triggers": [{"type": "metrics-api", "metadata": asked}],
    }
    with keda.running(api_server, tmp_path / "keda"):
        api_server.apply(model(namespace, replicas=2))
        await_condition(api_server, namespace, "Ready", "True")
        pods = uids()
        queue.wait(A_PODS_SHARE + 2)
        audit = Audit(api_server)
        api_server.apply(sample)
        scaled(2)
        eventually(lambda: api_server.get("hpa", "-n", namespace)["items"], what="KEDA has taken over")
        assert await_condition(api_server, namespace, "Ready", "True")["message"] == "2 of 2 pods are ready"
        assert pods == uids(), "none goes while KEDA takes over"
        queue.wait(0)
        scaled(0)
        await_condition(api_server, namespace, "Ready", "False", "ScaledToZero")
        eventually(lambda: not items(api_server, namespace, "pods"), timeout_s=60, what="no pod is left")
        queue.wait(MAX * A_PODS_SHARE)
        scaled(MAX)
        await_condition(api_server, namespace, "Ready", "True")
        scaled_object = api_server.get("scaledobject", "tiny", "-n", namespace)
        told = {each["type"]: each["status"] for each in scaled_object["status"]["conditions"]}
        assert told["Ready"] == told["Active"] == "True"
        writes = [entry for entry in audit.writes() if entry.namespace == namespace]
        assert not [entry for entry in writes if entry.resource == "guidedmodels"], (
            "replicas are KEDA's to set"
        )
        pods = uids()
        # Handed back: what KEDA made goes with the ScaledObject, and no pod does.
        api_server.kubectl("delete", "scaledobject", "tiny", "-n", namespace)
        theirs = "scaledobjects.keda.sh,horizontalpodautoscalers"
        eventually(
            lambda: not api_server.get(theirs, "-n", namespace)["items"], what="what KEDA made is gone"
        )
        await_condition(api_server, namespace, "Ready", "True")
        assert replicas() == MAX
        assert pods == uids()
