"""What an installation permits, and what of a resource reaches reconcile at all."""

from typing import Any

import pytest

from guided_operator.policy.installation_limits import NO_LIMITS, Limits
from guided_operator.reconcile.plan import plan
from guided_operator.settings import OperatorSettings, SettingsError
from support.manifests import guided_model
from support.observed import SITE, model, seen


@pytest.mark.parametrize(
    ("image", "allowed", "permitted"),
    [
        ("vllm/vllm-openai:v0.32.0", "docker.io", True),
        ("vllm/vllm-openai:v0.32.0", "docker.io/vllm", True),
        ("vllm/vllm-openai:v0.32.0", "vllm/", True),
        ("vllm/vllm-openai:v0.32.0", "vllm", False),  # a folder is written with its registry, or a /
        ("vllm/vllm-openai:v0.32.0", "vllm/vllm", False),
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
    found = Limits(images=("other.example", allowed)).check(guided_model(engine__image=image))
    assert [problem.field for problem in found] == ([] if permitted else ["spec.engine.image"])


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
    found = Limits(models=(allowed,)).check(guided_model(model__uri=uri))
    assert [problem.field for problem in found] == ([] if permitted else ["spec.model.uri"])


def test_drafts_and_adapters_are_models() -> None:
    gm = guided_model(
        speculative={"method": "DraftModel", "numTokens": 1, "draftModel": {"uri": "hf://evil/draft"}},
        lora={"adapters": [{"name": "a", "uri": "pvc://models/a"}, {"name": "b", "uri": "hf://evil/b"}]},
    )
    found = Limits(models=("pvc://models",)).check(gm)
    assert [problem.field for problem in found] == [
        "spec.speculative.draftModel.uri",
        "spec.lora.adapters[1].uri",
    ]


def test_code_of_models() -> None:
    gm = guided_model(model__trustRemoteCode=True)
    assert NO_LIMITS.check(gm) == []
    assert [problem.field for problem in Limits(remote_code="Refuse").check(gm)] == [
        "spec.model.trustRemoteCode"
    ]
    assert Limits(remote_code="Refuse").check(guided_model()) == []


NO_REPEAT = "guided_engine.processors.no_repeat_ngram:NoRepeatNgram"


@pytest.mark.parametrize(
    ("factory", "allowed", "permitted"),
    [
        (NO_REPEAT, "guided_engine.*", True),
        (NO_REPEAT, NO_REPEAT, True),
        (NO_REPEAT, "*", True),
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
    gm = guided_model(
        logitsProcessors=[
            {"name": "a", "factory": "other.example:A"},
            {"name": "b", "factory": factory, "applyByDefault": False},
        ]
    )
    found = Limits(processor_factories=("other.example:A", allowed)).check(gm)
    assert [problem.field for problem in found] == ([] if permitted else ["spec.logitsProcessors[1].factory"])
    assert all("add it to limits.processorFactories" in problem.message for problem in found)
    assert NO_LIMITS.check(gm) == []


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


def test_what_is_not_permitted_gets_no_pods() -> None:
    limits = Limits(images=("registry.example",))
    wanted = plan(seen(), SITE, limits)
    assert [problem.field for problem in wanted.problems] == ["spec.engine.image"]
    assert wanted.children == ()
    assert plan(seen(), SITE).problems == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"fieldOfALaterRelease": 1},
        {"guidedDecoding": {"fieldOfALaterRelease": {"deep": [1]}}},
        {"logitsProcessors": [{"name": "a", "factory": "a.b:C", "fieldOfALaterRelease": True}]},
    ],
)
def test_fields_of_a_later_release_are_ignored(spec: dict[str, Any]) -> None:
    raw = model(**spec)
    wanted = plan(seen(raw), SITE)
    assert wanted.problems == ()
    known = {part: value for part, value in spec.items() if part == "logitsProcessors"}
    for processor in known.get("logitsProcessors", []):
        processor.pop("fieldOfALaterRelease", None)
    assert wanted.revision == plan(seen(model(**known)), SITE).revision
