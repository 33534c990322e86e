"""vLLM's own classes read what passes our own look at a body: nothing is judged wrongly, or breaks."""

import importlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from guided_contract.config import PodConfig
from guided_contract.errors import GuidedError
from guided_engine.admission import request_body, request_checks
from guided_engine.admission.request_routes import ROUTES
from guided_engine.compat import validators
from support.admitting import CLASSES, LEAST, class_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ODD: tuple[Any, ...] = (
    *("x", "", 0, 5, 1.5, True, None),
    *([], [1], [{}], [[]], [None]),
    *({}, {"a": 1}, {"type": 5}),
)
HELD = {
    "response_format": ("type", "json_schema", "format", "structures", "triggers"),
    "structured_outputs": ("json", "json_object", "regex", "choice", "grammar", "structural_tag"),
    "sampling_params": ("structured_outputs", "extra_args"),
    "text": ("format",),
    "output_config": ("format",),
    "tool_choice": ("type", "name", "function", "mode", "tools"),
}
TOOL = {"type": "function", "name": "f", "parameters": {}, "input_schema": {}, "function": {"name": "f"}}


def odd_bodies(route: str) -> Iterator[dict[str, Any]]:
    """Yield bodies with a value of another type, wherever a constraint or a tool is written."""
    for odd in ODD:
        for field in class_of(route).model_fields:
            yield {field: odd}
        for field, keys in HELD.items():
            for key in keys:
                yield {field: {key: odd}}
                yield {field: {"type": "json_schema" if "format" in field else "function", key: odd}}
        for choice in ("auto", "required", {"type": "function", "name": "f", "function": {"name": "f"}}):
            yield {"tools": [odd], "tool_choice": choice}
            for key in TOOL:
                yield {"tools": [{**TOOL, key: odd}], "tool_choice": choice}
                yield {
                    "tools": [{"type": "function", "function": {"name": "f", key: odd}}],
                    "tool_choice": choice,
                }


@pytest.mark.parametrize("route", CLASSES)
def test_what_passes_is_taken_or_refused_and_nothing_else(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other errors than these vLLM answers with 500, and then its server closes the connection."""
    from vllm.exceptions import VLLMError
    from vllm.v1.structured_output import backend_xgrammar

    monkeypatch.setattr(backend_xgrammar, "validate_xgrammar_grammar", validators.rewrite_choice)
    broken = []
    for changed in odd_bodies(route):
        text = json.dumps({**LEAST[route], **changed}).encode()
        try:
            request_checks.check(route, json.loads(text), 1 << 18)
            class_of(route).model_validate(json.loads(text))
        except (GuidedError, ValueError, TypeError, VLLMError):
            continue
        except Exception as error:  # noqa: BLE001 - what is looked for
            broken.append((changed, error))
    assert not broken


@pytest.mark.parametrize("route", CLASSES)
def test_no_word_that_vllm_reads_is_taken_for_another_servers(route: str) -> None:
    """One that a later vLLM reads under such a name would be refused for ever."""
    fields = class_of(route).model_fields
    assert len(fields) > 5
    words = {*fields, *(field.alias for field in fields.values() if field.alias)}
    words.discard("guided_decoding_backend")  # a remnant of the batch's: nobody reads it
    if route.endswith("/batch"):
        words.discard("tool_choice")  # it has no tools
    for word in words:
        assert not list(request_checks._unread(ROUTES[route], {word: {"x": 1}})), word


def test_the_keys_of_constraints_are_vllms() -> None:
    from dataclasses import fields

    from openai.types.responses import ResponseFormatTextJSONSchemaConfig
    from vllm.entrypoints.anthropic.protocol import AnthropicJsonOutputFormat
    from vllm.entrypoints.generate.base import protocol
    from vllm.sampling_params import StructuredOutputsParams

    def keys(model: Any) -> set[str]:
        return {field.alias or name for name, field in model.model_fields.items()}

    structured = {field.name for field in fields(StructuredOutputsParams) if field.init}
    of_the_engine = {"whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"}
    assert structured - of_the_engine == set(request_checks._STRUCTURED)
    assert keys(protocol.JsonSchemaResponseFormat) == set(request_checks._NAMED_SCHEMA)
    known = {path: {"type"}.union(*forms.values()) for path, forms in request_checks._FORMATS.items()}
    kinds = (
        protocol.ResponseFormat,
        protocol.StructuralTagResponseFormat,
        protocol.LegacyStructuralTagResponseFormat,
    )
    assert set().union(*map(keys, kinds)) == known["response_format"]
    assert keys(ResponseFormatTextJSONSchemaConfig) == known["text.format"]
    assert keys(AnthropicJsonOutputFormat) == known["output_config.format"]


def test_what_the_batch_hands_on_to_the_chats_class_is_not_ignored() -> None:
    routes = [
        SimpleNamespace(
            path=route, body_field=SimpleNamespace(field_info=SimpleNamespace(annotation=class_of(route)))
        )
        for route in CLASSES
    ]

    class App:
        pass

    app: Any = App()
    app.routes = routes
    body = {**LEAST["/v1/chat/completions/batch"], "min_tokens": 1, "vllm_xargs": {}, "best_of": 2, "x": 1}
    request = class_of("/v1/chat/completions/batch").model_validate(body)
    taken = request.to_chat_completion_request(body["messages"][0])
    assert (taken.min_tokens, taken.vllm_xargs) == (1, {})
    assert request_body.ignored(app, "/v1/chat/completions/batch", body) == ["best_of", "x"]


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TAG = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}
BACKEND = "vllm.v1.structured_output.backend_"
PATCHED = (
    (f"{BACKEND}xgrammar", "validate_xgrammar_grammar"),
    (f"{BACKEND}guidance", "validate_guidance_grammar"),
    (f"{BACKEND}outlines", "validate_structured_output_request_outlines"),
    (f"{BACKEND}lm_format_enforcer", "validate_structured_output_request_lm_format_enforcer"),
    ("vllm.parser.abstract_parser", "_xgrammar_supports"),
    ("vllm.parser.abstract_parser", "Grammar"),
    ("vllm.parser.abstract_parser", "structured_outputs_to_format"),
    ("vllm.parser.harmony", "structured_outputs_to_format"),
)


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the validators for one test; other tests see upstream's."""
    for module, name in PATCHED:
        imported = importlib.import_module(module)
        monkeypatch.setattr(imported, name, getattr(imported, name))  # restored afterwards
    for entry in validators.ENTRIES:
        entry.apply(PodConfig(name="t", model="m", tokenizer="m", served_name="m", run_dir="/nowhere"))


@pytest.mark.usefixtures("patched")
def test_choice_is_still_rewritten() -> None:
    from vllm.config import StructuredOutputsConfig
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    params = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes", 'n"o']))
    model = SimpleNamespace(is_diffusion=False)
    params._validate_structured_outputs(model, StructuredOutputsConfig(backend="auto"), object())
    assert params.structured_outputs.choice is None
    assert params.structured_outputs.grammar == 'root ::= "yes" | "n\\"o"'


ANY_TEXT = {"type": "any_text"}


@pytest.mark.parametrize("module", ["abstract_parser", "harmony"])
@pytest.mark.parametrize(
    ("tag", "key"),
    [
        ("{", "JSON"),
        ({"structures": []}, "format"),
        ({"format": {**TAG["format"], "shema": SCHEMA}}, "shema"),
        ({"format": {"type": "sequence", "elements": [{**ANY_TEXT, "max_length": 3}]}}, "max_length"),
        ({"format": ANY_TEXT, "structures": []}, "structures"),
    ],
)
@pytest.mark.usefixtures("patched")
def test_a_tag_that_a_parser_rewrites_is_judged_before(module: str, tag: Any, key: str) -> None:
    """vLLM drops keys that it does not know, and answers what it trips over with 500."""
    from vllm.sampling_params import StructuredOutputsParams

    from guided_engine.compat.api_errors import GuidedRequestError

    rewritten = importlib.import_module(f"vllm.parser.{module}").structured_outputs_to_format
    text = tag if isinstance(tag, str) else json.dumps(tag)
    with pytest.raises(GuidedRequestError, match=key) as refused:
        rewritten(StructuredOutputsParams(structural_tag=text))
    assert refused.value.error.path == "$"
    assert rewritten(StructuredOutputsParams(structural_tag=json.dumps(TAG))).type == "json_schema"
