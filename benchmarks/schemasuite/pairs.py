"""Two keywords in one schema: what the suite, which mostly has one at a time, does not show.

Each is about values of one type; jsonschema judges them.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import jsonschema

from schemasuite.cases import Case, Instance
from schemasuite.outcomes import Outcome

_AND: Final = " + "
_INTEGER: Final = {"type": "integer"}
# By the type of values that they are about, schemas of one keyword each. Where a keyword says nothing without
# another, that one is there, too.
_ABOUT: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "array": {
        "contains": {"contains": {"const": 1}},
        "items": {"items": {"enum": [1, 2, 3]}},
        "maxContains": {"contains": {"const": 1}, "maxContains": 1},
        "maxItems": {"maxItems": 2},
        "minContains": {"contains": {"const": 1}, "minContains": 2},
        "minItems": {"minItems": 2},
        "prefixItems": {"prefixItems": [{"enum": [1, 2]}, {"enum": [1, 3]}]},
        "unevaluatedItems": {"prefixItems": [{"enum": [1, 2]}], "unevaluatedItems": False},
        "uniqueItems": {"items": {"enum": [1, 2, 3]}, "uniqueItems": True},
    },
    "number": {
        "exclusiveMaximum": {"exclusiveMaximum": 6},
        "exclusiveMinimum": {"exclusiveMinimum": 1},
        "maximum": {"maximum": 5},
        "minimum": {"minimum": 2},
        "multipleOf": {"multipleOf": 2},
    },
    "object": {
        "additionalProperties": {"additionalProperties": _INTEGER},
        "dependentRequired": {"dependentRequired": {"a": ["b"]}},
        "dependentSchemas": {"dependentSchemas": {"a": {"required": ["b"]}}},
        "maxProperties": {"maxProperties": 1},
        "minProperties": {"minProperties": 1},
        "patternProperties": {"patternProperties": {"^a": _INTEGER}},
        "properties": {"properties": {"a": _INTEGER, "b": {"type": "string"}}},
        "propertyNames": {"propertyNames": {"enum": ["a", "b"]}},
        "required": {"required": ["a"]},
        "unevaluatedProperties": {"properties": {"a": _INTEGER}, "unevaluatedProperties": False},
    },
    "string": {
        "format": {"format": "date"},
        "maxLength": {"maxLength": 3},
        "minLength": {"minLength": 2},
        "pattern": {"pattern": "a|^b"},
    },
}
_VALUES: Final[dict[str, list[Any]]] = {
    "array": [[], [1], [2], [4], [1, 1], [1, 2], [1, 3], [2, 1], [3, 1], [2, 2], [1, 1, 2], [1, 2, 3], ["x"]],
    "number": [0, 1, 2, 3, 4, 5, 6, 7, 2.5, -2],
    "object": [
        {},
        *({"a": 1}, {"a": "x"}, {"b": "x"}, {"b": 1}, {"c": 1}, {"c": "x"}, {"ab": 1}, {"ab": "x"}),
        *({"a": 1, "b": "x"}, {"a": 1, "b": 1}, {"a": 1, "c": 1}, {"b": "x", "c": 1}),
        {"a": 1, "b": "x", "c": 1},
    ],
    "string": ["", "a", "b", "x", "ba", "xa", "xx", "abc", "xyz", "baba", "2024-02-29", "2024-02-30"],
}


def _with_a(value: Any) -> dict[str, Any]:
    return {"properties": {"a": {"const": value}}, "required": ["a"]}


# Keywords about values of any type. Two of them are paired once, of objects.
_ANY: Final = ("$ref", "allOf", "anyOf", "const", "enum", "if", "not", "oneOf")
# What is asked of the values themselves is of no use for lists and objects that nobody lists.
_OF_PARTS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "array": {
        "if": {"if": {"minItems": 3}, "then": {"items": {"enum": [1, 2]}}},
        "not": {"not": {"contains": {"const": 3}}},
    },
    "object": {
        "if": {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        "not": {"not": {"required": ["c"]}},
        "oneOf": {"oneOf": [_with_a(1), _with_a("x")]},
    },
}


def refusals(outcomes: Iterable[Outcome]) -> dict[str, list[str] | None]:
    """Return beside which keywords each is refused that is so beside any; None: beside all."""
    beside: dict[str, list[str]] = {}
    total: Counter[str] = Counter()
    for outcome in outcomes:
        one, other = outcome.case.keyword.split(_AND)
        total.update((one, other))
        if outcome.refusal:
            beside.setdefault(one, []).append(other)
            beside.setdefault(other, []).append(one)
    return {
        name: None if len(others) == total[name] else sorted({*others})
        for name, others in sorted(beside.items())
    }


def pairs() -> Iterator[Case]:
    """Yield a case for each two keywords that may say something of the same value."""
    for kind, about in _ABOUT.items():
        known = about | {name: _of_any(name, _VALUES[kind]) for name in _ANY} | _OF_PARTS.get(kind, {})
        for (name, one), (other, another) in itertools.combinations(sorted(known.items()), 2):
            if name in _ANY and other in _ANY and kind != "object":
                continue
            case = _case(kind, (name, other), (one, another))
            if any(one.is_valid for one in case.instances):  # else the two contradict each other
                yield case


def _of_any(keyword: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return a schema of one keyword that allows some of the values, and forbids some."""
    some, most, last = {"enum": values[:-3]}, {"enum": values[2:]}, {"enum": values[-2:]}
    found: dict[str, dict[str, Any]] = {
        "$ref": {"$ref": "#/$defs/most", "$defs": {"most": most}},
        "allOf": {"allOf": [some, most]},
        "anyOf": {"anyOf": [{"enum": values[1:4]}, last]},
        "const": {"const": values[2]},
        "enum": some,
        "if": {"if": some, "then": most, "else": last},
        "not": {"not": {"enum": values[3:5]}},
        "oneOf": {"oneOf": [{"enum": values[1:4]}, {"enum": values[4:7]}]},
    }
    return found[keyword]


def _case(kind: str, names: tuple[str, str], parts: tuple[dict[str, Any], dict[str, Any]]) -> Case:
    one, other = parts
    shared = one.keys() & other.keys()
    # Both may need `contains`, and say the same of it; what differs has to be told apart by allOf.
    if any(one[keyword] != other[keyword] for keyword in shared):
        schema = {"type": kind, "allOf": [one, other]}
    else:
        schema = {"type": kind, **one, **other}
    kind_of_judge = jsonschema.Draft202012Validator
    judge = kind_of_judge(schema, format_checker=kind_of_judge.FORMAT_CHECKER)
    instances = tuple(Instance(value, judge.is_valid(value)) for value in _VALUES[kind])
    keyword = _AND.join(names)
    return Case("draft2020-12", keyword, f"{keyword}, of {kind}", schema, instances)
