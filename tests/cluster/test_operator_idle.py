"""Nothing is written where nothing differs: at rest, and when started anew."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from support.audit import Audit
from support.cluster import Cluster
from support.operator_process import install, running
from support.resources import model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
Object = dict[str, Any]
REST_S = 4.0
VARIETY: tuple[Object, ...] = (
    {},
    {"replicas": 0},
    {"telemetry": {"endpoint": "http://collector:4318"}},
    {"speculative": {"method": "NGram", "numTokens": 3}},
    {"networkPolicy": {}, "rollout": {"maxSurge": "25%", "maxUnavailable": 0}, "drain": {"timeout": "90s"}},
    {"resources": {"requests": {"cpu": "1500m", "memory": "1024Mi"}}},
    {"guidedDecoding": {"grammars": [
        {"name": "a", "kind": "Regex", "configMapKeyRef": {"name": "none", "key": "a"}}
    ]}},
)  # fmt: skip


def test_idle_no_write_at_rest_nor_on_restart(api_server: Cluster, namespace: str, tmp_path: Path) -> None:
    install(api_server)
    models = [model(namespace, f"m{number}", **spec) for number, spec in enumerate(VARIETY)]
    begun = Audit(api_server)
    with running(api_server, tmp_path, "first", GUIDEDMODEL_NAMESPACES=namespace) as first:
        listed = {"apiVersion": "v1", "kind": "List", "items": models}
        api_server.kubectl("create", "-f", "-", stdin=json.dumps(listed), timeout_s=300)

        def looked_at() -> bool:
            return first.figure("guidedmodel_operator_resources", condition="Ready") == len(models)

        eventually(looked_at, timeout_s=60, what="all have been looked at")
        # Controllers and the scheduler take their time to say what they have to say of the children.
        resting = eventually(lambda: rested(api_server), timeout_s=60, what="it comes to rest")
        assert len([entry for entry in begun.writes() if entry.code == 201]) > 6 * len(models)
        renewals = [entry for entry in resting.entries() if entry.resource == "leases"]
        assert 1 <= len(renewals) <= REST_S
        passes = first.figure("guidedmodel_operator_reconcile_seconds_count")
    restart = Audit(api_server)
    with running(api_server, tmp_path, "second", GUIDEDMODEL_NAMESPACES=namespace) as second:

        def looked_at_anew() -> bool:
            return second.figure("guidedmodel_operator_resources", condition="Ready") == len(models)

        eventually(looked_at_anew, timeout_s=60, what="all have been looked at anew")
        assert second.figure("guidedmodel_operator_reconcile_seconds_count") >= len(models)
        assert second.figure("guidedmodel_operator_unsettled_applies_total") == 0
    assert restart.writes() == []
    assert passes >= len(models)


def rested(cluster: Cluster) -> Audit | None:
    """Watch the operator for a while, and return what it asked for if it wrote nothing."""
    audit = Audit(cluster)
    time.sleep(REST_S)
    return None if audit.writes() else audit
