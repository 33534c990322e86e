"""What says nothing about instances leaves a schema before a library reads it; what says something stays."""

import copy
import json
import random
from typing import Any

import jsonschema
import pytest

from guided_contract.errors import GuidedError
from guided_sidecar.grammar.schema import annotations

SEED = 5
WORD = {"type": "string", "minLength": 1}


@pytest.mark.parametrize(
    ("schema", "left"),
    [
        ({"type": "string", "format": "password"}, {"type": "string"}),
        ({"type": "integer", "format": "int32"}, {"type": "integer"}),
        ({"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}),
        ({"type": "object", "nullable": True, "x-order": 1, "example": {}}, {"type": "object"}),
        ({"id": "http://x", "title": "t", "$comment": "c", **WORD}, WORD),
        ({"properties": {"example": {"title": "t"}}}, {"properties": {"example": {}}}),
        (
            {"const": {"title": "t"}, "enum": [{"title": "t"}]},
            {"const": {"title": "t"}, "enum": [{"title": "t"}]},
        ),
        (
            {"$ref": "#/x-kept/a~1b", "x-kept": {"a/b": WORD}, "x-gone": 1},
            {"$ref": "#/x-kept/a~1b", "x-kept": {"a/b": WORD}},
        ),
        ({"contentEncoding": "base64", "contentMediaType": "a/b", "contentSchema": {}, **WORD}, WORD),
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema"},
            {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        ),
        ({"anyOf": [{"deprecated": True}, {"not": {"default": 1}}]}, {"anyOf": [{}, {"not": {}}]}),
    ],
)
def test_what_says_nothing_is_gone(schema: Any, left: Any) -> None:
    annotations.drop(schema)
    assert schema == left


def test_options_of_one_library_are_refused_with_their_path() -> None:
    hostile = {"properties": {"a": {"x-guidance": {"lenient": True}, "not": {}}}}
    with pytest.raises(GuidedError) as refusal:
        annotations.drop(hostile)
    assert (refusal.value.code, refusal.value.path) == ("grammar_unsupported", "$.properties.a['x-guidance']")


def drawn(chance: random.Random, depth: int = 3) -> Any:
    """Return a schema of all keywords that a validator judges by, with annotations strewn in."""
    inner = lambda: drawn(chance, depth - 1) if depth else chance.choice([True, {}, WORD])  # noqa: E731
    made: dict[str, Any] = {}
    keywords = {
        "type": lambda: chance.choice(["string", "object", "array", "integer", ["null", "string"]]),
        "enum": lambda: [1, "a", None, {"title": "t"}],
        "properties": lambda: {"a": inner(), "title": inner()},
        "patternProperties": lambda: {"^x": inner()},
        "additionalProperties": inner,
        "propertyNames": lambda: {"maxLength": 5},
        "required": lambda: ["a"],
        "items": inner,
        "prefixItems": lambda: [inner(), inner()],
        "contains": inner,
        "minContains": lambda: 2,
        "maxItems": lambda: 2,
        "uniqueItems": lambda: True,
        "minLength": lambda: 2,
        "pattern": lambda: "a",
        "minimum": lambda: 1,
        "multipleOf": lambda: 2,
        "anyOf": lambda: [inner(), inner()],
        "oneOf": lambda: [inner(), inner()],
        "not": inner,
        "if": inner,
        "then": inner,
        "dependentRequired": lambda: {"a": ["b"]},
        "dependentSchemas": lambda: {"a": inner()},
        "unevaluatedProperties": inner,
        "minProperties": lambda: 1,
    }
    for name in chance.sample(list(keywords), chance.randrange(5)):
        made[name] = keywords[name]()
    for name in chance.sample(["title", "nullable", "x-a", "example", "default", "id", "format"], 2):
        made[name] = chance.choice(["a", "date"])
    return made


def test_nothing_that_a_validator_judges_by_is_lost() -> None:
    chance = random.Random(SEED)
    texts = [
        '"a"',
        '"ab"',
        "1",
        "2",
        "null",
        "[]",
        "[1, 1]",
        '["a", 2, {}]',
        "{}",
        '{"a": 1}',
        '{"title": "b"}',
    ]
    texts += ['{"xa": null, "a": "aa"}', '{"a": 1, "b": 2}', "true", '{"long name": []}']
    for number in range(400):
        schema = drawn(chance)
        dropped = copy.deepcopy(schema)
        annotations.drop(dropped)
        before, after = (jsonschema.Draft202012Validator(one) for one in (schema, dropped))
        for text in texts:
            value = json.loads(text)
            assert before.is_valid(value) == after.is_valid(value), (SEED, number, schema, text)
