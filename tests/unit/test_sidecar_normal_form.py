"""The normal form, judged by jsonschema; and what is said of a text that violates a schema."""

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
from guided_sidecar.grammar.compile.judge import Judge as WalksJudge
from guided_sidecar.grammar.schema import additional_properties, normal, schema
from support.compositions import schemas, values
from support.compositions.judge import Judge, UnknownError

SEED = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("COUNT", "400"))


def rows(table: str) -> list[Any]:
    """Return the rows of a table beside this file."""
    lines = Path(__file__).with_name(f"{table}.jsonl").read_text().splitlines()
    return [pytest.param(*row[1:], id=row[0]) for row in map(json.loads, lines[1:])]


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


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "text", "path"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "b"}', "$.properties.a.type"),
        (
            {"items": {"$ref": "#/$defs/a b"}, "$defs": {"a b": {"minimum": 3}}},
            "[2]",
            "$.$defs['a b'].minimum",
        ),
        ({"allOf": [{"$ref": "#/$defs/a"}, {}], "$defs": {"a": {"const": 1}}}, "2", "$.$defs.a.const"),
        (
            {"$id": "https://x/y", "$ref": "z", "$defs": {"a": {"$id": "z", "type": "null"}}},
            "2",
            "$.$defs.a.type",
        ),
        ({"required": ["a"], "type": "object"}, "{}", "$.required"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "1", "$.anyOf"),
        ({"$schema": DRAFT_7, "items": [{"type": "null"}]}, "[1]", "$.items[0].type"),
        ({"uniqueItems": True}, "[1, 1.0]", "$.uniqueItems"),
        (False, "1", "$"),
        *(({}, text, "$") for text in ("", '"\n"', "NaN", "{} {}", "01")),
        # What is valid, or cannot be told.
        ({"exclusiveMaximum": 5}, "4." + "9" * 40, None),
        ({"multipleOf": 0.01}, "1e400", None),
        ({"type": "integer"}, "1.0", None),
        ({"pattern": r"^\D$"}, '"\\u0660"', None),
        ({"pattern": r"^\s$"}, '"\\ufeff"', None),
        ({"pattern": r"^\p{L}$"}, '"1"', None),
        ({"pattern": "[[a]"}, '"a"', None),
        ({"minimum": 1}, "9" * 5000, None),
        ({"$ref": "https://example.org/elsewhere"}, "1", None),
        ({"format": "date"}, '"no date"', None),
        (True, "1", None),
    ],
)
def test_what_is_violated_is_named_and_nothing_that_is_valid_or_cannot_be_told(
    schema: Any, text: str, path: str | None
) -> None:
    assert WalksJudge(json.dumps(schema)).violation(text.encode()) == path
