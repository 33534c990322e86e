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
from guided_operator.policy.installation_limits import NO_LIMITS, Limits
from guided_operator.policy.spec_checks import check
from support.manifests import changed, guided_model, minimal

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
        [f"--generation-c={name}"],
        ["--seed=1", f"--hf-overrides.text_model_id={name}"],
        ["--hf_overrides.text_model_id", name],
        ["--hf-overrides.timm_model_ids+", name],
        [f"--hf-overrides.a.b.c={json.dumps(name)}"],
        ["--hf-overrides", json.dumps({"auto_map": {"AutoModel": [f"{name}--code.Model"]}})],
        ["--hf-overrides=" + json.dumps({"a": name}).replace("/", "\\u002f")],
        [f"--mm-processor-kwargs.code_revision={name}"],
    ]


@pytest.mark.parametrize(
    "name", ["good-org-evil/repo", "good-org/../evil", "/models/x/y", "good-org/a,evil/b"]
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


def test_params_are_settings_and_no_data() -> None:
    def params(value: Any) -> dict[str, str]:
        return refused(logitsProcessors=[{"name": "a", "factory": "a.b:C", "params": {"x": value}}])

    room = MAX_PARAMS_BYTES - len(json.dumps({"x": ""}))
    assert params("y" * room) == {}
    for value in ("y" * (room + 1), "y" * 1_400_000, ["\u00e9" * 10_000]):
        assert list(params(value)) == ["spec.logitsProcessors[0].params"]
        assert "put the data into a ConfigMap" in str(params(value))


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
