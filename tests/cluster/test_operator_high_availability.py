"""Two replicas of the real operator: when the leader stops, the other acts soon and the leader no more.

Who wrote what, and when, is read from the API server's audit log; each replica has a token of its own.
"""

import json
import signal
import threading
import time
from contextlib import ExitStack
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
MODELS = 8


def deployments(cluster: Cluster, namespace: str) -> list[str]:
    return [each["metadata"]["name"] for each in items(cluster, namespace, "deployments")]


def written_by(audit: Audit, replica: Operator) -> list[Entry]:
    return [entry for entry in audit.writes() if entry.credential == replica.credential and entry.code < 300]


def act_soon(cluster: Cluster, namespace: str, audit: Audit, standbys: list[Operator], since: float) -> None:
    """Wait until one of the standbys has written, in time, and then until all is done."""
    cluster.apply(model(namespace, "last"))  # there is something to do, however fast the leader was
    left_s = TAKEOVER_S - (time.time() - since)
    eventually(lambda: any(written_by(audit, each) for each in standbys), timeout_s=left_s, what="one acts")
    eventually(lambda: len(deployments(cluster, namespace)) > MODELS, timeout_s=240, what="all is done")


def check_no_write_after(audit: Audit, old: Operator, new: Operator) -> None:
    """The old leader changed nothing once the new one had the Lease: what was on its way was refused."""
    writes = [entry for entry in audit.entries() if entry.is_write and entry.code < 300]
    leases = (each for each in writes if (each.credential, each.resource) == (new.credential, "leases"))
    taken = min(each.went for each in leases)
    assert not [str(each) for each in writes if each.credential == old.credential and each.went > taken]


def test_another_replica_takes_over_soon_and_the_old_leader_writes_no_more(
    api_server: Cluster, namespace: str, tmp_path: Path
) -> None:
    """From one that is frozen once its Lease is out, from one that is asked to end at once."""
    install(api_server)
    audit = Audit(api_server)
    with ExitStack() as stack:
        replicas = [
            stack.enter_context(running(api_server, tmp_path, name, waits=False))
            for name in ("first", "second", "third")
        ]

        def leading() -> list[Operator]:
            return [each for each in replicas if each.leads()]

        eventually(lambda: all(each.is_ready() for each in replicas), timeout_s=60, what="all are ready")
        [frozen] = eventually(leading, what="one leads")
        models = [model(namespace, f"m{number}") for number in range(MODELS)]
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": models})
        threading.Thread(target=api_server.apply, args=[listed], daemon=True).start()
        eventually(lambda: written_by(audit, frozen), what="the leader has begun")
        replicas.remove(frozen)
        frozen.send(signal.SIGSTOP)
        act_soon(api_server, namespace, audit, replicas, time.time())
        assert frozen.end(signal.SIGCONT) == 3, "it lost the Lease, and must not go on"
        [asked] = leading()
        check_no_write_after(audit, frozen, asked)

        replicas.remove(asked)
        assert asked.end(signal.SIGTERM) == 0
        path = "jsonpath={.spec.holderIdentity}"
        holder = api_server.kubectl("get", "lease", LEASE_NAME, "-n", NAMESPACE, "-o", path)
        assert not holder.startswith(asked.process.name), "it kept the Lease, which a standby then waits out"
        api_server.kubectl("delete", "gm/last", "-n", namespace)
        act_soon(api_server, namespace, audit, replicas, time.time())
        check_no_write_after(audit, asked, *replicas)
