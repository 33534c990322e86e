"""What users say in a pod's own words: the API server judges it, in its own words, and pods that run stay."""

from typing import Any

import pytest

from support.cluster import Cluster
from support.resources import await_condition, conditions, deployment, items, model
from support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator", "kubelet")]
Object = dict[str, Any]
NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NODES}}
MISSPELT = {"nodeAffinty": AFFINITY["nodeAffinity"]}
# What the schema cannot say no to, and what the API server's answer names.
WRONG: dict[str, tuple[Object, str]] = {
    "a misspelt field": ({"affinity": MISSPELT}, "nodeAffinty"),
    "a value that is none": ({"tolerations": [{"operator": "Exists", "value": "x"}]}, "value must be empty"),
    "a value of another type": ({"tolerations": [{"key": {"a": "b"}}]}, "tolerations"),
    "a label that is none": ({"labels": {"a": "b c"}}, "b c"),
    "a volume that is half said": ({"volumes": [{"name": "a", "configMap": {"nam": "x"}}]}, "nam"),
}


def test_what_the_api_server_refuses_is_told_in_its_words_and_pods_stay(
    api_server: Cluster, namespace: str
) -> None:
    def pods() -> set[str]:
        return {each["metadata"]["uid"] for each in items(api_server, namespace, "pods")}

    api_server.apply(model(namespace, pod={"affinity": MISSPELT}))
    refused = await_condition(api_server, namespace, "Ready", "False", "ApplyRefused")
    assert "nodeAffinty" in refused["message"]
    api_server.apply(model(namespace, pod={"affinity": AFFINITY}))
    await_condition(api_server, namespace, "Ready", "True")
    assert deployment(api_server, namespace)["spec"]["template"]["spec"]["affinity"] == AFFINITY
    running = pods()
    for what, (wrong, named) in WRONG.items():
        api_server.apply(model(namespace, pod={"affinity": AFFINITY} | wrong))

        def is_told(named: str = named) -> bool:
            told = conditions(api_server, namespace)["Ready"]
            return told["reason"] == "ApplyRefused" and named in told["message"]

        eventually(is_told, timeout_s=30, what=what)
        assert pods() == running, what
    api_server.apply(model(namespace, pod={"affinity": AFFINITY}))
    await_condition(api_server, namespace, "Ready", "True")
    assert pods() == running
