"""What a library takes and does not enforce, and whom `Auto` asks first."""

import json
from typing import Any

import pytest

from guided_contract.backends import BACKENDS
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.registry import library
from guided_sidecar.grammar import trust
from guided_sidecar.grammar.compile import heard, reading, refusals, routing
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.schema import limits
from guided_sidecar.grammar.schema.origins import Form
from guided_sidecar.grammar.worker_messages import Job


def job(**fields: Any) -> Job:
    more = {"kind": "json", "spec": "", "backends": ["xgrammar", "guidance"], **fields}
    return Job(key="k", timeout_s=1, memory_bytes=1, **more)


def order(asked: Job) -> list[str]:
    written = limits.parsed(asked.kind, asked.spec, asked.limits)
    return list(routing.order(asked, reading.read(asked.kind, written)))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ({"items": {"multipleOf": 2}}, "$.items.multipleOf"),
        ({"allOf": [{}, {}]}, "$.allOf"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "$.pattern"),
        ({"type": "string", "pattern": "a{3,200}"}, "$.pattern"),
        ({"$ref": "#/$defs/a", "required": ["b"], "$defs": {"a": {}}}, "$.$ref"),
        ({"const": 5, "type": "string"}, "$.const"),
        ({"anyOf": [{"required": ["a"]}, {}], "type": "object"}, "$.anyOf"),
        ({"minimum": 3}, "$.minimum"),
        ({"type": "object", "properties": {"a": {}}, "required": ["a", "z"]}, "$.required"),
        ({"type": "string", "format": "uuid", "pattern": "^2"}, "$.format"),
        ({"type": "string", "pattern": '^"$'}, "$.pattern"),
        ({"type": "string", "pattern": r"^a\\b$"}, "$.pattern"),
        ({"patternProperties": {"a": {}, "b": {}}}, "$.patternProperties"),
        ({"properties": {"a": {"minProperties": 2}}}, "$.properties.a.minProperties"),
        ({"type": "object", "properties": {"é": {}}, "additionalProperties": True}, "$.properties"),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "minProperties": 2}, "$.properties"),
        ({"type": "string", "pattern": r"^\S+$"}, "$.pattern"),
        ({"type": "string", "pattern": "b"}, "$.pattern"),
        ({"type": "string", "pattern": "^[ -~]$"}, "$.pattern"),
        ({"const": 0.1}, "$.const"),
        ({"type": "number", "minimum": 1e-7, "maximum": 2e-7}, "$.minimum"),
    ],
)
def test_a_keyword_that_xgrammar_ignores_is_found(text: Any, path: str) -> None:
    found = library("xgrammar").lacks("json", text)

    assert found is not None
    assert found.path == path
    assert list(routing.order(job(), Grammar("json", text, [Form(text, {}, [])]))) == ["guidance"]


@pytest.mark.parametrize(
    "text",
    [
        {"allOf": [{}]},
        {"type": "string", "pattern": "^a{3,128}\\{200\\}$"},
        {"type": "string", "format": "uuid"},
        {"properties": {"multipleOf": {"type": "string"}, "allOf": {"type": "null"}}},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {}}},
        {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]},
        {"type": "string", "pattern": r"^[\-@]+\.\d$"},
        {"type": "object", "properties": {"é": {}}, "additionalProperties": False},
        True,
    ],
)
def test_either_library_may_serve_what_xgrammar_enforces(text: Any) -> None:
    assert library("xgrammar").lacks("json", text) is None
    assert list(routing.order(job(), Grammar("json", text, [Form(text, {}, [])]))) == TURNED


@pytest.mark.parametrize("text", [{"const": (1 << 53) + 1}, {"type": "integer", "enum": [1e20]}])
def test_a_number_that_llguidance_rounds_is_found(text: Any) -> None:
    found = library("guidance").lacks("json", text)
    assert found is not None
    assert "rounds" in found.reason


@pytest.mark.parametrize(
    ("bounds", "keyword"),
    [
        ({"exclusiveMinimum": 0, "maximum": 0.5}, "exclusiveMinimum"),
        ({"exclusiveMinimum": 2.0, "exclusiveMaximum": 2.25}, "exclusiveMinimum"),
        ({"exclusiveMaximum": -1, "minimum": -1.5}, "exclusiveMaximum"),
        ({"exclusiveMinimum": 0, "maximum": 5}, None),
        ({"exclusiveMinimum": -1, "maximum": -0.5}, None),
        ({"exclusiveMinimum": 0, "anyOf": [{"maximum": 0.5}, {"maximum": -1}]}, "exclusiveMinimum"),
        ({"exclusiveMinimum": 0, "allOf": [{"maximum": 0.5}]}, "exclusiveMinimum"),
    ],
)
def test_a_bound_that_llguidance_takes_for_inclusive_is_found(
    bounds: dict[str, Any], keyword: str | None
) -> None:
    """As drawn bounds in both libraries' hands showed: where both have the same whole part."""
    found = library("guidance").lacks("json", {"items": {"type": "number", **bounds}})

    assert (found.path if found else None) == (keyword and f"$.items.{keyword}")
    if "allOf" not in bounds and "anyOf" not in bounds:
        assert library("guidance").lacks("json", {"type": "integer", **bounds}) is None


IGNORED = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 2}}}
ROUNDED = {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}
TURNED = ["guidance", "xgrammar"]
BOTH = {"anyOf": [{"not": {"multipleOf": 2}}, ROUNDED]}


def tag(inner: Any) -> str:
    structures = [{"begin": "<f>", "schema": inner, "end": "</f>"}]
    return json.dumps({"structures": structures, "triggers": ["<f"]})


def new_tag(inner: Any) -> str:
    return json.dumps({"type": "structural_tag", "format": {"type": "json_schema", "json_schema": inner}})


@pytest.mark.parametrize(
    ("fields", "able"),
    [
        ({"spec": json.dumps(IGNORED)}, ["guidance"]),
        ({"spec": json.dumps(ROUNDED)}, ["xgrammar"]),
        ({"spec": json.dumps(BOTH)}, "$.anyOf[0].not"),
        ({"spec": json.dumps(IGNORED), "named": "xgrammar"}, ["guidance"]),
        ({"spec": json.dumps(ROUNDED), "named": "guidance", "backends": TURNED}, ["xgrammar"]),
        ({"spec": '{"type": "null"}', "named": "guidance", "backends": TURNED}, TURNED),
        # Reject: only the first choice; a request's own backend: only that.
        ({"spec": json.dumps(ROUNDED), "routes": False}, "$.exclusiveMinimum"),
        ({"spec": json.dumps(IGNORED), "named": "xgrammar", "backends": ["xgrammar"], "routes": False},
         "$.properties.a.multipleOf"),
        ({"spec": '{"type": "null"}', "routes": False}, ["guidance"]),
        ({"kind": "structural_tag", "spec": tag(IGNORED)}, ["guidance"]),
        ({"kind": "structural_tag", "spec": tag(ROUNDED)}, ["xgrammar"]),
        ({"kind": "structural_tag", "spec": tag(BOTH)}, "$.structures[0].schema.anyOf[0].not"),
        ({"kind": "structural_tag", "spec": new_tag(BOTH)}, "$.format.json_schema.anyOf[0].not"),
        ({"kind": "regex", "spec": "a{1,200}"}, ["guidance"]),
        ({"kind": "regex", "spec": "a{1,20}"}, TURNED),
    ],
)  # fmt: skip
def test_a_keyword_is_enforced_or_refused_with_its_path(fields: dict[str, Any], able: Any) -> None:
    """Never ignored: what the first choice does not enforce goes to the other (Route), or gets a 400."""
    asked = job(**fields)
    if isinstance(able, list):
        assert order(asked) == able
        return
    with pytest.raises(GuidedError) as refusal:
        order(asked)
    assert (refusal.value.code, refusal.value.path) == ("grammar_unsupported", able)


BRANCHES = [{"type": "object", "properties": {name: True}, "required": [name]} for name in "abc"]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {name: {} for name in "abc"}}, "$.properties"),
        ({"items": {"anyOf": BRANCHES}}, "$.items.anyOf"),
        ({"items": {"oneOf": BRANCHES}}, "$.items.oneOf"),
    ],
)
def test_too_many_alternatives_are_told_by_their_keyword(schema: Any, path: str) -> None:
    grammar = reading.read("json", schema)
    told = refusals.proven(grammar, ErrorCode.GRAMMAR_UNSUPPORTED, heard.MANY, None)
    assert told.path == path
    assert told.message == f"{path}: {heard.MANY}"


OTHERS = {"llguidance": "1.7.99", "xgrammar": "0.2.99"}
EMAIL, IPV4 = (json.dumps({"type": "string", "format": name}) for name in ("email", "ipv4"))


def test_only_other_versions_than_the_measured_ones_are_doubted() -> None:
    measured = {one.distribution: one.measured for one in BACKENDS.values()}
    assert trust.unmeasured(measured) == trust.unmeasured({}) == {}
    assert trust.unmeasured({**measured, "llguidance": "1.7.99"}) == {"guidance": "1.7.99"}
    assert trust.unmeasured({"llguidance": "1.7.6"}) == {"xgrammar": trust.UNKNOWN}


@pytest.mark.parametrize(
    ("versions", "fields", "able"),
    [
        ({**OTHERS, "xgrammar": "0.2.8"}, {"spec": EMAIL}, ["xgrammar"]),
        ({**OTHERS, "xgrammar": "0.2.8"}, {"spec": IPV4}, "xgrammar does not .*; llguidance 1.7.99 is"),
        (OTHERS, {"spec": IPV4, "named": "guidance", "backends": ["guidance"]}, ["guidance"]),
        (OTHERS, {"spec": EMAIL}, "xgrammar 0.2.99 is used .*; llguidance 1.7.99 is"),
        (OTHERS, {"spec": "{}"}, TURNED),  # no rule is about an empty schema, or a regex
        (OTHERS, {"kind": "regex", "spec": "[a-z]+"}, TURNED),
    ],
)
def test_a_library_of_another_version_gets_keywords_only_where_it_is_named(
    versions: dict[str, str], fields: dict[str, Any], able: Any
) -> None:
    asked = job(unmeasured=trust.unmeasured(versions), **fields)
    if isinstance(able, list):
        assert order(asked) == able
        return
    with pytest.raises(GuidedError, match=able):
        order(asked)
