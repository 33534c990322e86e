"""What a tenant nests too deeply, or makes look like kopf's, on a real API server: all others are served."""

import json
from pathlib import Path
from typing import Any

import pytest

from guided_contract import names
from support.cluster import Cluster
from support.operator_process import Operator, running
from support.resources import await_condition, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
Object = dict[str, Any]


def nested(depth: int) -> str:
    return '{"f:a":' * depth + "{}" + "}" * depth


def with_params(namespace: str, name: str, params: str) -> str:
    processor = {"name": "x", "factory": "a.b:C", "params": {"p": "@params"}}
    one = json.dumps(model(namespace, name, logitsProcessors=[processor]))
    return one.replace('"@params"', params)


def compatible(cluster: Cluster, namespace: str, name: str) -> Object:
    """Return the condition; of a model that Python could not parse."""
    only = "-o=jsonpath={.status.conditions[?(@.type=='Compatible')]}"
    told = eventually(lambda: cluster.kubectl("get", "gm", name, "-n", namespace, only), what=name)
    found: Object = json.loads(told)
    return found


def test_all_others_are_served(
    api_server: Cluster, operator: Operator, namespace: str, tmp_path: Path
) -> None:
    hostile = {f"deep{depth}": nested(depth) for depth in (250, 1100, 3000)}
    hostile["large"] = f"[{'[],' * 390_000}[]]"
    for name, params in hostile.items():
        api_server.kubectl("create", "-f", "-", stdin=with_params(namespace, name, params))
    noted = model(namespace, "noted")
    noted["metadata"]["annotations"] = {"kopf.zalando.org/last-handled-configuration": "{not json"}
    noted["metadata"]["finalizers"] = ["kopf.zalando.org/KopfFinalizerMarker"]
    api_server.apply(noted)
    api_server.kubectl("create", "service", "clusterip", "deep", "--tcp=80", "-n", namespace)
    api_server.kubectl("label", "service/deep", f"{names.LABEL_NAME}=m", "-n", namespace)
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    value = [{**entry, "time": "2026-01-01T00:00:00Z", "fieldsV1": "@fields"}]
    change = json.dumps([{"op": "replace", "path": "/metadata/managedFields", "value": value}])
    change = change.replace('"@fields"', nested(1200))
    api_server.kubectl("patch", "service", "deep", "-n", namespace, "--type=json", "-p", change)

    api_server.apply(model(namespace))
    await_condition(api_server, namespace, "Compatible", "True")
    assert compatible(api_server, namespace, "noted")["status"] == "True"
    for name in hostile:
        assert compatible(api_server, namespace, name)["status"] == "False"
        assert "nested deeper than 32 levels" in compatible(api_server, namespace, name)["message"]
    with running(api_server, tmp_path, "another") as replica:
        eventually(replica.is_ready, what="one that starts now lists all of it")
    assert operator.figure("guidedmodel_operator_watch_failures_total") == 0
    assert "KopfFinalizerMarker" in api_server.kubectl("get", "gm", "noted", "-n", namespace, "-o", "yaml")
    api_server.kubectl(
        "patch", "gm", "noted", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )
    # Gone when the next test begins: the release before, which test_upgrade.py runs, cannot read them.
    api_server.kubectl("delete", "service", "deep", "-n", namespace)
    api_server.kubectl("delete", "gm", "--all", "-n", namespace)
