"""What becomes of the fields around the model: hub, key, adapters, storage, scheduling, volumes, proxies."""

import json
from typing import Any

import pytest
import requests

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.api.words import WAY_TO_THE_HUB
from guided_operator.builders.configuration import config_file
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import pod_key
from support.manifests import SITE, environment, guided_model
from support.manifests import containers_of as containers
from support.manifests import pod_of as pod

CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
KEY = {"name": "secret", "key": "key"}


def metadata(gm: GuidedModel) -> dict[str, Any]:
    found: dict[str, Any] = pod_template(gm, SITE)["metadata"]
    return found


def from_secrets(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each["valueFrom"] for each in container.get("env", ()) if "valueFrom" in each}


def test_engine_and_sidecar_get_token_and_key_and_the_plugin_neither() -> None:
    gm = guided_model(model={"uri": "hf://o/n", "authSecretKeyRef": KEY}, engine__apiKeySecretKeyRef=KEY)
    wanted = {name: {"secretKeyRef": KEY} for name in ("HF_TOKEN", "VLLM_API_KEY")}
    found = {name: from_secrets(container) for name, container in containers(gm).items()}
    assert found == {"engine": wanted, "sidecar": wanted, "plugin": {}}
    assert "secret" not in json.dumps([config_file(gm, SITE)])


def test_mirror_of_the_hub_is_for_those_who_download() -> None:
    site = Site("guidedmodel:1", hub_endpoint="https://hub.example")
    online, offline = guided_model(model__uri="hf://o/n"), guided_model()
    assert '"https://hub.example"' in json.dumps(pod(online, site))
    assert "hub.example" not in json.dumps(pod(offline, site))


def test_images_are_pulled_as_the_installation_says() -> None:
    site = Site("guidedmodel:1", plugin_pull_policy="Always", pull_secrets=("ours", "both"))
    gm = guided_model(pod={"imagePullSecrets": [{"name": "own"}, {"name": "both"}]})
    found = pod(gm, site)
    assert [each["name"] for each in found["imagePullSecrets"]] == ["own", "both", "ours"]
    [plugin] = [each for each in found["initContainers"] if each["name"] == "plugin"]
    assert plugin["imagePullPolicy"] == "Always"
    assert "imagePullSecrets" not in pod(guided_model(), SITE)
    assert "imagePullPolicy" not in json.dumps(pod(guided_model(), SITE))


def test_adapters_are_arguments_and_mounts() -> None:
    adapters = [{"name": "a", "uri": "pvc://adapters/a"}, {"name": "b", "uri": "hf://o/b"}]
    gm = guided_model(lora={"adapters": adapters})
    engine = containers(gm)["engine"]
    start = engine["args"].index("--enable-lora")
    assert engine["args"][start:] == [
        "--enable-lora",
        *("--lora-modules", '{"name":"a","path":"/models/adapters/a"}', '{"name":"b","path":"o/b"}'),
    ]
    paths = {mount["mountPath"] for mount in engine["volumeMounts"]}
    assert {"/models/models", "/models/adapters", "/hub"} <= paths


@pytest.mark.parametrize(
    ("storage", "volume", "expected"),
    [
        ({}, "hub", {"emptyDir": {}}),
        ({"hub": CLAIM}, "hub", CLAIM),
        ({"cache": CLAIM}, "cache", CLAIM),
        ({"sharedMemory": "8Gi"}, "shm", {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}),
    ],
)
def test_storage(storage: dict[str, Any], volume: str, expected: dict[str, Any]) -> None:
    spec = pod(guided_model(model__uri="hf://o/n", storage=storage))
    assert [each for each in spec["volumes"] if each["name"] == volume] == [{"name": volume} | expected]


def test_own_volumes_are_the_engines_below_mnt() -> None:
    volumes = [
        {"name": "templates", "configMap": {"name": "t"}},
        {"name": "certificates", "secret": {"secretName": "s"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "d", "readOnly": True}},
        {"name": "out", "persistentVolumeClaim": {"claimName": "o"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    ]
    gm = guided_model(pod={"volumes": volumes})
    found = [each for each in pod(gm)["volumes"] if each["name"].startswith("own-")]
    assert found == [{**each, "name": f"own-{each['name']}"} for each in volumes]
    own = {
        name: [each for each in container["volumeMounts"] if each["name"].startswith("own-")]
        for name, container in containers(gm).items()
    }
    assert own["sidecar"] == own["plugin"] == []
    named = [each["name"] for each in volumes]
    assert own["engine"] == [{"name": f"own-{name}", "mountPath": f"/mnt/{name}"} for name in named]


def test_labels_and_annotations_are_added_to_ours() -> None:
    gm = guided_model(pod={"labels": {"team": "a"}, "annotations": {"b": "c"}})
    plain, found = metadata(guided_model()), metadata(gm)
    revision = {names.LABEL_REVISION: pod_key(gm)}
    assert found["labels"] == plain["labels"] | revision | {"team": "a"}
    assert found["annotations"] == plain["annotations"] | {"b": "c"}


def test_the_autoscaler_may_remove_a_node_in_spite_of_our_folders_on_it() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    volumes = [{"name": "scratch", "emptyDir": {}}]
    gm = guided_model(model__uri="hf://o/n", pod={"volumes": volumes})
    found = metadata(gm)["annotations"][key].split(",")
    folders = {
        each["name"] for each in pod(gm)["volumes"] if each.get("emptyDir", {"medium": "Memory"}) == {}
    }
    assert set(found) == folders - {"own-scratch"} == {"engine-tmp", "sidecar-tmp", "plugin", "hub"}
    own = guided_model(pod={"annotations": {key: "engine-tmp"}})
    assert metadata(own)["annotations"][key] == "engine-tmp"


def test_scheduling_is_passed_on_as_a_pod_has_it() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    asked = {
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "spot", "value": "yes"}],
        "affinity": affinity,
        "priorityClassName": "high",
        "schedulerName": "volcano",
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "other",
    }
    spec = pod(guided_model(pod=asked))
    assert {part: spec[part] for part in asked} == asked
    assert spec["automountServiceAccountToken"] is False


def test_pods_of_one_revision_are_spread_where_nothing_else_is_said() -> None:
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    others = {**spread, "topologyKey": "host", "labelSelector": {"matchLabels": {"a": "b"}}}
    gm = guided_model("abc", pod={"topologySpreadConstraints": [spread, others]})
    ours = {
        "labelSelector": {"matchLabels": {names.LABEL_NAME: "abc"}},
        "matchLabelKeys": [names.LABEL_REVISION],
    }
    assert pod(gm)["topologySpreadConstraints"] == [spread | ours, others]


@pytest.mark.parametrize(
    ("asked", "platform", "user", "group"),
    [
        ({}, 10001, 10001, None),
        ({"runAsUser": 7, "fsGroup": 8}, 10001, 7, 8),
        ({}, None, None, None),
    ],
)
def test_user_ids(asked: dict[str, Any], platform: int | None, user: int | None, group: int | None) -> None:
    spec = pod(guided_model(pod=asked), Site("guidedmodel:1", user_id=platform))
    context = spec["securityContext"]
    found = [context.get(name) for name in ("runAsUser", "runAsGroup", "fsGroup")]
    assert found == [user, user, group]
    assert context["runAsNonRoot"] is True


# --- how engine and sidecar reach the hub: by the same proxies, trusting the same authorities ---

CA = {"name": "ca", "configMap": {"name": "corp-ca"}}
OTHERS = [
    {"name": "templates", "configMap": {"name": "t"}},
    {"name": "ca-of-another", "secret": {"secretName": "s"}},
]
BOTH = ("engine", "sidecar")


def with_env(**variables: str) -> GuidedModel:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return guided_model(engine__env=env, pod={"volumes": [CA, *OTHERS]})


@pytest.mark.parametrize("name", WAY_TO_THE_HUB)
def test_both_get_each_variable_of_the_way(name: str) -> None:
    found = containers(with_env(**{name: "x", "LC_ALL": "C"}))
    for each in BOTH:
        assert environment(found[each])[name].split(",")[0] == "x"
    assert "LC_ALL" not in environment(found["sidecar"])
    assert name not in environment(found["plugin"]), "it copies files, and connects to nothing"


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_DIR"])
def test_both_see_the_authorities_that_a_variable_names(name: str) -> None:
    found = containers(with_env(**{name: "/mnt/ca/corp.pem"}))
    mounts = [(each["name"], each["mountPath"]) for one in BOTH for each in found[one]["volumeMounts"]]
    assert mounts.count(("own-ca", "/mnt/ca")) == len(BOTH)
    own = [each["name"] for each in found["sidecar"]["volumeMounts"] if each["name"].startswith("own-")]
    assert own == ["own-ca"], "nothing else of the engine's"


def test_the_sidecar_writes_to_no_volume_of_the_engines() -> None:
    volume = {"name": "ca", "persistentVolumeClaim": {"claimName": "ca", "readOnly": False}}
    env = [{"name": "SSL_CERT_FILE", "value": "/mnt/ca/corp.pem"}]
    gm = guided_model(engine__env=env, pod={"volumes": [volume]})
    [mount] = [each for each in containers(gm)["sidecar"]["volumeMounts"] if each["name"] == "own-ca"]
    assert mount["readOnly"] is True


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, {"NO_PROXY": "localhost,127.0.0.1"}),
        (
            {"HTTP_PROXY": "http://p:1", "NO_PROXY": "a", "no_proxy": "b"},
            {"NO_PROXY": "a,localhost,127.0.0.1", "no_proxy": "b,localhost,127.0.0.1"},
        ),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, {"NO_PROXY": "*"}),
        ({"NO_PROXY": ".corp"}, {"NO_PROXY": ".corp"}),
    ],
)
def test_no_proxy_stands_between_engine_and_sidecar(
    variables: dict[str, str], expected: dict[str, str]
) -> None:
    """The guided probe, and the SDK's exporters, use libraries that heed these."""
    found = containers(with_env(**variables))
    for each in BOTH:
        said = {name: value for name, value in environment(found[each]).items() if name.lower() == "no_proxy"}
        assert said == expected


@pytest.mark.parametrize("except_for", [{}, {"NO_PROXY": ".corp"}, {"no_proxy": "10.0.0.0/8"}])
def test_the_library_of_vllms_exporter_reads_it_so(
    monkeypatch: pytest.MonkeyPatch, except_for: dict[str, str]
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    proxies = {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1"}
    for name, value in environment(containers(with_env(**proxies, **except_for))["engine"]).items():
        if name.lower().endswith("_proxy"):
            monkeypatch.setenv(name, value)
    assert requests.utils.get_environ_proxies("http://127.0.0.1:8000/v1/completions") == {}
    assert requests.utils.get_environ_proxies("https://huggingface.co")["https"] == "http://p:1"


def test_a_secret_no_proxy_stays_a_reference() -> None:
    secret = {"name": "NO_PROXY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    found = containers(guided_model(engine__env=[{"name": "HTTP_PROXY", "value": "http://p:1"}, secret]))
    assert all(secret in found[each]["env"] for each in BOTH)
