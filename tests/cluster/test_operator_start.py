"""The real operator started anew: a restart changes no pod; what it may not see, or is not there yet."""

import json
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.kubelet import Kubelet
from support.operator_process import CRD, RBAC, install, running
from support.resources import await_condition, deployment, environment, items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _installed(api_server: Cluster) -> None:
    install(api_server)


def acts(cluster: Cluster, namespace: str) -> None:
    """Wait until a new model has its Deployment."""
    cluster.apply(model(namespace))
    eventually(
        lambda: "Deployment" in [each["kind"] for each in items(cluster, namespace)],
        what="somebody acts",
    )


def test_new_release_restarts_no_pod_until_the_spec_changes(
    api_server: Cluster, namespace: str, tmp_path: Path
) -> None:
    with Kubelet(api_server.kubeconfig, namespace):
        with running(api_server, tmp_path, "old"):
            api_server.apply(model(namespace))
            await_condition(api_server, namespace, "Ready", "True")
        before = deployment(api_server, namespace)
        pods = {pod["metadata"]["uid"] for pod in items(api_server, namespace, "pods")}
        api_server.kubectl("delete", "service/m", "-n", namespace)
        with running(api_server, tmp_path, "new", GUIDEDMODEL_PLUGIN_IMAGE="registry.test/guidedmodel:2"):
            # The service is back: the new release has looked at the model.
            eventually(lambda: "Service" in [each["kind"] for each in items(api_server, namespace)])
            await_condition(api_server, namespace, "Ready", "True")
            assert {pod["metadata"]["uid"] for pod in items(api_server, namespace, "pods")} == pods
            assert deployment(api_server, namespace)["spec"] == before["spec"]
            changed = model(namespace)
            changed["spec"]["engine"]["env"] = [{"name": "APP_EXTRA", "value": "1"}]
            api_server.apply(changed)
            eventually(lambda: "APP_EXTRA" in environment(api_server, namespace))
            plugin = deployment(api_server, namespace)["spec"]["template"]["spec"]["initContainers"][0]
            assert plugin["image"] == "registry.test/guidedmodel:2"
            # A step back finds the stored template, old image and all.
            api_server.apply(model(namespace))
            eventually(lambda: "APP_EXTRA" not in environment(api_server, namespace))
            assert deployment(api_server, namespace)["spec"]["template"] == before["spec"]["template"]
            api_server.kubectl("delete", "gm/m", "-n", namespace)
            eventually(lambda: not items(api_server, namespace, "pods"), timeout_s=60)


@pytest.mark.parametrize(
    ("kind", "left"),
    [("pods", "Deployment"), ("networkpolicies", "Deployment")],
)
def test_watch_forbidden_kind_degrades_one_feature(
    api_server: Cluster, namespace: str, tmp_path: Path, kind: str, left: str
) -> None:
    role = api_server.get("clusterrole", "guidedmodel-operator")
    for rule in role["rules"]:
        rule["resources"] = [each for each in rule["resources"] if each != kind]
    role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
    api_server.kubectl("replace", "-f", "-", stdin=json.dumps(role))
    try:
        with running(api_server, tmp_path, "blind") as operator:
            api_server.apply(model(namespace))
            eventually(lambda: left in [each["kind"] for each in items(api_server, namespace)])
            if kind == "pods":
                blind = await_condition(api_server, namespace, "Ready", "Unknown", "Forbidden")
                assert "pods" in blind["message"]
            else:  # which this model does not ask for
                ready = await_condition(api_server, namespace, "Ready", "False")
                assert ready["reason"] != "Forbidden"
            assert operator.figure("guidedmodel_operator_kind_forbidden") == 1
            eventually(lambda: f"/{kind} cannot be seen" in operator.log())
            assert not api_server.get("events", "-n", namespace, "--field-selector=reason=Forbidden")["items"]
    finally:
        api_server.apply(RBAC)


def test_watch_waits_for_the_crd(api_server: Cluster, namespace: str, tmp_path: Path) -> None:
    api_server.kubectl("delete", "-f", str(CRD))
    with running(api_server, tmp_path, "early", waits=False) as operator:
        eventually(lambda: "is not installed yet" in operator.log())
        assert operator.leads()
        assert not operator.is_ready()
        install(api_server)
        eventually(operator.is_ready)
        acts(api_server, namespace)
