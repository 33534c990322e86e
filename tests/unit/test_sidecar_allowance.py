"""What is taken out of a schema whose sender allows that some of it is not enforced."""

import json
from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.compile.allowance import MOST, Allowance

NOT = {"not": {"pattern": "a(?=b)"}}
STRING = {"type": "string"}


def unsupported(path: str | None) -> GuidedError:
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, "no", path=path)


def taken(value: Any, path: str, kind: Any = "json") -> tuple[Any, list[str]]:
    allowance = Allowance(kind, json.dumps(value))
    text = allowance.without(unsupported(path))
    assert text is not None
    return json.loads(text), [one.path for one in allowance.taken]


@pytest.mark.parametrize(
    ("schema", "path", "left", "told"),
    [
        ({**STRING, "pattern": "a(?=b)"}, "$.pattern", STRING, "$.pattern"),
        (
            {"properties": {"a": {**STRING, "pattern": "x"}, "pattern": STRING}},
            "$.properties.a.pattern",
            {"properties": {"a": STRING, "pattern": STRING}},
            "$.properties.a.pattern",
        ),
        (
            {"properties": {"a b": {"anyOf": [STRING, {"uniqueItems": True}]}}},
            "$.properties['a b'].anyOf[1].uniqueItems",
            {"properties": {"a b": {"anyOf": [STRING, {}]}}},
            "$.properties['a b'].anyOf[1].uniqueItems",
        ),
        ({**STRING, **NOT}, "$.not", STRING, "$.not"),
        ({"oneOf": [STRING, NOT]}, "$.oneOf", {"allOf": [{"anyOf": [STRING, NOT]}]}, "$.oneOf"),
        (
            {"patternProperties": {"(?=a)": STRING}, "additionalProperties": False},
            "$.patternProperties['(?=a)']",
            {"additionalProperties": True},
            "$.patternProperties",
        ),
        ({"propertyNames": NOT}, "$.propertyNames.not", {"propertyNames": {}}, "$.propertyNames.not"),
        ({"propertyNames": NOT}, "$.propertyNames", {"additionalProperties": True}, "$.propertyNames"),
        ({"properties": {"a": STRING}}, "$.properties.a", {"properties": {"a": True}}, "$.properties.a"),
        ({"required": ["a"], "x": 1}, "$.required[0]", {"x": 1}, "$.required"),
    ],
)
def test_a_keyword_is_taken_out_and_told(schema: Any, path: str, left: Any, told: str) -> None:
    assert taken(schema, path) == (left, [told])


def test_of_a_structural_tag_only_a_schema_is_weakened() -> None:
    tag = {
        "structures": [{"begin": "<a>", "schema": {**STRING, "pattern": "x"}, "end": "</a>"}],
        "triggers": ["<"],
    }
    left, told = taken(tag, "$.structures[0].schema.pattern", "structural_tag")
    assert (left["structures"][0]["schema"], told) == (STRING, ["$.structures[0].schema.pattern"])
    allowance = Allowance("structural_tag", json.dumps(tag))
    assert allowance.without(unsupported("$.structures[0].begin")) is None


def test_what_is_no_keyword_or_comes_again_is_left_to_vllms_own_compile() -> None:
    allowance = Allowance("json", json.dumps({**STRING, **NOT}))
    assert allowance.without(unsupported("$")) is None
    assert allowance.without(unsupported(None)) is None
    assert allowance.without(unsupported("$.not")) is not None
    assert allowance.without(unsupported("$.not")) is None
    assert Allowance("regex", "a").without(unsupported("$.not")) is None
    many = Allowance("json", json.dumps({"properties": {f"a{n}": NOT for n in range(MOST + 1)}}))
    texts = [many.without(unsupported(f"$.properties.a{n}.not")) for n in range(MOST + 1)]
    assert all(texts[:-1])
    assert texts[-1] is None


def test_a_broken_schema_a_limit_and_a_librarys_options_are_not_allowed() -> None:
    allowance = Allowance("json", json.dumps(NOT))
    assert allowance.covers(unsupported("$.not"))
    assert not allowance.covers(unsupported("$.properties.a['x-guidance']"))
    for code in set(ErrorCode) - {ErrorCode.GRAMMAR_UNSUPPORTED}:
        assert not allowance.covers(GuidedError(code, "no", path="$.not"))
    allowance.without(unsupported("$.not"))
    assert allowance.covers(GuidedError(ErrorCode.GRAMMAR_INVALID, "no value is left"))
    assert allowance.covers(GuidedError(ErrorCode.GRAMMAR_DEAD_END, "no value is left"))
