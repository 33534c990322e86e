"""The order of the tiers, and fixtures that tests in several folders share."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest
from devtools import cluster, golang, image, venvs
from devtools.control_plane import Addresses, ControlPlane
from devtools.golang import MissingToolError

from support.cluster import Cluster, Node, unavailable

# How long an example takes is the machine's to say.
hypothesis.settings.register_profile("guidedmodel", deadline=None)
hypothesis.settings.load_profile("guidedmodel")

# Cheap tiers first; engines before clusters, which wait for what Go builds meanwhile.
ENGINES: Final = ("engine", "property", "e2e", "smoke", "watch")
ORDER: Final = ("unit", "contract", "engine", "property", "e2e", "cluster", "smoke", "node", "watch", "gpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tiers; what shares an engine or a cluster goes to one worker of pytest-xdist."""
    items.sort(key=lambda item: ORDER.index(tier(item.path)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group("engines" if tier(item.path) in ENGINES else "parts"))


def tier(module: Path) -> str:
    """Return the tier of a module: its folder, but `node` for what needs the real node.

    `watch` is the module that strikes its API server, so it runs where nobody else uses one.
    """
    if module.name == "test_operator_watch.py":
        return "watch"
    folder = module.relative_to(Path(__file__).parent).parts[0]
    return "node" if folder == "e2e" and module.name.startswith(("test_cluster_", "test_node")) else folder


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real control plane without nodes: pods stay Pending. The CRD is not installed. Needs Go, not root."""
    folder = tmp_path_factory.mktemp("control-plane")
    try:
        plane = ControlPlane(folder, Addresses.free())
    except MissingToolError as error:
        unavailable(error)
    plane.start()
    try:
        yield Cluster(plane.kubeconfig, plane.addresses.url, plane.programs, plane.logs)
        assert plane.is_healthy(), f"a program of the control plane died during the tests; see {plane.logs}"
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A real one-node cluster with Jaeger, in namespaces of its own. Needs Go and root.

    Containers see the stock engine environment.
    """
    folder = tmp_path_factory.mktemp("node")
    try:
        cluster.build()
        venv = venvs.engine()
    except MissingToolError as error:
        unavailable(error)
    started = cluster.start(folder, [(venv, image.ENGINE_ENV)])
    try:
        yield Node.of(started, golang.kubernetes())
    finally:
        cluster.stop(started)
        _drop_data(folder)


def _drop_data(folder: Path) -> None:
    """Keep a stopped node's logs and remove its gigabytes of images."""
    for name in ("containerd", "kubelet", "overlay-probe"):
        shutil.rmtree(folder / name, ignore_errors=True)
