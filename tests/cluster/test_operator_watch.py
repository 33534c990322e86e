"""The real operator while networks and API servers fail: it converges, and asks little."""

import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from devtools.control_plane import Addresses, ControlPlane

from support.cluster import Cluster
from support.faulty_proxy import Asked, Fault, FaultyProxy
from support.operator_process import install, running
from support.resources import environment, items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
Object = dict[str, Any]


def named(cluster: Cluster, namespace: str, kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in items(cluster, namespace, kind)}


def apply(cluster: Cluster, *models: Object) -> None:
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": models}))


def with_variable(one: Object, name: str) -> Object:
    one["spec"]["engine"]["env"] = [{"name": name, "value": "1"}]
    return one


def of_the_lease(asked: Asked) -> bool:
    return "/leases" in asked.path


def storm(seed: int) -> Any:
    """Return a rule of faults, drawn: 429, 409, 5xx, 410, slow answers and watches that end early."""
    drawn = random.Random(seed)

    def rule(asked: Asked) -> Fault | None:
        if of_the_lease(asked):  # else another replica would have to take over, which is another test's
            return None
        slow = Fault(delay_s=drawn.choice((0.0, 0.0, 0.3, 1.0)))
        writes = (
            Fault(409, "Conflict"),
            Fault(429, "TooManyRequests", {"Retry-After": "1"}),
            Fault(500),
            slow,
        )
        reads = (
            Fault(429, "TooManyRequests", {"Retry-After": "1"}),
            Fault(503),
            Fault(200, text="<html>log in here</html>"),
            slow,
            slow,
        )
        watches = (Fault(410, "Expired"), Fault(500), Fault(ends_after_s=0.2), Fault(ends_after_s=2.0))
        if asked.is_watch:
            return drawn.choice(watches)
        return drawn.choice(reads if asked.method == "GET" else writes)

    return rule


def test_watch_storms_of_429_409_410_5xx_and_slow_answers(
    api_server: Cluster, namespace: str, tmp_path: Path
) -> None:
    models = [model(namespace, f"m{number}") for number in range(8)]
    wanted = {f"m{number}" for number in range(1, 8)}
    install(api_server)
    with (
        FaultyProxy(api_server).running() as proxy,
        running(api_server, tmp_path, "watched", server=proxy.endpoint),
    ):
        apply(api_server, *models[:4])
        eventually(lambda: len(named(api_server, namespace, "services")) == 4, what="the first four")
        proxy.rule = storm(7)
        proxy.cut_streams()
        began = time.monotonic()
        apply(api_server, *(with_variable(one, "APP_STORM") for one in models[2:]))
        api_server.kubectl("delete", "gm/m0", "service/m1", "-n", namespace)
        eventually(lambda: time.monotonic() - began > 4, what="the storm has lasted")
        assert proxy.rate(4.0) < 60, "requests per second; each of a dozen kinds is listed and watched"
        proxy.rule = None
        eventually(lambda: named(api_server, namespace, "deployments") == wanted, timeout_s=60)
        eventually(lambda: named(api_server, namespace, "services") >= wanted, timeout_s=60)
        for name in sorted(wanted - {"m1"}):
            eventually(lambda: "APP_STORM" in environment(api_server, namespace, name), timeout_s=60)  # noqa: B023 - called at once


@pytest.fixture
def plane(tmp_path: Path, api_server: Cluster) -> Iterator[ControlPlane]:
    """A control plane of its own, whose API server may be killed."""
    del api_server  # skips where there can be none
    made = ControlPlane(tmp_path / "plane", Addresses.free(), controllers=False)
    made.start()
    yield made
    made.stop()


def test_watch_api_server_restarts(plane: ControlPlane, tmp_path: Path) -> None:
    cluster = Cluster(plane.kubeconfig, plane.addresses.url, plane.programs, plane.logs)
    install(cluster)
    with ExitStack() as stack:
        operator = stack.enter_context(running(cluster, tmp_path, "first"))
        apply(cluster, model("default", "before"))
        eventually(lambda: "before" in named(cluster, "default", "services"))
        plane.restart_api_server()
        if not operator.process.is_running():  # the Lease ran out meanwhile: its kubelet starts it anew
            assert operator.ended() == 3
            stack.enter_context(running(cluster, tmp_path, "anew"))
        apply(cluster, model("default", "after"))
        cluster.kubectl("delete", "service/before", "-n", "default")
        eventually(lambda: "after" in named(cluster, "default", "deployments"), timeout_s=60)
        eventually(lambda: "before" in named(cluster, "default", "services"), timeout_s=60)
