"""The real operator started where the CRD is not there yet."""

from pathlib import Path

import pytest

from support.cluster import Cluster
from support.operator_process import CRD, install, running
from support.resources import items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster


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
