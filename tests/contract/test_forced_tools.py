"""A forced call's arguments: an object that fits the tool's parameters. vLLM's own classes, patched."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from support import admitting, calls

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
UNTYPED = {"properties": SCHEMA["properties"], "required": ["a"]}
# Their calls have a tag for each argument, whose value is written without quotes: no schema is the whole.
WITH_A_TAG_PER_ARGUMENT = frozenset({"kimi_k3", "hy_v4"})
MODELS = {
    *("deepseek_r1", "deepseek_v3_1", "deepseek_v3_2", "deepseek_v4", "deepseek_v4_1", "glm_4_7"),
    *("harmony", "hermes"),
    *("kimi", "llama", "longcat", "mimo", "minimax", "plamo3", "qwen_3", "qwen_3_5", "qwen_3_coder"),
} - calls.MISSING
NAMED = {"type": "function", "function": {"name": "f"}}

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.usefixtures("patched_tools"),
]


def chat(choice: Any, strict: Any, parameters: Any = SCHEMA) -> Any:
    function = {"name": "f", "parameters": parameters, "strict": strict}
    return admitting.chat(tools=[{"type": "function", "function": function}], tool_choice=choice)


def responses(choice: Any, strict: Any, parameters: Any = SCHEMA) -> Any:
    function = {"type": "function", "name": "f", "parameters": parameters, "strict": strict}
    choice = {"type": "function", "name": "f"} if choice == NAMED else choice
    return admitting.responses(tools=[function], tool_choice=choice)


def tag_of(model: str, request: Any) -> Any:
    from vllm.tool_parsers.structural_tag_registry import get_model_structural_tag

    return get_model_structural_tag(model, request.tools, request.tool_choice, reasoning=False)


def schemas(value: Any) -> Iterator[Any]:
    """Yield the schemas in a structural tag."""
    if isinstance(value, dict):
        if "json_schema" in value:
            yield value["json_schema"]
        for inner in value.values():
            yield from schemas(inner)
    if isinstance(value, list):
        for inner in value:
            yield from schemas(inner)


def test_every_format_is_known() -> None:
    """A later vLLM may have another: somebody has to look at what it makes of parameters."""
    from vllm.parser import harmony  # registers one
    from vllm.tool_parsers import structural_tag_registry as registry

    known = registry.SUPPORTED_STRUCTURAL_TAG_MODELS | registry._VLLM_STRUCTURAL_TAG_REGISTRY.keys()
    assert harmony
    assert known == MODELS | WITH_A_TAG_PER_ARGUMENT


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("make", [chat, responses])
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("strict", [None, True])
def test_arguments_of_every_format_are_held_to_the_parameters(
    model: str, make: Any, choice: Any, strict: Any
) -> None:
    for parameters in (SCHEMA, UNTYPED, {**SCHEMA, "type": ["object", "null"]}):
        found = list(schemas(tag_of(model, make(choice, strict, parameters)).model_dump()))
        assert found
        for schema in found:
            judge = jsonschema.Draft202012Validator(schema)
            assert judge.is_valid({"a": 1})
            for wrong in (False, None, 1, [], {}, {"a": "x"}):
                assert not judge.is_valid(wrong), (schema, wrong)


@pytest.mark.parametrize("make", [chat, responses])
def test_auto_keeps_upstreams_meaning(make: Any) -> None:
    assert tag_of("hermes", make("auto", None)) is None
    assert list(schemas(tag_of("hermes", make("auto", True)).model_dump())) == [SCHEMA] * 2
    # A strict tool's arguments are an object however it writes its parameters.
    assert {"type": "object"}.items() <= next(
        schemas(tag_of("hermes", make("auto", True, UNTYPED)).model_dump())
    ).items()


@pytest.mark.parametrize("parameters", [None, {}, UNTYPED, SCHEMA])
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_parsers_without_structural_tags_hold_arguments_to_an_object(choice: Any, parameters: Any) -> None:
    from vllm.tool_parsers.utils import get_json_schema_from_tools

    request = chat(choice, None, parameters)
    schema = get_json_schema_from_tools(request.tool_choice, request.tools)
    judge = jsonschema.Draft202012Validator(schema)

    def call(arguments: Any) -> Any:
        return [{"name": "f", "parameters": arguments}] if choice == "required" else arguments

    assert judge.is_valid(call({"a": 1}))
    for wrong in (False, None, "x"):
        assert not judge.is_valid(call(wrong)), schema


def test_parameters_that_allow_no_object_are_refused() -> None:
    from guided_engine.compat.api_errors import GuidedRequestError

    with pytest.raises(GuidedRequestError) as refusal:
        tag_of("hermes", chat("required", None, {"type": "string"}))
    assert (refusal.value.error.code, refusal.value.error.path) == ("grammar_invalid", "tools")


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        UNTYPED,
        {"anyOf": [SCHEMA, {"type": "string"}]},
        {"type": ["object", "null"], "oneOf": [SCHEMA, True]},
        {"$ref": "#/$defs/s", "$defs": {"s": SCHEMA}},
        {"$ref": "#"},
    ],
)
def test_arguments_are_an_object_whatever_stands_beside_it(parameters: Any) -> None:
    for schema in schemas(tag_of("hermes", chat("required", None, parameters)).model_dump()):
        assert {**(parameters or {}), "type": "object"}.items() <= schema.items()
