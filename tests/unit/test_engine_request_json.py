"""Bodies that Python can read, though they say two things, or nothing: told with the place where they do."""

import json
import tracemalloc
from typing import Any

import pytest

from guided_engine.admission import request_checks
from guided_engine.admission.gate import ROUTES
from guided_engine.admission.request_body import keys_of
from guided_engine.admission.request_fault import Fault


def found(text: bytes, route: str = "/v1/chat/completions") -> Fault | None:
    keys = keys_of(text)
    assert keys is not None
    return request_checks.fault(route, text, keys, 1 << 18)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"prompt": "x", "response_format": {}, "response_format": null}', "response_format"),
        (b'{"prompt":"x","prompt":"y"}', "prompt"),
        (b' {"n": 1, "n" : 1}\n', "n"),
        (
            b'{"structured_outputs": {"regex": "a", "regex": "b"}}',
            "structured_outputs.regex",
        ),
        (
            b'{"structured_outputs": {"json": {"type": "string", "type": "null"}}}',
            "structured_outputs.json.type",
        ),
        (
            b'{"tools": [{"function": {"parameters": {"properties": {"a b": 1, "a\\u0020b": 2}}}}]}',
            "tools[0].function.parameters.properties['a b']",
        ),
    ],
)
def test_a_key_twice(text: bytes, path: str) -> None:
    fault = found(text)
    assert fault is not None
    assert (fault.path, fault.code) == (path, "request_invalid")
    assert "twice; which one counts is undefined" in fault.message


@pytest.mark.parametrize(
    "text",
    [
        b'{"messages": [{"role": "user", "role": "user"}]}',  # vLLM's own affair
        b'{"a":1,"b":[{"a":1},{"a":1}]}',
        b'{ "a" : 1 ,\n"b": {"a": 1}}',
        '{"ä": 1, "\\u00e4b": 2}'.encode(),
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_keys_that_count(text: bytes) -> None:
    assert found(text) is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"stop": "\\ud800"}', "stop"),
        (b'{"vllm_xargs": {"\\ud800": 1}}', "vllm_xargs"),
        (b'{"vllm_xargs": {"a": ["\\uDFFF"]}}', "vllm_xargs.a[0]"),
        (b'{"structured_outputs": {"regex": "\\ud83d"}}', "structured_outputs.regex"),
        (b'{"messages": [{"content": "\\ude00\\ud83d"}]}', "messages[0].content"),
        (b'{"stop": "\xed\xa0\x80"}', "stop"),
        ('{"stop": "\\ud800"}'.encode("utf-16"), "stop"),
    ],
)
def test_half_of_a_surrogate_pair(text: bytes, path: str) -> None:
    fault = found(text)
    assert fault is not None
    assert (fault.path, fault.code) == (path, "request_invalid")
    assert "is no text" in fault.message


@pytest.mark.parametrize("text", [b'"\\ud83d\\ude00"', b'"\\\\ud800"', '"😀"'.encode()])
def test_whole_pairs_are_text(text: bytes) -> None:
    assert found(b'{"stop": %s, "structured_outputs": {"regex": %s}}' % (text, text)) is None


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
def test_numbers_that_are_none(number: bytes) -> None:
    fault = found(b'{"structured_outputs": {"json": {"enum": [1, %s]}}}' % number)
    assert fault is not None
    assert fault.path == "structured_outputs.json.enum[1]"
    assert "NaN, Infinity and numbers beyond 1.8e308 are not JSON" in fault.message
    assert found(b'{"prompt": "x", "temperature": %s}' % number) is None


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_long_prompt_is_not_read(separators: Any) -> None:
    """As it would be into objects that take many times its length."""
    body = {"model": "m", "prompt": list(range(300_000)), "max_tokens": 3}
    text = json.dumps(body, separators=separators).encode()
    tracemalloc.start()
    try:
        assert found(text) is None
        assert tracemalloc.get_traced_memory()[1] < 4 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_deep_values_are_left_to_others(route: str) -> None:
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    assert found(b'{"vllm_xargs": %s, "metadata": %s}' % (deep, deep), route) is None
