"""An operator for a module's tests on the real API server, and a namespace and a played kubelet for each."""

import re
from collections.abc import Iterator

import pytest

from support.cluster import Cluster
from support.kubelet import Kubelet
from support.operator_process import Operator, install, install_crd, running
from support.resources import items
from support.waiting import eventually


@pytest.fixture(scope="module")
def operator(api_server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    install(api_server)
    with running(api_server, tmp_path_factory.mktemp("operator"), "one") as replica:
        eventually(replica.leads, what="the only replica leads")
        yield replica


@pytest.fixture(scope="module")
def server(api_server: Cluster) -> Cluster:
    """Return it with the CRD, and no operator."""
    install_crd(api_server)
    return api_server


@pytest.fixture
def namespace(api_server: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:50].strip("-")
    with api_server.namespace(name) as made:
        yield made


@pytest.fixture
def kubelet(api_server: Cluster, namespace: str) -> Iterator[Kubelet]:
    with Kubelet(api_server.kubeconfig, namespace) as player:
        yield player
        api_server.kubectl("delete", "guidedmodels", "--all", "-n", namespace)
        eventually(lambda: not items(api_server, namespace, "pods"), timeout_s=90, what="all pods are gone")
