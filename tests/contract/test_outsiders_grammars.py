"""Grammars with which somebody who knows the claims alone broke them: whole path, a rank's matchers.

jsonschema judges each value; what is valid can be generated, in the schema's order, and what is not cannot.
"""

import json
from typing import Any

import jsonschema
import pytest
from devtools import tinymodel
from schemasuite.subjects import Ours, Words

from guided_contract.errors import GuidedError
from guided_grammar.backend import Threads
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_messages import Job

AB = {"enum": ["a", "bb"]}


def text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def of(schema: Any) -> dict[str, Any]:
    """Return an object that has to have `a`."""
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


SERVED: list[tuple[Any, list[Any]]] = [
    # Operators of sets of characters are a library's, not ECMA's.
    *((text(pattern), ["-", ",", "+", "a", "b", "c", "&", "~", "A", "1", "_", "[", "]", "z"]) for pattern in (
        "^[^+--]$", "^[+--]$", "^[^a&&b]$", "^[a-c&&b]$", r"^[\w&&b]$", "^[a~~b]$", "^[^a~~b]$", "^[a-z--b]$",
        "^[[]$", "^[^[]$", "^[a[b]c]$", r"^[\--b]$", "^[&-~]$", r"^[\]&&a]$", "^[[:alpha:]]$", r"^[\s\S]$",
    )),
    # What is listed beside what takes none of it.
    ({"oneOf": [{"const": "auto"}, text("^[0-9]+px$")]}, ["auto", "3px", "x"]),
    ({"type": "string", "oneOf": [{"const": "x"}, {"format": "date"}]}, ["x", "2020-01-01", "y"]),
    ({"oneOf": [{"const": 10}, {"type": "integer", "multipleOf": 3}]}, [10, 9, 8]),
    ({"oneOf": [of({"enum": ["x"]}), of(text("^y"))]}, [{"a": "x"}, {"a": "yy"}, {"a": "z"}]),
    # Lookahead of what is no list of texts.
    (text(r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"), ["1", "-1.50", ".5", "+", "-.", "", "1.", "1e5"]),
    (text(r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"),
     ["a@b.co", "a..b@c.de", ".a@b.co", "a.@b.co", "it's+x@a-b.co.uk", "a@b.c"]),
    (text(r"^(?!\s*$).+"), ["", " ", "\t", " a", "a", 'a"\\']),
    (text(r"^(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}$"),
     ["123-45-6789", "000-45-6789", "666-45-6789", "912-45-6789", "123-00-6789", "123-45-0000"]),
    ({"type": "number", "multipleOf": 1}, [-5, 3, 2.5]),
    ({"type": "object", "propertyNames": {"const": "a"}, "patternProperties": {".": {"type": "boolean"}}},
     [{"a": True}, {"a": 1}, {"b": True}]),
    # What no value meets is no way out of the others.
    ({"type": "object", "properties": {"b": {"$ref": "#/$defs/t"}, "c": {"type": "integer"}},
      "$defs": {"t": of({"$ref": "#/$defs/t"})}}, [{"c": 1}, {}, {"b": 1}, {"c": "x"}]),
    *(({"type": "object", "properties": {"a": {"$ref": "#/$defs/disallowed"}, "c": {"type": "integer"}},
        "$defs": {"disallowed": {"$ref": "#/$defs/nothing"}, "nothing": nothing}}, [{}, {"c": 1}, {"a": 1}])
      for nothing in ({"not": {}}, {"enum": []}, False)),
    # A discriminator that one part requires, and of which another says the value.
    ({"oneOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}],
      "$defs": {"base": {**of({"type": "string"}), "additionalProperties": True},
                **{one: {"allOf": [{"$ref": "#/$defs/base"},
                                   {"properties": {"a": {"const": one}, one: {"type": "integer"}}}]}
                   for one in "xy"}}},
     [{"a": "x", "x": 1}, {"a": "y"}, {"a": "z"}, {"x": 1}, {"a": "x", "x": "1"}]),
]  # fmt: skip
REFUSED: list[tuple[Any, str, str]] = [
    ({"oneOf": [{"enum": [[1], ["a"]]}, {"type": "array", "items": {"const": "a"}}]},
     "unsupported", "$.oneOf[1]"),
    ({"type": "integer", "multipleOf": 5, "maximum": -3}, "unsupported", "$.multipleOf"),
    ({"type": "array", "minItems": 1_000_000_000}, "too_large", "$.minItems"),
    # A further name may come twice, and then is one property.
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": False, "c": False}, "required": ["a"],
      "minProperties": 3, "allOf": [{"additionalProperties": True}]}, "unsupported", "$.minProperties"),
    ({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": False,
      "maxProperties": 1, "dependentRequired": {"a": ["b"]}}, "unsupported", "$.maxProperties"),
    # One schema, where ranks can follow its items, and where they cannot.
    ({"type": "object", "required": ["a", "b"], "additionalProperties": False,
      "properties": {"a": {"allOf": [{"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
                                     {"$ref": "#/$defs/u"}]},
                     "b": {"allOf": [{"type": "array", "items": {"type": "integer"}},
                                     {"$ref": "#/$defs/u"}]}},
      "$defs": {"u": {"type": "array", "uniqueItems": True}}},
     "unsupported", "$.properties.a.allOf[0].uniqueItems"),
    # A leap second is a time, though no time that is generated.
    ({"oneOf": [{"const": "23:59:60Z"}, {"type": "string", "format": "time"}]},
     "unsupported", "$.oneOf[1]"),
]  # fmt: skip


@pytest.fixture(scope="module")
def tiny() -> Words:
    return Words(tinymodel.models() / "tiny")


@pytest.fixture(scope="module")
def known(tiny: Words) -> Backends:
    return Backends(tiny.vocabulary, Threads(compile=1))


@pytest.fixture(scope="module")
def ours(tiny: Words, known: Backends) -> Ours:
    return Ours(tiny, known)


@pytest.mark.parametrize(("schema", "values"), SERVED, ids=lambda one: json.dumps(one)[:60])
def test_what_is_valid_can_be_generated_and_nothing_else(ours: Ours, schema: Any, values: list[Any]) -> None:
    formats = jsonschema.Draft202012Validator.FORMAT_CHECKER
    accepts, judge = ours.take(schema), jsonschema.Draft202012Validator(schema, format_checker=formats)

    assert [value for value in values if accepts(json.dumps(value)) != judge.is_valid(value)] == []


@pytest.mark.parametrize(("schema", "code", "path"), REFUSED, ids=lambda one: json.dumps(one)[:60])
def test_what_cannot_be_enforced_whole_is_refused(ours: Ours, schema: Any, code: str, path: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        ours.compiled(schema)
    assert (refusal.value.code, refusal.value.path) == (f"grammar_{code}", path)


LONG = "SECRET" * 100
WORDS: list[tuple[Any, str]] = [
    ({"type": "string", "pattern": r"\bfoo"}, "word boundaries"),
    ({"type": "string", "pattern": LONG + r"\b"}, "word boundaries"),
    ({"const": LONG, "pattern": "^x"}, "no value meets"),
    ({"enum": ["a"], "const": "b"}, "no value meets"),
    ({"type": "number", "multipleOf": 1e300}, "too many digits"),
    ({"items": [{"type": "string"}]}, "write prefixItems"),
    ({"not": []}, "is not of type"),
    ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, "write the bound itself"),
    (
        {**of({"type": "integer"}), "required": ["b"], "additionalProperties": False},
        "$.required: no value meets the schema",
    ),
    ({"type": "string", "pattern": r"^(?!a\b)"}, "list what may stand there"),
    ({"type": "object", "properties": {LONG: {"type": "nope"}}}, '"nope" is not a JSON type'),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMaximum": True}, "is a dependency of"),
    ({"type": "string", "pattern": f"({LONG}"}, "unterminated subpattern at position 0"),
]


@pytest.mark.parametrize(("schema", "words"), WORDS, ids=lambda one: json.dumps(one)[:40])
def test_a_refusal_is_short_and_in_plain_words(ours: Ours, schema: Any, words: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        ours.compiled(schema)
    message = refusal.value.message

    assert words in message
    assert len(message) < 300
    assert message.count("\n") == 0
    assert not [one for one in ("Some(", "Unicode", "Unsatisfiable", "(And", "anyOf is") if one in message]


def test_a_long_choice_is_compiled_soon_by_the_library_that_is_asked_first(
    tiny: Words, known: Backends
) -> None:
    """Each alternative was an item of a parser's row, of which llguidance has 2,000: refused, a dead end."""
    spec = json.dumps([f"option {number}" for number in range(5000)])
    job = Job(key="k", kind="choice", spec=spec, backends=list(known), timeout_s=60, memory_bytes=1 << 40)

    assert Compiler(known, tiny.vocabulary).run(job).backend == "guidance"


@pytest.mark.parametrize("depth", [20, 40, 150])
def test_groups_that_repeat_what_repeats_are_refused_at_every_depth(
    tiny: Words, known: Backends, depth: int
) -> None:
    """Coming to where a token was to be repeated had used up the time for repeating it."""
    spec = f'root ::= {"(" * depth}"a"{")*" * depth}'
    job = Job(key="k", kind="grammar", spec=spec, backends=list(known), timeout_s=60, memory_bytes=1 << 40)

    with pytest.raises(GuidedError) as refusal:
        Compiler(known, tiny.vocabulary).run(job)
    assert refusal.value.code == "grammar_slow"


@pytest.mark.parametrize("regex", ["\\", "a\\", "(\\"])
def test_a_regex_that_ends_in_a_backslash_is_broken(tiny: Words, known: Backends, regex: str) -> None:
    job = Job(key="k", kind="regex", spec=regex, backends=list(known), timeout_s=60, memory_bytes=1 << 40)

    with pytest.raises(GuidedError) as refusal:
        Compiler(known, tiny.vocabulary).run(job)
    assert refusal.value.code == "grammar_invalid"


@pytest.mark.parametrize(
    ("pattern", "takes", "refuses"), [("^[^]a$", "xa", "x"), ("^([]|b)$", "b", "]")], ids=["any", "none"]
)
def test_an_empty_class_is_what_ecma_has(ours: Ours, pattern: str, takes: str, refuses: str) -> None:
    """Python, which judges elsewhere, takes a bracket behind the first for itself, as Rust does."""
    accepts = ours.take(text(pattern))
    assert accepts(json.dumps(takes))
    assert not accepts(json.dumps(refuses))


def test_a_choice_may_hold_any_character(tiny: Words, known: Backends) -> None:
    spec = json.dumps(["a\x7fb", "\x00", "\U0001f600", '"\\', "\n"], ensure_ascii=False)
    job = Job(key="k", kind="choice", spec=spec, backends=["guidance"], timeout_s=60, memory_bytes=1 << 40)

    assert Compiler(known, tiny.vocabulary).run(job).backend == "guidance"
