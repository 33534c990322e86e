"""Two replicas of the real operator: one acts, the other takes over; and a restart, which changes no pod."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guided_operator.main import LEASE_NAME
from support.cluster import Cluster
from support.kubelet import Kubelet
from support.operator_process import CRD, NAMESPACE, RBAC, Operator, eventually, install, running
from support.resources import await_condition, deployment, environment, items, model

pytestmark = pytest.mark.cluster
TAKEOVER_S = 15.0  # what DESIGN promises


@pytest.fixture
def namespace(api_server: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    install(api_server)
    name = request.node.name.replace("_", "-")[:50].strip("-")
    with api_server.namespace(name) as made:
        yield made


@pytest.fixture
def pair(api_server: Cluster, tmp_path: Path) -> Iterator[tuple[Operator, Operator]]:
    """The leader and the standby."""
    install(api_server)
    with running(api_server, tmp_path, "first") as first:
        eventually(first.leads, what="the first replica leads")
        with running(api_server, tmp_path, "second") as second:
            yield first, second


def holder(cluster: Cluster) -> str:
    """Return who holds the operators' Lease, "" if nobody does."""
    path = "jsonpath={.spec.holderIdentity}"
    return cluster.kubectl("get", "lease", LEASE_NAME, "-n", NAMESPACE, "-o", path)


def acts(cluster: Cluster, namespace: str) -> None:
    """Wait until a new model has its Deployment."""
    cluster.apply(model(namespace))
    eventually(
        lambda: "Deployment" in [each["kind"] for each in items(cluster, namespace)],
        timeout_s=TAKEOVER_S,
        what="somebody acts",
    )


def test_standby_acts_soon_after_the_leader_was_killed(
    api_server: Cluster, namespace: str, pair: tuple[Operator, Operator]
) -> None:
    leader, standby = pair
    time.sleep(3)  # not for luck: the standby must not lead though it had the time to
    assert not standby.leads()
    leader.kill()
    acts(api_server, namespace)
    assert standby.leads()


def test_leader_that_is_asked_to_end_hands_over_at_once(
    api_server: Cluster, namespace: str, pair: tuple[Operator, Operator]
) -> None:
    leader, standby = pair
    before = holder(api_server)
    assert leader.end(signal.SIGTERM) == 0
    assert holder(api_server) != before, "it kept the Lease, which a standby then waits out"
    acts(api_server, namespace)
    assert standby.leads()


def test_leader_that_slept_through_its_lease_ends(
    api_server: Cluster, namespace: str, pair: tuple[Operator, Operator]
) -> None:
    leader, standby = pair
    leader.send(signal.SIGSTOP)
    acts(api_server, namespace)
    assert standby.leads()
    assert leader.end(signal.SIGCONT) == 3, "it lost the Lease, and must not go on"


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
            changed["spec"]["engine"]["env"] = [{"name": "EXTRA", "value": "1"}]
            api_server.apply(changed)
            eventually(lambda: "EXTRA" in environment(api_server, namespace))
            plugin = deployment(api_server, namespace)["spec"]["template"]["spec"]["initContainers"][0]
            assert plugin["image"] == "registry.test/guidedmodel:2"
            # A step back finds the stored template, old image and all.
            api_server.apply(model(namespace))
            eventually(lambda: "EXTRA" not in environment(api_server, namespace))
            assert deployment(api_server, namespace)["spec"]["template"] == before["spec"]["template"]
            api_server.kubectl("delete", "gm/m", "-n", namespace)
            eventually(lambda: not items(api_server, namespace, "pods"), timeout_s=60)


def test_forbidden_kind_is_a_condition_and_not_the_end(
    api_server: Cluster, namespace: str, tmp_path: Path
) -> None:
    role = api_server.get("clusterrole", "guidedmodel-operator")
    role["rules"] = [rule for rule in role["rules"] if "pods" not in rule["resources"]]
    api_server.kubectl("replace", "-f", "-", stdin=json.dumps(role))
    try:
        with running(api_server, tmp_path, "blind"):
            api_server.apply(model(namespace))
            blind = await_condition(api_server, namespace, "Ready", "Unknown", "Forbidden")
            assert "pods" in blind["message"]
            assert "Deployment" in [each["kind"] for each in items(api_server, namespace)]
    finally:
        api_server.apply(RBAC)


def test_operator_waits_for_its_crd(api_server: Cluster, namespace: str, tmp_path: Path) -> None:
    api_server.kubectl("delete", "-f", str(CRD))
    with running(api_server, tmp_path, "early") as operator:
        eventually(lambda: "is not installed yet" in operator.log())
        install(api_server)
        eventually(operator.leads)
        acts(api_server, namespace)
