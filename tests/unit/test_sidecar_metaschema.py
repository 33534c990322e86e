"""The short way past jsonschema's metaschema: what it lets through, jsonschema lets through."""

from typing import Any

import jsonschema
import pytest

from guided_sidecar.grammar.schema import metaschema

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 0.5, 2.0, -0.5, 1e300, "", "a", "string", "integer", "#/$defs/a", "#"),
    *([], ["a"], ["a", "a"], ["string", "null"], ["string", "string"], [1], [True], [{}], [{}, 1], [[]]),
    *({}, {"a": {}}, {"a": True}, {"a": 1}, {"a": []}, {"a": ["b"]}, {"a": ["b", "b"]}),
    *({"type": "string"}, {"type": "strng"}, {"a": {"type": 1}}, [{"type": "x"}], {"minimum": "x"}),
]
DIALECTS = [None, DRAFT_7, "http://json-schema.org/draft-04/schema#", 5, "x"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_plainly_met_is_met(dialect: Any) -> None:
    named = {} if dialect is None else {"$schema": dialect}
    judge = jsonschema.Draft7Validator if dialect == DRAFT_7 else jsonschema.Draft202012Validator
    newest = [keyword for keyword, _ in metaschema._FIELDS]
    met = 0
    for keyword in {*newest, "$vocabulary", "const", *jsonschema.Draft7Validator.META_SCHEMA["properties"]}:
        for value in VALUES:
            for schema in ({**named, keyword: value}, {**named, "properties": {"p": {keyword: value}}}):
                if metaschema.is_plainly_met(schema):
                    met += 1
                    assert judge(judge.META_SCHEMA).is_valid(schema), schema
    assert (met > 300) == (dialect in {None, DRAFT_7})
