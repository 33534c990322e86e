"""What is enforced of JSON Schema: the installed libraries against the table that `Auto` chooses by.

The sample below is ours; the whole of JSON-Schema-Test-Suite runs where a checkout lies beside this one
(FACTS: xgrammar ignores uniqueItems, 2-branch allOf, not, pattern with maxLength, if/then, dependentRequired,
contains; llguidance refuses more schemas).
"""

import os
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from devtools import tinymodel
from schemasuite import keywords, table
from schemasuite.cases import DRAFTS, Case, cases, of
from schemasuite.outcomes import judge
from schemasuite.subjects import Subject, subjects
from schemasuite.typed import typed

from guided_grammar import measured
from guided_grammar.json_schema.keywords import CONSTRAINTS

SUITE = Path(os.environ.get("SUITE") or Path(__file__).parents[3] / "shared/data/json-schema-test-suite")
# keyword, schema, an invalid instance, a valid one
SAMPLE: list[tuple[str, Any, Any, Any]] = [
    ("allOf", {"allOf": [{"type": "integer"}, {"minimum": 3}]}, 2, 4),
    ("anyOf", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, None, "a"),
    ("const", {"const": "a"}, "b", "a"),
    ("dependentRequired",
     {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
     {"a": 1}, {"a": 1, "b": 1}),
    ("enum", {"enum": ["a", 1]}, 2, 1),
    ("exclusiveMaximum", {"type": "integer", "exclusiveMaximum": 3}, 3, 2),
    ("exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 3}, 3, 4),
    ("items", {"type": "array", "items": {"type": "integer"}}, ["a"], [1]),
    ("maxItems", {"maxItems": 1}, [1, 1], [1]),
    ("maxItems, with a fraction", {"type": "array", "items": {}, "maxItems": 1.0}, [1, 1], [1]),
    ("maxLength", {"type": "string", "maxLength": 2}, "abc", "ab"),
    ("minLength", {"type": "string", "minLength": 2}, "a", "ab"),
    ("maxProperties", {"maxProperties": 1}, {"a": 1, "b": 1}, {"a": 1}),
    ("maximum", {"maximum": 3}, 4, 3),
    ("minimum", {"minimum": 3}, 2, 3),
    ("multipleOf", {"type": "number", "multipleOf": 3}, 4, 6),
    ("oneOf", {"oneOf": [{"type": "string"}, {"enum": ["a", 7]}]}, "a", "b"),
    ("pattern", {"pattern": "^a+$"}, "b", "aa"),
    ("patternProperties", {"patternProperties": {"^a": {"type": "integer"}}}, {"a": "b"}, {"a": 1}),
    ("properties", {"properties": {"a": {"type": "integer"}}}, {"a": "b"}, {"a": 1}),
    ("propertyNames", {"propertyNames": {"pattern": "^a"}}, {"b": 1}, {"a": 1}),
    ("required", {"type": "object", "properties": {"a": {}}, "required": ["a", "b"]},
     {"a": 1}, {"a": 1, "b": 1}),
    ("$ref", {"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"type": "integer"}}}, 2, 3),
    ("$ref", {"items": {"$ref": "#a"}, "$defs": {"a": {"$anchor": "a", "type": "integer"}}}, ["a"], [1]),
    ("type", {"type": "integer"}, "a", 1),
    ("unevaluatedProperties", {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
     {"b": 1}, {"a": 1}),
    ("uniqueItems", {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}, [True, True],
     [True]),
]  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    found = subjects(tinymodel.models() / "tiny", tmp_path_factory.mktemp("artefacts"))
    return {subject.name: subject for subject in found}


def sample() -> list[Case]:
    return [
        of(
            "draft2020-12",
            keyword,
            {
                "description": str(schema),
                "schema": schema,
                "tests": [{"data": invalid, "valid": False}, {"data": valid, "valid": True}],
            },
        )
        for keyword, schema, invalid, valid in SAMPLE
    ]


def test_the_table_is_of_the_installed_libraries() -> None:
    """Another version may enforce less: `make schema-table` makes the table anew."""
    assert {name: metadata.version(name) for name in measured.VERSIONS} == measured.VERSIONS


@pytest.mark.parametrize("name", ["xgrammar", "guidance"])
def test_a_library_is_as_the_table_says(asked: dict[str, Subject], name: Any) -> None:
    for case in sample():
        seen = measured.KEYWORDS[name].get(case.keyword)
        found = judge(asked[name], case).verdict
        if seen is None or "partly" in seen:
            continue
        words = {"enforced": "enforced", "refused": "refused", "produced": "ignored"}
        assert words[found] in {*seen}, f"{name}, {case.schema}: {found}"


def test_nothing_of_the_sample_is_generated_though_invalid(asked: dict[str, Subject]) -> None:
    outcomes = [judge(asked["ours"], case) for case in sample()]

    assert not [outcome.case.schema for outcome in outcomes if outcome.produced or outcome.missing]
    refused = {outcome.case.keyword for outcome in outcomes if outcome.refusal}
    assert refused == {"oneOf", "unevaluatedProperties", "uniqueItems"}


@pytest.mark.skipif(
    not SUITE.is_dir(), reason="JSON-Schema-Test-Suite is not beside this checkout; SUITE= names its tests"
)
def test_the_whole_suite(asked: dict[str, Subject]) -> None:
    outcomes = {name: [judge(one, case) for case in cases(SUITE)] for name, one in asked.items()}
    with_type = {name: [judge(one, case) for case in typed(required())] for name, one in asked.items()}

    for draft in DRAFTS:
        for optional in (False, True):
            ours, *libraries = (table.counts(found, draft, optional=optional) for found in outcomes.values())
            better = max(libraries, key=lambda counts: counts.cases["enforced"])
            assert ours.cases["enforced"] >= better.cases["enforced"]
            assert ours.cases["produced"] <= (better.cases["produced"] if optional else 0)
    assert not [outcome.case for outcome in with_type["ours"] if outcome.produced]
    name: Any
    for name in ("xgrammar", "guidance"):
        untyped = keywords.made(one for one in outcomes[name] if not one.case.is_optional)
        of_typed = keywords.made(with_type[name])
        made = {key: (untyped[key], of_typed.get(key, "unknown")) for key in untyped.keys() & CONSTRAINTS}
        assert {key: tuple(seen) for key, seen in measured.KEYWORDS[name].items()} == made


def required() -> Any:
    return (case for case in cases(SUITE) if not case.is_optional)
