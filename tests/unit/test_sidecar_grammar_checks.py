"""What is checked in plain Python: limits, schemas, and what each backend can enforce."""

import json
from typing import Any

import pytest

from guided_contract.backends import NAMES
from guided_contract.config import CompileConfig
from guided_contract.errors import GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_sidecar.grammar import worker_errors
from guided_sidecar.grammar.compile import routing
from guided_sidecar.grammar.schema import limits, schema

LIMITS = CompileConfig(max_schema_bytes=1000, max_depth=5)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("json", '{"a": "\\u00e4"}', '{ "a" :\n"ä" }'),
        ("choice", '["a","b"]', '[ "a", "b" ]'),
        ("structural_tag", '{"type":"x"}', '{"type" : "x"}'),
        ("json_object", "", "anything"),
    ],
)
def test_specs_that_mean_the_same_are_the_same(kind: Kind, one: str, other: str) -> None:
    assert limits.canonical(kind, one, LIMITS) == limits.canonical(kind, other, LIMITS)


def test_schemas_are_found_in_structural_tags_of_both_forms() -> None:
    inner = {"type": "object", "properties": {"schema": {"uniqueItems": True}}}
    new = {"format": {"elements": [{"type": "json_schema", "json_schema": inner}, {"type": "any_text"}]}}
    old = {"structures": [{"begin": "<f>", "schema": inner, "end": "</f>"}], "triggers": ["<f"]}

    assert [(str(way), found) for way, found in subschemas.in_tag(new)] == [
        ("$.format.elements[0].json_schema", inner)
    ]
    assert [(str(way), found) for way, found in subschemas.in_tag(old)] == [("$.structures[0].schema", inner)]


def test_the_order_of_properties_matters() -> None:
    one, other = '{"a": {}, "b": {}}', '{"b": {}, "a": {}}'

    assert limits.canonical("json", one, LIMITS) != limits.canonical("json", other, LIMITS)


@pytest.mark.parametrize("kind", ["regex", "grammar"])
def test_texts_stay_as_they_are(kind: Kind) -> None:
    assert limits.canonical(kind, "a  b\n", LIMITS) == "a  b\n"


@pytest.mark.parametrize(
    ("kind", "spec", "code"),
    [
        ("json", json.dumps("x" * 1000), "grammar_too_large"),
        ("regex", "ä" * 501, "grammar_too_large"),
        ("json", "[" * 400 + "]" * 400, "grammar_too_large"),
        ("json", '{"a":[[[[[1]]]]]}', "grammar_too_large"),
        ("json", "1" * 999, "grammar_invalid"),
        ("json", '"text"', "grammar_invalid"),
        ("json", '{"a": Infinity}', "grammar_invalid"),
        ("json", '{"a": -1e400}', "grammar_invalid"),
        ("regex", "\ud800", "grammar_invalid"),
        ("choice", '{"a": 1}', "grammar_invalid"),
        ("structural_tag", "[]", "grammar_invalid"),
    ],
)
def test_what_exceeds_a_limit_or_is_not_json_is_refused(kind: Kind, spec: str, code: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        limits.canonical(kind, spec, LIMITS)

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
        limits.canonical(kind, text, COUNTED)

    assert (refusal.value.code, refusal.value.path) == ("grammar_too_large", path)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("json", {"properties": {"a": {}, "b": {"enum": [1, 2, 3, 4]}, "c": {"pattern": "aaaaa"}}}),
        ("json", {"const": {"properties": dict.fromkeys("abcdef"), "enum": [1] * 9, "pattern": "a" * 9}}),
        ("json", {"properties": {"enum": {"type": "null"}, "pattern": {"type": "null"}}}),
        ("json", {"properties": 5, "enum": "aaaaaaaaaaaaaaa", "pattern": ["a"] * 20}),
        ("choice", list("abcd")),
        ("regex", "aaaaa"),
        ("grammar", "start: /aaaaaaaaaaaaaaaaaaaa/"),
    ],
)
def test_what_holds_just_enough_passes(kind: Kind, spec: Any) -> None:
    limits.canonical(kind, spec if isinstance(spec, str) else json.dumps(spec), COUNTED)


@pytest.mark.parametrize(
    ("value", "levels"), [(1, 0), ([], 1), ({"a": []}, 2), ([1, [2, [3]]], 3), ({"a": 1, "b": {"c": {}}}, 3)]
)
def test_depth_counts_objects_and_arrays(value: Any, levels: int) -> None:
    assert limits.depth(value) == levels


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        (
            {"properties": {"a": {"type": "strng"}}},
            "$.properties.a.type",
            "'strng' is not a JSON type; those are array",
        ),
        ({"type": ["string", "nil"]}, "$.type[1]", "'nil'"),
        ({"minLength": -1}, "$.minLength", "-1 is less than the minimum of 0"),
        ({"allOf": []}, "$.allOf", "[]"),
        (
            {"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}},
            "$.properties.a.minLength",
            "no string has at least 3 and at most 2 characters",
        ),
        ({"properties": {"type": "text"}}, "$.properties.type", "'text' is not of type 'object', 'boolean'"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": 1}, "$.items", "1"),
        ({"items": {"$ref": "#/$defs/gone"}}, "$.items.$ref", "does not exist"),
    ],
)
def test_an_invalid_schema_names_the_keyword(text: Any, path: str, words: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        schema.check(text)

    assert refusal.value.code == "grammar_invalid"
    assert refusal.value.path == path
    assert words in refusal.value.message


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(GuidedError) as refusal:
        schema.check({"required": "x" * 10_000})

    assert len(refusal.value.message) < 500


@pytest.mark.parametrize(
    "text",
    [
        True,
        {},
        {"properties": {"not": {"type": "string"}, "$ref": {"type": "null"}}},
        {"$defs": {"a/b": {"type": "null"}}, "$ref": "#/$defs/a~1b"},
        {"$ref": "#"},
        {"type": ["string", "null"], "minLength": 3, "maxLength": 2},
        {"type": "string", "minLength": 2, "maxLength": 2},
        {"items": [{"type": "null"}], "$schema": "http://json-schema.org/draft-07/schema#"},
    ],
)
def test_a_valid_schema_passes(text: Any) -> None:
    schema.check(text)


@pytest.mark.parametrize(
    ("kind", "spec", "order"),
    [
        ("json", {"type": "string", "maxLength": 9}, ["guidance", "xgrammar"]),
        ("json", {"type": "integer", "maxLength": 9}, ["xgrammar", "guidance"]),
        ("json", {"properties": {str(n): {} for n in range(40)}}, ["guidance", "xgrammar"]),
        ("json", {"properties": {str(n): True for n in range(40)}}, ["guidance", "xgrammar"]),
        ("json", {"properties": {str(n): {} for n in range(8)}}, ["guidance", "xgrammar"]),
        ("json", {"properties": {str(n): {} for n in range(7)}}, ["xgrammar", "guidance"]),
        (
            "json",
            {"properties": {str(n): {} for n in range(16)}, "required": [str(n) for n in range(16)]},
            ["xgrammar", "guidance"],
        ),
        ("json", {"properties": {"a": {}}, "additionalProperties": True}, ["guidance", "xgrammar"]),
        ("json", {"properties": {"a": {}}, "patternProperties": {"^x": {}}}, ["guidance", "xgrammar"]),
        ("json", {"properties": {"a": {}}, "additionalProperties": False}, ["xgrammar", "guidance"]),
        ("json", {"additionalProperties": {"type": "string"}}, ["xgrammar", "guidance"]),
        ("json", {"type": "string", "format": "email"}, ["guidance", "xgrammar"]),
        ("json", {"type": "string", "format": "date"}, ["xgrammar", "guidance"]),
        ("json", {"type": "string", "pattern": "^[a-z ]+$"}, ["guidance", "xgrammar"]),
        ("json", {"type": "string", "pattern": "^[0-9]{3}$"}, ["xgrammar", "guidance"]),
        ("regex", "[A-Z][a-z0-9]{1,9}", ["guidance", "xgrammar"]),
        ("regex", "[A-Z]-[0-9]+", ["xgrammar", "guidance"]),
        ("regex", r"[a-z]+@\w+", ["xgrammar", "guidance"]),
        ("regex", "[a-z]+.", ["xgrammar", "guidance"]),
        ("regex", r"[a-z]+\.", ["guidance", "xgrammar"]),
        ("grammar", "root ::= [a-z]+", ["xgrammar", "guidance"]),
        ("regex", "a{1,200}", ["xgrammar", "guidance"]),
        ("grammar", "start: /a{1,200}/", ["xgrammar", "guidance"]),
    ],
)
def test_auto_follows_its_table(kind: Kind, spec: Any, order: list[str]) -> None:
    assert routing.by_cost(kind, spec, NAMES.values()) == order


def test_paths_are_jsonpath() -> None:
    odd = {"properties": {"a b": {"$defs": {"it's": {}}}}, "prefixItems": [{"items": {}}]}

    assert [place.path for place in subschemas.walk(odd)] == [
        "$",
        "$.properties['a b']",
        "$.properties['a b'].$defs['it\\'s']",
        "$.prefixItems[0]",
        "$.prefixItems[0].items",
    ]


def test_what_is_within_is_what_a_walk_meets() -> None:
    odd = {
        "properties": {"properties": {"items": [{"not": {}}, True]}, "items": {"type": "string"}},
        "items": {"anyOf": [{}, {"$defs": {"a": {"if": {}, "then": {"else": False}}}}]},
        "prefixItems": [{"enum": [{"items": {}}], "const": {"not": {}}}],
        "allOf": {"not a list": {}},
        "not": [{}],
        "default": {"properties": {"a": {}}},
    }
    walked = [id(place.schema) for place in subschemas.walk(odd)]
    found = [id(part) for part in subschemas.within(odd)]
    assert sorted(found) == sorted(walked)
    assert found[0] == id(odd)
    assert subschemas.within(True) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (9, "killed by SIGKILL"),
        (256, "exited with 1"),
        (0, "exited with 0"),
        (None, "ended with its template"),
    ],
)
def test_a_death_is_told_in_words(status: int | None, words: str) -> None:
    assert worker_errors.describe(status) == words
