"""The model of test_cluster_model.py goes on: its engine stalls, pods of it go under load, it dies, it goes.

DRAIN=full makes four pods and lets them go in each way there is; else there are two, and one way.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from devtools import image
from devtools.control_plane import NODE_NAME
from devtools.kubectl import KubectlError

from support import load
from support.served import NAMESPACE, OF, PODS, Served, sample
from support.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]

FULL = os.environ.get("DRAIN") == "full"
REPLICAS = 4 if FULL else 2
READY_TIMEOUT_S = 400.0
START_TIMEOUT_S = 90.0
UNREADY_WITHIN_S = 30.0
KINDS = (
    "deployments,replicasets,pods,services,endpointslices,configmaps,serviceaccounts,controllerrevisions,"
    "poddisruptionbudgets"
)


def told(served: Served) -> dict[str, Any]:
    """Return what came of all requests of the clients so far."""

    def said() -> dict[str, Any]:
        with contextlib.suppress(KubectlError, ValueError):  # it is starting
            return dict(json.loads(served.kubectl.run("logs", OF, "pod/load", "--tail=1")))
        return {}

    return eventually(said, START_TIMEOUT_S, "the clients say something", poll_s=0.3)


@pytest.fixture
def clients(served: Served) -> Iterator[None]:
    """A pod that asks the model all the time, as any other of the cluster would; each client was answered."""
    # Before they begin: they keep their connections, and are to have some to each pod.
    eventually(lambda: len(served.ready()) == len(served.pods()) > 1, READY_TIMEOUT_S, "all are ready")
    about, script = {"name": "load", "namespace": NAMESPACE}, Path(load.__file__).read_text()
    container = {
        "name": "load",
        "image": image.ENGINE,
        "imagePullPolicy": "Never",
        # Without a share of its own it is starved by what it asks: a client that stands still for
        # seconds uses connections that were closed meanwhile.
        "resources": {"requests": {"cpu": "100m"}},
        "command": ["python3", "-c", script, f"http://tiny.{NAMESPACE}:8000", "tiny"],
    }
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    served.kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    eventually(lambda: told(served)["answered"] > 2 * load.CLIENTS, START_TIMEOUT_S, "clients are answered")
    yield
    served.kubectl.run("delete", "pod/load", OF, "--ignore-not-found")
    served.kubectl.run("uncordon", NODE_NAME)


def test_pods_deleted_as_they_start_go_at_once(served: Served) -> None:
    """The kubelet then sends TERM as soon as it has started a container, whose program cannot hear it yet.

    First of all: later the node has no room for more pods.
    """
    template = served.kubectl.get("deployment/tiny", OF)["spec"]["template"]
    names = [f"starting-{number}" for number in range(8)]
    for name in names:
        about = {"name": name, "namespace": NAMESPACE}
        served.kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]})
        eventually(lambda name=name: _is_copied(served, name), 60, "the plugin is copied")
        served.kubectl.run("delete", f"pod/{name}", OF, "--wait=false")
    for name in names:
        served.kubectl.run("wait", f"pod/{name}", OF, "--for=delete", "--timeout=30s")


def _is_copied(served: Served, pod: str) -> bool:
    """Say whether the first init container has ended: the sidecar's is about to start."""
    [first, *_] = served.kubectl.get(f"pod/{pod}", OF)["status"].get("initContainerStatuses") or [{}]
    return "terminated" in first.get("state", {})


def test_a_stalled_engine_is_unready_in_time_while_health_is_green(served: Served) -> None:
    served.scale(REPLICAS)  # for what follows: they start meanwhile
    _signal_core(served, "SIGSTOP")
    eventually(lambda: served.pod not in served.ready(), UNREADY_WITHIN_S, "the pod is unready")
    assert served.execute("engine", "python3", "-c", _HEALTH).strip() == "200"
    eventually(
        lambda: served.condition("GuidedDecoding")["reason"] == "EngineStalled", 60, "the cause is told"
    )
    assert served.pod in served.condition("GuidedDecoding")["message"]
    assert served.condition("Ready")["status"] == served.condition("GuidedDecoding")["status"] == "False"
    _signal_core(served, "SIGCONT")
    eventually(lambda: served.pod in served.ready(), 60, "it goes on")
    assert set(served.restarts().values()) == {0}


def _drain_node(served: Served) -> None:
    """Cordon and evict, as `kubectl drain` does. The node is the only one: no pod can be made anew."""
    evict = ("--delete-emptydir-data", f"--pod-selector={PODS}", "--timeout=8s")
    with pytest.raises(KubectlError, match="disruption budget"):  # which lets one go, and no more
        served.kubectl.run("drain", NODE_NAME, *evict)


def _scale_down(served: Served) -> None:
    served.scale(len(served.ready()) - 1)


def _roll_out(served: Served) -> None:
    """To an image that does not exist: one pod goes, and no other while its successor is not ready."""
    broken = sample()
    broken["spec"]["engine"]["image"] = "localhost/none:1"
    served.kubectl.apply(broken)


@pytest.mark.parametrize("leave", [_scale_down, _drain_node, _roll_out] if FULL else [_drain_node])
@pytest.mark.usefixtures("clients")
def test_a_pod_that_goes_under_load_loses_no_request(served: Served, leave: Callable[[Served], None]) -> None:
    before, goodbyes = served.ready(), told(served)["goodbyes"]
    leave(served)
    eventually(lambda: len(before - served.pods()) == 1, 120, "one has gone")
    answered = told(served)["answered"]
    eventually(lambda: told(served)["answered"] > answered + 2 * load.CLIENTS, 60, "the others answer")
    after = told(served)
    print(f"\n{leave.__name__}: {after}")  # noqa: T201 - the figures
    assert after["failed"] == []
    assert after["failures"] == 0
    assert after["goodbyes"] > goodbyes, "kept connections were given up in order"
    assert len(served.ready()) == len(before) - 1
    # The way back, without a new pod: what is not ready goes first. One thing after the other: a Deployment
    # that gets fewer replicas in the middle of a rollout takes them from both of its ReplicaSets.
    served.kubectl.apply(sample())
    eventually(lambda: served.images() == {image.ENGINE}, 60, "no other revision is left")
    served.scale(len(before) - 1)
    eventually(lambda: served.pods() == served.ready(), 60, "those that stayed are left")
    served.kubectl.run("uncordon", NODE_NAME)
    assert served.ready() < before
    assert told(served)["failures"] == 0


def test_a_dead_engine_is_unready_in_time_and_its_end_is_told(served: Served) -> None:
    [pod] = served.ready()
    _signal_core(served, "SIGKILL", pod)
    eventually(lambda: not served.ready(), UNREADY_WITHIN_S, "the pod is unready")
    eventually(lambda: served.condition("Ready")["reason"] == "ContainerCrashed", 60, "the resource says so")
    assert "container engine ended with exit code" in served.condition("Ready")["message"]


def test_delete_leaves_nothing(served: Served) -> None:
    served.kubectl.run("delete", "guidedmodel/tiny", OF, "--timeout=60s")

    def left() -> list[str]:
        return served.kubectl.run("get", KINDS, OF, f"-l={PODS}", "-o=name").split()

    eventually(lambda: not left(), 120, lambda: f"these go: {left()}")


def _signal_core(served: Served, signal: str, pod: str = "") -> None:
    served.execute("engine", "python3", "-c", _SIGNAL_CORE.format(signal=signal), pod=pod)


# Its pid is in its heartbeats, as its container counts pids.
_SIGNAL_CORE = """
import os, pathlib, signal
from guided_contract import heartbeat
beats = heartbeat.Heartbeats(pathlib.Path("/run/guidedmodel/heartbeats"), writable=False)
os.kill(beats.read(0).pid, signal.{signal})
"""
_HEALTH = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:8000/health", timeout=5).status)
"""
