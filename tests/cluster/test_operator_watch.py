"""The real operator while its API server is killed and comes back: it goes on."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from devtools.control_plane import Addresses, ControlPlane

from support.cluster import Cluster
from support.operator_process import install, running
from support.resources import items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster


def test_watch_api_server_restarts(api_server: Cluster, tmp_path: Path) -> None:
    del api_server  # skips where there can be none

    def named(kind: str) -> set[str]:
        return {each["metadata"]["name"] for each in items(cluster, "default", kind)}

    plane = ControlPlane(tmp_path / "plane", Addresses.free(), controllers=False)
    plane.start()
    with ExitStack() as stack:
        stack.callback(plane.stop)
        cluster = Cluster(plane.kubeconfig, plane.addresses.url, plane.programs, plane.logs)
        install(cluster)
        operator = stack.enter_context(running(cluster, tmp_path, "first"))
        cluster.apply(model("default", "before"))
        eventually(lambda: "before" in named("services"))
        plane.restart_api_server()
        if not operator.process.is_running():  # the Lease ran out meanwhile: its kubelet starts it anew
            assert operator.ended() == 3
            stack.enter_context(running(cluster, tmp_path, "anew"))
        cluster.apply(model("default", "after"))
        cluster.kubectl("delete", "service/before", "-n", "default")
        eventually(lambda: "after" in named("deployments"), timeout_s=60)
        eventually(lambda: "before" in named("services"), timeout_s=60)
