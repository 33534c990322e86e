"""What is checked in plain Python: schemas, their paths, and which backends may serve them."""

import json
import time

import pytest

from guided_contract.errors import GuidedError
from guided_grammar.json_schema import subschemas
from guided_sidecar.grammar.compile import reading
from guided_sidecar.grammar.schema import patterns, schema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def test_schemas_are_found_in_structural_tags_of_both_forms() -> None:
    inner = {"type": "object", "properties": {"schema": {"uniqueItems": True}}}
    new = {"format": {"elements": [{"type": "json_schema", "json_schema": inner}, {"type": "any_text"}]}}
    old = {"structures": [{"begin": "<f>", "schema": inner, "end": "</f>"}], "triggers": ["<f"]}

    for tag, path in ((new, "$.format.elements[0].json_schema"), (old, "$.structures[0].schema")):
        changed = subschemas.with_each_of_tag(tag, lambda way, found: [str(way), found])
        assert json.dumps(changed) == json.dumps(tag).replace(json.dumps(inner), json.dumps([path, inner]))


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"[\w-.]+", r"[a-\d]", "[]", "[^]", "[[^]", r"\[[]]", "]", "{", "a{,3}", r"(?<n>a)\k<n>"),
        *(
            r"\p{L}",
            r"\cA",
            r"\u{1F600}",
            r"\ud83d\ude00",
            r"\y",
            r"\8",
            "(?U)a",
            "a(?i)b",
            "(?s-i)",
            "(?i:a)",
        ),
        *(
            "^(?!a)b",
            "(?<=a+)b",
            "(a)(?<!b)",
            "a{999999999999}",
            f"a{{{5000 * '9'}}}",
            3000 * "(" + 3000 * ")",
        ),
    ],
)
def test_a_pattern_that_python_alone_refuses_is_not_broken(pattern: str) -> None:
    assert patterns.broken(pattern) is None


def test_all_faults_of_a_schema_are_told_at_once() -> None:
    text = {"properties": {"a": {"type": "strng"}, "b": {"minLength": -1, "required": ["x", 1]}}}
    with pytest.raises(GuidedError) as refusal:
        schema.check(text)
    lines = refusal.value.message.split("\n")
    assert sorted(line.partition(": ")[0] for line in lines) == [
        "$.properties.a.type",
        "$.properties.b.minLength",
        "$.properties.b.required[1]",
    ]
    assert refusal.value.path == lines[0].partition(": ")[0]


@pytest.mark.parametrize(
    ("dialect", "count"), [("https://json-schema.org/draft/2020-12/schema", 9000), (DRAFT_4, 1500)]
)
def test_of_thousands_of_faults_ten_are_told(dialect: str, count: int) -> None:
    """Looking for the best of 9,000 once took 4 s, and the client was told of a timeout."""
    text = {"$schema": dialect, "properties": {f"p{number}": {"minLength": -1} for number in range(count)}}
    began = time.process_time()
    with pytest.raises(GuidedError) as refusal:
        schema.check(text)
    assert time.process_time() - began < 2
    lines = refusal.value.message.split("\n")
    assert lines[0].endswith(".minLength: -1 is less than the minimum of 0")
    assert len(lines) == 11
    assert lines[-1] == "and more"


def test_faults_inside_a_tag_are_told_by_their_paths_there() -> None:
    inner = {"properties": {"a": {"type": "strng"}, "b": {"minLength": -1}}}
    tag = {"format": {"type": "json_schema", "json_schema": inner}}
    with pytest.raises(GuidedError) as refusal:
        reading.read("structural_tag", tag)
    paths = [line.partition(": ")[0] for line in refusal.value.message.split("\n")]
    at = "$.format.json_schema.properties"
    assert paths == [f"{at}.a.type", f"{at}.b.minLength"]
    assert refusal.value.path == paths[0]


def test_paths_are_jsonpath() -> None:
    """Those that RFC 9535 calls normalized, but for names that need no brackets."""
    odd = {"properties": {"a b": {"$defs": {"it's": {}, '\n"\\': {}}}}, "prefixItems": [{"items": {}}]}

    assert [place.path for place in subschemas.places(odd)] == [
        "$",
        "$.properties['a b']",
        "$.properties['a b'].$defs['it\\'s']",
        "$.properties['a b'].$defs['\\n\"\\\\']",
        "$.prefixItems[0]",
        "$.prefixItems[0].items",
    ]
