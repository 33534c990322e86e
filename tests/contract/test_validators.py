"""No native grammar code runs in the API server: vLLM's own classes, with grammar libraries that raise."""

import importlib
import json
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from guided_contract.config import PodConfig
from guided_engine.compat import validators
from support.forbidden import Untouchable, native

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

POD = PodConfig(name="t", model="m", tokenizer="m", served_name="m", run_dir="/nowhere")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TAG = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}
PATCHED = (
    ("vllm.v1.structured_output.backend_xgrammar", "validate_xgrammar_grammar"),
    ("vllm.v1.structured_output.backend_guidance", "validate_guidance_grammar"),
    ("vllm.v1.structured_output.backend_outlines", "validate_structured_output_request_outlines"),
    (
        "vllm.v1.structured_output.backend_lm_format_enforcer",
        "validate_structured_output_request_lm_format_enforcer",
    ),
    ("vllm.parser.abstract_parser", "_xgrammar_supports"),
    ("vllm.parser.abstract_parser", "Grammar"),
    ("vllm.parser.abstract_parser", "structured_outputs_to_format"),
    ("vllm.parser.harmony", "structured_outputs_to_format"),
)


class NativeCalledError(BaseException):
    """Native grammar code was reached; not an Exception, lest a validator takes it for a bad grammar."""


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every way into the grammar libraries raise."""

    def raising(name: str) -> NoReturn:
        raise NativeCalledError(name)

    for module, name in list(native()):
        monkeypatch.setattr(module, name, Untouchable(name, raising))


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the validators for one test; other tests see upstream's."""
    for module, name in PATCHED:
        imported = importlib.import_module(module)
        monkeypatch.setattr(imported, name, getattr(imported, name))  # restored afterwards
    for entry in validators.ENTRIES:
        entry.apply(POD)


def sampling_params(**constraint: Any) -> Any:
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    return SamplingParams(structured_outputs=StructuredOutputsParams(**constraint))


def validate(params: Any, backend: str) -> None:
    """Call what the API server calls before it sends a request to the engine."""
    from vllm.config import StructuredOutputsConfig

    model = SimpleNamespace(is_diffusion=False)
    params._validate_structured_outputs(model, StructuredOutputsConfig(backend=backend), object())


CONSTRAINTS = [
    {"json": SCHEMA},
    {"json": json.dumps({"uniqueItems": True, "type": "array"})},
    {"json_object": True},
    {"regex": "(a+)+b{1000}"},
    {"choice": ["yes", 'n"o']},
    {"grammar": 'root ::= "a"'},
    {"grammar": 'start: "a"'},
    {"structural_tag": json.dumps(TAG)},
]


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda constraint: next(iter(constraint)))
@pytest.mark.parametrize("backend", ["auto", "outlines"])
@pytest.mark.usefixtures("no_native", "patched")
def test_parameters_are_validated_without_native_code(constraint: dict[str, Any], backend: str) -> None:
    validate(sampling_params(**constraint), backend)


@pytest.mark.usefixtures("no_native")
def test_upstream_would_run_native_code() -> None:
    with pytest.raises(NativeCalledError):
        validate(sampling_params(json=SCHEMA), "auto")


@pytest.mark.usefixtures("no_native", "patched")
def test_choice_is_still_rewritten() -> None:
    params = sampling_params(choice=["yes", 'n"o'])
    validate(params, "auto")
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
@pytest.mark.usefixtures("no_native", "patched")
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
