"""A structural tag: its schema is enforced with both libraries, and keys that nobody reads are refused."""

import json
from typing import Any

import jsonschema
import pytest

from guided_contract.errors import GuidedError
from guided_contract.wire import Backend, Load
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar.backend import BackendError
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.schema import tag_words
from guided_sidecar.grammar.worker_messages import Job
from support.engine import pod_config

NUMBER = {"type": "regex", "pattern": "[0-9]+"}
TAG = {"begin": "<a>", "content": NUMBER, "end": "</a>"}


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
    with pytest.raises(GuidedError, match="not supported beside") as refused:
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


def _job(form: Any, backend: Backend = "xgrammar") -> Job:
    return Job(
        key="a" * 64,
        kind="structural_tag",
        spec=json.dumps(_format(form)),
        backends=[backend],
        timeout_s=60,
        memory_bytes=1 << 40,
    )


SHORT: Any = {"type": "string", "minLength": 1, "maxLength": 3}
AROUND = {
    "what stands before it can be nothing else": {
        "type": "triggered_tags",
        "triggers": ["<f"],
        "tags": [None],
    },
    "a pattern could match it, too": {
        "type": "sequence",
        "elements": [{"type": "optional", "content": NUMBER}, None],
    },
}


@pytest.mark.parametrize("name", AROUND)
def test_a_bounded_string_of_a_tag_is_json(words: Vocabulary, name: str) -> None:
    """Whether ranks count it, or llguidance holds the bound."""
    tag = {
        "type": "tag",
        "begin": "<f>",
        "content": {"type": "json_schema", "json_schema": SHORT},
        "end": "!",
    }
    form = json.loads(json.dumps(AROUND[name]).replace("null", json.dumps(tag)))
    job = _job(form, "guidance")
    done = Compiler(Backends(words), words).run(job)
    ranks = LoadedGrammars(Backends(words))
    taken = {name: getattr(done, name) for name in ("backend", "spec", "positions")}
    assert not ranks.load(Load(key=job.key, **taken)).error
    assert bool(done.positions) == (name != "a pattern could match it, too")
    for text in ("abc", "\t", "a\x1fb", "é🙂x", "", "abcd", "\\n\\n\\n", '\\"'):
        matcher = ranks.matcher(job.key, None)
        bytes_ = f'<f>"{text}"!'.encode()
        is_taken = all(matcher.accept((words.tokens.index(bytes([byte])),)) for byte in bytes_)
        is_valid = is_json(f'"{text}"') and 1 <= len(json.loads(f'"{text}"')) <= SHORT["maxLength"]
        assert is_taken == is_valid, text


@pytest.mark.parametrize(
    "bounds", [{"maxLength": 1}, {"minLength": 1, "maxLength": 1}, {"maxLength": 2}], ids=str
)
def test_no_length_lets_a_control_character_in(words: Vocabulary, bounds: Any) -> None:
    """Of one character xgrammar makes another rule than of two."""
    library = Backends(words)["xgrammar"]
    compiled = library.compile("json", json.dumps({"type": "string", **bounds}))
    for text, is_taken in ((b'"\t"', False), (b'"a"', True)):
        matcher = compiled.matcher()
        assert all(matcher.accept((words.tokens.index(bytes([byte])),)) for byte in text) == is_taken


@pytest.mark.parametrize(
    ("kind", "spec", "before"),
    [
        ("json", {}, '"'),
        ("json", {"type": "string", "maxLength": 3}, '"'),
        ("json", {"properties": {"a": {}}, "additionalProperties": {}}, '{"'),
        ("regex", "b.b", "b"),
        ("regex", "[^b]", ""),
        ("grammar", "root ::= [^b]", ""),
        ("grammar", "root ::= [\u0100-\uffff]", ""),
        ("structural_tag", _format({"type": "regex", "pattern": "[^b]{3}"}), ""),
    ],
)
@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_no_character_is_a_surrogate(
    words: Vocabulary, backend: Any, kind: Any, spec: Any, before: str
) -> None:
    """An encoded one is no UTF-8: it is three characters for whoever reads it with replacement."""
    library = Backends(words)[backend]
    if backend == "guidance" and kind in {"grammar", "structural_tag"}:
        pytest.skip("it does not take such a text")
    compiled = library.compile(kind, spec if isinstance(spec, str) else json.dumps(spec))
    for character, is_taken in (
        (b"\xed\xa0\x80", False),
        (b"\xed\xbf\xbf", False),
        ("\ue000".encode(), True),
    ):
        matcher = compiled.matcher()
        text = before.encode() + character
        assert all(matcher.accept((words.tokens.index(bytes([byte])),)) for byte in text) == is_taken


BOUNDED_TAG = {"begin": "<f>", "content": {"type": "json_schema", "json_schema": SHORT}, "end": "!"}


@pytest.mark.parametrize(
    "form",
    [
        {"type": "tag", **BOUNDED_TAG, "begin": 5},
        {"type": "tag", **BOUNDED_TAG, "begin": {"type": "token", "token": "<nope>"}},
        {"type": "tags_with_separator", "tags": [BOUNDED_TAG], "separator": 5},
        {"type": "triggered_tags", "tags": [BOUNDED_TAG], "triggers": 5},
        {"type": "triggered_tags", "tags": [BOUNDED_TAG], "triggers": [1]},
        {"type": "sequence", "elements": [{"type": "tag", **BOUNDED_TAG}, {"type": "dispatch", "rules": 5}]},
    ],
    ids=json.dumps,
)
def test_a_malformed_tag_with_a_length_in_it_is_refused(words: Vocabulary, form: Any) -> None:
    with pytest.raises(GuidedError) as refused:
        Compiler(Backends(words), words).run(_job(form))
    assert refused.value.path
