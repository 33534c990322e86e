"""The real operator started where it may not see all kinds, or where the CRD is not there yet."""

import json
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.operator_process import CRD, RBAC, install, running
from support.resources import await_condition, items, model
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


def test_watch_forbidden_kind_degrades_one_feature(
    api_server: Cluster, namespace: str, tmp_path: Path
) -> None:
    role = api_server.get("clusterrole", "guidedmodel-operator")
    for rule in role["rules"]:
        rule["resources"] = [each for each in rule["resources"] if each != "pods"]
    role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
    api_server.kubectl("replace", "-f", "-", stdin=json.dumps(role))
    try:
        with running(api_server, tmp_path, "blind") as operator:
            api_server.apply(model(namespace))
            eventually(lambda: "Deployment" in [each["kind"] for each in items(api_server, namespace)])
            blind = await_condition(api_server, namespace, "Ready", "Unknown", "Forbidden")
            assert "pods" in blind["message"]
            assert operator.figure("guidedmodel_operator_kind_forbidden") == 1
            eventually(lambda: "/pods cannot be listed" in operator.log())
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
