"""What is taken out of a schema whose sender allows that some of it is not enforced."""

from typing import Any

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.compile.allowance import MOST, Allowance
from guided_sidecar.grammar.compile.reading import WHOLE

NOT = {"not": {"pattern": "a(?=b)"}}
STRING = {"type": "string"}


def unsupported(path: str | None) -> GuidedError:
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, "no", path=path)


def taken(value: Any, path: str, kind: Any = "json") -> tuple[Any, list[str]]:
    allowance = Allowance(kind, value)
    allowance.take_out(unsupported(path))
    assert WHOLE not in allowance.taken
    return allowance.written, [one.path for one in allowance.taken]


def is_whole(allowance: Allowance, path: str | None) -> bool:
    """Return whether nothing is left to take out after what a path names."""
    allowance.take_out(unsupported(path))
    return allowance.taken == [WHOLE]


def is_covered(allowance: Allowance, error: GuidedError) -> bool:
    try:
        allowance.take_out(error)
    except GuidedError as raised:
        return raised is not error
    return True


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
            "$.patternProperties and $.additionalProperties",
        ),
        (
            {"propertyNames": NOT, "unevaluatedProperties": False},
            "$.propertyNames",
            {"unevaluatedProperties": False},
            "$.propertyNames",
        ),
        ({"propertyNames": NOT}, "$.propertyNames.not", {"propertyNames": {}}, "$.propertyNames.not"),
        ({"propertyNames": NOT}, "$.propertyNames", {"additionalProperties": True}, "$.propertyNames"),
        ({"properties": {"a": STRING}, "x": 1}, "$.properties.a", {"x": 1}, "$.properties"),
        ({"required": ["a"], "x": 1}, "$.required[0]", {"x": 1}, "$.required"),
    ],
)
def test_a_keyword_is_taken_out_and_told(schema: Any, path: str, left: Any, told: str) -> None:
    assert taken(schema, path) == (left, told.split(" and "))


def test_of_a_structural_tag_only_a_schema_is_weakened() -> None:
    tag = {
        "structures": [{"begin": "<a>", "schema": {**STRING, "pattern": "x"}, "end": "</a>"}],
        "triggers": ["<"],
    }
    left, told = taken(tag, "$.structures[0].schema.pattern", "structural_tag")
    assert (left["structures"][0]["schema"], told) == (STRING, ["$.structures[0].schema.pattern"])
    assert is_whole(Allowance("structural_tag", tag), "$.structures[0].begin")


@pytest.mark.parametrize("path", ["$", None])
def test_what_is_no_keyword_is_left_to_vllms_own_compile(path: str | None) -> None:
    allowance = Allowance("json", {**STRING, **NOT})
    assert not is_whole(allowance, "$.not")
    assert is_whole(allowance, path)
    assert allowance.written == {**STRING, **NOT}
    assert is_whole(Allowance("regex", "a"), "$.not")


def test_what_comes_again_is_left_to_vllms_own_compile_and_so_is_much() -> None:
    allowance = Allowance("json", {**STRING, **NOT})
    assert not is_whole(allowance, "$.not")
    assert is_whole(allowance, "$.not")
    assert not is_covered(allowance, unsupported("$.not"))
    many = Allowance("json", {"properties": {f"a{n}": NOT for n in range(MOST + 1)}})
    assert [is_whole(many, f"$.properties.a{n}.not") for n in range(MOST + 1)] == [False] * MOST + [True]


def test_a_broken_schema_a_limit_and_a_librarys_options_are_not_allowed() -> None:
    allowance = Allowance("json", {**STRING, **NOT})
    assert not is_covered(allowance, unsupported("$.properties.a['x-guidance']"))
    for code in set(ErrorCode) - {ErrorCode.GRAMMAR_UNSUPPORTED}:
        assert not is_covered(allowance, GuidedError(code, "no", path="$.not"))
    assert is_covered(allowance, unsupported("$.not"))
    for code in (ErrorCode.GRAMMAR_INVALID, ErrorCode.GRAMMAR_DEAD_END):
        assert is_covered(allowance, GuidedError(code, "no value is left", path="$.type"))
