"""Why a model is not ready, as pods and conditions say it: the rows `readiness` and `restarts`."""

import signal
import time
from typing import Any

import pytest

from guided_contract import status
from guided_contract.wire import Patch
from support.cluster import Cluster, KubectlError
from support.kstatus import kstatus
from support.kubelet import Kubelet
from support.operator_process import Operator
from support.resources import await_condition, conditions, items, model
from support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]
Object = dict[str, Any]


def engine(restarts: int = 0, **states: Any) -> list[Object]:
    """Return the statuses of a pod's containers: the engine in some state."""
    image = {"image": "x", "imageID": ""}
    return [{"name": "engine", **image, "ready": False, "restartCount": restarts, "state": {}, **states}]


def waits(reason: str, message: str) -> list[Object]:
    return engine(state={"waiting": {"reason": reason, "message": message}})


def ended(restarts: int, code: int, reason: str, words: str) -> list[Object]:
    times = {"startedAt": None, "finishedAt": None}
    last = {"terminated": {"exitCode": code, "reason": reason, "message": words, **times}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    return engine(restarts, state=waiting, lastState=last)


STARTING = engine(state={"running": {"startedAt": None}}, started=False)
TRACEBACK = "Traceback (most recent call last):\n  ...\n"
# Reason, what the message says, and the containers that show it, as a real kubelet reports them.
REASONS = [
    ("ImagePullFailed", "no such host", waits("ImagePullBackOff", "Back-off pulling image: no such host")),
    ("CreateContainerConfigError", "not found", waits("CreateContainerConfigError", 'secret "s" not found')),
    ("ContainerCreating", "kubectl describe pod", waits("ContainerCreating", "")),
    ("EngineStarting", "loading its model", STARTING),
    ("ContainerCrashed", "exit code 139", ended(1, 139, "Error", "")),
    ("ContainerCrashed", "last output: KeyError: 'x'", ended(2, 1, "Error", f"{TRACEBACK}KeyError: 'x'\n")),
    ("OutOfMemory", "exit code 137, OOMKilled", ended(3, 137, "OOMKilled", "")),
    ("OutOfMemory", "2 GiB", ended(4, 1, "Error", "torch.OutOfMemoryError: Tried to allocate 2 GiB")),
    ("ModelDownloadFailed", "401", ended(5, 1, "Error", "huggingface_hub.errors.GatedRepoError: 401")),
]
# Reason, and what the sidecar says that gives it.
PAGES: list[tuple[str, Object]] = [
    ("PluginIncompatible", {"reason": "PluginInactive", "unsupported": "vLLM 0.9 is not supported"}),
    (
        "PluginIncompatible",
        {"reason": "PluginInactive", "patches": [Patch(name="p", state="Failed", reason="no such class")]},
    ),
    ("GrammarsPending", {"reason": "GrammarsPending", "message": "1 of 2 named grammars"}),
    ("ProbeFailed", {"reason": "ProbeFailed", "message": "the answer does not match its schema"}),
    ("EngineStalled", {"reason": "EngineStalled", "message": "no step for 20 s"}),
]


def test_readiness_reasons_from_pods(api_server: Cluster, namespace: str, kubelet: Kubelet) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    for reason, words, containers in REASONS:
        kubelet.trouble = containers
        eventually(
            lambda reason=reason, words=words: told(api_server, namespace, reason, words),
            what=f"{reason}: {words}",
        )
    kubelet.trouble, kubelet.ready = [], False
    for reason, page in PAGES:
        kubelet.say(ready=False, **page)
        poke(api_server, namespace)
        await_condition(api_server, namespace, "Ready", "False", reason)
    assert conditions(api_server, namespace)["Ready"]["message"].endswith(": no step for 20 s")


def poke(cluster: Cluster, namespace: str) -> None:
    """Change the pods, so that their pages are read now: they are read every few minutes otherwise."""
    cluster.kubectl("annotate", "pods", "--all", f"poked={time.monotonic()}", "--overwrite", "-n", namespace)


def told(cluster: Cluster, namespace: str, reason: str, words: str) -> bool:
    ready = conditions(cluster, namespace)["Ready"]
    return ready["reason"] == reason and words in ready["message"]


def test_readiness_says_that_no_node_takes_the_pod(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace))  # and nobody plays a kubelet: the real scheduler speaks
    waiting = await_condition(api_server, namespace, "Ready", "False", "Unschedulable")
    assert "nodes available" in waiting["message"]
    assert kstatus(api_server.get("gm", "m", "-n", namespace)) == "InProgress"


def test_readiness_of_an_older_generation_ends_no_wait(
    api_server: Cluster, namespace: str, kubelet: Kubelet, operator: Operator
) -> None:
    del kubelet
    wait = ("wait", "--for=condition=Ready", "gm/m", "-n", namespace)
    api_server.apply(model(namespace))
    api_server.kubectl(*wait, "--timeout=30s")
    assert kstatus(api_server.get("gm", "m", "-n", namespace)) == "Current"
    operator.send(signal.SIGSTOP)  # for less than its Lease allows
    try:
        api_server.kubectl("scale", "gm/m", "--replicas=2", "-n", namespace)
        with pytest.raises(KubectlError, match="timed out"):
            api_server.kubectl(*wait, "--timeout=1s")
        assert kstatus(api_server.get("gm", "m", "-n", namespace)) == "InProgress"
        api_server.apply(model(namespace, "new"))
        assert kstatus(api_server.get("gm", "new", "-n", namespace)) == "InProgress"
        assert conditions(api_server, namespace)["Ready"]["status"] == "True", "that of the generation before"
    finally:
        operator.send(signal.SIGCONT)
    api_server.kubectl(*wait, "--timeout=30s")
    assert api_server.get("gm", "m", "-n", namespace)["status"]["readyReplicas"] == 2


def test_a_spent_restart_budget_shows_and_restarts_no_pod(
    api_server: Cluster, namespace: str, kubelet: Kubelet
) -> None:
    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Ready", "True")
    [before] = items(api_server, namespace, "pods")
    failure = status.Failure(code="grammar_compile_crashed", message="signal 11", time="2026-11-21T12:00:00Z")
    kubelet.say(exhausted="grammar workers crashed too often", last_failure=failure)
    poke(api_server, namespace)
    told = await_condition(api_server, namespace, "GuidedDecoding", "False", "ServiceExhausted")
    assert told["message"].endswith("last failure: grammar_compile_crashed: signal 11")
    [after] = items(api_server, namespace, "pods")
    assert after["metadata"]["uid"] == before["metadata"]["uid"], "no restart storm: a worker is no pod"
    assert conditions(api_server, namespace)["Ready"]["status"] == "True"
