"""Grammars with which somebody who knows the claims alone broke them: whole path, a rank's matchers.

jsonschema judges each value; what is valid can be generated, in the schema's order, and what is not cannot.
"""

import json
from typing import Any

import jsonschema
import pytest

from support.worker_and_rank import WorkerAndRank


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


@pytest.mark.parametrize(("schema", "values"), SERVED, ids=lambda one: json.dumps(one)[:60])
def test_what_is_valid_can_be_generated_and_nothing_else(
    served: WorkerAndRank, schema: Any, values: list[Any]
) -> None:
    formats = jsonschema.Draft202012Validator.FORMAT_CHECKER
    judge = jsonschema.Draft202012Validator(schema, format_checker=formats)
    matchers = served.matchers("json", schema)
    taken = [value for value in values if served.takes(matchers(), json.dumps(value))]
    assert taken == [value for value in values if judge.is_valid(value)]


def test_a_long_choice_is_compiled_soon_by_the_library_that_is_asked_first(served: WorkerAndRank) -> None:
    """Each alternative was an item of a parser's row, of which llguidance has 2,000: refused, a dead end."""
    assert served.compiled("choice", [f"option {number}" for number in range(5000)]).backend == "guidance"


@pytest.mark.parametrize(
    ("pattern", "takes", "refuses"), [("^[^]a$", "xa", "x"), ("^([]|b)$", "b", "]")], ids=["any", "none"]
)
def test_an_empty_class_is_what_ecma_has(
    served: WorkerAndRank, pattern: str, takes: str, refuses: str
) -> None:
    """Python, which judges elsewhere, takes a bracket behind the first for itself, as Rust does."""
    matchers = served.matchers("json", text(pattern))
    assert served.takes(matchers(), json.dumps(takes))
    assert not served.takes(matchers(), json.dumps(refuses))


def test_a_choice_may_hold_any_character(served: WorkerAndRank) -> None:
    spec = json.dumps(["a\x7fb", "\x00", "\U0001f600", '"\\', "\n"], ensure_ascii=False)
    assert served.compiled("choice", spec, "guidance").backend == "guidance"
