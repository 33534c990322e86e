"""What an installation permits, what was tried against it, and which fields reach reconcile at all."""

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
from guided_operator.reconcile.plan import plan
from guided_operator.settings import OperatorSettings, SettingsError
from support.manifests import changed, guided_model, minimal
from support.observed import SITE, model, seen

Object = dict[str, Any]
LIMITS = Limits(
    images=("docker.io/vllm",),
    models=("hf://good-org", "pvc://models"),
    remote_code="Refuse",
)


def refused(limits: Limits = LIMITS, **fields: Any) -> dict[str, str]:
    """Return why, by field; a manifest that the API server takes."""
    gm = guided_model(**{"model": {"uri": "hf://good-org/model"}} | fields)
    return {problem.field: problem.message for problem in (*check(gm), *limits.check(gm))}


def permits(limits: Limits, field: str, **fields: Any) -> bool:
    """Say whether a model is within limits, or else has this field beyond them and no other."""
    found = [problem.field for problem in limits.check(guided_model(**fields))]
    assert found in ([], [field])
    return not found


VLLM = "vllm/vllm-openai:v0.32.0"


@pytest.mark.parametrize(
    ("image", "allowed", "permitted"),
    [
        (VLLM, "docker.io", True),
        (VLLM, "docker.io/vllm", True),
        (VLLM, "vllm/", True),
        (VLLM, "vllm", False),  # a folder is written with its registry, or a /
        (VLLM, "vllm/vllm", False),
        ("docker.io/vllm/vllm-openai@sha256:00", "vllm/vllm-openai", True),
        ("registry.example/a/b:1", "registry.example", True),
        ("registry.example/a/b:10", "registry.example/a/b:1", False),
        ("registry.example/a/bc:1", "registry.example/a/b", False),
        ("registry.example.evil/a/b:1", "registry.example", False),
        ("registry.example:5000/a/b:1", "registry.example", False),
        ("evil/registry.example/a:1", "registry.example", False),
        ("localhost/a:1", "docker.io", False),
        # As distribution/reference reads it, and so container runtimes: no folder of the hub has a capital.
        ("EVIL/vllm:v0.32.0", "docker.io", False),
        ("EVIL/vllm:v0.32.0", "EVIL/", True),
        # A name without a folder is the hub's own image, whether or not the hub is named, or a dot is in it.
        ("vllm:1", "docker.io/library", True),
        ("docker.io/vllm:v0.32.0", "docker.io/vllm", False),
        ("registry.example", "registry.example", False),
    ],
)
def test_images(image: str, allowed: str, permitted: bool) -> None:  # noqa: FBT001 - a table
    limits = Limits(images=("other.example", allowed))
    assert permits(limits, "spec.engine.image", engine__image=image) == permitted


@pytest.mark.parametrize(
    ("uri", "allowed", "permitted"),
    [
        ("hf://meta-llama/x", "hf://meta-llama", True),
        ("hf://meta-llama/x", "hf://meta-llama/", True),
        ("hf://meta-llama-evil/x", "hf://meta-llama", False),
        ("hf://meta-llama/x", "pvc://", False),
        ("pvc://models/a", "pvc://", True),
        ("pvc://models2/a", "pvc://models", False),
        ("file:///m", "file:///m", True),
    ],
)
def test_models(uri: str, allowed: str, permitted: bool) -> None:  # noqa: FBT001 - a table
    assert permits(Limits(models=(allowed,)), "spec.model.uri", model__uri=uri) == permitted


NO_REPEAT = "guided_engine.processors.no_repeat_ngram:NoRepeatNgram"


@pytest.mark.parametrize(
    ("factory", "allowed", "permitted"),
    [
        (NO_REPEAT, "guided_engine.*", True),
        (NO_REPEAT, NO_REPEAT, True),
        ("os:system", "*", True),
        ("os:system", "guided_engine.*", False),
        ("guided_engine_evil.a:B", "guided_engine.*", False),
        ("evil.guided_engine.a:B", "guided_engine.*", False),
        ("Guided_Engine.a:B", "guided_engine.*", False),
        ("acme:Ban", "acme:*", True),
        ("acme.more:Ban", "acme:*", False),
        ("acme:Banana", "acme:Ban", False),
    ],
)
def test_factories_of_processors(factory: str, allowed: str, permitted: bool) -> None:  # noqa: FBT001 - a table
    own = [{"name": "a", "factory": "other.example:A"}, {"name": "b", "factory": factory}]
    limits, field = (
        Limits(processor_factories=("other.example:A", allowed)),
        "spec.logitsProcessors[1].factory",
    )
    assert permits(limits, field, logitsProcessors=own) == permitted
    assert permits(NO_LIMITS, field, logitsProcessors=own)


def test_what_may_be_written_for_factories(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that means less, or more, than whoever writes it thinks, keeps the operator from starting."""

    def read(text: str) -> tuple[str, ...]:
        monkeypatch.setenv("GUIDEDMODEL_PROCESSOR_FACTORIES", text)
        settings = OperatorSettings(namespace="system", plugin_image="guidedmodel:1")
        return settings.processor_factories

    assert read("") == ("guided_engine.*",)
    assert read(f"acme.*, acme:*,{NO_REPEAT},*") == ("acme.*", "acme:*", NO_REPEAT, "*")
    wrong = ["acme", "acme*", "acme.", "acme:", "*.acme", "acme.*:Ban", ".*", ":*", "**", "acme.**", "a-b.*"]
    for text in (*wrong, "acmé.*", "acme .*", ",", " , "):
        with pytest.raises(SettingsError, match="GUIDEDMODEL_PROCESSOR_FACTORIES"):
            read(text)


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


@pytest.mark.parametrize("way", range(len(named(""))))
def test_arguments_that_name_a_repository_are_under_the_limits(way: int) -> None:
    """That all are seen which vLLM reads is judged by tests/contract/test_operator_arguments.py."""
    for name in ("good-org-evil/repo", "good-org/../evil", "/models/x/y", "good-org/a,evil/b"):
        words = named(name)[way]
        [(field, message)] = refused(engine__args=words).items()
        assert field == f"spec.engine.args[{len(words) - 1}]"
        assert "allows only models from hf://good-org, pvc://models: use one of those" in message
        assert refused(NO_LIMITS, engine__args=words) == {}
    for name in ("good-org/other", f"{MODELS_DIR}/models/a"):
        assert refused(engine__args=named(name)[way]) == {}


MINE, MODELS = ({"persistentVolumeClaim": {"claimName": name}} for name in ("mine", "models"))
HUB = "spec.storage.hub.persistentVolumeClaim.claimName"
CACHE = "spec.storage.cache.persistentVolumeClaim"
CA = {"name": "ca", "configMap": {"name": "ca"}}


def with_variable(name: str) -> Object:
    env = [{"name": "TZ", "value": "UTC"}, {"name": name, "value": "/mnt/ca/ca.pem"}]
    return {"engine__env": env, "pod": {"volumes": [CA]}}


@pytest.mark.parametrize(
    ("limits", "fields", "expected"),
    [
        (Limits(remote_code="Refuse"), {}, {}),
        (Limits(remote_code="Refuse"), {"model__trustRemoteCode": True}, {"spec.model.trustRemoteCode": ""}),
        (NO_LIMITS, {"model__trustRemoteCode": True}, {}),
        # Drafts and adapters are models.
        (
            LIMITS,
            {
                "speculative": {"method": "DraftModel", "numTokens": 1, "draftModel": {"uri": "hf://evil/d"}},
                "lora": {
                    "adapters": [{"name": "a", "uri": "pvc://models/a"}, {"name": "b", "uri": "hf://e/b"}]
                },
            },
            {"spec.speculative.draftModel.uri": "", "spec.lora.adapters[1].uri": ""},
        ),
        # A claim with downloads is where models come from, and one with compiled code is code.
        (LIMITS, {"storage": {"hub": MINE}}, {HUB: "each pod downloads to its node's storage"}),
        (LIMITS, {"storage": {"hub": MODELS}}, {}),
        (NO_LIMITS, {"storage": {"hub": MINE}}, {}),
        (LIMITS, {"storage": {"cache": MODELS}}, {CACHE: "runs the contents of this claim as code"}),
        (Limits(models=LIMITS.models), {"storage": {"cache": MODELS}}, {}),
        # Proxies and authorities are the platform's to allow, where something of the hub is limited.
        *(
            (LIMITS, with_variable(name), {"spec.engine.env[1].name": "set limits.proxies to Allow"})
            for name in words.WAY_TO_THE_HUB
        ),
        (Limits(models=LIMITS.models, proxies="Allow"), with_variable("HTTP_PROXY"), {}),
        (Limits(images=LIMITS.images), with_variable("HTTP_PROXY"), {}),
        # Arguments that name no repository.
        *(
            (LIMITS, {"engine__args": argument.split(" ", 1)}, {})
            for argument in (
                "--generation-config=vllm",
                "--generation-config auto",
                "--hf-overrides.rope_scaling.factor -4.0",
                '--hf-overrides {"architectures": ["A"], "a/b": 1}',
                "--chat-template=/mnt/templates/chat.jinja",
                "--allowed-media-domains a.example/b",
            )
        ),
    ],
)
def test_what_is_limited_beside_names(limits: Limits, fields: Object, expected: dict[str, str]) -> None:
    found = refused(limits, **fields)
    assert found.keys() == expected.keys()
    assert all(why in found[field] for field, why in expected.items())


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


PROCESSOR = {"name": "a", "factory": "a.b:C"}


@pytest.mark.parametrize(
    ("spec", "known"),
    [
        ({"fieldOfALaterRelease": 1}, {}),
        ({"guidedDecoding": {"fieldOfALaterRelease": {"deep": [1]}}}, {}),
        (
            {"logitsProcessors": [PROCESSOR | {"fieldOfALaterRelease": True}]},
            {"logitsProcessors": [PROCESSOR]},
        ),
    ],
)
def test_fields_of_a_later_release_are_ignored(spec: Object, known: Object) -> None:
    wanted = plan(seen(model(**spec)), SITE)
    assert wanted.problems == ()
    assert wanted.revision == plan(seen(model(**known)), SITE).revision
