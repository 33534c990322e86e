"""What a refusal says is so: jsonschema judges what has no value. Codes and paths: test_grammar_refusals.py.

`SEED=7 COUNT=5000 pytest tests/contract/test_refusals_are_true.py -k drawn` looks at others, and at more.
"""

import json
import os
import random
from collections import Counter
from typing import Any

import jsonschema
import pytest

from support.compositions import told_apart
from support.compositions.judge import Judge
from support.worker_and_rank import WorkerAndRank

SEED = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("COUNT", "250"))
VALUES = [json.dumps(value, ensure_ascii=False) for value in told_apart.values()]
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
OBJECT = {"type": "object", "properties": {"a": {}, "b": {}}}


def met(schema: Any) -> str | None:
    """Return a text that jsonschema takes; None: of those that are looked at, it takes none."""
    return Judge(schema).met(VALUES)


def test_drawn_schemas_that_have_a_value_are_called_neither_a_dead_end_nor_broken(
    served: WorkerAndRank,
) -> None:
    codes: Counter[str] = Counter()
    for number in range(COUNT):
        schema = told_apart.schema(random.Random(f"{SEED} {number}"))
        error = served.refusal("json", schema)
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
def test_what_has_a_value_is_served_or_more_than_is_enforced(served: WorkerAndRank, schema: Any) -> None:
    error = served.refusal("json", schema)
    assert error is None or error.code == "grammar_unsupported", error


@pytest.mark.parametrize("spec", ["a**", "a{2}{3}", r"\x{61}"])
def test_a_text_that_one_library_reads_is_served_and_never_called_broken(
    served: WorkerAndRank, spec: str
) -> None:
    assert served.refusal("regex", spec) is None
    error = served.refusal("regex", spec, "xgrammar")
    assert error is not None
    assert error.code == "grammar_unsupported", error
