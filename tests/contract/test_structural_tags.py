"""A structural tag: its schema is enforced with both libraries. Its refusals: test_grammar_refusals.py."""

import json
from typing import Any

import jsonschema
import pytest

from guided_sidecar.grammar.prepare.jobs import load_of
from support.worker_and_rank import WorkerAndRank

NUMBER = {"type": "regex", "pattern": "[0-9]+"}


def _format(value: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": value}


INSTANCES = [
    *(
        '{"zq": 1}',
        '{"zq": 10, "o": ["a"]}',
        '{"zq": 1, "x": 2}',
        "{}",
        '{"zq": "1"}',
        "5",
        '": "',
        "[]",
        '""',
    )
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
    served: WorkerAndRank, backend: Any, trigger: str, begin: str, schema: Any
) -> None:
    """vLLM 0.32 gives llguidance a grammar where that takes a schema: any JSON is then generated."""
    tag = {"structures": [{"begin": begin, "schema": schema, "end": "!"}], "triggers": [trigger]}
    compiled = served.backends[backend].compile("structural_tag", json.dumps(tag))
    validator = jsonschema.Draft202012Validator(schema)
    for instance in INSTANCES:
        taken = compiled.matcher().accept(served.spelled(f"x {begin}{instance}!"))
        assert taken == (is_json(instance) and validator.is_valid(json.loads(instance))), instance


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


SHORT: Any = {"type": "string", "minLength": 1, "maxLength": 3}
INNER = {"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": SHORT}, "end": "!"}


@pytest.mark.parametrize(
    ("form", "is_counted"),
    [
        ({"type": "triggered_tags", "triggers": ["<f"], "tags": [INNER]}, True),
        ({"type": "sequence", "elements": [{"type": "optional", "content": NUMBER}, INNER]}, False),
    ],
    ids=["what stands before it can be nothing else", "a pattern could match it, too"],
)
def test_a_bounded_string_of_a_tag_is_json(served: WorkerAndRank, form: Any, is_counted: Any) -> None:
    """Whether ranks count it, or llguidance holds the bound."""
    job = served.job("structural_tag", _format(form), "guidance")
    done = served.compiler.run(job)
    assert bool(done.positions) == is_counted
    assert not served.ranks.load(load_of(job.key, done)).error
    for text in ("abc", "\t", "a\x1fb", "é🙂x", "", "abcd", "\\n\\n\\n", '\\"'):
        is_taken = served.ranks.matcher(job.key, None).accept(served.spelled(f'<f>"{text}"!'))
        is_valid = is_json(f'"{text}"') and 1 <= len(json.loads(f'"{text}"')) <= SHORT["maxLength"]
        assert is_taken == is_valid, text


# Where lead bytes change, and beside the surrogates.
OF_UTF_8 = [
    chr(code).encode()
    for code in (0x100, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD000, 0xD55C, 0xD7FF, 0xE000, 0xFFFF)
]
OF_NONE = [b"\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf"]
OF_NONE += [b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80"]


@pytest.mark.parametrize(
    ("kind", "spec", "before"),
    [
        ("json", {}, '"'),
        ("json", {"type": "string", "maxLength": 3}, '"'),
        ("json", {"properties": {"a": {}}, "additionalProperties": {}}, '{"'),
        ("regex", "b.b", "b"),
        ("regex", "[^b]", ""),
        ("regex", "[^b]*", ""),
        ("grammar", "root ::= [^b]", ""),
        ("grammar", "root ::= [^b]*", ""),
        ("grammar", "root ::= [\u0100-\uffff]", ""),
        ("structural_tag", _format({"type": "regex", "pattern": "[^b]{3}"}), ""),
    ],
)
@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_every_character_is_utf_8(
    served: WorkerAndRank, backend: Any, kind: Any, spec: Any, before: str
) -> None:
    """Another byte is a character of its own, or several, for whoever reads it with replacement."""
    if backend == "guidance" and kind in {"grammar", "structural_tag"}:
        pytest.skip("it does not take such a text")
    text = spec if isinstance(spec, str) else json.dumps(spec)
    compiled = served.backends[backend].compile(kind, text)
    for character in OF_UTF_8 + OF_NONE:
        tokens = [served.tokens.index(bytes([byte])) for byte in before.encode() + character]
        assert compiled.matcher().accept(tokens) == (character in OF_UTF_8), character
