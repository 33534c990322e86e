"""Names come in the schema's order, whatever is required: with both libraries, on a rank's matchers."""

import itertools
import json
from typing import Any

import jsonschema
import pytest

from support.compositions.libraries import LIBRARIES, Compilers

INT = {"type": "integer"}
AB = {"type": "object", "properties": {"a": INT, "b": INT}}
OPEN = {**AB, "additionalProperties": True}
SCHEMAS: list[dict[str, Any]] = [{**AB, "additionalProperties": False, "required": ["b"]}]
BY_GUIDANCE: list[dict[str, Any]] = [
    {**OPEN, "required": ["b"]},
    {"required": ["b", "a"], **OPEN},
    {**AB, "additionalProperties": INT, "required": ["b"]},
    {**OPEN, "required": ["b"], "minProperties": 1},
    {**OPEN, "required": ["z", "b"]},
    {"required": ["b"], "additionalProperties": True, "allOf": [OPEN]},
]
TRIED = [*itertools.product(SCHEMAS, LIBRARIES), *((schema, "guidance") for schema in BY_GUIDANCE)]


@pytest.mark.parametrize(("schema", "library"), TRIED, ids=lambda one: json.dumps(one)[:90])
def test_names_come_in_the_schemas_order(compilers: Compilers, schema: Any, library: Any) -> None:
    """Where others may come, llguidance was given those that are required first."""
    within = {"type": "object", "properties": {"n": schema}}
    alone, inside = compilers.compiled(schema, library), compilers.compiled(within, library)
    judge = jsonschema.Draft202012Validator(schema)
    for order in (order for count in (1, 2, 3) for order in itertools.permutations("abz", count)):
        value = dict.fromkeys(order, 1)
        is_meant = judge.is_valid(value) and list(order) == sorted(order)
        assert alone.accepts(json.dumps(value)) == is_meant, value
        assert inside.accepts(json.dumps({"n": value})) == is_meant, value
