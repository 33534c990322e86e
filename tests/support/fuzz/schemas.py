"""What a client may ask for: all that plain Python does with a grammar's text before a library sees it.

Nothing but a GuidedError may come of it, and what comes of it must fit a frame.
"""

import json
import random
from typing import Any, Final, get_args

import msgspec

from guided_contract import wire
from guided_contract.config import CompileConfig
from guided_contract.errors import GuidedError
from guided_contract.wire import Backend, Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.registry import library
from guided_sidecar.grammar import worker_messages
from guided_sidecar.grammar.compile import followed
from guided_sidecar.grammar.prepare import jobs
from guided_sidecar.grammar.schema import additional_properties, limits, normal, schema
from guided_sidecar.grammar.worker_messages import Done
from support.fuzz import mutation
from support.fuzz.target import Target

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_MOST_BYTES: Final = 16 << 10
_LIMITS: Final = CompileConfig()
_DRAFTS: Final = "http://json-schema.org/draft"
_SPECS: Final[dict[Kind, list[Any]]] = {
    "json": [
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}, "required": ["a"]},
        {"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "$ref": "#/$defs/n"},
        {"type": "array", "items": {"enum": [1, "a", None, {"b": [1.5]}]}, "uniqueItems": True},
        {"oneOf": [{"const": 1}, {"type": "string", "pattern": "^a{1,3}$", "format": "date"}]},
        {"type": "object", "patternProperties": {"^x": {"minLength": 1, "type": "string"}}},
        {"type": ["integer", "number"], "exclusiveMinimum": 0, "maximum": 0.5, "multipleOf": 0.1},
        {"$schema": f"{_DRAFTS}-07/schema#", "items": [{"maxLength": 2}], "additionalItems": {}},
        {"$schema": f"{_DRAFTS}-04/schema#", "exclusiveMaximum": True, "maximum": 3},
        {"allOf": [{"properties": {"k": {"const": "x"}}, "required": ["k"]}, {"not": {"enum": [1]}}]},
        {"$id": "https://example.org/s", "$ref": "o", "then": {"dependentRequired": {"a": ["b"]}}},
        True,
    ],
    "structural_tag": [
        {"structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}], "triggers": ["<f"]},
        {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"minLength": 1}}},
    ],
    "choice": [["a", "b"]],
    "regex": ["[a-c]{2,129}|\\d+"],
    "grammar": ['root ::= "a"'],
    "json_object": [""],
}


def target() -> Target:
    """Return the target. An input is a kind's number, and the text."""
    return Target(seeds(), _changed, run)


def seeds() -> list[bytes]:
    """Return an input of every kind, and schemas with all keywords that we know of."""
    return [
        bytes([_KINDS.index(kind)]) + (spec if isinstance(spec, str) else json.dumps(spec)).encode()
        for kind, specs in _SPECS.items()
        for spec in specs
    ]


def _changed(data: bytes, chance: random.Random) -> bytes:
    change = mutation.json_value if chance.random() < 0.8 else mutation.some_bytes
    return data[:1] + change(data[1:], chance)


def run(data: bytes) -> None:
    """Do with a grammar what the service does, and the worker before it compiles."""
    kind = _KINDS[data[0] % len(_KINDS)] if data else "json"
    text = data[1:].decode(errors="surrogateescape")
    try:
        written = limits.parsed(kind, jobs.taken(kind, text, _MOST_BYTES), _LIMITS)
    except GuidedError as error:
        _refuse(error)
        return
    spec = written if isinstance(written, str) else json.dumps(written)
    assert limits.parsed(kind, spec, _LIMITS) == written
    wire.frame(wire.Prepare(id=1, kind=kind, spec=spec, timeout_s=1))
    try:
        _prepare(kind, written)
    except GuidedError as error:
        _refuse(error)


def _prepare(kind: Kind, written: Any) -> None:
    if kind == "structural_tag":
        subschemas.with_each_of_tag(written, lambda _, inner: _follow(inner))
    elif kind == "json":
        _follow(written)


def _follow(parsed: Any) -> None:
    schema.check(parsed)
    before = json.dumps(parsed)
    form = normal.read(parsed).schema
    backends: tuple[Backend, ...] = get_args(Backend)
    for backend in backends:
        if (gap := library(backend).lacks("json", form)) is not None:
            msgspec.msgpack.encode(gap)
        relaxed, positions = followed.split(additional_properties.close(form), backend)
        wire.frame(Done(backend=backend, spec=json.dumps(relaxed), positions=positions))
    assert json.dumps(parsed) == before, "the schema itself was changed"


def _refuse(error: GuidedError) -> None:
    """Tell the client, by way of the worker."""
    wire.frame(worker_messages.Failed(code=error.code, message=error.message, path=error.path))
    refused = wire.Refused(id=1, code=error.code, message=error.message, path=error.path)
    assert len(wire.frame(refused)) < _MOST_REFUSAL_BYTES


_MOST_REFUSAL_BYTES: Final = 32 << 10
