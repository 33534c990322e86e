import json
import os
import random
from typing import Any

import jsonschema
import pytest

from guided_sidecar.grammar.compile import routing
from guided_sidecar.grammar.schema import unevaluated
from guided_sidecar.grammar.worker_messages import Job

SEED = int(os.environ.get("SEED", "0"))
TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"unevaluatedProperties": TEXT}, {"additionalProperties": TEXT}),
        ({"unevaluatedItems": False, "prefixItems": [TEXT]}, {"items": False, "prefixItems": [TEXT]}),
        (
            {"additionalProperties": True, "unevaluatedProperties": False, "allOf": [TEXT]},
            {"additionalProperties": True, "allOf": [TEXT]},
        ),
        ({"items": TEXT, "unevaluatedItems": False}, {"items": TEXT}),
        (
            {"properties": {"unevaluatedProperties": {"unevaluatedProperties": False}}},
            {"properties": {"unevaluatedProperties": {"additionalProperties": False}}},
        ),
    ],
)
def test_what_means_the_same_is_written_so(schema: Any, written: Any) -> None:
    unevaluated.write_out(schema)
    assert schema == written


@pytest.mark.parametrize(
    "schema",
    [
        {"unevaluatedProperties": False, "$ref": "#/$defs/a", "$defs": {"a": {}}},
        {"unevaluatedProperties": False, "anyOf": [{"properties": {"a": TEXT}}]},
        {"unevaluatedItems": False, "contains": TEXT},
        {"$schema": "http://json-schema.org/draft-07/schema#", "unevaluatedProperties": False},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "unevaluatedItems": False},
        True,
    ],
)
def test_what_may_mean_something_else_stays(schema: Any) -> None:
    before = json.loads(json.dumps(schema))
    unevaluated.write_out(schema)
    assert schema == before


def test_drawn_schemas_allow_what_they_allowed() -> None:
    drawn, changed = random.Random(SEED), 0
    for number in range(300):
        schema = _schema(drawn, 2)
        written = json.loads(json.dumps(schema))
        unevaluated.write_out(written)
        changed += written != schema
        before, after = (jsonschema.Draft202012Validator(each) for each in (schema, written))
        for _ in range(15):
            value = _value(drawn, 2)
            assert before.is_valid(value) == after.is_valid(value), f"{SEED=} {number=} {schema} {value}"
    assert changed > 50


def test_either_library_may_then_serve_it() -> None:
    job = Job(
        key="k",
        kind="json",
        spec=json.dumps({"properties": {"a": TEXT}, "type": "object", "unevaluatedProperties": False}),
        backends=["guidance", "xgrammar"],
        any_whitespace=False,
        timeout_s=1,
        memory_bytes=0,
    )
    assert set(routing.order(job, routing.read(job))) == {"guidance", "xgrammar"}


def _schema(drawn: random.Random, depth: int) -> Any:
    def inner() -> Any:
        return drawn.choice([True, False, TEXT]) if depth == 0 else _schema(drawn, depth - 1)

    made: dict[str, Any] = {
        "properties": {name: inner() for name in drawn.sample("ab", drawn.randint(0, 2))},
        "patternProperties": {"^c": inner()},
        "prefixItems": [inner()],
        "contains": inner(),
        "anyOf": [inner(), inner()],
        "items": inner(),
        "additionalProperties": inner(),
        "unevaluatedItems": inner(),
        "unevaluatedProperties": inner(),
    }
    return {keyword: made[keyword] for keyword in made if drawn.random() < 0.35}


def _value(drawn: random.Random, depth: int) -> Any:
    if depth == 0 or drawn.random() < 0.2:
        return drawn.choice(["x", 1, None])
    if drawn.random() < 0.5:
        return [_value(drawn, depth - 1) for _ in range(drawn.randint(0, 3))]
    return {name: _value(drawn, depth - 1) for name in drawn.sample("abcd", drawn.randint(0, 3))}
