"""What holds for every GuidedModel that the API takes."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from guided_operator.api import GuidedModel, parse
from guided_operator.api.quantity import canonical
from guided_operator.builders import cluster_site, pod_key, render
from support.manifests import changed, minimal

# Other tests may hold the CPU: how long one example takes says nothing.
unhurried = settings(deadline=None)

SITE = cluster_site("guidedmodel:1")

LOCAL_URIS = st.sampled_from(["pvc://models/a", "pvc://other.claim", "pvc://models/b/c", "file:///m"])
URIS = LOCAL_URIS | st.sampled_from(["hf://o/n", "hf://gpt2"])
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage"]),
    st.sampled_from(["1", 2, "500m", "0.5", "1.5Gi", "1024Mi", "1e3", "2000m"]),
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
SPECULATIVE = st.fixed_dictionaries(
    {"method": st.just("NGram"), "numTokens": st.integers(1, 32)},
    optional={"asyncScheduling": st.sampled_from(["Auto", "Off"])},
) | st.fixed_dictionaries(
    {
        "method": st.just("DraftModel"),
        "numTokens": st.integers(1, 32),
        "draftModel": st.fixed_dictionaries({"uri": URIS}),
    },
    optional={"asyncScheduling": st.sampled_from(["Auto", "On", "Off"])},
)
FIELDS = st.fixed_dictionaries(
    {"model__uri": URIS},
    optional={
        "model__servedName": st.sampled_from(["a", "org/model"]),
        "engine__plugin": st.sampled_from(["Inject", "Prebuilt"]),
        "engine__device": st.sampled_from(["Auto", "CUDA", "CPU"]),
        "engine__maxModelLen": st.integers(16, 10**6),
        "engine__args": st.lists(
            st.sampled_from(["--enforce-eager", "--max-num-seqs=3", "--seed", "7"]), max_size=64
        ),
        "engine__env": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["HOME", "PYTHONPATH", "A", "HF_TOKEN"]), "value": st.just("x")}
            ),
            unique_by=lambda variable: variable["name"],
        ),
        "parallelism": st.just({"tensor": 128})
        | st.fixed_dictionaries(
            {"tensor": st.integers(1, 8), "pipeline": st.integers(1, 4), "data": st.integers(1, 3)}
        ),
        "guidedDecoding__placement": st.sampled_from(["Rank", "Scheduler"]),
        "guidedDecoding__backend": st.sampled_from(["Auto", "XGrammar", "Guidance"]),
        "speculative": SPECULATIVE,
        "replicas": st.integers(0, 10_000),
        "resources": RESOURCES,
        "sidecar__resources": RESOURCES,
        "telemetry": st.just({}) | st.just({"otlp": {"endpoint": "http://c:4318"}}),
    },
)
# A draft model behind stages is refused.
FIELDS = FIELDS.filter(
    lambda fields: (
        fields.get("speculative", {}).get("method") != "DraftModel"
        or fields.get("parallelism", {}).get("pipeline", 1) == 1
    )
)
MODELS = FIELDS.map(lambda fields: parse(changed(minimal(), **fields)))


def rendered(gm: GuidedModel) -> list[dict[str, Any]]:
    return render(gm, SITE).manifests()


def as_served(gm: GuidedModel) -> dict[str, Any]:
    """Return the resource as the API server stores it: every default written out."""
    return gm.model_dump(by_alias=True, exclude_none=True, exclude={"status"})


def containers(gm: GuidedModel) -> list[dict[str, Any]]:
    spec = rendered(gm)[-1]["spec"]["template"]["spec"]
    return [*spec["initContainers"], *spec["containers"]]


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from leaves(value, f"{path}.{key}")
    else:
        yield path, node


@unhurried
@given(FIELDS)
def test_same_input_gives_the_same_bytes(fields: dict[str, Any]) -> None:
    first, second = (rendered(parse(changed(minimal(), **fields))) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


@unhurried
@given(MODELS)
def test_defaults_that_the_server_writes_out_change_nothing(gm: GuidedModel) -> None:
    stored = parse(json.loads(json.dumps(as_served(gm))))
    assert rendered(stored) == rendered(gm)
    assert pod_key(stored) == pod_key(gm)


@unhurried
@given(MODELS, st.integers(0, 100))
def test_scaling_restarts_no_pod(gm: GuidedModel, replicas: int) -> None:
    scaled = parse(changed(as_served(gm), replicas=replicas))
    assert pod_key(scaled) == pod_key(gm)
    assert rendered(scaled)[-1]["spec"]["template"] == rendered(gm)[-1]["spec"]["template"]


@unhurried
@given(MODELS, MODELS)
def test_pods_that_differ_have_different_keys(one: GuidedModel, other: GuidedModel) -> None:
    templates = [rendered(gm)[-1]["spec"]["template"]["spec"] for gm in (one, other)]
    configurations = [rendered(gm)[1]["data"] for gm in (one, other)]
    if templates[0] != templates[1] or configurations[0] != configurations[1]:
        assert pod_key(one) != pod_key(other)


@unhurried
@given(MODELS)
def test_quantities_are_canonical(gm: GuidedModel) -> None:
    for path, value in leaves(rendered(gm)[-1]):
        if ".resources." in path or path.endswith("sizeLimit"):
            assert value == canonical(value), path


@unhurried
@given(MODELS)
def test_pods_keep_the_restricted_pod_security_standard(gm: GuidedModel) -> None:
    spec = rendered(gm)[-1]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any("shareProcessNamespace" in path for path, _ in leaves(rendered(gm)[-1]))
    for container in containers(gm):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }


@unhurried
@given(MODELS)
def test_every_mount_has_its_volume_and_every_volume_its_mount(gm: GuidedModel) -> None:
    volumes = [volume["name"] for volume in rendered(gm)[-1]["spec"]["template"]["spec"]["volumes"]]
    mounts = [[mount["name"] for mount in container["volumeMounts"]] for container in containers(gm)]
    assert len(volumes) == len(set(volumes))
    assert set(volumes) == {name for names in mounts for name in names}
    for container in containers(gm):
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(paths) == len(set(paths))


@unhurried
@given(MODELS)
def test_no_variable_is_set_twice(gm: GuidedModel) -> None:
    for container in containers(gm):
        names = [variable["name"] for variable in container.get("env", [])]
        assert len(names) == len(set(names))
