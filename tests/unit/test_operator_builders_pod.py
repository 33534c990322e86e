"""What becomes of the fields around the model: hub, key, adapters, storage, scheduling, volumes."""

import json
from typing import Any

import pytest

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.builders.configuration import config_file
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import pod_key
from support.manifests import SITE, guided_model
from support.manifests import containers_of as containers
from support.manifests import pod_of as pod

CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
KEY = {"name": "secret", "key": "key"}


def template(gm: GuidedModel, site: Site = SITE) -> dict[str, Any]:
    return pod_template(gm, site)


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
    found = {each["name"]: each for each in pod(gm)["volumes"] if each["name"].startswith("own-")}
    assert found["own-templates"]["configMap"] == {"name": "t"}
    assert found["own-certificates"]["secret"] == {"secretName": "s"}
    assert found["own-data"]["persistentVolumeClaim"] == {"claimName": "d", "readOnly": True}
    assert found["own-out"]["persistentVolumeClaim"] == {"claimName": "o"}
    assert found["own-scratch"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    own = {
        name: [each for each in container["volumeMounts"] if each["name"].startswith("own-")]
        for name, container in containers(gm).items()
    }
    assert own["sidecar"] == own["plugin"] == []
    named = [each["name"] for each in volumes]
    assert own["engine"] == [{"name": f"own-{name}", "mountPath": f"/mnt/{name}"} for name in named]


def test_labels_and_annotations_are_added_to_ours() -> None:
    gm = guided_model(pod={"labels": {"team": "a"}, "annotations": {"b": "c"}})
    plain, found = template(guided_model())["metadata"], template(gm)["metadata"]
    revision = {names.LABEL_REVISION: pod_key(gm)}
    assert found["labels"] == plain["labels"] | revision | {"team": "a"}
    assert found["annotations"] == plain["annotations"] | {"b": "c"}


def test_the_autoscaler_may_remove_a_node_in_spite_of_our_folders_on_it() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    volumes = [{"name": "scratch", "emptyDir": {}}]
    gm = guided_model(model__uri="hf://o/n", pod={"volumes": volumes})
    found = template(gm)["metadata"]["annotations"][key].split(",")
    folders = {
        each["name"] for each in pod(gm)["volumes"] if each.get("emptyDir", {"medium": "Memory"}) == {}
    }
    assert set(found) == folders - {"own-scratch"} == {"engine-tmp", "sidecar-tmp", "plugin", "hub"}
    own = guided_model(pod={"annotations": {key: "engine-tmp"}})
    assert template(own)["metadata"]["annotations"][key] == "engine-tmp"


def test_scheduling_is_passed_on_as_a_pod_has_it() -> None:
    affinity = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
            ]
        }
    }
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
    assert (context.get("runAsUser"), context.get("runAsGroup"), context.get("fsGroup")) == (
        user,
        user,
        group,
    )
    assert context["runAsNonRoot"] is True
