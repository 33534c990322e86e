"""The normal form takes nothing that the schema forbids, and of what it allows what is said here.

jsonschema is the judge of both.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from guided_contract.errors import GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import NORMAL_FORM
from guided_sidecar.grammar.schema import additional_properties, normal, schema
from support.compositions import schemas, values
from support.compositions.judge import Judge, UnknownError

SEED = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("COUNT", "400"))
INTEGER = {"type": "integer"}


def rows(table: str) -> list[Any]:
    """Return the rows of a table beside this file."""
    lines = Path(__file__).with_name(f"{table}.jsonl").read_text().splitlines()
    return [pytest.param(*row[1:], id=row[0]) for row in map(json.loads, lines[1:])]


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def takes(form: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(form).is_valid(value))


def has_own_words(form: Any) -> bool:
    return all(part.keys() <= NORMAL_FORM for part in subschemas.within(form))


@pytest.mark.parametrize(("written", "valid", "invalid"), rows("normal_form"))
def test_the_form_takes_what_the_schema_takes(written: Any, valid: list[Any], invalid: list[Any]) -> None:
    before = json.dumps(written)
    schema.check(written)
    form = normal.read(written).schema
    assert json.dumps(written) == before
    assert [value for value in valid if not takes(form, value)] == []
    assert [value for value in invalid if takes(form, value)] == []


@pytest.mark.parametrize(("written", "kept", "gone"), rows("closed_objects"))
def test_what_is_silent_on_further_properties_is_closed(
    written: Any, kept: list[Any], gone: list[Any]
) -> None:
    closed = additional_properties.close(normal.read(written).schema)
    assert [value for value in kept if not takes(closed, value)] == []
    assert [value for value in gone if takes(closed, value)] == []


def test_an_open_object_or_array_says_so() -> None:
    """As vLLM runs it, xgrammar takes what is silent for closed, wherever another keyword stands beside."""
    closed = additional_properties.close(
        normal.read(
            {"anyOf": [{"type": "object", "maxProperties": 2}, {"type": ["array", "null"], "maxItems": 1}]}
        ).schema
    )
    assert closed["anyOf"][0]["additionalProperties"] is True
    assert closed["anyOf"][1]["items"] is True


def test_drawn_schemas_take_nothing_that_they_forbid() -> None:
    formed = kept = lost = 0
    for number in range(COUNT):
        chance = random.Random(f"{SEED} {number}")
        written = schemas.schema(chance)
        try:
            schema.check(written)
            form = normal.read(written).schema
        except (GuidedError, RecursionError):  # which a worker refuses, too
            continue
        formed += 1
        closed = additional_properties.close(form, spells=True)
        assert has_own_words(form), f"SEED={SEED}, {number}: {written}"
        judges = [Judge(one) for one in (written, form, closed)]
        for _ in range(20):
            value = values.value(chance, 3, values.NAMES[:4])
            try:
                is_valid, *taken = (judge.fault(json.dumps(value)) is None for judge in judges)
            except UnknownError:
                continue
            assert is_valid or not any(taken), f"SEED={SEED}, {number}: {written} takes {value}"
            kept += is_valid and taken[0]
            lost += is_valid and not taken[0]
    assert formed > COUNT / 2
    assert lost < kept / 20, "the form takes nearly all that the schema takes"


FIRST = {**object_of(x=INTEGER), "required": ["x"]}
SECOND = {**object_of(y=INTEGER), "required": ["y"]}


@pytest.mark.parametrize(
    ("there", "second", "valid"),
    [
        ({"$defs": {"a": FIRST, "a.open": {"type": "string"}}}, {"$ref": "#/$defs/a.open"}, "a"),
        (
            {"$defs": {"a": FIRST}, "definitions": {"a": SECOND}},
            {"allOf": [{"$ref": "#/definitions/a"}, object_of(p={})]},
            {"y": 1},
        ),
    ],
)
def test_what_is_left_open_has_a_name_of_its_own(there: Any, second: Any, valid: Any) -> None:
    """A definition `a.open` of the author's, or a second `a`, was taken for `a` where that is left open."""
    first = {"allOf": [{"$ref": "#/$defs/a"}, object_of(p={})]}
    written = {**there, "type": "array", "prefixItems": [first, second], "minItems": 2}
    closed = additional_properties.close(normal.read(written).schema)
    assert takes(closed, [{"x": 1}, valid])
    assert not takes(closed, [{"x": 1}, {"x": 1}])


def test_the_whole_schema_has_an_address_where_it_is_left_open() -> None:
    """Drawn compositions were refused: `#/$defs/#.open` is no URI (RFC 3986: a fragment holds no `#`)."""
    written = object_of(a={}, b={"type": "object", "$ref": "#", "required": ["c"]})
    closed = additional_properties.close(normal.read(written).schema)
    assert not [part for part in subschemas.within(closed) if part.get("$ref", "").count("#") > 1]
    assert takes(closed, {"b": {"a": 1, "c": 1}})
    assert not takes(closed, {"b": {"a": 1, "d": 1}})
