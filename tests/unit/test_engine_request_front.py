"""What outsiders sent to a running pod that was answered with a 500, ignored, cut, or slow for all others."""

import json
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import client_paths, error_responses, request_checks, trace
from guided_engine.admission.exchange import HttpExchange
from guided_engine.admission.request_body import keys_of
from guided_engine.admission.request_fault import Fault

CHAT, COMPLETIONS, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/batch"
RESPONSES, MESSAGES, GENERATE = "/v1/responses", "/v1/messages", "/inference/v1/generate"
SCORING = "/generative_scoring"
MOST = 1000
SCHEMA = {"type": "object"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
STRICT = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}


def found(route: str, body: Any, most_bytes: int = MOST) -> Fault | None:
    keys = keys_of(json.dumps(body).encode())
    assert keys is not None
    return request_checks.fault(route, keys, most_bytes)


def test_a_batch_is_not_streamed() -> None:
    """vLLM answers with the first part of it, and `stop`."""
    fault = found(BATCH, {"stream": True, "messages": []})
    assert fault is not None
    assert fault.path == "stream"
    assert found(BATCH, {"stream": False, "messages": []}) is None
    assert found(CHAT, {"stream": True, "messages": []}) is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("structured_outputs", {"structured_outputs": {"json": {"description": "x" * 3 * MOST}}}),
        ("response_format", {"response_format": {"type": "json_object", "x": "x" * 3 * MOST}}),
        ("tools", {"tools": [TOOL] * MOST, "tool_choice": "required"}),
        ("tools", {"tools": [TOOL] * MOST + [STRICT]}),
        ("tools", {"tools": [TOOL] * MOST, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ],
)
def test_what_is_too_large_is_refused_before_anybody_reads_it(path: str, body: Any) -> None:
    """30,000 tools held up all other requests for 7 s, and were refused then."""
    fault = found(CHAT, body)
    assert fault is not None
    assert (fault.path, fault.code) == (path, ErrorCode.GRAMMAR_TOO_LARGE)
    assert found(CHAT, body, most_bytes=1 << 20) != fault


def test_what_tools_become_is_not_called_by_a_name_that_the_client_does_not_know() -> None:
    exchange = HttpExchange(trace.begin([], 1.0), "POST", CHAT)
    exchange.place = "tools"
    said = "structural_tag has 279125 bytes; at most 262144 are allowed"
    told = client_paths.translated(GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, said, path="$"), exchange)
    assert "structural_tag" not in told.message
    assert "279125" in told.message
    assert told.path == "tools"


@pytest.mark.parametrize("strict", [True, "true", 1])
def test_strict_is_what_vllm_takes_for_true(strict: Any) -> None:
    function = {"name": "f", "parameters": {"type": "objct"}, "strict": strict}
    fault = found(CHAT, {"tools": [{"type": "function", "function": function}]})
    assert fault is not None
    assert fault.path == "tools[0].function.parameters.type"


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_tools_that_become_no_grammar_may_be_large(choice: Any) -> None:
    assert found(CHAT, {"tools": [TOOL] * MOST, "tool_choice": choice}) is None


@pytest.mark.parametrize(
    ("route", "path", "body"),
    [
        (GENERATE, "vllm_xargs.guided_grammar", {"vllm_xargs": {"guided_grammar": "x"}}),
        (GENERATE, "vllm_xargs.structured_outputs", {"vllm_xargs": {"structured_outputs": {"json": SCHEMA}}}),
        (
            GENERATE,
            "sampling_params.extra_args.response_format",
            {"sampling_params": {"extra_args": {"response_format": SCHEMA}}},
        ),
        (CHAT, "vllm_xargs.structured_outputs", {"vllm_xargs": {"structured_outputs": "x"}}),
        (CHAT, "vllm_xargs.response_format", {"vllm_xargs": {"response_format": "json"}}),
        (CHAT, "vllm_xargs.Guided_Grammar", {"vllm_xargs": {"Guided_Grammar": "x"}}),
        (COMPLETIONS, "tools", {"tools": [STRICT]}),
        (GENERATE, "tools", {"tools": [STRICT]}),
        (SCORING, "structured_outputs", {"structured_outputs": {"json": SCHEMA}}),
        (SCORING, "response_format", {"response_format": {"type": "json_object"}}),
        (SCORING, "guided_json", {"guided_json": SCHEMA}),
    ],
)
def test_a_constraint_that_nobody_reads_is_told(route: str, path: str, body: Any) -> None:
    fault = found(route, body)
    assert fault is not None
    assert fault.path == path


@pytest.mark.parametrize(
    ("route", "body"),
    [
        (CHAT, {"vllm_xargs": {"guided_grammar": "x", "guided_backend": "guidance"}}),
        (CHAT, {"vllm_xargs": {"regex": "a processor's own", "pattern": "x", "bias": 2}}),
        (GENERATE, {"sampling_params": {"extra_args": {"guided_grammar": "x"}}}),
        (COMPLETIONS, {"tools": [TOOL]}),
        (COMPLETIONS, {"tools": [{**TOOL, "strict": False}, {**TOOL, "strict": None}]}),
        (SCORING, {"query": "x", "items": ["a"]}),
    ],
)
def test_what_is_read_or_asks_for_nothing_goes_on(route: str, body: Any) -> None:
    assert found(route, body) is None


def test_an_error_does_not_quote_a_client_at_length() -> None:
    exchange = HttpExchange(trace.begin([], 1.0), "POST", CHAT)
    error = GuidedError(ErrorCode.REQUEST_INVALID, "x" * 50_000, path="p" * 50_000)
    start, body = error_responses.response(error, exchange)
    assert len(body["body"]) < 4000
    assert int(dict(start["headers"])[b"content-length"]) == len(body["body"])
