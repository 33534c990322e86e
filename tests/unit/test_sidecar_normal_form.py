"""The normal form takes nothing that the schema forbids, and of what it allows what is said here.

jsonschema is the judge of both.
"""

import json
import os
import random
from typing import Any

import grammar_corpus
import jsonschema
import pytest

from guided_contract.errors import GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import NORMAL_FORM
from guided_sidecar.grammar.schema import additional_properties, normal, schema
from support.compositions import schemas, values
from support.compositions.judge import Judge, UnknownError

SEED = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("COUNT", "400"))
INTEGER = {"type": "integer"}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": INTEGER}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "tricks": INTEGER}, "required": ["kind"]}
KIND = {"required": ["kind"]}
PAID = {"type": "object", "properties": {"card": {"type": "string"}, "address": {"type": "string"}}}
RED = {"enum": ["red", "green", "blue"]}


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def takes(form: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(form).is_valid(value))


def has_own_words(form: Any) -> bool:
    return all(part.keys() <= NORMAL_FORM for part in subschemas.within(form))


EXACT: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("not anything", {"anyOf": [{"not": {}}, INTEGER]}, [1], ["a"]),
    (
        "dependentRequired",
        {**PAID, "dependentRequired": {"card": ["address"]}},
        [{}, {"address": "a"}, {"card": "1", "address": "a"}],
        [{"card": "1"}],
    ),
    (
        "dependencies of draft 7",
        {"$schema": DRAFT_7, **PAID, "dependencies": {"card": {"required": ["address"]}}},
        [{}, {"card": "1", "address": "a"}],
        [{"card": "1"}],
    ),
    (
        "a discriminated union behind references",
        {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": {"cat": CAT, "dog": DOG}},
        [{"kind": "cat", "lives": 9}, {"kind": "dog"}],
        [{"kind": "cow"}, {"lives": 9}, {"kind": "cat", "lives": "nine"}],
    ),
    (
        "kinds of objects, one of which goes on with them all",
        {
            "$ref": "#/$defs/n",
            "$defs": {
                "n": {
                    **KIND,
                    "type": "object",
                    "properties": {
                        "kind": {"const": "n"},
                        "c": {"oneOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}]},
                    },
                },
                "x": {**KIND, "type": "object", "properties": {"kind": {"const": "x"}}},
                "y": {**KIND, "type": "object", "properties": {"kind": {"const": "y"}}},
            },
        },
        [{"kind": "n", "c": {"kind": "n", "c": {"kind": "y"}}}],
        [{"kind": "n", "c": {"kind": "z"}}, {"kind": "n", "c": 1}],
    ),
    (
        "unique values of a list",
        {"type": "array", "items": RED, "uniqueItems": True},
        [[], ["red"], ["blue", "red"], ["red", "green", "blue"]],
        [["red", "red"], ["pink"]],
    ),
    (
        "one of two names",
        {**object_of(a={}, b={}, c={}), "oneOf": [{"required": ["a", "c"]}, {"required": ["b", "c"]}]},
        [{"a": 1, "c": 1}, {"b": 1, "c": 1}],
        [{"c": 1}, {"a": 1, "b": 1, "c": 1}],
    ),
    ("unique, one item", {"type": "array", "maxItems": 1, "uniqueItems": True}, [[], [1]], [[1, 2]]),
    ("names by a pattern", {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}},
     [{"a": 1}], [{"A": 1}]),
    ("names by a length", {"type": "object", "propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
    (
        "names by a list",
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": INTEGER},
        [{"a": 1}, {}],
        [{"c": 1}, {"a": "x"}],
    ),
    ("texts of a list and a format", {"enum": ["2020-02-29", "2021-02-29", 1], "format": "date"},
     ["2020-02-29", 1], ["2021-02-29", "x"]),
    ("arrays of a list, unique", {"enum": [[1, 1], [1, 2]], "uniqueItems": True}, [[1, 2]], [[1, 1]]),
    ("whole numbers of a list", {"type": "integer", "enum": [1, 2.0, 2.5, True]}, [1, 2], [2.5, True]),
    (
        "two properties of three",
        {**object_of(a={}, b={}, c={}), "additionalProperties": False,
         "minProperties": 2, "maxProperties": 2},
        [{"a": 1, "b": 1}, {"b": 1, "c": 1}],
        [{"a": 1}, {"a": 1, "b": 1, "c": 1}],
    ),
    ("a name that is taken", {"type": "string", "pattern": "^(?!admin$)[a-z]{5}$"}, ["admit"], ["admin"]),
    (
        "a password",
        {"type": "string", "pattern": "^(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9]{8,20}$"},
        ["aaaaaaA1"],
        ["aaaaaaaa", "A1"],
    ),
    ("draft 4's flags", {"$schema": DRAFT_4, **INTEGER, "minimum": 3, "exclusiveMinimum": True}, [4], [3]),
    (
        "draft 7's tuples",
        {"$schema": DRAFT_7, "type": "array", "items": [INTEGER], "additionalItems": False},
        [[1], []],
        [[1, 2], ["a"]],
    ),
    ("beside a reference of draft 7", {"$schema": DRAFT_7, "$ref": "#/definitions/a", "type": "null",
                                       "definitions": {"a": INTEGER}}, [1], [None]),
    ("an address of no draft", {"$schema": DRAFT_7.replace("http", "https"), "$ref": "#/$defs/a",
                                **INTEGER, "$defs": {"a": {}}}, [1], ["a"]),
    ("an escaped reference", {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": INTEGER}}, [1], ["a"]),
    ("a reference through an unknown keyword", {"$ref": "#/x-kept/a", "x-kept": {"a": INTEGER}}, [1], ["a"]),
    ("names that we would give", {"$ref": "#/x-kept/a", "x-kept": {"a": {"allOf": [
        {"$ref": "#/$defs/ref0"}, {"$ref": "#/$defs/a.b%25"}]}}, "$defs": {"ref0": {"type": "number"},
        "a.b%": {"minimum": 3}}}, [3], [1, "a"]),
    ("a recursive reference", {**object_of(a={"$ref": "#"}), "additionalProperties": False},
     [{}, {"a": {"a": {}}}], [{"a": 1}, {"b": {}}]),
    ("a format that is none", {"type": "string", "format": "password"}, ["x"], [1]),
    ("annotations", {**object_of(title={"title": "t", "nullable": True}), "example": 1, "id": "x"},
     [{"title": 1}], [1]),
    ("a date", {"type": "string", "format": "date"}, ["2024-02-29", "2000-02-29", "2023-12-31", "2023-06-30"],
     ["2023-02-29", "1900-02-29", "2023-06-31", "2023-13-01", "2023-1-1", "2023-01-01x"]),
    ("a date-time", {"type": "string", "format": "date-time", "pattern": "Z$"}, ["2024-01-01T23:59:59.5Z"],
     ["2024-01-01T24:00:00Z", "2024-01-01T23:59:59+01:00", "2024-01-01T23:59:60Z"]),
    ("a json-pointer", {"type": "string", "format": "json-pointer"}, ["", "/a~1b/c"], ["a", "/~2"]),
    ("what is about other types", {"type": "object", "exclusiveMinimum": 0, "pattern": "a(?=b)",
                                   "uniqueItems": True}, [{"a": 1}], [1, []]),
    ("names that are looked ahead for",
     {"type": "object", "patternProperties": {"^(?!a$)": INTEGER}, "additionalProperties": False},
     [{"b": 1}], [{"a": 1}, {"b": "b"}]),
    ("a bound beyond all numbers", {"type": "number", "maximum": 1.5e308}, [3.5], ["a"]),
    ("1.0 of something", {"type": "string", "maxLength": 1.0}, ["a"], ["ab"]),
]  # fmt: skip


@pytest.mark.parametrize(("written", "valid", "invalid"), [case[1:] for case in EXACT],
                         ids=[case[0] for case in EXACT])  # fmt: skip
def test_the_form_takes_what_the_schema_takes(written: Any, valid: list[Any], invalid: list[Any]) -> None:
    before = json.dumps(written)
    schema.check(written)
    form = normal.read(written).schema
    assert json.dumps(written) == before
    assert [value for value in valid if not takes(form, value)] == []
    assert [value for value in invalid if takes(form, value)] == []


BASE = object_of(id=INTEGER)
CLOSED: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("named properties", object_of(a=INTEGER), [{}, {"a": 1}], [{"b": 1}]),
    ("a required name", {**object_of(a={}), "required": ["b"]},
     [{"b": 1}, {"a": 1, "b": 1}], [{"b": 1, "c": 1}]),
    ("no properties", {"type": "object", "properties": {}}, [{}], [{"a": 1}]),
    ("any object", {"type": "object"}, [{}, {"a": 1}], []),
    ("what is said to be open", {**object_of(a={}), "additionalProperties": True}, [{"b": 1}], []),
    ("patterns", {"type": "object", "patternProperties": {"^x": {}}}, [{"x1": 1}], [{"a": 1}]),
    (
        "parts of allOf",
        {"allOf": [object_of(a=INTEGER), object_of(b=INTEGER)]},
        [{"a": 1, "b": 1}, {}],
        [{"c": 1}],
    ),
    (
        "branches beside properties",
        {**BASE, "anyOf": [{"properties": {"a": INTEGER}, "required": ["a"]}, {"required": ["b"]}]},
        [{"id": 1, "a": 1}, {"id": 1, "b": 1}],
        [{"a": 1, "b": 1, "c": 1}, {"a": 1, "z": 1}],
    ),
    (
        "what is extended, and alone",
        {
            **object_of(
                alone={"$ref": "#/$defs/base"},
                more={"allOf": [{"$ref": "#/$defs/base"}, object_of(extra=INTEGER)]},
            ),
            "$defs": {"base": BASE},
        },
        [{"alone": {"id": 1}}, {"more": {"id": 1, "extra": 1}}],
        [{"alone": {"extra": 1}}, {"more": {"zzz": 1}}, {"zzz": 1}],
    ),
    (
        "a union beside others",
        {
            **object_of(name={}, pet={"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]}),
            "$defs": {"cat": CAT, "dog": DOG},
        },
        [{"name": 1, "pet": {"kind": "cat", "lives": 1}}],
        [{"zzz": 1}, {"pet": {"kind": "cat", "zzz": 1}}, {"pet": {"kind": "dog", "lives": 1}}],
    ),
    ("an implied type", {"items": INTEGER}, [[1], []], [["a"], 1]),
    ("keywords of two types", {"items": INTEGER, "minLength": 1}, [[1], "a", None], [["a"], ""]),
    ("a tuple", {"type": "array", "prefixItems": [INTEGER]}, [[], [1]], [[1, 2]]),
    ("a recursive schema", {**object_of(a={"$ref": "#"}), "required": ["b"]},
     [{"b": 1, "a": {"b": 2}}], [{"b": 1, "a": {"b": 2, "c": 3}}]),
]  # fmt: skip


@pytest.mark.parametrize(("written", "kept", "gone"), [case[1:] for case in CLOSED],
                         ids=[case[0] for case in CLOSED])  # fmt: skip
def test_what_is_silent_on_further_properties_is_closed(
    written: Any, kept: list[Any], gone: list[Any]
) -> None:
    closed = additional_properties.close(normal.read(written).schema)
    assert [value for value in kept if not takes(closed, value)] == []
    assert [value for value in gone if takes(closed, value)] == []


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ({"properties": {"a": {"x-guidance": {"lenient": True}}}}, "$.properties.a['x-guidance']"),
        ({"items": {"type": "string", "not": {"pattern": "a"}}}, "$.items.not"),
        ({"type": "integer", "if": {"minimum": 3}, "then": {"maximum": 5}}, "$.if"),
        ({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 2}]}, "$.oneOf[1]"),
        ({"type": "string", "oneOf": [{"pattern": "^x"}, {"pattern": "^y"}]}, "$.oneOf[1]"),
        ({"type": "object", "propertyNames": {"enum": ["\u00e9"], "pattern": "^\\w$"}}, "$.propertyNames"),
        ({"type": "object", "minProperties": 2}, "$.minProperties"),
        ({"type": "string", "pattern": r"^(a)\1$"}, "$.pattern"),
        ({"type": "string", "pattern": "(?<!a)b"}, "$.pattern"),
        ({"type": "string", "pattern": r"^(?!a\b)"}, "$.pattern"),
        ({"type": "string", "pattern": "^(?![a-z]{9999})"}, "$.pattern"),
        ({"type": "object", "patternProperties": {"^(?=a)..$": {}}}, "$.patternProperties['^(?=a)..$']"),
        ({"type": "integer", "minimum": 1 << 70}, "$.minimum"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "$.oneOf[1]"),
        ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["a", "b"]}]}, "$.oneOf[1]"),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "$.oneOf[1]"),
        ({"oneOf": [{**KIND, "properties": {"kind": {"const": one}}} for one in "ab"]}, "$.oneOf[1]"),
        ({"oneOf": [{"required": ["xy"]}, {"patternProperties": {"^x": RED}, "additionalProperties": False}]},
         "$.oneOf[1]"),
        ({"type": "object", "propertyNames": {"enum": ["a", "dd"], "maxLength": 1}}, "$.propertyNames"),
        ({"unevaluatedItems": False}, "$.unevaluatedItems"),
        ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", **INTEGER}}}, "$.$ref"),
        ({"$id": "http://x/y", "$ref": "z", "$defs": {"q": {"$id": "z", **INTEGER}}}, "$.$ref"),
        ({"$ref": "#/x-kept/u", "x-kept": {"u": {"$id": "http://x/u", "$ref": "#/$defs/a"}},
          "$defs": {"a": {}}}, "$['x-kept'].u.$id"),
        ({"$ref": "#/$defs/x/foo/y", "$defs": {"x": {"$id": "http://e/", "foo": {"y": {"$ref": "#/z"}}}},
          "z": INTEGER}, "$.$defs.x.$id"),
        ({"$schema": DRAFT_7, "dependencies": {"a": {"$id": "http://e/", "items": {"$ref": "#/z"}}},
          "z": INTEGER}, "$.dependencies.a.$id"),
        ({"$schema": DRAFT_7, "properties": {"a": {"$schema": DRAFT_4, "const": 5}}},
         "$.properties.a.$schema"),
        ({"$defs": {"u": {"$id": "http://x/u", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": INTEGER}},
                    "a": {}}, "$ref": "#/$defs/u"}, "$.$defs.u.$id"),
        ({"items": {"type": "array", "contains": INTEGER}}, "$.items.contains"),
        ({"items": {"$dynamicRef": "#n"}, "$defs": {"a": {"$dynamicAnchor": "n"}}}, "$.items.$dynamicRef"),
        ({"$defs": {"a": {"oneOf": [{"format": "uuid"}, {"format": "date"}]}}, "$ref": "#/$defs/a"},
         "$.$defs.a.oneOf[1]"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_so_is_refused_with_its_path(written: Any, path: str) -> None:
    with pytest.raises(GuidedError) as refusal:
        normal.read(written)
    assert (refusal.value.code, refusal.value.path) == ("grammar_unsupported", path)


def test_an_open_object_or_array_says_so() -> None:
    """As vLLM runs it, xgrammar takes what is silent for closed, wherever another keyword stands beside."""
    closed = additional_properties.close(
        normal.read(
            {"anyOf": [{"type": "object", "maxProperties": 2}, {"type": ["array", "null"], "maxItems": 1}]}
        ).schema
    )
    assert closed["anyOf"][0]["additionalProperties"] is True
    assert closed["anyOf"][1]["items"] is True


def test_references_in_a_circle_come_to_an_end() -> None:
    circle = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    for more in (
        {"items": circle["a"], "uniqueItems": True},
        {"propertyNames": circle["a"]},
    ):
        with pytest.raises(GuidedError):
            normal.read({"$defs": circle, **more})


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


def test_the_normal_form_has_words_of_its_own() -> None:
    """Rules of what a library does not enforce, and counted bounds, know these alone."""
    texts = [json.loads(entry.text) for entry in grammar_corpus.corpus() if entry.kind == "json"]
    written = 0
    for text in texts:
        try:
            form = normal.read(text).schema
        except GuidedError:
            continue
        written += 1
        assert has_own_words(form), text
        assert has_own_words(additional_properties.close(form, spells=True)), text
    assert written > len(texts) / 2


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ({"properties": {"b": {"type": "number", "minimum": 1e30}}}, "$.properties.b.minimum"),
        ({"items": {"anyOf": [{"type": "integer", "maximum": -(1 << 63)}]}}, "$.items.anyOf[0].maximum"),
        ({"type": "number", "exclusiveMinimum": 1e300}, "$.exclusiveMinimum"),
    ],
)
def test_a_bound_that_no_library_counts_to_is_told_where_it_stands(written: Any, path: str) -> None:
    with pytest.raises(GuidedError, match="are not supported") as refused:
        normal.read(written)
    assert refused.value.path == path


FIRST = {**object_of(x=INTEGER), "required": ["x"]}
SECOND = {**object_of(y=INTEGER), "required": ["y"]}


@pytest.mark.parametrize(
    ("there", "second", "valid"),
    [
        ({"$defs": {"a": FIRST, "a.open": {"type": "string"}}}, {"$ref": "#/$defs/a.open"}, "a"),
        (
            {"$defs": {"a": FIRST}, "definitions": {"a": SECOND}},
            {"allOf": [{"$ref": "#/definitions/a"}, object_of(p={})]},
            {"y": 1},
        ),
    ],
)
def test_what_is_left_open_has_a_name_of_its_own(there: Any, second: Any, valid: Any) -> None:
    """A definition `a.open` of the author's, or a second `a`, was taken for `a` where that is left open."""
    first = {"allOf": [{"$ref": "#/$defs/a"}, object_of(p={})]}
    written = {**there, "type": "array", "prefixItems": [first, second], "minItems": 2}
    closed = additional_properties.close(normal.read(written).schema)
    assert takes(closed, [{"x": 1}, valid])
    assert not takes(closed, [{"x": 1}, {"x": 1}])


def test_the_whole_schema_has_an_address_where_it_is_left_open() -> None:
    """Drawn compositions were refused: `#/$defs/#.open` is no URI (RFC 3986: a fragment holds no `#`)."""
    written = object_of(a={}, b={"type": "object", "$ref": "#", "required": ["c"]})
    closed = additional_properties.close(normal.read(written).schema)
    assert not [part for part in subschemas.within(closed) if part.get("$ref", "").count("#") > 1]
    assert takes(closed, {"b": {"a": 1, "c": 1}})
    assert not takes(closed, {"b": {"a": 1, "d": 1}})
