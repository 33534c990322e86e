"""What is checked in plain Python: schemas, their paths, and which backends may serve them."""

import json
import time
from typing import Any

import pytest

from guided_contract.backends import NAMES
from guided_contract.errors import GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_sidecar.grammar import worker_errors
from guided_sidecar.grammar.compile import routing
from guided_sidecar.grammar.schema import schema


def test_schemas_are_found_in_structural_tags_of_both_forms() -> None:
    inner = {"type": "object", "properties": {"schema": {"uniqueItems": True}}}
    new = {"format": {"elements": [{"type": "json_schema", "json_schema": inner}, {"type": "any_text"}]}}
    old = {"structures": [{"begin": "<f>", "schema": inner, "end": "</f>"}], "triggers": ["<f"]}

    for tag, path in ((new, "$.format.elements[0].json_schema"), (old, "$.structures[0].schema")):
        changed = subschemas.with_each_of_tag(tag, lambda way, found: [str(way), found])
        assert json.dumps(changed) == json.dumps(tag).replace(json.dumps(inner), json.dumps([path, inner]))


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        (
            {"properties": {"a": {"type": "strng"}}},
            "$.properties.a.type",
            '"strng" is not a JSON type; those are array',
        ),
        ({"type": ["string", "nil"]}, "$.type[1]", '"nil"'),
        ({"minLength": -1}, "$.minLength", "-1 is less than 0"),
        ({"allOf": []}, "$.allOf", "[]"),
        (
            {"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}},
            "$.properties.a.minLength",
            "no string has at least 3 and at most 2 characters",
        ),
        ({"properties": {"type": "text"}}, "$.properties.type", '"text" is not an object or a boolean'),
        ({"$ref": None}, "$.$ref", "null is not a string"),
        ({"$defs": {"a": {"title": False}}}, "$.$defs.a.title", "false is not a string"),
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


def test_thousands_of_faults_are_told_as_one() -> None:
    """Looking for the best of 9,000 once took 4 s, and the client was told of a timeout."""
    text = {"properties": {f"p{number}": {"type": 5} for number in range(9000)}}
    began = time.process_time()
    with pytest.raises(GuidedError) as refusal:
        schema.check(text)
    assert time.process_time() - began < 2
    assert refusal.value.message.startswith("$.properties.p0.type: 5 is not a JSON type; those are array, ")


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
    ("kind", "first"), [("json", "guidance"), ("regex", "guidance"), ("grammar", "xgrammar")]
)
def test_auto_asks_one_library_first_for_each_kind(kind: Kind, first: str) -> None:
    assert next(iter(routing.preferred(kind, NAMES.values()))) == first


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
