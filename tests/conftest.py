"""Fixtures that tests in several folders share."""

from collections.abc import Iterator

import pytest
from devtools.control_plane import Addresses, ControlPlane
from devtools.golang import MissingToolError

from support.cluster import Cluster, unavailable


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
