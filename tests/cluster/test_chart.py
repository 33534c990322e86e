"""The chart: what it renders, what it refuses, and that it has no rules of its own."""

import json
from typing import Any

import pytest
import yaml
from devtools import chart
from devtools.golang import MissingToolError

from guided_operator.settings import OperatorSettings, variable_of
from support.cluster import unavailable
from support.operator_process import POLICY, RBAC, USERS

KINDS_OF_POLICY = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    try:
        chart.golang.helm()
    except MissingToolError as error:
        unavailable(error)


def everything(*values: str) -> list[dict[str, Any]]:
    text = chart.template("elsewhere", *values)
    return [one for one in yaml.safe_load_all(text) if one]


def is_for_users(one: dict[str, Any]) -> bool:
    return one["metadata"]["name"] in ("guidedmodel-view", "guidedmodel-edit")


def rendered(*values: str) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in everything(*values) if not is_for_users(one)}


def operator_pod(*values: str) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(*values)["Deployment"]["spec"]["template"]["spec"]
    return spec


def environment(*values: str) -> dict[str, str]:
    [container] = operator_pod(*values)["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def test_lint_is_strict_and_clean() -> None:
    chart.helm("lint", "--strict", str(chart.CHART))


def test_rights_and_policy_are_those_that_are_tested_in_the_namespace_of_the_release() -> None:
    ours = rendered()
    for file in (RBAC, POLICY):
        for wanted in yaml.safe_load_all(file.read_text().replace("guidedmodel-system", "elsewhere")):
            found = ours[wanted["kind"]]
            for part in wanted.keys() - {"metadata"}:
                assert found[part] == wanted[part]
            assert found["metadata"]["name"] == wanted["metadata"]["name"]
    found = {one["metadata"]["name"]: one for one in everything() if is_for_users(one)}
    for one in yaml.safe_load_all(USERS.read_text()):
        made = found.pop(one["metadata"]["name"])
        assert made["rules"] == one["rules"]
        assert one["metadata"]["labels"].items() <= made["metadata"]["labels"].items()
    assert found == {}
    assert not KINDS_OF_POLICY & set(rendered("--set=operator.admissionPolicy=false"))
    assert not [one for one in everything("--set=crd.aggregateRoles=false") if is_for_users(one)]


def test_users_are_left_to_the_platform_where_it_has_them() -> None:
    for values, users in (
        ((), {"runAsUser": 65532, "runAsGroup": 65532}),
        (("--set=pods.userIds=Platform",), {}),
    ):
        context = operator_pod(*values)["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **users}


def test_list_of_namespaces_gets_rights_there_and_none_elsewhere() -> None:
    value = "--set=operator.namespaces={team-a,team-b}"
    found = [one for one in everything(value) if one["kind"] in RIGHTS and not is_for_users(one)]
    assert not [one for one in found if one["kind"].startswith("Cluster")]
    roles = {one["metadata"]["namespace"]: one for one in found if one["kind"] == "Role"}
    ours = rendered()
    assert roles.pop("elsewhere")["rules"] == ours["Role"]["rules"]
    assert set(roles) == {"team-a", "team-b"}
    assert all(one["rules"] == ours["ClusterRole"]["rules"] for one in roles.values())
    for one in found:
        if one["kind"] == "RoleBinding":
            role, [subject] = roles.get(one["metadata"]["namespace"], ours["Role"]), one["subjects"]
            assert one["roleRef"]["name"] == role["metadata"]["name"]
            assert subject["namespace"] == "elsewhere"
    assert environment(value)["GUIDEDMODEL_NAMESPACES"] == "team-a,team-b"


SETTINGS = {
    "limits.images={registry.example,docker.io/vllm}": {
        "allowed_images": ("registry.example", "docker.io/vllm")
    },
    "limits.models={hf://meta-llama}": {"allowed_models": ("hf://meta-llama",)},
    "limits.arguments.allow={--max-*,NCCL_*}": {"arguments_allow": ("--max-*", "NCCL_*")},
    "limits.arguments.deny={--max-lora-rank}": {"arguments_deny": ("--max-lora-rank",)},
    "limits.proxies=Allow": {"proxies": "Allow"},
    "limits.remoteCode=Refuse": {"remote_code": "Refuse"},
    "limits.processorFactories={acme:Ban}": {"processor_factories": ("acme:Ban",)},
    "pods.userIds=Platform": {"user_ids": "Platform"},
    "pods.hubEndpoint=https://hub.example": {"hub_endpoint": "https://hub.example"},
    "operator.traces.endpoint=http://collector:4318": {"otlp_endpoint": "http://collector:4318"},
    "operator.logFormat=json": {"log_format": "json"},
    "image.pullPolicy=Always": {"plugin_pull_policy": "Always"},
    "imagePullSecrets[0].name=one": {"pull_secrets": ("one",)},
}


def test_values_are_the_operators_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("operator.env[0].name=OTEL_EXPORTER_OTLP_HEADERS", "operator.env[0].value=authorization=x")
    told = environment(*(f"--set={value}" for value in (*SETTINGS, *own)))
    assert told.pop("OTEL_EXPORTER_OTLP_HEADERS") == "authorization=x"
    assert {variable_of(field) for field in OperatorSettings.model_fields} >= told.keys()
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    read = OperatorSettings(namespace="x").model_dump()
    for value, wanted in SETTINGS.items():
        assert wanted.items() <= read.items(), value


def test_limits_that_nobody_set() -> None:
    """What others would do with rights of their own is allowed by name; an empty list allows all."""
    told = environment()
    assert told["GUIDEDMODEL_PROXIES"] == "Refuse"
    assert not {"GUIDEDMODEL_ARGUMENTS_ALLOW", "GUIDEDMODEL_ARGUMENTS_DENY"} & told.keys()
    [by_default] = OperatorSettings(namespace="x", plugin_image="y").processor_factories
    assert told["GUIDEDMODEL_PROCESSOR_FACTORIES"] == by_default == "guided_engine.*"
    # As with --reuse-values of a chart that did not have it.
    without = environment("--set=limits.processorFactories=null")
    assert "GUIDEDMODEL_PROCESSOR_FACTORIES" not in without


def test_an_operator_of_some_namespaces_needs_no_right_on_the_cluster() -> None:
    values = ("--set=clusterObjects=false", '--set-json=operator.namespaces=["2024"]')
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", *KINDS_OF_POLICY}
    assert not cluster_wide & {one["kind"] for one in everything(*values)}
    assert environment(*values)["GUIDEDMODEL_NAMESPACES"] == "2024"


def test_crd_is_the_generated_one_and_outlives_the_release() -> None:
    crd = rendered()["CustomResourceDefinition"]
    source = yaml.safe_load((chart.ROOT / "manifests/crd/guidedmodels.guidedmodel.io.yaml").read_text())
    assert crd["spec"] == source["spec"]
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in rendered("--set=crd.keep=false")["CustomResourceDefinition"]["metadata"]
    assert "CustomResourceDefinition" not in rendered("--set=crd.install=false")


def test_operator_is_locked_down() -> None:
    deployment = rendered()["Deployment"]
    assert deployment["spec"]["replicas"] == 2
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_without_an_image_it_says_what_to_do() -> None:
    with pytest.raises(
        chart.HelmError, match=r"make push REGISTRY=.*--set image.repository=REGISTRY/guidedmodel"
    ):
        chart.helm("template", "release", str(chart.CHART))


DIGEST = f"sha256:{64 * 'a'}"


@pytest.mark.parametrize(
    ("value", "image"),
    [
        ("--set-string=image.tag=7", "here/guidedmodel:7"),
        (f"--set=image.digest={DIGEST}", f"here/guidedmodel@{DIGEST}"),
    ],
)
def test_image_is_pulled_as_asked_by_the_operator_and_by_pods(value: str, image: str) -> None:
    values = (value, "--set=imagePullSecrets[0].name=one")
    spec = operator_pod(*values)
    assert spec["containers"][0]["image"] == environment(*values)["GUIDEDMODEL_PLUGIN_IMAGE"] == image
    assert spec["imagePullSecrets"] == [{"name": "one"}]


def test_monitoring_is_off_by_default_and_what_the_manifests_hold() -> None:
    assert not {"PodMonitor", "PrometheusRule"} & set(rendered())
    text = chart.template(
        "elsewhere",
        *(f"--set=monitoring.{name}=true" for name in ("podMonitor", "alerts", "dashboard")),
        "--set-string=monitoring.labels.release=prometheus",
        "--set-string=monitoring.runbooks=https://docs.test",
    )
    on = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}
    for name in ("podmonitor", "alerts", "operator-podmonitor", "operator-alerts"):
        source = yaml.safe_load((chart.ROOT / f"manifests/observability/{name}.yaml").read_text())
        found = on[source["kind"], source["metadata"]["name"]]
        linked = json.dumps(source["spec"]).replace(': "docs/runbook', ': "https://docs.test/runbook')
        assert found["spec"] == json.loads(linked)
        assert found["metadata"]["namespace"] == "elsewhere"
        assert found["metadata"]["labels"]["release"] == "prometheus"
    assert "runbook_url" not in chart.template("elsewhere", "--set=monitoring.alerts=true")
    held = on["ConfigMap", "guidedmodel-dashboard"]["data"]["guidedmodel.json"]
    assert json.loads(held) == json.loads((chart.ROOT / "manifests/observability/dashboard.json").read_text())


def test_pod_monitor_finds_the_operators_port() -> None:
    deployment = rendered()["Deployment"]["spec"]["template"]
    file = chart.ROOT / "manifests/observability/operator-podmonitor.yaml"
    monitor = yaml.safe_load(file.read_text())["spec"]
    assert monitor["selector"]["matchLabels"].items() <= deployment["metadata"]["labels"].items()
    [endpoint] = monitor["podMetricsEndpoints"]
    [container] = deployment["spec"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("replicas=0", "replicas"),
        ("operator.logLevel=LOUD", "logLevel"),
        ("operator.namespaces={team-*}", "namespaces"),
        ("operator.traces.endpoint=collector", "endpoint"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        # None would be all, as with other lists, or none at all: whoever means all writes it.
        ("limits.processorFactories={}", "processorFactories"),
        ("limits.processorFactories={acme:*,**}", "processorFactories"),
    ],
)
def test_wrong_value_is_refused_by_name(value: str, named: str) -> None:
    with pytest.raises(chart.HelmError, match=named):
        rendered(f"--set={value}")
