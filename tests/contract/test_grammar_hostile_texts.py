"""Texts that are wrong in odd ways, through the whole worker: each is served, or refused as its own fault."""

import json
import re
from typing import Any

import pytest

from guided_contract.backends import NAMES
from guided_contract.errors import ErrorCode
from guided_contract.wire import Backend, Kind
from guided_grammar.backend import Threads
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary, worker
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_messages import Failed, Job
from support.engine import pod_config

ITS_OWN_FAULT = {
    ErrorCode.GRAMMAR_INVALID,
    ErrorCode.GRAMMAR_TOO_LARGE,
    ErrorCode.GRAMMAR_UNSUPPORTED,
    ErrorCode.GRAMMAR_DEAD_END,
    ErrorCode.GRAMMAR_SLOW,
}
# Python's, C++'s and Rust's words, which tell an author of a schema nothing.
OURS_ALONE = re.compile(
    r"Error\b|has no attribute|Traceback|\bsys\.|NoneType|\bdict\b|\.cc:|\.py\b|\bNone\b"
    r"|SearchRegex|\^ error|digits: 9"
)


def to(target: Any) -> dict[str, Any]:
    """Return a schema that refers to what stands below a keyword that nobody knows."""
    return {"$ref": "#/zz", "zz": target}


SCHEMAS: dict[str, Any] = {
    "reference to a number": to(5),
    "to a list": to([1]),
    "to a text": to("a"),
    "to null": to(None),
    "to a length that is a text": to({"type": "string", "maxLength": "5"}),
    "to a pattern that is a number": to({"type": "string", "pattern": 5}),
    "to properties that are a list": to({"type": "object", "properties": ["a"]}),
    "to an enum that is a number": to({"enum": 5}),
    "to a required that is a number": to({"type": "object", "required": 5}),
    "to a type that is an object": to({"type": {}}),
    "to a const": {"$ref": "#/const", "const": {"type": "null"}},
    "with an escape": {"$ref": "#/%24defs/a", "$defs": {"a": {"type": "string"}}},
    "with half an escape": {"$ref": "#/$defs/100%", "$defs": {"100%": {"type": "string"}}},
    "to an anchor": {"$ref": "#foo", "$defs": {"a": {"$anchor": "foo", "type": "string"}}},
    "to an anchor that is not there": {"$ref": "#foo"},
    "to itself": {"$ref": "#"},
    "to itself below": {"properties": {"a": {"$ref": "#/properties/a"}}},
    "outside": {"$ref": "http://localhost:1/a"},
    "to a file": {"$ref": "file:///etc/passwd"},
    "dynamic": {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "type": "null"}}},
    "bound of 4,301 digits": {"type": "string", "pattern": "^a{%s}$" % ("1" * 4301)},
    "bound of 2^31": {"type": "string", "pattern": "^a{2147483648}$"},
    "minimum of 4,300 digits": {"type": "integer", "minimum": int("1" * 4300)},
    "9,000 wrong types": {"properties": {f"p{number}": {"type": 5} for number in range(9000)}},
    "a long name": {"properties": {"x" * 100_000: {"type": "strng"}}},
    "a long value": {"type": "y" * 100_000},
    "a long pattern": {"type": "string", "pattern": "(" + "z" * 60_000},
    "a long reference": {"$ref": "#/" + "r" * 100_000},
    "a lookahead": {"type": "string", "pattern": "^(?=a)b$"},
    "a back reference": {"type": "string", "pattern": r"^(a)\1$"},
    "an open bracket": {"type": "string", "pattern": "["},
    "a NUL": {"type": "string", "pattern": "\x00", "enum": ["\x00"]},
    "an enum of nothing": {"enum": []},
    "all keywords wrong": dict.fromkeys(("type", "properties", "items", "required", "enum", "allOf"), 7),
    "draft 3": {"$schema": "http://json-schema.org/draft-03/schema#", "type": "any"},
    "an unknown dialect": {"$schema": "http://example.com/mine", "type": "string"},
    "false": False,
    "contradiction": {"allOf": [{"type": "string"}, {"type": "null"}]},
    "patterns that meet in too many states": {
        "type": "string",
        "allOf": [{"pattern": f"{letter}.{{20}}{letter.upper()}"} for letter in "aceg"],
    },
    "a pattern beside many lengths": {
        "type": "string",
        "format": "email",
        "minLength": 200,
        "maxLength": 254,
        "pattern": "@.*@?",
    },
    "a step of 300 digits below an end of a line": {
        "properties": {"a\nb": {"type": "number", "multipleOf": 1e-300}}
    },
    "an escape of one dialect": {"type": "string", "pattern": r"^\cA$"},
    "names of every script": {"properties": {"ключ\u202e\u0000": {"enum": ["💥", "\ud83d\ude00"]}}},
}
TAGS: dict[str, Any] = {
    "begin is a number": {"structures": [{"begin": 5, "schema": {}, "end": "e"}], "triggers": ["<"]},
    "trigger is a number": {"structures": [{"begin": "<a", "schema": {}, "end": "e"}], "triggers": [5]},
    "triggers are a text": {"structures": [{"begin": "<a", "schema": {}, "end": "e"}], "triggers": "<"},
    "no structures": {"triggers": ["<"]},
    "structures are an object": {"structures": {"begin": "a"}, "triggers": ["<"]},
    "a structure is null": {"structures": [None], "triggers": ["<"]},
    "no end": {"structures": [{"begin": "<a", "schema": {}}], "triggers": ["<"]},
    "schema is a text": {"structures": [{"begin": "<a", "schema": "x", "end": "e"}], "triggers": ["<"]},
    "no trigger fits": {"structures": [{"begin": "<a", "schema": {}, "end": "e"}], "triggers": ["["]},
    "format is null": {"format": None},
    "format is unknown": {"format": {"type": "nonsense"}},
    "format holds itself wrong": {"format": {"type": "sequence", "elements": 5}},
    "schema of a format": {"format": {"type": "json_schema", "json_schema": {"type": "strng"}}},
    "a tag in a tag": {"format": {"type": "tag", "begin": 1, "content": {}, "end": []}},
    "nothing": {},
    "long": {"structures": [{"begin": "<" * 90_000, "schema": {"type": 1}, "end": "e"}], "triggers": ["<"]},
}
TEXTS: dict[str, tuple[Kind, str]] = {
    "json: a comma": ("json", '{"type": "string",}'),
    "json: twice": ("json", '{"type": "string", "type": "null"}'),
    "json: NaN": ("json", '{"minimum": NaN}'),
    "json: digits": ("json", '{"minimum": %s}' % ("9" * 5000)),
    "json: a list": ("json", "[]"),
    "json: nothing": ("json", ""),
    "json: half a character": ("json", '{"enum": ["\\ud800"]}'),
    "json: deep": ("json", "[" * 3000 + "]" * 3000),
    "choice: empty": ("choice", "[]"),
    "choice: numbers": ("choice", "[1, 2]"),
    "choice: an empty string": ("choice", '[""]'),
    "regex: open": ("regex", "(a"),
    "regex: closed": ("regex", "a)"),
    "regex: class": ("regex", "[z-a]"),
    "regex: repeated nothing": ("regex", "*a"),
    "regex: lookbehind": ("regex", "(?<=a)b"),
    "regex: named": ("regex", "(?P<n>a)(?P=n)"),
    "regex: bound": ("regex", "a{2147483648}"),
    "regex: reversed bound": ("regex", "a{5,2}"),
    "regex: property": ("regex", r"\p{Greek}+"),
    "regex: escape": ("regex", "\\"),
    "regex: long": ("regex", "[" * 50_000),
    "regex: NUL": ("regex", "a\x00"),
    "regex: nothing": ("regex", ""),
    "ebnf: unknown rule": ("grammar", 'root ::= "a" b'),
    "ebnf: no root": ("grammar", 'a ::= "b"'),
    "ebnf: itself": ("grammar", "root ::= root"),
    "ebnf: twice": ("grammar", 'root ::= "a"\nroot ::= "b"'),
    "ebnf: an open text": ("grammar", 'root ::= "a'),
    "ebnf: a big bound": ("grammar", 'root ::= "a"{2147483648}'),
    "ebnf: spaces": ("grammar", "  \n "),
    "lark: unknown rule": ("grammar", 'start: "a" b'),
    "lark: itself": ("grammar", "start: start"),
    "lark: a term of itself": ("grammar", "start: A\nA: A"),
    "lark: import": ("grammar", "%import common.NOTHING\nstart: NOTHING"),
    "lark: an open regex": ("grammar", "start: /(/"),
    "lark: json": ("grammar", 'start: %json {"type": "strng"}'),
    "lark: 5,000 rules": ("grammar", "start: a0\n" + "\n".join(f"a{n}: a{n + 1}" for n in range(5000))),
    "neither": ("grammar", "SELECT * FROM t; -- 💥"),
}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    words = vocabulary.load(pod_config(tmp_path_factory.mktemp("pod")))
    return Compiler(Backends(words, Threads(compile=2)), words)


def judge(compiler: Compiler, kind: Kind, text: str, named: Backend | None) -> None:
    backends = list(NAMES.values()) if named is None else [named]
    job = Job(
        key="k",
        kind=kind,
        spec=text,
        backends=backends,
        named=named,
        timeout_s=60,
        memory_bytes=1 << 40,
    )
    outcome = worker._outcome(compiler, job, lambda _done: None)
    if isinstance(outcome, Failed):
        assert outcome.code in ITS_OWN_FAULT, outcome
        assert outcome.message.strip()
        assert not OURS_ALONE.search(outcome.message), outcome.message
        assert len(outcome.message) <= 800
        assert len(outcome.path or "") <= 300
        assert "\n" not in (outcome.path or "")


@pytest.mark.parametrize("named", [None, *NAMES.values()])
@pytest.mark.parametrize("case", SCHEMAS)
def test_a_schema_is_served_or_its_author_is_told(
    compiler: Compiler, case: str, named: Backend | None
) -> None:
    judge(compiler, "json", json.dumps(SCHEMAS[case]), named)


@pytest.mark.parametrize("named", [None, *NAMES.values()])
@pytest.mark.parametrize("case", TAGS)
def test_a_structural_tag_is_served_or_its_author_is_told(
    compiler: Compiler, case: str, named: Backend | None
) -> None:
    judge(compiler, "structural_tag", json.dumps(TAGS[case]), named)


@pytest.mark.parametrize("named", [None, *NAMES.values()])
@pytest.mark.parametrize("case", TEXTS)
def test_a_text_is_served_or_its_author_is_told(compiler: Compiler, case: str, named: Backend | None) -> None:
    kind, text = TEXTS[case]
    judge(compiler, kind, text, named)
