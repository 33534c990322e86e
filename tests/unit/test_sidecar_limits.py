"""What of a text is refused before anybody compiles it: its size, depth and content, and what is no JSON."""

import json
from typing import Any

import pytest

from guided_contract.config import CompileConfig
from guided_contract.errors import GuidedError
from guided_contract.wire import Kind
from guided_sidecar.grammar.prepare import jobs
from guided_sidecar.grammar.schema import limits

LIMITS = CompileConfig(max_depth=5)


@pytest.mark.parametrize(
    ("kind", "spec", "code"),
    [
        ("json", json.dumps("x" * 999), "grammar_too_large"),
        ("regex", "ä" * 501, "grammar_too_large"),
        ("regex", "\ud800", "grammar_invalid"),
    ],
)
def test_the_service_refuses_what_is_too_long_or_no_text(kind: Kind, spec: str, code: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        jobs.taken(kind, spec, 1000)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("choice", '["a", "b\ufffd"]'),
        ("choice", '["\\ufffd"]'),
        ("regex", "a\ufffd"),
        ("grammar", 'root ::= "\ufffd"'),
    ],
)
def test_a_character_that_vllm_drops_is_not_promised(kind: Kind, spec: str) -> None:
    """It takes it for a part of a character that is not whole yet, and at the end of a text none comes."""
    with pytest.raises(GuidedError, match="U\\+FFFD") as refusal:
        limits.parsed(kind, spec, CompileConfig())
    assert refusal.value.code == "grammar_unsupported"
    assert limits.parsed("json", '{"enum": ["\ufffd"]}', CompileConfig())


def test_the_service_takes_a_text_as_it_is() -> None:
    """Reading it is a worker's: a long one would hold up all others."""
    assert jobs.taken("json", "{" * 1000, 1000) == "{" * 1000
    assert not jobs.taken("json_object", "anything", 1000)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [("json", '{"a": "\\u00e4"}', '{ "a" :\n"ä" }'), ("choice", '["a","b"]', '[ "a", "b" ]')],
)
def test_specs_that_mean_the_same_are_the_same(kind: Kind, one: str, other: str) -> None:
    assert limits.parsed(kind, one, LIMITS) == limits.parsed(kind, other, LIMITS)


@pytest.mark.parametrize(
    ("kind", "spec", "code"),
    [
        ("json", "[" * 400 + "]" * 400, "grammar_too_large"),
        ("json", '{"a":[[[[[1]]]]]}', "grammar_too_large"),
        ("json", "1" * 999, "grammar_invalid"),
    ],
)
def test_what_exceeds_a_limit_or_is_not_json_is_refused(kind: Kind, spec: str, code: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        limits.parsed(kind, spec, LIMITS)

    assert refusal.value.code == code


COUNTED = CompileConfig(max_properties=3, max_enum=4, max_regex_chars=5)


TAG = {"structures": [{"begin": "<f>", "schema": {"enum": [1] * 5}, "end": "</f>"}], "triggers": ["<f"]}


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("json", {"properties": {name: {} for name in "abcd"}}, "$.properties"),
        (
            "json",
            {"properties": {"a": {"properties": {"b": {}, "c": {}, "d": {}}}}},
            "$.properties.a.properties",
        ),
        ("json", {"patternProperties": {name: {} for name in "abcd"}}, "$.patternProperties"),
        ("json", {"items": {"enum": [1, 2, 3, 4, 5]}}, "$.items.enum"),
        ("json", {"$defs": {"a b": {"pattern": "aaaaaa"}}}, "$.$defs['a b'].pattern"),
        ("structural_tag", TAG, "$.structures[0].schema.enum"),
        ("choice", list("abcde"), "$"),
        ("regex", "aaaaaa", None),
    ],
)
def test_what_holds_too_much_is_refused_with_its_path(kind: Kind, spec: Any, path: str | None) -> None:
    text = spec if isinstance(spec, str) else json.dumps(spec)

    with pytest.raises(GuidedError) as refusal:
        limits.parsed(kind, text, COUNTED)

    assert (refusal.value.code, refusal.value.path) == ("grammar_too_large", path)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("json", {"properties": {"a": {}, "b": {"enum": [1, 2, 3, 4]}, "c": {"pattern": "aaaaa"}}}),
        ("json", {"const": {"properties": dict.fromkeys("abcdef"), "enum": [1] * 9, "pattern": "a" * 9}}),
        ("json", {"properties": {"enum": {"type": "null"}, "pattern": {"type": "null"}}}),
        ("json", {"properties": 5, "enum": "aaaaaaaaaaaaaaa", "pattern": ["a"] * 20}),
        ("grammar", "start: /aaaaaaaaaaaaaaaaaaaa/"),
    ],
)
def test_what_holds_just_enough_passes(kind: Kind, spec: Any) -> None:
    limits.parsed(kind, spec if isinstance(spec, str) else json.dumps(spec), COUNTED)


def test_rules_of_a_lark_grammar_are_bounded() -> None:
    """Five thousand in a row end the process of a library that follows them."""

    def row(count: int, sign: str) -> str:
        return "\n".join(f"?a{number}.2 {sign} a{number + 1}" for number in range(count))

    limits.parsed("grammar", row(1500, ":"), LIMITS)
    limits.parsed("grammar", row(5000, "::="), LIMITS)
    with pytest.raises(GuidedError) as refusal:
        limits.parsed("grammar", row(5000, ":"), LIMITS)
    assert refusal.value.code == "grammar_too_large"
    assert refusal.value.message == "5000 rules exceed the limit of 1500"
