"""What is enforced of JSON Schema: the installed libraries against what is said that each lacks.

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

from guided_contract.backends import BACKENDS
from guided_grammar.json_schema.keywords import CONSTRAINTS, OF_TYPE
from guided_grammar.registry import library

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
    ("type", {"type": "integer"}, "a", 1),
    ("unevaluatedProperties", {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
     {"b": 1}, {"a": 1}),
    ("uniqueItems", {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}, [True, True],
     [True]),
]  # fmt: skip


VALUES: dict[str | None, Any] = {"array": [], "number": 0, "object": {}, "string": "", None: [{}, {}]}


@pytest.fixture(scope="module")
def asked() -> dict[str, Subject]:
    found = subjects(tinymodel.models() / "tiny")
    return {subject.name: subject for subject in found}


def sample() -> list[Case]:
    found = []
    for keyword, schema, invalid, valid in SAMPLE:
        tests = [{"data": invalid, "valid": False}, {"data": valid, "valid": True}]
        found.append(of("draft2020-12", keyword, {"description": "", "schema": schema, "tests": tests}))
    return found


def test_the_installed_libraries_are_those_that_were_measured() -> None:
    """Another version may enforce less: run the whole suite with it."""
    for one in BACKENDS.values():
        assert metadata.version(one.distribution) in one.measured


@pytest.mark.parametrize("name", ["xgrammar", "guidance"])
def test_what_a_library_generates_though_invalid_it_is_said_to_lack(
    asked: dict[str, Subject], name: Any
) -> None:
    for case in sample():
        # Of sets the sidecar sees to it.
        if case.keyword in CONSTRAINTS - {"uniqueItems"} and judge(asked[name], case).produced:
            assert library(name).lacks("json", case.schema) is not None, f"{name}, {case.schema}"


def test_nothing_of_the_sample_is_generated_though_invalid(asked: dict[str, Subject]) -> None:
    outcomes = [judge(asked["ours"], case) for case in sample()]

    assert not [outcome.case.schema for outcome in outcomes if outcome.produced or outcome.missing]
    refused = {outcome.case.keyword for outcome in outcomes if outcome.refusal}
    assert refused == {"oneOf", "unevaluatedProperties", "uniqueItems"}


@pytest.mark.skipif(
    not SUITE.is_dir(), reason="JSON-Schema-Test-Suite is not beside this checkout; SUITE= names its tests"
)
def test_the_whole_suite(asked: dict[str, Subject]) -> None:
    required = [case for case in cases(SUITE) if not case.is_optional]
    outcomes = {name: [judge(one, case) for case in cases(SUITE)] for name, one in asked.items()}
    with_type = {name: [judge(one, case) for case in typed(required)] for name, one in asked.items()}

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
        for keyword in CONSTRAINTS & untyped.keys():
            schema = {keyword: VALUES[OF_TYPE.get(keyword)], "properties": {}}
            typed_schema = {**schema, "type": OF_TYPE.get(keyword)}
            lacks = library(name).lacks
            assert untyped[keyword] != "ignored" or lacks("json", schema), f"{name}, {keyword}"
            assert of_typed.get(keyword) != "ignored" or lacks("json", typed_schema), f"{name}, {keyword}"
