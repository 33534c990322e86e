"""What a refusal says is so: jsonschema judges what has no value, and each path is one of the author's text.

`SEED=7 COUNT=5000 pytest tests/contract/test_refusals_are_true.py -k drawn` looks at others, and at more.
"""

import json
import os
import random
from collections import Counter
from typing import Any

import jsonschema
import pytest

from guided_sidecar.grammar.compile.compilation import Compiler
from support.compositions import told_apart
from support.compositions.judge import Judge, UnknownError
from support.refused import new_compiler, refusal

SEED = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("COUNT", "250"))
VALUES = [json.dumps(value, ensure_ascii=False) for value in told_apart.values()]
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
BOUNDARY = {"type": "string", "pattern": r"\bx"}  # valid, and no library's
OBJECT = {"type": "object", "properties": {"a": {}, "b": {}}}


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return new_compiler()


def met(schema: Any) -> str | None:
    """Return a text that jsonschema takes; None: of those that are looked at, it takes none."""
    judge = Judge(schema)
    for text in VALUES:
        try:
            if judge.fault(text) is None:
                return text
        except UnknownError:
            continue
    return None


def test_drawn_schemas_that_have_a_value_are_called_neither_a_dead_end_nor_broken(compiler: Compiler) -> None:
    codes: Counter[str] = Counter()
    for number in range(COUNT):
        schema = told_apart.schema(random.Random(f"{SEED} {number}"))
        error = refusal(compiler, "json", schema)
        codes[error.code if error is not None else "served"] += 1
        if error is None or error.code not in ("grammar_dead_end", "grammar_invalid"):
            continue
        kind = jsonschema.validators.validator_for(schema)
        if error.code == "grammar_dead_end" or kind(kind.META_SCHEMA).is_valid(schema):
            assert met(schema) is None, f"SEED={SEED}, {number}: {json.dumps(schema)}: {error}"
    print(f"SEED={SEED}: {dict(codes)}")  # noqa: T201 - pytest shows it of a failure
    assert codes["served"] > COUNT / 10
    assert codes["grammar_dead_end"] > COUNT / 20


# Found by drawing: each has a value, and was called a dead end or broken.
MET: list[Any] = [
    {"oneOf": [{**OBJECT, "properties": {"a": {"pattern": one}}, "required": ["a"]} for one in "xyz"]},
    {"type": "object", "required": ["x"], "dependencies": {"x": {"propertyNames": {"pattern": "^y"}}}},
    {"maxLength": 0, "pattern": "^x"},
    {"minimum": 2, "maximum": 1.5},
    {"minProperties": 1, "patternProperties": {"^\\d": {"allOf": [{"const": "xx"}, {"type": "object"}]}}},
    {"const": "é", "oneOf": [True, {"enum": ["-"], "const": "é"}]},
    {"required": ["y"], "dependencies": {"y": {"type": "object", "required": ["xy"]}}, "$schema": DRAFT_7},
    {"additionalProperties": False, "properties": {"x": {}}, "minProperties": 2},
    {"anyOf": [{"type": "integer", "maximum": 1, "minimum": 2}, {}]},
    {"type": "object", "properties": {"x": {"type": "string", "minLength": 3, "maxLength": 2}}},
    {"type": "integer", "minimum": 1 << 60, "allOf": [{"maximum": 1 << 61}]},
    {"allOf": [{"multipleOf": 5}, {"type": "integer", "maximum": -3}]},
    {"anyOf": [{"$ref": "#/$defs/none"}, {"type": "string"}],
     "$defs": {"none": {"type": "array", "maxItems": 1, "minItems": 2}}},
]  # fmt: skip


@pytest.mark.parametrize("schema", MET, ids=lambda one: json.dumps(one)[:60])
def test_what_has_a_value_is_served_or_more_than_is_enforced(compiler: Compiler, schema: Any) -> None:
    error = refusal(compiler, "json", schema)
    assert error is None or error.code == "grammar_unsupported", error


# Each is refused where its author wrote it, by the keyword that its draft has.
PATHS: list[tuple[Any, str]] = [
    ({"$schema": DRAFT_7, **OBJECT, "dependencies": {"a": {"properties": {"b": BOUNDARY}}}},
     "$.dependencies.a.properties.b.pattern"),
    ({"$schema": DRAFT_7, **OBJECT, "dependencies": {"a": {"not": {"multipleOf": 2}}}},
     "$.dependencies.a.not"),
    ({"$schema": DRAFT_7, **OBJECT, "dependencies": {"a": {"minProperties": 5}}},
     "$.dependencies.a.minProperties"),
    ({**OBJECT, "dependentSchemas": {"a": {"properties": {"b": BOUNDARY}}}},
     "$.dependentSchemas.a.properties.b.pattern"),
    ({"$schema": DRAFT_7, "items": {"$ref": "#/definitions/x"}, "definitions": {"x": BOUNDARY}},
     "$.definitions.x.pattern"),
    ({"$schema": DRAFT_7, "type": "array", "items": [{}, BOUNDARY]}, "$.items[1].pattern"),
    ({"$schema": DRAFT_7, "type": "array", "items": [{}, {"not": {"pattern": r"\ba"}}]}, "$.items[1].not"),
    ({"$schema": DRAFT_7, "type": "array", "items": [{}], "additionalItems": BOUNDARY},
     "$.additionalItems.pattern"),
    ({"$schema": DRAFT_7, "type": "array", "items": [{}], "additionalItems": {"not": {"pattern": r"\ba"}}},
     "$.additionalItems.not"),
    ({"$schema": DRAFT_7, "type": "array", "items": [BOUNDARY, {"$ref": "#/items/0"}]}, "$.items[0].pattern"),
    ({"$schema": DRAFT_4, "type": "number", "maximum": 1, "minimum": 1, "exclusiveMinimum": True},
     "$.maximum"),
    ({"type": "string", "format": "date", "maxLength": 5}, "$.format"),
    ({"const": "a", "pattern": "^b"}, "$.pattern"),
    ({"enum": ["a"], "pattern": "^b"}, "$.pattern"),
    ({"type": "object", "patternProperties": {"^a": {"anyOf": [BOUNDARY, {"type": "null"}]}}},
     "$.patternProperties['^a'].anyOf[0].pattern"),
    ({"type": ["object", "null"], "nullable": True, "properties": {"a": BOUNDARY}}, "$.properties.a.pattern"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "path"), PATHS, ids=lambda one: json.dumps(one)[-60:])
def test_a_refusal_names_the_authors_own_keyword(compiler: Compiler, schema: Any, path: str) -> None:
    error = refusal(compiler, "json", schema)
    assert error is not None
    assert error.path == path, error.message
    assert error.message.startswith(f"{path}: ")
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
    inside = refusal(compiler, "structural_tag", tag)
    assert inside is not None
    assert (inside.path or "").startswith("$.format.json_schema"), inside.message


LIBRARIES = ("xgrammar", "guidance")
READ = [
    ("regex", "a**", "guidance"),
    ("regex", "a{2}{3}", "guidance"),
    ("regex", r"\x{61}", "guidance"),
]


@pytest.mark.parametrize(("kind", "spec", "reader"), READ)
def test_a_text_that_one_library_reads_is_served_and_never_called_broken(
    compiler: Compiler, kind: str, spec: str, reader: str
) -> None:
    (other,) = {*LIBRARIES} - {reader}
    error = refusal(compiler, kind, spec, other)
    assert refusal(compiler, kind, spec) is None
    assert error is not None
    assert error.code == "grammar_unsupported", error


@pytest.mark.parametrize("spec", [r"\N", r"\Q", r"a{,3}"])
def test_what_no_library_reads_and_some_dialect_has_is_unsupported(compiler: Compiler, spec: str) -> None:
    error = refusal(compiler, "regex", spec)
    assert error is not None
    assert error.code == "grammar_unsupported", error


@pytest.mark.parametrize(
    "schema", [{"properties": {"a": {"\udc00": {}}}}, {"description": "a\ud800", "type": "null"}]
)
def test_half_a_character_is_no_json(compiler: Compiler, schema: Any) -> None:
    error = refusal(compiler, "json", schema)
    assert error is not None
    assert (error.code, error.path) == ("grammar_invalid", "$")
    assert "surrogate" in error.message


WIDE = {f"k{number}": {"type": "integer"} for number in range(2500)}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "object", "properties": WIDE}, "$.properties"),
        (
            {"items": {"oneOf": [{**OBJECT, "properties": {one: True}, "required": [one]} for one in WIDE]}},
            "$.items.oneOf",
        ),
        (
            {"items": {"anyOf": [{**OBJECT, "properties": {one: True}, "required": [one]} for one in WIDE]}},
            "$.items.anyOf",
        ),
    ],
    ids=["properties", "oneOf", "anyOf"],
)
def test_too_many_alternatives_are_told_by_their_keyword(compiler: Compiler, schema: Any, path: str) -> None:
    error = refusal(compiler, "json", schema, "guidance")
    assert error is not None
    assert (error.code, error.path) == ("grammar_unsupported", path)
    assert "items" not in error.message.removeprefix(path)
    assert path.endswith("oneOf") or "require the names that always come" in error.message
