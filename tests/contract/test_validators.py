"""Where vLLM validates with grammar libraries, ours does without: test_admission.py shows that."""

import importlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from guided_contract.config import PodConfig
from guided_engine.compat import validators

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


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the validators for one test; other tests see upstream's."""
    for module, name in PATCHED:
        imported = importlib.import_module(module)
        monkeypatch.setattr(imported, name, getattr(imported, name))  # restored afterwards
    for entry in validators.ENTRIES:
        entry.apply(POD)


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
