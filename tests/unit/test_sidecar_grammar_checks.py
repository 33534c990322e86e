"""What is checked in plain Python: all faults of a schema are told, and quickly. Which: refusals.jsonl."""

import time
from typing import Any

import jsonschema
import pytest

from guided_contract.errors import GuidedError
from guided_sidecar.grammar.compile import reading
from guided_sidecar.grammar.schema import metaschema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
FAULTY = {"properties": {"a": {"type": "strng"}, "b": {"minLength": -1, "required": ["x", 1]}}}
IN_A_TAG = {"format": {"type": "json_schema", "json_schema": FAULTY}}


@pytest.mark.parametrize(
    ("kind", "text", "at"),
    [("json", FAULTY, "$"), ("structural_tag", IN_A_TAG, "$.format.json_schema")],
    ids=["alone", "in a tag"],
)
def test_all_faults_of_a_schema_are_told_at_once(kind: Any, text: Any, at: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        reading.read(kind, text)
    paths = [line.partition(": ")[0] for line in refusal.value.message.split("\n")]
    assert sorted(paths) == [f"{at}.properties.{one}" for one in ("a.type", "b.minLength", "b.required[1]")]
    assert refusal.value.path == paths[0]


@pytest.mark.parametrize(
    ("dialect", "count"), [("https://json-schema.org/draft/2020-12/schema", 9000), (DRAFT_4, 1500)]
)
def test_of_thousands_of_faults_ten_are_told(dialect: str, count: int) -> None:
    """Looking for the best of 9,000 once took 4 s, and the client was told of a timeout."""
    text = {"$schema": dialect, "properties": {f"p{number}": {"minLength": -1} for number in range(count)}}
    began = time.process_time()
    with pytest.raises(GuidedError) as refusal:
        reading.read("json", text)
    assert time.process_time() - began < 2
    lines = refusal.value.message.split("\n")
    assert lines[0].endswith(".minLength: -1 is less than the minimum of 0")
    assert (len(lines), lines[-1]) == (11, "and more")


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 0.5, 2.0, -0.5, 1e300, "", "a", "string", "integer", "#/$defs/a", "#"),
    *([], ["a"], ["a", "a"], ["string", "null"], ["string", "string"], [1], [True], [{}], [{}, 1], [[]]),
    *({}, {"a": {}}, {"a": True}, {"a": 1}, {"a": []}, {"a": ["b"]}, {"a": ["b", "b"]}),
    *({"type": "string"}, {"type": "strng"}, {"a": {"type": 1}}, [{"type": "x"}], {"minimum": "x"}),
]
DIALECTS = [None, DRAFT_7, "http://json-schema.org/draft-04/schema#", 5, "x"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_plainly_met_is_met(dialect: Any) -> None:
    named = {} if dialect is None else {"$schema": dialect}
    judge = jsonschema.Draft7Validator if dialect == DRAFT_7 else jsonschema.Draft202012Validator
    newest = [keyword for keyword, _ in metaschema._FIELDS]
    met = 0
    for keyword in {*newest, "$vocabulary", "const", *jsonschema.Draft7Validator.META_SCHEMA["properties"]}:
        for value in VALUES:
            for schema in ({**named, keyword: value}, {**named, "properties": {"p": {keyword: value}}}):
                if metaschema.is_plainly_met(schema):
                    met += 1
                    assert judge(judge.META_SCHEMA).is_valid(schema), schema
    assert (met > 300) == (dialect in {None, DRAFT_7})
