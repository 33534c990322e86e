"""What the operator refuses although the API server took it, and what of its settings."""

import datetime as dt
import json
from typing import Any

import pytest

from guided_operator.api import ManifestError, parse
from guided_operator.api.crd import schema_of
from guided_operator.api.spec import GuidedModelSpec
from guided_operator.policy.spec_checks import check
from guided_operator.settings import OperatorSettings, SettingsError, variable_of
from support.manifests import changed, guided_model, minimal

SCHEDULER = {"guidedDecoding": {"placement": "Scheduler"}}
OLD = "vllm/vllm-openai:v0.30.0"
OWN = {"engine__image": "example.com/mine:latest"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        # The image's tag, or `version` where it does not tell, says which vLLM there is.
        *(
            ({"engine__image": image}, ["spec.engine.image"])
            for image in (OLD, f"{OLD}@sha256:0", "registry.example:5000/mirror/vllm-openai-cpu:v0.9.2")
        ),
        *(
            ({"engine__image": image}, [])
            for image in ("vllm/vllm-openai:v0.32.0-x86_64", "vllm/vllm-openai@sha256:00", "a.b/own:v0.30.0")
        ),
        ({"engine__image": OLD, **SCHEDULER}, []),  # vLLM's own path runs with any vLLM
        ({**OWN, "engine__version": "0.30.0"}, ["spec.engine.version"]),
        *(({**OWN, "engine__version": known}, []) for known in ("0.32.1", "0.33.0")),
        ({**OWN, "engine__version": "0.30.0", **SCHEDULER}, []),
        ({"engine__version": "0.32.1", **SCHEDULER}, ["spec.engine.version"]),  # the tag says another
        # Amounts that do not go together.
        (
            {"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}},
            ["spec.resources.requests.cpu"],
        ),
        ({"resources": {"limits": {"cpu": "-1"}}}, ["spec.resources.limits.cpu"]),
        (
            {"sidecar__resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
            ["spec.sidecar.resources.requests.memory"],
        ),
        ({"rollout": {"progressDeadline": "29m"}}, ["spec.rollout.progressDeadline"]),  # a start may take 30
        # Volumes are of the namespace: exactly one of a claim, a ConfigMap, a Secret and an emptyDir.
        *(
            ({"pod": {"volumes": [{"name": "a", **volume}]}}, ["spec.pod.volumes[0]"])
            for volume in (
                {"hostPath": {"path": "/"}},
                {"emptyDir": {}, "hostPath": {"path": "/"}},
                {"secret": {"secretName": "s"}, "emptyDir": {}},
                {"configMap": {"name": "a"}, "x": 1},
                {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                {"csi": {"driver": "a"}},
                {},
            )
        ),
        # Accelerators stand in one place, and network devices are none.
        *(
            (
                {
                    "engine__accelerator": {"resource": "example.com/x"},
                    "resources": {"limits": {name: 1, "rdma/hca": 1}},
                    "sidecar__resources": {"requests": {name: 1}},
                },
                [f"spec.resources.limits.{name}", f"spec.sidecar.resources.requests.{name}"],
            )
            for name in ("nvidia.com/mig-1g.10gb", "amd.com/gpu", "google.com/tpu", "example.com/x")
        ),
    ],
)
def test_what_cannot_run_is_refused_by_its_field(fields: dict[str, Any], expected: list[str]) -> None:
    assert [problem.field for problem in check(guided_model(**fields))] == expected


def test_a_refusal_says_what_would_do() -> None:
    [problem] = check(guided_model(engine__image=OLD))
    assert str(problem).startswith("spec.engine.image: vLLM 0.30.0 is not supported")
    assert "0.31.0, 0.32.0, 0.33.0" in problem.message


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_keys_of_the_operator_and_the_cluster_are_theirs(part: str) -> None:
    reserved = ["guidedmodel.io/name", "a.guidedmodel.io/x", "A.K8S.io/x", "apps.k8s.io/x"]
    reserved += ["leaderworkerset.sigs.k8s.io/worker-index"]
    reserved += ["container.apparmor.security.beta.kubernetes.io/engine"]
    free = ["cluster-autoscaler.kubernetes.io/x", "notkubernetes.io/x", "kubernetes.io", "a", "x.io/k8s.io"]
    gm = guided_model(pod={part: dict.fromkeys([*free, *reserved], "x")})
    found = [each.message.partition(" ")[0] for each in check(gm) if each.field == f"spec.pod.{part}"]
    assert found == reserved


@pytest.mark.parametrize(
    "part", [{"a": [[[]]] * 20_000}, {"a": json.loads("[" * 400 + "]" * 400)}, {"a": dt.date(2026, 1, 1)}]
)
def test_a_part_of_a_pod_is_settings_and_no_data(part: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match=r"spec\.pod\.affinity: (is larger|must be JSON)"):
        parse(changed(minimal(), pod={"affinity": part}))


def names(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own | {name for each in schema.values() for name in names(each)}


def test_no_field_names_a_namespace() -> None:
    about = {name for name in names(schema_of(GuidedModelSpec)) if "namespace" in name.lower()}
    # Who may connect to the pods, and beside whose pods they run: these are looked at, and nothing in them.
    assert about == {"namespaceLabels"}


# --- the operator's settings from its environment ---


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for field in OperatorSettings.model_fields:
        monkeypatch.delenv(variable_of(field), raising=False)
    monkeypatch.setenv("POD_NAMESPACE", "system")
    monkeypatch.setenv("GUIDEDMODEL_PLUGIN_IMAGE", "guidedmodel:1")
    return monkeypatch


def test_environment_is_read_and_the_rest_defaulted(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("GUIDEDMODEL_WORKERS", "7")
    environment.setenv("GUIDEDMODEL_LOG_LEVEL", "")  # as if it were absent
    settings = OperatorSettings()
    assert (settings.namespace, settings.plugin_image, settings.workers) == ("system", "guidedmodel:1", 7)
    assert (settings.health_port, settings.log_level) == (8080, "INFO")
    assert settings.pod_name


def test_each_fault_is_named_by_its_variable(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("POD_NAMESPACE")
    environment.setenv("GUIDEDMODEL_WORKERS", "0")
    with pytest.raises(SettingsError) as caught:
        OperatorSettings()
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "POD_NAMESPACE",
        "GUIDEDMODEL_WORKERS",
    ]


def test_namespaces_are_a_list_with_commas_and_all_by_default(environment: pytest.MonkeyPatch) -> None:
    assert OperatorSettings().namespaces == ()
    environment.setenv("GUIDEDMODEL_NAMESPACES", "team-a, team-b,team-a,")
    assert OperatorSettings().namespaces == ("team-a", "team-b")
    environment.setenv("GUIDEDMODEL_NAMESPACES", "team-*")
    with pytest.raises(SettingsError, match="GUIDEDMODEL_NAMESPACES"):
        OperatorSettings()
