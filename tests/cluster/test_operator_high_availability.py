"""Two replicas of the real operator: when the leader stops, the other acts soon and the leader no more.

Who wrote what, and when, is read from the API server's audit log; each replica has a token of its own.
"""

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guided_operator.main import LEASE_NAME
from support.audit import Audit, Entry
from support.cluster import Cluster
from support.operator_process import NAMESPACE, Operator, install, running
from support.resources import items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
TAKEOVER_S = 30.0  # the Lease's duration, a look of the standby's, and its start, which lists everything
MODELS = 20


@pytest.fixture
def audit(api_server: Cluster) -> Audit:
    return Audit(api_server)


@pytest.fixture
def pair(api_server: Cluster, tmp_path: Path, audit: Audit) -> Iterator[tuple[Operator, Operator]]:
    """The leader and the standby."""
    del audit  # from before the first request
    install(api_server)
    with running(api_server, tmp_path, "first") as first:
        eventually(first.leads, what="the first replica leads")
        with running(api_server, tmp_path, "second") as second:
            yield first, second


def busy(cluster: Cluster, namespace: str, audit: Audit, leader: Operator) -> None:
    """Give the leader more and more to do, and return while it is at it."""
    models = [model(namespace, f"m{number}") for number in range(MODELS)]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": models})
    threading.Thread(target=cluster.apply, args=[listed], daemon=True).start()
    eventually(lambda: written_by(audit, leader), what="the leader has begun")


def deployments(cluster: Cluster, namespace: str) -> list[str]:
    return [each["metadata"]["name"] for each in items(cluster, namespace, "deployments")]


def written_by(audit: Audit, replica: Operator) -> list[Entry]:
    return [entry for entry in audit.writes() if entry.credential == replica.credential and entry.code < 300]


def acts_soon(cluster: Cluster, namespace: str, audit: Audit, standby: Operator, since: float) -> None:
    """Wait until the standby has written, in time, and then until all is done."""
    cluster.apply(model(namespace, "last"))  # there is something to do, however fast the leader was
    left_s = TAKEOVER_S - (time.time() - since)
    eventually(lambda: written_by(audit, standby), timeout_s=left_s, what="the standby acts")
    eventually(lambda: len(deployments(cluster, namespace)) > MODELS, timeout_s=240, what="all is done")


def check_no_write_after(audit: Audit, old: Operator, new: Operator) -> None:
    """The old leader changed nothing once the new one had the Lease: what was on its way was refused."""
    entries = audit.entries()
    taken = min(
        entry.went
        for entry in entries
        if entry.credential == new.credential and entry.resource == "leases" and entry.is_write
        and entry.code < 300
    )  # fmt: skip
    late = [
        str(entry)
        for entry in entries
        if entry.credential == old.credential and entry.is_write and entry.went > taken and entry.code < 300
    ]  # fmt: skip
    assert not late


def test_high_availability_leader_frozen(
    api_server: Cluster, namespace: str, audit: Audit, pair: tuple[Operator, Operator]
) -> None:
    leader, standby = pair
    busy(api_server, namespace, audit, leader)
    assert not standby.leads()
    assert not written_by(audit, standby)
    leader.send(signal.SIGSTOP)
    acts_soon(api_server, namespace, audit, standby, time.time())
    assert leader.end(signal.SIGCONT) == 3, "it lost the Lease, and must not go on"
    check_no_write_after(audit, leader, standby)


def test_high_availability_leader_asked_to_end_hands_over_at_once(
    api_server: Cluster, namespace: str, audit: Audit, pair: tuple[Operator, Operator]
) -> None:
    leader, standby = pair
    busy(api_server, namespace, audit, leader)
    path = "jsonpath={.spec.holderIdentity}"
    assert leader.end(signal.SIGTERM) == 0
    holder = api_server.kubectl("get", "lease", LEASE_NAME, "-n", NAMESPACE, "-o", path)
    assert not holder.startswith("first"), "it kept the Lease, which a standby then waits out"
    acts_soon(api_server, namespace, audit, standby, time.time() - TAKEOVER_S / 2)
    check_no_write_after(audit, leader, standby)
