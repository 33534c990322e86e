"""The operator for a list of namespaces, with rights there alone: it serves those and asks nothing else."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from devtools import chart

from support.audit import Audit
from support.cluster import Cluster
from support.operator_process import ACCOUNT, NAMESPACE, RBAC, install, running
from support.resources import conditions, items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
HERE = ("scope-a", "scope-b")
ELSEWHERE = "scope-c"


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
def test_scope_list_of_namespaces(api_server: Cluster, tmp_path: Path) -> None:
    served = f"--set=operator.namespaces={{{','.join(HERE)}}}"
    api_server.apply(chart.template(NAMESPACE, served, "--show-only=templates/rbac.yaml"))
    audit = Audit(api_server)
    with running(api_server, tmp_path, "scoped", GUIDEDMODEL_NAMESPACES=",".join(HERE)) as operator:
        for namespace in (*HERE, ELSEWHERE):
            api_server.apply(model(namespace))
        for namespace in HERE:
            eventually(lambda: conditions(api_server, namespace).get("Ready"), what=namespace)  # noqa: B023 - called at once
            assert items(api_server, namespace, "deployments")
        # The watch is live: a change, and an object that somebody deletes, are seen.
        api_server.kubectl("delete", "service/m", "-n", HERE[0])
        eventually(lambda: items(api_server, HERE[0], "services"), what="the service is back")
        assert not conditions(api_server, ELSEWHERE)
        assert not items(api_server, ELSEWHERE)
        assert operator.figure("guidedmodel_operator_kind_forbidden") == 0
    asked = [entry for entry in audit.entries() if entry.resource]
    assert {entry.namespace for entry in asked} == {*HERE, NAMESPACE}
    assert not [str(entry) for entry in asked if entry.code == 403]
