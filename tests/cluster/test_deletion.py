"""What is left of a deleted model: nothing, however it is deleted, and also with the operator down."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.kubelet import Kubelet
from support.operator_process import install, running
from support.resources import await_condition, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
# What every namespace has by itself, and what only tells of the past.
_NOT_OURS = ("serviceaccount/default", "configmap/kube-root-ca.crt", "event/", "event.events.k8s.io/")


def everything(cluster: Cluster, namespace: str) -> list[str]:
    """Return all objects of a namespace, of every kind that can be listed."""
    kinds = cluster.kubectl("api-resources", "--namespaced", "--verbs=list,delete", "-o", "name").split()
    found = cluster.kubectl("get", ",".join(kinds), "-n", namespace, "-o", "name").split()
    return [name for name in found if not name.startswith(_NOT_OURS)]


def test_deletion_leaves_nothing(api_server: Cluster, tmp_path: Path) -> None:
    def delete(namespace: str, cascade: str) -> None:
        api_server.kubectl("delete", "gm/m", f"--cascade={cascade}", "-n", namespace)
        eventually(lambda: not everything(api_server, namespace), timeout_s=60, what=f"{namespace} is empty")

    install(api_server)
    with ExitStack() as stack:
        names = ("deletion-up", "deletion-down")
        up, down = (stack.enter_context(api_server.namespace(name)) for name in names)
        with running(api_server, tmp_path, "one"):
            for namespace in (up, down):
                stack.enter_context(Kubelet(api_server.kubeconfig, namespace))
                api_server.apply(model(namespace))
            for namespace in (up, down):
                await_condition(api_server, namespace, "Ready", "True")
            delete(up, "foreground")
        delete(down, "background")
