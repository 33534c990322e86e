"""What a reference names below no keyword, as OpenAPI's components: it is checked as the schema around it."""

import json
from typing import Any

import jsonschema
import pytest

from guided_contract.errors import GuidedError
from guided_sidecar.grammar.compile import reading

DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def test_what_stands_below_no_keyword_is_checked_once_and_as_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenAPI's components: jsonschema, asked of each with all below it, took two thirds of the time."""
    parts = {"a": {"properties": {"b": {"$ref": "#/components/schemas/b"}}}, "b": {"type": "string"}}
    text = {"$ref": "#/components/schemas/a", "components": {"schemas": parts}}
    monkeypatch.setattr(jsonschema.Draft202012Validator, "iter_errors", lambda *_: pytest.fail("asked"))
    assert reading.read("json", text).schemas
    monkeypatch.undo()
    parts["b"]["type"] = "strng"
    with pytest.raises(GuidedError, match='"strng" is not a JSON type') as refusal:
        reading.read("json", text)
    assert refusal.value.path == "$.components.schemas.b.type"
    assert refusal.value.code == "grammar_invalid"


@pytest.mark.parametrize("dialect", [None, DRAFT_4, "http://json-schema.org/draft-07/schema#"])
@pytest.mark.parametrize(
    "part",
    [
        {"$id": 5},
        {"properties": {"x": {"$id": []}}},
        {"type": "number", "exclusiveMinimum": True},
        {"dependentRequired": 5},
        {"items": [{"type": "null"}]},
    ],
    ids=json.dumps,
)
def test_what_stands_below_no_keyword_is_a_schema_of_its_roots_dialect(
    part: Any, dialect: str | None
) -> None:
    """It was judged by its own $schema, and read by its root's; a number for $id was a crash."""
    text = {"$ref": "#/components/a", "components": {"a": part}, **({"$schema": dialect} if dialect else {})}
    judge = jsonschema.validators.validator_for(text, default=jsonschema.Draft202012Validator)
    own = {keyword: value for keyword, value in part.items() if keyword != "$schema"}
    if judge(judge.META_SCHEMA).is_valid(own):
        assert reading.read("json", text).schemas
    else:
        with pytest.raises(GuidedError) as refusal:
            reading.read("json", text)
        assert refusal.value.path is not None
        assert refusal.value.path.startswith("$.components.a")
