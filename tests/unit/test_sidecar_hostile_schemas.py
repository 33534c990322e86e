"""Schemas that nobody means: each costs its own request a refusal, and no worker its life."""

import json
from typing import Any, NoReturn

import pytest

from guided_contract import wire
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.registry import library
from guided_sidecar.grammar.compile import followed, worker
from guided_sidecar.grammar.schema import additional_properties, normal, schema
from guided_sidecar.grammar.worker_messages import Done, Failed, Job

DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 7))
BOUNDED = {"type": "string", "maxLength": 3}


@pytest.mark.parametrize("dialect", [5, None, True, ["a"], "http://[x", "http://a]/", "//[::1"])
def test_a_dialect_that_is_no_address_is_named(dialect: Any) -> None:
    with pytest.raises(GuidedError) as refusal:
        schema.check({"$schema": dialect, "type": "string"})

    assert (refusal.value.code, refusal.value.path) == ("grammar_invalid", "$.$schema")


@pytest.mark.parametrize("more", [{"required": True}, {"dependencies": {"a": True}}, {"oneOf": 1}])
def test_a_dialect_that_no_library_knows_is_refused(more: dict[str, Any]) -> None:
    """Its keywords take other values: `required` stood in the property, and was true."""
    with pytest.raises(GuidedError) as refusal:
        schema.check({"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": more}})

    assert (refusal.value.code, refusal.value.path) == ("grammar_unsupported", "$.$schema")


@pytest.mark.parametrize(
    "text",
    [
        {"$schema": DRAFT_7, "type": "array", "prefixItems": "x", "additionalItems": BOUNDED},
        {"$schema": DRAFT_7, "type": "array", "prefixItems": [7, "x"], "items": BOUNDED},
        {"$schema": DRAFT_7, "type": "array", "prefixItems": 7, "items": BOUNDED},
        {"$schema": DRAFT_4, "$ref": 5, "properties": {"a": BOUNDED}},
        {"$schema": DRAFT_4, "properties": {"a": BOUNDED, "b": {"propertyNames": 5, "const": {"c": 1}}}},
        {"$schema": DRAFT_7, "enum": [[1]], "prefixItems": False},
        {"enum": ["a"], "pattern": r"^\p{L}+$"},
        {"type": "string", "maxLength": 10**30},
        {"type": "string", "minLength": 10**30},
        {"type": "string", "pattern": f"a{{{'9' * 4301}}}"},
        {"type": "string", "pattern": f"a{{{'0' * 4301}7}}"},
    ],
    ids=lambda text: json.dumps(text)[:60],
)
def test_odd_values_are_followed_or_left_to_the_libraries(text: Any) -> None:
    schema.check(text)
    if "$ref" in text:
        with pytest.raises(GuidedError, match="5 is no path"):
            normal.read(text)
        return
    form = normal.read(text).schema
    for backend in ("xgrammar", "guidance"):
        library(backend).lacks("json", form)
        relaxed, positions = followed.split(additional_properties.close(form), backend)
        json.dumps(relaxed)
        wire.frame(Done(backend=backend, spec="", positions=positions))


@pytest.mark.parametrize(("count", "length"), [(500, 10), (40, 4000)], ids=["many names", "long names"])
def test_positions_that_would_fill_a_message_are_not_counted(count: int, length: int) -> None:
    """Each of many places repeats all names."""
    names = {f"{'x' * length}{number}": BOUNDED for number in range(count)}
    reference = [{"$ref": f"#/$defs/n{level}"} for level in range(9)]
    defs: dict[str, Any] = {
        f"n{level}": {
            "type": "object",
            "properties": {"a": reference[level + 1], "b": reference[level + 1]},
            "additionalProperties": False,
        }
        for level in range(1, 8)
    }
    defs["n8"] = BOUNDED
    both = {"anyOf": [reference[0], reference[1]]}
    named = {**names, "a": both, "b": reference[0]}
    defs["n0"] = {"type": "object", "properties": named, "additionalProperties": False}
    text = json.loads(json.dumps({"$defs": defs, "$ref": "#/$defs/n0"}))

    assert followed.split(text, "xgrammar") == (text, [])


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (AttributeError("'str' object has no attribute 'keys'"), ErrorCode.GRAMMAR_COMPILE_CRASHED),
        (RuntimeError("std::bad_alloc"), ErrorCode.GRAMMAR_COMPILE_MEMORY),
    ],
)
def test_a_fault_outside_the_compilers_costs_one_request(fault: Exception, code: ErrorCode) -> None:
    class Faulty:
        def run(self, _job: Job, _tell: Any) -> NoReturn:
            raise fault

    job = Job(key="k", kind="json", spec="{}", backends=[], timeout_s=1, memory_bytes=1)
    faulty: Any = Faulty()

    outcome = worker._outcome(faulty, job, lambda _done: None)

    assert isinstance(outcome, Failed)
    assert outcome.code == code
    assert outcome.retire, "what else it left behind nobody knows"
