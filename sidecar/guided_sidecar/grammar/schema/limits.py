"""What is checked before any native code or worker sees a grammar: sizes, depth, and that JSON is JSON.

Sizes are bytes, depth, properties, values of an enum and the length of a regex. Runs on the service's event
loop, so it is linear in the size of the text and that is bounded first.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

from guided_contract.config import CompileConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath, Place

Json = Any
_COUNTED: Final = frozenset(["properties", "patternProperties", "enum", "pattern"])


def canonical(kind: Kind, spec: str, limits: CompileConfig) -> str:
    """Return the text that stands for a grammar: equal where only JSON whitespace and escapes differ.

    The order of an object's keys is kept, because it is the order of the generated properties.

    Raises
    ------
    GuidedError
        grammar_too_large or grammar_invalid.
    """
    size = len(spec.encode("utf-8", "surrogatepass"))
    if size > limits.max_schema_bytes:
        raise GuidedError(
            ErrorCode.GRAMMAR_TOO_LARGE, f"{size} bytes exceed the limit of {limits.max_schema_bytes} bytes"
        )
    return _CANONICAL[kind](spec, limits)


def parse(spec: str, what: str) -> Json:
    """Parse JSON strictly: no NaN, no infinite number, no number of thousands of digits.

    Raises
    ------
    GuidedError
        grammar_invalid with line and column, or grammar_too_large for extreme nesting.
    """
    try:
        return json.loads(spec, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, f"{what} is not JSON: {error.msg} at {where}") from error
    except RecursionError as error:
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, f"{what} is nested too deeply to be read") from error
    except ValueError as error:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, f"{what} is not JSON: {error}") from error


def depth(value: Json) -> int:
    """Return how many objects and arrays stand inside each other."""
    deepest = 0
    level = [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        deepest += 1
        level = [child for part in level for child in (part.values() if isinstance(part, dict) else part)]
    return deepest


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is out of range")
    return number


def _json(spec: str, what: str, limits: CompileConfig) -> Json:
    value = parse(spec, what)
    if "\\u" in spec or not spec.isascii():  # half a character, which no text that we send on may hold
        _text(json.dumps(value, ensure_ascii=False))
    if (found := depth(value)) > limits.max_depth:
        raise GuidedError(
            ErrorCode.GRAMMAR_TOO_LARGE,
            f"{what} nests objects and arrays {found} levels deep; the limit is {limits.max_depth}",
        )
    return value


def _check_counts(schema: Json, limits: CompileConfig, base: JsonPath = ROOT) -> None:
    """Refuse too many properties, values of an enum and characters of a pattern, with the keyword's path."""
    properties = 0
    for place in subschemas.walk(schema):
        for keyword, value in place.schema.items():
            if keyword not in _COUNTED:
                continue
            at = partial(_path, base, place, keyword)
            if keyword in ("properties", "patternProperties") and isinstance(value, dict):
                properties += len(value)
                _check_count(properties, limits.max_properties, "properties", at)
            elif keyword == "enum" and isinstance(value, list):
                _check_count(len(value), limits.max_enum, "values", at)
            elif keyword == "pattern" and isinstance(value, str):
                _check_count(len(value), limits.max_regex_chars, "characters", at)


def _path(base: JsonPath, place: Place, keyword: str) -> str:
    return subschemas.below(str(base), place.at(keyword))


def _check_count(count: int, most: int, what: str, at: Callable[[], str | None]) -> None:
    if count > most:
        path = at()
        where = f"{path}: " if path else ""
        message = f"{where}{count} {what} exceed the limit of {most}"
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message, path=path)


def _may_exceed(text: str, limits: CompileConfig) -> bool:
    """Return whether a text, as json.dumps writes it, has room for more than a limit of what it holds."""
    # Each property has a colon behind its name, each value of an enum but one a comma before it.
    return (
        text.count(":") > limits.max_properties
        or text.count(",") >= limits.max_enum
        or len(text) > limits.max_regex_chars
    )


def _schema(spec: str, limits: CompileConfig) -> str:
    value = _json(spec, "the JSON schema", limits)
    if not isinstance(value, dict | bool):
        raise GuidedError(
            ErrorCode.GRAMMAR_INVALID, "a JSON schema must be an object, true or false", path="$"
        )
    text = json.dumps(value)
    if _may_exceed(text, limits):
        _check_counts(value, limits)
    return text


def _choice(spec: str, limits: CompileConfig) -> str:
    value = _json(spec, "the choice", limits)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise GuidedError(
            ErrorCode.GRAMMAR_INVALID, "a choice must be a list of at least one string", path="$"
        )
    _check_count(len(value), limits.max_enum, "strings", lambda: "$")
    return json.dumps(value)


def _structural_tag(spec: str, limits: CompileConfig) -> str:
    value = _json(spec, "the structural tag", limits)
    if not isinstance(value, dict):
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "a structural tag must be a JSON object", path="$")
    text = json.dumps(value)
    if _may_exceed(text, limits):
        for way, schema in subschemas.in_tag(value):
            _check_counts(schema, limits, way)
    return text


def _regex(spec: str, limits: CompileConfig) -> str:
    if "\x00" in spec:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "a regex must not contain a NUL character")
    _check_count(len(spec), limits.max_regex_chars, "characters", lambda: None)
    return _text(spec)


def _grammar(spec: str, limits: CompileConfig) -> str:  # noqa: ARG001 - a table's function
    if not spec.strip():
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "the grammar is empty")
    return _text(spec)


def _json_object(spec: str, limits: CompileConfig) -> str:  # noqa: ARG001 - a table's function
    return ""


def _text(spec: str) -> str:
    try:
        spec.encode()
    except UnicodeEncodeError as error:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "the text contains a lone surrogate") from error
    return spec


_CANONICAL: Final[dict[Kind, Callable[[str, CompileConfig], str]]] = {
    "json": _schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}
