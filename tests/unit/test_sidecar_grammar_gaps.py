"""What a library takes and does not enforce, and whom `Auto` asks first."""

import json
from typing import Any

import pytest

from guided_contract.backends import BACKENDS
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.registry import library
from guided_sidecar.grammar import trust
from guided_sidecar.grammar.compile import heard, reading, refusals, routing
from guided_sidecar.grammar.schema import limits
from guided_sidecar.grammar.worker_messages import Job

LACKING: dict[Any, list[tuple[Any, str | None]]] = {
    "xgrammar": [
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
        ({"allOf": [{}]}, None),
        ({"type": "string", "pattern": "^a{3,128}\\{200\\}$"}, None),
        ({"type": "string", "format": "uuid"}, None),
        ({"properties": {"multipleOf": {"type": "string"}, "allOf": {"type": "null"}}}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {}}}, None),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}, None),
        ({"type": "string", "pattern": r"^[\-@]+\.\d$"}, None),
        ({"type": "object", "properties": {"é": {}}, "additionalProperties": False}, None),
        (True, None),
    ],
    # It rounds numbers, and takes a bound for inclusive where both have the same whole part.
    "guidance": [
        ({"const": (1 << 53) + 1}, "$.const"),
        ({"type": "integer", "enum": [1e20]}, "$.enum"),
        ({"exclusiveMinimum": 0, "maximum": 0.5}, "$.exclusiveMinimum"),
        ({"exclusiveMinimum": 2.0, "exclusiveMaximum": 2.25}, "$.exclusiveMinimum"),
        ({"exclusiveMaximum": -1, "minimum": -1.5}, "$.exclusiveMaximum"),
        ({"exclusiveMinimum": 0, "maximum": 5}, None),
        ({"exclusiveMinimum": -1, "maximum": -0.5}, None),
        ({"exclusiveMinimum": 0, "anyOf": [{"maximum": 0.5}, {"maximum": -1}]}, "$.exclusiveMinimum"),
        ({"exclusiveMinimum": 0, "allOf": [{"maximum": 0.5}]}, "$.exclusiveMinimum"),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 0.5}, None),
    ],
}


@pytest.mark.parametrize(
    ("name", "schema", "path"), [(name, *row) for name, rows in LACKING.items() for row in rows]
)
def test_a_keyword_that_a_library_ignores_is_found_and_no_other(
    name: Any, schema: Any, path: str | None
) -> None:
    found = library(name).lacks("json", schema)
    assert (found.path if found else None) == path


IGNORED = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 2}}}
ROUNDED = {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}
TURNED = ["guidance", "xgrammar"]
BOTH = {"anyOf": [{"not": {"multipleOf": 2}}, ROUNDED]}
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
EMAIL, IPV4 = ({"type": "string", "format": name} for name in ("email", "ipv4"))


def tag(inner: Any) -> Any:
    return {"structures": [{"begin": "<f>", "schema": inner, "end": "</f>"}], "triggers": ["<f"]}


@pytest.mark.parametrize(
    ("spec", "fields", "able"),
    [
        (IGNORED, {}, ["guidance"]),
        (ROUNDED, {}, ["xgrammar"]),
        (BOTH, {}, "$.anyOf[0].not"),
        (IGNORED, {"named": "xgrammar"}, ["guidance"]),
        (ROUNDED, {"named": "guidance", "backends": TURNED}, ["xgrammar"]),
        ({"type": "null"}, {"named": "guidance", "backends": TURNED}, TURNED),
        # Reject: only the first choice; a request's own backend: only that.
        (ROUNDED, {"routes": False}, "$.exclusiveMinimum"),
        (
            IGNORED,
            {"named": "xgrammar", "backends": ["xgrammar"], "routes": False},
            "$.properties.a.multipleOf",
        ),
        ({"type": "null"}, {"routes": False}, ["guidance"]),
        (tag(IGNORED), {"kind": "structural_tag"}, ["guidance"]),
        (tag(ROUNDED), {"kind": "structural_tag"}, ["xgrammar"]),
        ("a{1,200}", {"kind": "regex"}, ["guidance"]),
        ("a{1,20}", {"kind": "regex"}, TURNED),
        # Another version than the measured one gets keywords only where it is named.
        (EMAIL, {"versions": {**OTHERS, "xgrammar": "0.2.8"}}, ["xgrammar"]),
        (IPV4, {"versions": OTHERS, "named": "guidance", "backends": ["guidance"]}, ["guidance"]),
        (EMAIL, {"versions": OTHERS}, None),
        ({}, {"versions": OTHERS}, TURNED),
        ("[a-z]+", {"versions": OTHERS, "kind": "regex"}, TURNED),
    ],
)
def test_a_keyword_is_enforced_or_refused_with_its_path(spec: Any, fields: dict[str, Any], able: Any) -> None:
    """Never ignored: what the first choice does not enforce goes to the other (Route), or gets a 400."""
    text = spec if isinstance(spec, str) else json.dumps(spec)
    unmeasured = trust.unmeasured(fields.get("versions", {}))
    fields = {"kind": "json", "backends": ["xgrammar", "guidance"], "unmeasured": unmeasured, **fields}
    fields.pop("versions", None)
    asked = Job(key="k", spec=text, timeout_s=1, memory_bytes=1, **fields)

    def order() -> list[str]:
        written = limits.parsed(asked.kind, text, asked.limits)
        return list(routing.order(asked, reading.read(asked.kind, written)))

    if isinstance(able, list):
        assert order() == able
        return
    with pytest.raises(GuidedError) as refusal:
        order()
    assert (refusal.value.code, refusal.value.path) == ("grammar_unsupported", able)


def test_only_other_versions_than_the_measured_ones_are_doubted() -> None:
    measured = {one.distribution: one.measured[-1] for one in BACKENDS.values()}
    assert trust.unmeasured(measured) == trust.unmeasured({}) == {}
    assert trust.unmeasured({**measured, "llguidance": "1.7.99"}) == {"guidance": "1.7.99"}
    assert trust.unmeasured({"llguidance": "1.7.6"}) == {"xgrammar": trust.UNKNOWN}
