"""The operator for a list of namespaces with limits: it serves those, within them, and asks nothing else."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from devtools import chart

from support.audit import Audit
from support.cluster import Cluster
from support.manifests import changed
from support.operator_process import ACCOUNT, NAMESPACE, RBAC, install, running
from support.resources import conditions, items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
HERE = ("scope-a", "scope-b")
ELSEWHERE = "scope-c"
LIMITS = {"GUIDEDMODEL_ALLOWED_MODELS": "file:///models", "GUIDEDMODEL_ARGUMENTS_DENY": "--kv-*"}
# What its own rules and its limits refuse: by the model's name what it asks for, and what is said of it.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rule": ({"engine__args": ["--model=x"]}, "--model is set by the operator: set model.uri"),
    "model": ({"model__uri": "hf://o/n"}, "spec.model.uri: this operator allows only models from file:///"),
    "argument": ({"engine__args": ["--kv-a=1"]}, "ask whoever runs the operator to change limits.arguments"),
}


@pytest.fixture
def _namespaces(api_server: Cluster) -> Iterator[None]:
    """Three namespaces, and none of the rights that other tests' operators have."""
    install(api_server)
    api_server.kubectl("delete", "clusterrole,clusterrolebinding", ACCOUNT)
    with ExitStack() as stack:
        for name in (*HERE, ELSEWHERE):
            stack.enter_context(api_server.namespace(name))
        yield
    api_server.apply(RBAC)


@pytest.mark.usefixtures("_namespaces")
def test_an_operator_serves_its_namespaces_within_its_limits(api_server: Cluster, tmp_path: Path) -> None:
    def is_told(name: str, why: str) -> bool:
        found = conditions(api_server, HERE[1], name)
        reasons = [found.get(kind, {}).get("reason") for kind in ("Compatible", "Ready")]
        return reasons == ["Invalid", "Incompatible"] and why in found["Compatible"]["message"]

    served = f"--set=operator.namespaces={{{','.join(HERE)}}}"
    api_server.apply(chart.template(NAMESPACE, served, "--show-only=templates/rbac.yaml"))
    audit = Audit(api_server)
    scope = {"GUIDEDMODEL_NAMESPACES": ",".join(HERE), **LIMITS}
    with running(api_server, tmp_path, "scoped", **scope) as operator:
        for namespace in (HERE[0], ELSEWHERE):
            api_server.apply(model(namespace))
        for name, (fields, _) in REFUSED.items():
            api_server.apply(changed(model(HERE[1], name), **fields))
        eventually(lambda: conditions(api_server, HERE[0]).get("Ready"), what=HERE[0])
        assert items(api_server, HERE[0], "deployments")
        for name, (_, why) in REFUSED.items():
            eventually(lambda name=name, why=why: is_told(name, why), what=f"{name}: {why}")
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
