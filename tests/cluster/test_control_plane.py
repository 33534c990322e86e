"""The control plane that the cluster tests share is a real one."""

import json

import pytest
import yaml
from devtools import cluster_demo, deploy, golang, node_init

from support import optional_apis
from support.cluster import Cluster, KubectlError
from support.waiting import eventually

pytestmark = pytest.mark.cluster


def test_api_server_is_the_pinned_version(api_server: Cluster) -> None:
    version = json.loads(api_server.kubectl("version", "-o", "json"))
    assert version["serverVersion"]["gitVersion"] == golang.kubernetes_version()


def test_deployment_gets_pods_and_deletion_is_cascaded(api_server: Cluster) -> None:
    with api_server.namespace("devtools-cascade") as namespace:
        api_server.kubectl("create", "deployment", "sleeper", "--image=localhost/none:1", "-n", namespace)
        _wait(api_server, namespace, count=1)
        api_server.kubectl("delete", "deployment", "sleeper", "-n", namespace)
        _wait(api_server, namespace, count=0)


def test_bad_manifest_is_refused_with_the_servers_message(api_server: Cluster) -> None:
    with pytest.raises(KubectlError, match=r"spec\.template"):
        api_server.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "x", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {}},
            }
        )


def _wait(cluster: Cluster, namespace: str, count: int) -> None:
    eventually(
        lambda: len(cluster.get("pods", "-n", namespace)["items"]) == count,
        what=lambda: cluster.kubectl("get", "pods,events", "-n", namespace),
    )


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


def test_existing_cluster_without_an_image_or_a_claim_is_told_so(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER", "existing")
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    monkeypatch.delenv("IMAGE", raising=False)
    with pytest.raises(SystemExit, match="IMAGE="):
        cluster_demo.main()
    monkeypatch.setenv("IMAGE", "registry.test/guidedmodel:1")
    with pytest.raises(SystemExit, match="apply manifests/samples/models"):
        cluster_demo.main()
