"""What was tried against the limits of an installation, one attempt a row, and what stands in its way."""

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guided_operator.api import ManifestError, parse, words
from guided_operator.api.logits_processors import MAX_PARAMS_BYTES
from guided_operator.api.model import MODELS_DIR
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.policy.installation_limits import NO_LIMITS, Limits
from guided_operator.policy.spec_checks import check
from guided_operator.reconcile.plan import plan
from support.manifests import changed, guided_model, minimal
from support.observed import SITE, model, seen

GOOD = {"model": {"uri": "hf://good-org/model"}}
LIMITS = Limits(
    images=("docker.io/vllm",),
    models=("hf://good-org", "pvc://models"),
    remote_code="Refuse",
)


def refused(limits: Limits = LIMITS, **fields: Any) -> dict[str, str]:
    """Return why, by field; a manifest that the API server takes."""
    gm = guided_model(**{**GOOD, **fields})
    return {problem.field: problem.message for problem in (*check(gm), *limits.check(gm))}


def named(name: str) -> list[list[str]]:
    """Return every way in which arguments can name a repository."""
    return [
        [f"--generation-config={name}"],
        ["--generation_config", name],
        ["--seed=1", f"--hf-overrides.text_model_id={name}"],
        ["--hf_overrides.text_model_id", name],
        ["--hf-overrides.timm_model_ids+", name],
        [f"--hf-overrides.a.b.c={json.dumps(name)}"],
        ["--hf-overrides", json.dumps({"auto_map": {"AutoModel": [f"{name}--code.Model"]}})],
        ["--hf-overrides=" + json.dumps({"a": name}).replace("/", "\\u002f")],
        [f"--mm-processor-kwargs.code_revision={name}"],
    ]


@pytest.mark.parametrize(
    "name", ["evil/repo", "good-org-evil/repo", "/mnt/evil", "good-org/../evil", "/models/x/y"]
)
@pytest.mark.parametrize("way", range(len(named(""))))
def test_arguments_that_name_a_repository_are_under_the_limits(way: int, name: str) -> None:
    words = named(name)[way]
    found = refused(engine__args=words)
    [(field, message)] = found.items()
    assert field == f"spec.engine.args[{len(words) - 1}]"
    assert "this operator allows only models from hf://good-org, pvc://models: use one of those" in message
    assert refused(NO_LIMITS, engine__args=words) == {}


@pytest.mark.parametrize("name", ["good-org/other", f"{MODELS_DIR}/models/a"])
@pytest.mark.parametrize("way", range(len(named(""))))
def test_arguments_may_name_what_a_model_may_come_from(way: int, name: str) -> None:
    assert refused(engine__args=named(name)[way]) == {}


@pytest.mark.parametrize("value", ["good-org/a,evil/b", '{"a,evil/b,c": 1}'])
def test_a_list_is_no_way_round(value: str) -> None:
    assert list(refused(engine__args=["--hf-overrides.timm_model_ids+", value])) == ["spec.engine.args[1]"]


@pytest.mark.parametrize(
    "words",
    [
        ["--generation-config=vllm"],
        ["--generation-config", "auto"],
        ["--hf-overrides.rope_scaling.rope_type=yarn", "--hf-overrides.rope_scaling.factor", "-4.0"],
        ["--hf-overrides", '{"architectures": ["A"], "a/b": 1}'],
        ["--chat-template=/mnt/templates/chat.jinja"],
        ["--allowed-media-domains", "a.example/b"],
    ],
)
def test_arguments_that_name_no_repository_are_not(words: list[str]) -> None:
    assert refused(engine__args=words) == {}


def test_a_name_without_an_owner_is_a_repository_where_nothing_else_is_meant() -> None:
    assert list(refused(engine__args=["--generation-config=gpt2"])) == ["spec.engine.args[0]"]


@pytest.mark.parametrize("name", words.WAY_TO_THE_HUB)
def test_proxies_and_authorities_are_the_platforms_to_allow(name: str) -> None:
    env = [{"name": "TZ", "value": "UTC"}, {"name": name, "value": "/mnt/ca/ca.pem"}]
    volumes = [{"name": "ca", "configMap": {"name": "ca"}}]
    fields: dict[str, Any] = {"engine__env": env, "pod": {"volumes": volumes}}
    assert list(refused(**fields)) == ["spec.engine.env[1].name"]
    assert "set limits.proxies to Allow" in refused(**fields)["spec.engine.env[1].name"]
    assert refused(Limits(models=LIMITS.models, proxies="Allow"), **fields) == {}
    assert refused(Limits(images=LIMITS.images), **fields) == {}, "nothing of the hub is limited"


def test_a_claim_with_downloads_is_where_models_come_from() -> None:
    mine, models = ({"hub": {"persistentVolumeClaim": {"claimName": name}}} for name in ("mine", "models"))
    field = "spec.storage.hub.persistentVolumeClaim.claimName"
    assert list(refused(storage=mine)) == [field]
    assert "each pod downloads to its node's storage" in refused(storage=mine)[field]
    assert refused(storage=models) == {}
    assert refused(NO_LIMITS, storage=mine) == {}


def test_a_claim_with_compiled_code_is_code() -> None:
    storage = {"cache": {"persistentVolumeClaim": {"claimName": "models"}}}
    field = "spec.storage.cache.persistentVolumeClaim"
    assert list(refused(storage=storage)) == [field]
    assert "runs the contents of this claim as code" in refused(storage=storage)[field]
    assert refused(Limits(models=LIMITS.models), storage=storage) == {}


def test_a_claim_that_is_allowed_by_name_is_the_tenants_own() -> None:
    """docs/security.md says so: the limit is of names, and whoever makes claims decides what is in them."""
    assert refused(model={"uri": "pvc://models/anything"}) == {}


def test_params_are_settings_and_no_data() -> None:
    def params(value: Any) -> dict[str, str]:
        return refused(logitsProcessors=[{"name": "a", "factory": "a.b:C", "params": {"x": value}}])

    room = MAX_PARAMS_BYTES - len(json.dumps({"x": ""}))
    assert params("y" * room) == {}
    for value in ("y" * (room + 1), "y" * 1_400_000, ["\u00e9" * 10_000]):
        assert list(params(value)) == ["spec.logitsProcessors[0].params"]
        assert "put the data into a ConfigMap" in str(params(value))


def test_params_that_are_nested_without_end_are_refused_like_large_ones() -> None:
    deep: Any = 0
    for _ in range(3000):
        deep = [deep]
    gm = guided_model(logitsProcessors=[{"name": "a", "factory": "a.b:C"}])
    [processor] = gm.spec.logits_processors
    spec = gm.spec.model_copy(
        update={"logits_processors": [processor.model_copy(update={"params": {"x": deep}})]}
    )
    [problem] = check(gm.model_copy(update={"spec": spec}))
    assert problem.field == "spec.logitsProcessors[0].params"


HOSTS = st.ip_addresses().map(lambda ip: f"[{ip}]" if ip.version == 6 else str(ip)) | st.sampled_from(
    ["collector", "collector.ns.svc.", "[::]", "[::1]", "[1::]", "[fe80::1:2]", "[::ffff:1:2]"]
)


@given(HOSTS, st.integers(1, 65535) | st.none(), st.sampled_from(["", "/", "/v1/x"]))
def test_what_is_an_address_is_a_collector(host: str, port: int | None, path: str) -> None:
    endpoint = f"http://{host}" + (f":{port}" if port else "") + path
    gm = guided_model(telemetry={"endpoint": endpoint})
    assert gm.spec.telemetry is not None
    assert check(gm) == []


@given(st.text("abF019.:[]/-", max_size=24))
def test_whatever_is_taken_for_a_collector_can_be_read(rest: str) -> None:
    endpoint = f"https://{rest}"
    try:
        parse(changed(minimal(), telemetry={"endpoint": endpoint}))
    except ManifestError:
        return
    parts = urlsplit(endpoint)
    assert parts.hostname
    assert parts.port is None or 0 < parts.port < 65536


def test_files_of_the_node_and_of_the_kernel_are_no_models_under_limits() -> None:
    assert list(refused(model={"uri": "file:///proc/self/environ"})) == ["spec.model.uri"]


def test_a_secret_with_a_token_is_a_secret_like_any_other() -> None:
    """docs/security.md says so: the operator reads no Secrets, so it cannot know their types."""
    volumes = [{"name": "token", "secret": {"secretName": "default-token-abcde"}}]
    fields: dict[str, Any] = {"pod": {"volumes": volumes}}
    assert refused(**fields) == {}
    pod = pod_template(guided_model(**fields), Site("guidedmodel:1"))["spec"]
    assert "default-token-abcde" in [(each.get("secret") or {}).get("secretName") for each in pod["volumes"]]
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "key", ["sidecar.istio.io/inject", "io.kubernetes.cri-o.Devices", "k8s.v1.cni.cncf.io/networks"]
)
def test_annotations_of_others_are_the_tenants_to_set(key: str) -> None:
    """docs/security.md says so: what injectors and runtimes make of them is the cluster's to allow."""
    assert refused(pod={"annotations": {key: "x"}}) == {}


def test_children_have_whatever_name_the_model_has() -> None:
    """docs/security.md says so: a Service of any name that is free, such as one that others trust."""
    children = plan(seen(model() | {"metadata": model()["metadata"] | {"name": "redis"}}), SITE).children
    assert "redis" in {each["metadata"]["name"] for each in children if each["kind"] == "Service"}
