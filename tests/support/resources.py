"""GuidedModels for tests on a real API server, and what can be seen of them."""

from typing import Any

from guided_contract import names
from support.cluster import Cluster
from support.waiting import eventually

Object = dict[str, Any]
CHILDREN = "deployments,services,configmaps,serviceaccounts,controllerrevisions,poddisruptionbudgets"


def model(namespace: str, name: str = "m", **spec: Any) -> Object:
    engine = {"image": "vllm/vllm-openai:v0.32.0", "accelerator": {"type": "None"}}
    return {
        "apiVersion": "guidedmodel.io/v1alpha1",
        "kind": "GuidedModel",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"uri": "file:///models/tiny"}, "engine": engine, **spec},
    }


def items(cluster: Cluster, namespace: str, kinds: str = CHILDREN) -> list[Object]:
    """Return our children in a namespace."""
    found: list[Object] = cluster.get(kinds, "-n", namespace, "-l", names.LABEL_NAME)["items"]
    return found


def conditions(cluster: Cluster, namespace: str, name: str = "m") -> dict[str, Object]:
    found = cluster.get("gm", name, "-n", namespace).get("status", {}).get("conditions", [])
    return {each["type"]: each for each in found}


def await_condition(cluster: Cluster, namespace: str, kind: str, value: str, reason: str = "") -> Object:
    found: Object = {}

    def met() -> bool:
        found.update(conditions(cluster, namespace).get(kind, {}))
        return found.get("status") == value and reason in ("", found["reason"])

    try:
        eventually(met, what=f"{kind}={value} {reason}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {found}") from error
    return found


def deployment(cluster: Cluster, namespace: str, name: str = "m") -> Object:
    return cluster.get("deployment", name, "-n", namespace)


def environment(cluster: Cluster, namespace: str, name: str = "m") -> set[str]:
    [engine] = deployment(cluster, namespace, name)["spec"]["template"]["spec"]["containers"]
    return {each["name"] for each in engine["env"]}
