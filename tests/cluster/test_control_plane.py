"""Manifests of what stands beside the operator, as a real API server takes them."""

import json

import pytest
import yaml
from devtools import deploy, node_init

from support import optional_apis
from support.cluster import Cluster, KubectlError

pytestmark = pytest.mark.cluster


def test_observability_manifest_is_accepted_and_samples_send_there(api_server: Cluster) -> None:
    api_server.apply(deploy.ROOT / "manifests/observability/jaeger.yaml")
    service = api_server.get("service/jaeger", "-n=observability")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    endpoint = deploy.sample()["spec"]["telemetry"]["endpoint"]
    assert endpoint == f"http://jaeger.observability:{ports['otlp-http']}"
    assert ports["query"] == node_init.JAEGER_QUERY_PORT


def test_collector_is_accepted_and_hands_over_to_jaeger(api_server: Cluster) -> None:
    folder = deploy.ROOT / "manifests/observability"
    for name in ("jaeger", "collector"):
        api_server.apply(folder / f"{name}.yaml")
    objects = {one["kind"]: one for one in yaml.safe_load_all((folder / "collector.yaml").read_text())}
    held = yaml.safe_load(objects["ConfigMap"]["data"]["config.yaml"])
    jaegers = [
        one for one in yaml.safe_load_all((folder / "jaeger.yaml").read_text()) if one["kind"] == "Service"
    ]
    ports = {port["name"]: port["port"] for port in jaegers[0]["spec"]["ports"]}
    assert held["exporters"]["otlp_http"]["endpoint"] == f"http://jaeger:{ports['otlp-http']}"
    for protocol, port in (("grpc", "otlp-grpc"), ("http", "otlp-http")):
        [served] = [one["port"] for one in objects["Service"]["spec"]["ports"] if one["name"] == port]
        assert held["receivers"]["otlp"]["protocols"][protocol]["endpoint"].endswith(f":{served}")
    pipeline = held["service"]["pipelines"]["traces"]
    for part in ("receivers", "processors", "exporters"):
        assert set(pipeline[part]) <= set(held[part])


def test_monitoring_manifests_are_what_the_prometheus_operator_takes(api_server: Cluster) -> None:
    create = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    with optional_apis.installed(api_server, "podmonitors", "prometheusrules"):
        for name in ("podmonitor", "operator-podmonitor", "alerts", "operator-alerts"):
            found = yaml.safe_load((deploy.ROOT / f"manifests/observability/{name}.yaml").read_text())
            found["metadata"]["namespace"] = "default"
            assert "created" in api_server.kubectl(*create, stdin=json.dumps(found))
            [first, *_] = found["spec"].get("podMetricsEndpoints") or found["spec"]["groups"][0]["rules"]
            first["portt"] = "x"
            with pytest.raises(KubectlError, match="portt"):
                api_server.kubectl(*create, stdin=json.dumps(found))
