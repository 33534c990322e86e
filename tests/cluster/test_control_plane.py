"""What Prometheus is to scrape and to alert of, as the Prometheus operator takes it."""

import json

import pytest
import yaml
from devtools import deploy

from support import optional_apis
from support.cluster import Cluster, KubectlError

pytestmark = pytest.mark.cluster


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
