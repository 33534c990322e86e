"""The chart: what it renders, what it refuses, and that it has no rules of its own."""

import json
from typing import Any

import pytest
import yaml
from devtools import chart
from devtools.golang import MissingToolError

from support.cluster import unavailable


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    try:
        chart.golang.helm()
    except MissingToolError as error:
        unavailable(error)


def rendered(*values: str) -> dict[str, dict[str, Any]]:
    text = chart.helm("template", "release", str(chart.CHART), "--namespace=elsewhere", *values)
    objects = [one for one in yaml.safe_load_all(text) if one]
    return {one["kind"]: one for one in objects}


def test_copies_are_up_to_date() -> None:
    assert chart.outdated() == []


def test_lint_is_strict_and_clean() -> None:
    chart.helm("lint", "--strict", str(chart.CHART))


def test_rules_are_those_that_the_operator_is_tested_with() -> None:
    source = yaml.safe_load_all((chart.ROOT / "manifests/rbac/operator.yaml").read_text())
    ours = rendered()
    for wanted in source:
        found = ours[wanted["kind"]]
        assert found.get("rules") == wanted.get("rules")
        assert found["metadata"]["name"] == wanted["metadata"]["name"]
        assert found["metadata"].get("namespace", "elsewhere") == "elsewhere"
        assert {subject["namespace"] for subject in found.get("subjects", [])} <= {"elsewhere"}


def test_crd_is_the_generated_one_and_outlives_the_release() -> None:
    crd = rendered()["CustomResourceDefinition"]
    source = yaml.safe_load((chart.ROOT / "manifests/crd/guidedmodels.guidedmodel.io.yaml").read_text())
    assert crd["spec"] == source["spec"]
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in rendered("--set=crd.keep=false")["CustomResourceDefinition"]["metadata"]
    assert "CustomResourceDefinition" not in rendered("--set=crd.install=false")


def test_operator_is_locked_down() -> None:
    deployment = rendered("--set=image.repository=here/guidedmodel", "--set-string=image.tag=7")["Deployment"]
    assert deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    [container] = pod["containers"]
    assert container["image"] == "here/guidedmodel:7"
    assert {"name": "GUIDEDMODEL_PLUGIN_IMAGE", "value": "here/guidedmodel:7"} in container["env"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_monitoring_is_off_by_default_and_what_the_manifests_hold() -> None:
    assert not {"PodMonitor", "PrometheusRule"} & set(rendered())
    on = rendered(
        *(f"--set=monitoring.{name}=true" for name in ("podMonitor", "alerts", "dashboard")),
        "--set-string=monitoring.labels.release=prometheus",
    )
    for kind, name in (("PodMonitor", "podmonitor"), ("PrometheusRule", "alerts")):
        source = yaml.safe_load((chart.ROOT / f"manifests/observability/{name}.yaml").read_text())
        assert on[kind]["spec"] == source["spec"]
        assert on[kind]["metadata"]["namespace"] == "elsewhere"
        assert on[kind]["metadata"]["labels"]["release"] == "prometheus"
    held = on["ConfigMap"]["data"]["guidedmodel.json"]
    assert json.loads(held) == json.loads((chart.ROOT / "manifests/observability/dashboard.json").read_text())


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("replicas=0", "replicas"),
        ("replica=3", "replica"),
        ("operator.logLevel=LOUD", "logLevel"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
    ],
)
def test_wrong_value_is_refused_by_name(value: str, named: str) -> None:
    with pytest.raises(chart.HelmError, match=named):
        rendered(f"--set={value}")
