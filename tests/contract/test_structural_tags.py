"""A structural tag: its schema is enforced with both libraries, and keys that nobody reads are refused."""

import json
from typing import Any, get_args

import jsonschema
import pydantic
import pytest
import xgrammar.structural_tag as upstream

from guided_contract.errors import GuidedError
from guided_grammar.backend import BackendError
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.schema import tag_words
from support.engine import pod_config

NUMBER = {"type": "regex", "pattern": "[0-9]+"}
TAG = {"begin": "<a>", "content": NUMBER, "end": "</a>"}


def test_they_are_the_librarys() -> None:
    known = {}
    for model in vars(upstream).values():
        if isinstance(model, type) and issubclass(model, pydantic.BaseModel) and "type" in model.model_fields:
            (name,) = get_args(model.model_fields["type"].annotation)
            known[name] = {field.alias or key for key, field in model.model_fields.items()}
    assert known == tag_words.FORMATS


def _format(value: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": value}


@pytest.mark.parametrize(
    ("tag", "path"),
    [
        (_format({"type": "any_text", "max_length": 3}), "$.format.max_length"),
        (_format({**NUMBER, "patern": "b"}), "$.format.patern"),
        (_format({"type": "json_schema", "json_schema": {}, "schema": {}}), "$.format.schema"),
        ({**_format(NUMBER), "strict": True}, "$.strict"),
        (_format({"type": "sequence", "elements": [NUMBER, {**NUMBER, "x": 1}]}), "$.format.elements[1].x"),
        (
            _format({"type": "triggered_tags", "triggers": ["<a"], "tags": [{**TAG, "schema": {}}]}),
            "$.format.tags[0].schema",
        ),
        (
            _format({"type": "tag", **TAG, "content": {"type": "star", "content": {**NUMBER, "max": 2}}}),
            "$.format.content.content.max",
        ),
        (_format({"type": "dispatch", "rules": [["a", {**NUMBER, "x": 1}]]}), "$.format.rules[0][1].x"),
        (
            {"structures": [{"begin": "a", "schema": {}, "end": "b", "content": 1}], "triggers": ["a"]},
            "$.structures[0].content",
        ),
        ({"structures": [], "triggers": ["a"], "at_least_one": True}, "$.at_least_one"),
    ],
)
def test_one_that_nobody_reads_is_told(tag: Any, path: str) -> None:
    with pytest.raises(GuidedError) as refused:
        tag_words.check(tag)
    assert (refused.value.code, refused.value.path) == ("grammar_unsupported", path)


AB = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"json_schema": AB, "any_order": True}, "$.format.any_order"),
        ({"json_schema": {"items": {"pattern": "^[a-z]*$"}}, "excludes": ["zz"]}, "$.format.excludes"),
        ({"json_schema": {"type": "string", "format": "email"}, "excludes": ["zz"]}, "$.format.excludes"),
        ({"json_schema": AB, "any_order": False}, None),
        ({"json_schema": {"type": "object", "properties": {"a": {}}}, "any_order": True}, None),
        ({"json_schema": {"type": "string"}, "excludes": ["zz"]}, None),
        ({"json_schema": True, "excludes": ["zz"]}, None),
    ],
)
def test_what_the_library_does_not_hold_is_refused(value: Any, path: str | None) -> None:
    """Of `any_order` it counts the entries alone, and in patterns it does not look for what is excluded."""
    tag = _format({"type": "json_schema", **value})
    if path is None:
        tag_words.check(tag)
        return
    with pytest.raises(GuidedError, match="not enforced beside") as refused:
        tag_words.check(tag)
    assert refused.value.path == path


def test_a_trigger_that_begins_no_tag_is_told(words: Vocabulary) -> None:
    tag = {"structures": [{"begin": "<f=", "schema": {}, "end": ">"}], "triggers": ["<f", "<z"]}
    with pytest.raises(BackendError, match="no tag begins with the trigger '<z'"):
        Backends(words)["guidance"].compile("structural_tag", json.dumps(tag))


@pytest.mark.parametrize(
    "value",
    [
        NUMBER,
        {"type": "json_schema", "json_schema": {"x-mine": 1, "type": "object"}},
        {"type": "triggered_tags", "triggers": ["<a"], "tags": [TAG], "at_least_one": True},
        {"type": "tag", **TAG, "begin": {"type": "token", "token": 5}},
        {"type": "nobody's", "x": 1},
    ],
    ids=json.dumps,
)
def test_what_is_read_goes_on(value: Any) -> None:
    tag_words.check(_format(value))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return vocabulary.load(pod_config(tmp_path_factory.mktemp("pod")))


INSTANCES = [
    '{"zq": 1}',
    '{"zq": 10, "o": ["a"]}',
    '{"zq": 1, "x": 2}',
    "{}",
    '{"zq": "1"}',
    "5",
    '": "',
    "[]",
    '""',
]
SCHEMAS: list[Any] = [
    {
        "type": "object",
        "properties": {"zq": {"type": "integer"}, "o": {"type": "array", "items": {"$ref": "#/$defs/s"}}},
        "required": ["zq"],
        "additionalProperties": False,
        "$defs": {"s": {"type": "string"}},
    },
    {"type": "array", "maxItems": 0},
    {"enum": [5, ""]},
    True,
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize(("trigger", "begin"), [("name", "name"), ("{", "{"), ("<f", "<f=x>"), ("a", "a ")])
@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_the_schema_of_a_tag_is_enforced(
    words: Vocabulary, backend: Any, trigger: str, begin: str, schema: Any
) -> None:
    """vLLM 0.32 gives llguidance a grammar where that takes a schema: any JSON is then generated."""
    tag = {"structures": [{"begin": begin, "schema": schema, "end": "!"}], "triggers": [trigger]}
    library = Backends(words)[backend]
    compiled = library.compile("structural_tag", json.dumps(tag))
    validator = jsonschema.Draft202012Validator(schema)
    for instance in INSTANCES:
        matcher = compiled.matcher()
        text = f"x {begin}{instance}!".encode()
        taken = all(matcher.accept((library.tokens().index(bytes([byte])),)) for byte in text)
        assert taken == (is_json(instance) and validator.is_valid(json.loads(instance))), instance


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
