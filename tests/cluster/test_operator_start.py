"""The real operator as each test starts it: without a CRD, for some namespaces, anew; and what it leaves."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from devtools import chart

from support.audit import Audit
from support.cluster import Cluster
from support.kubelet import Kubelet
from support.manifests import changed
from support.operator_process import ACCOUNT, CRD, NAMESPACE, RBAC, Operator, install, running
from support.resources import await_condition, conditions, items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
Object = dict[str, Any]


def test_an_operator_waits_for_the_crd_and_then_acts(
    api_server: Cluster, namespace: str, tmp_path: Path
) -> None:
    install(api_server)
    api_server.kubectl("delete", "-f", str(CRD))
    with running(api_server, tmp_path, "early", waits=False) as operator:
        eventually(lambda: "is not installed yet" in operator.log())
        assert operator.leads()
        assert not operator.is_ready()
        install(api_server)
        eventually(operator.is_ready)
        api_server.apply(model(namespace))
        eventually(lambda: items(api_server, namespace, "deployments"), what="it acts")


HERE = ("scope-a", "scope-b")
ELSEWHERE = "scope-c"
LIMITS = {"GUIDEDMODEL_ARGUMENTS_DENY": "--kv-*"}


def test_an_operator_serves_its_namespaces_within_its_limits(api_server: Cluster, tmp_path: Path) -> None:
    def refused() -> str:
        found = conditions(api_server, HERE[1])
        reasons = [found.get(kind, {}).get("reason") for kind in ("Compatible", "Ready")]
        return str(found["Compatible"]["message"]) if reasons == ["Invalid", "Incompatible"] else ""

    install(api_server)
    # Without the rights that other tests' operators have.
    api_server.kubectl("delete", "clusterrole,clusterrolebinding", ACCOUNT)
    served = f"--set=operator.namespaces={{{','.join(HERE)}}}"
    scope = {"GUIDEDMODEL_NAMESPACES": ",".join(HERE), **LIMITS}
    with ExitStack() as stack:
        stack.callback(api_server.apply, RBAC)
        for name in (*HERE, ELSEWHERE):
            stack.enter_context(api_server.namespace(name))
        api_server.apply(chart.template(NAMESPACE, served, "--show-only=templates/rbac.yaml"))
        audit = Audit(api_server)
        operator = stack.enter_context(running(api_server, tmp_path, "scoped", **scope))
        for namespace in (HERE[0], ELSEWHERE):
            api_server.apply(model(namespace))
        api_server.apply(changed(model(HERE[1]), engine__args=["--kv-a=1"]))
        eventually(lambda: conditions(api_server, HERE[0]).get("Ready"), what=HERE[0])
        assert items(api_server, HERE[0], "deployments")
        assert "ask whoever runs the operator to change limits.arguments" in eventually(refused)
        assert items(api_server, HERE[1]) == []
        # The watch is live: an object that somebody deletes is seen.
        api_server.kubectl("delete", "service/m", "-n", HERE[0])
        eventually(lambda: items(api_server, HERE[0], "services"), what="the service is back")
        assert not conditions(api_server, ELSEWHERE)
        assert not items(api_server, ELSEWHERE)
        assert operator.figure("guidedmodel_operator_kind_forbidden") == 0
    asked = [entry for entry in audit.entries() if entry.resource]
    assert {entry.namespace for entry in asked} == {*HERE, NAMESPACE}
    assert not [str(entry) for entry in asked if entry.code == 403]


REST_S = 4.0
VARIETY: tuple[Object, ...] = (
    {},
    {"replicas": 0},
    {"telemetry": {"endpoint": "http://collector:4318"}},
    {"speculative": {"method": "NGram", "numTokens": 3}},
    {"networkPolicy": {}, "rollout": {"maxSurge": "25%", "maxUnavailable": 0}, "drain": {"timeout": "90s"}},
    {"resources": {"requests": {"cpu": "1500m", "memory": "1024Mi"}}},
    {"guidedDecoding": {"grammars": [
        {"name": "a", "kind": "Regex", "configMapKeyRef": {"name": "none", "key": "a"}}
    ]}},
)  # fmt: skip


def test_idle_no_write_at_rest_nor_on_restart(api_server: Cluster, namespace: str, tmp_path: Path) -> None:
    def looked_at(operator: Operator) -> bool:
        return operator.figure("guidedmodel_operator_resources", condition="Ready") == len(models)

    install(api_server)
    models = [model(namespace, f"m{number}", **spec) for number, spec in enumerate(VARIETY)]
    begun = Audit(api_server)
    with running(api_server, tmp_path, "first", GUIDEDMODEL_NAMESPACES=namespace) as first:
        listed = {"apiVersion": "v1", "kind": "List", "items": models}
        api_server.kubectl("create", "-f", "-", stdin=json.dumps(listed), timeout_s=300)
        eventually(lambda: looked_at(first), timeout_s=60, what="all have been looked at")
        # Controllers and the scheduler take their time to say what they have to say of the children.
        resting = eventually(lambda: rested(api_server), timeout_s=60, what="it comes to rest")
        assert len([entry for entry in begun.writes() if entry.code == 201]) > 6 * len(models)
        renewals = [entry for entry in resting.entries() if entry.resource == "leases"]
        assert 1 <= len(renewals) <= REST_S
    restart = Audit(api_server)
    with running(api_server, tmp_path, "second", GUIDEDMODEL_NAMESPACES=namespace) as second:
        eventually(lambda: looked_at(second), timeout_s=60, what="all have been looked at anew")
        assert second.figure("guidedmodel_operator_reconcile_seconds_count") >= len(models)
        assert second.figure("guidedmodel_operator_unsettled_applies_total") == 0
    assert restart.writes() == []


def rested(cluster: Cluster) -> Audit | None:
    """Watch the operator for a while, and return what it asked for if it wrote nothing."""
    audit = Audit(cluster)
    time.sleep(REST_S)
    return None if audit.writes() else audit


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
