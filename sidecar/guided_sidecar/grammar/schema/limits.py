"""What a worker checks before native code sees a grammar: depth, counts, and that JSON is JSON.

Counted are properties, values of an enum and the characters of a regex. The service has bounded the text's
size (prepare/jobs.py), and this is linear in it.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from guided_contract.config import CompileConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import faults

Json = Any
_SHOWN_CHARACTERS: Final = 80
# llguidance 1.7 follows rules by calling itself: 5,000 in a row overflow a stack of 8 MiB.
_MOST_LARK_RULES: Final = 1500
_LARK_RULE: Final = re.compile(r"^[ \t]*[?!]*\w+(?:\.-?\d+)?[ \t]*:(?!:=)", re.MULTILINE)
_COUNTS: Final = r"(?<!\\)(?:\\\\)*\{\s*\d*\s*,?\s*\d*\s*\}"
_REPEATS: Final = {
    "grammar": re.compile(rf"{_COUNTS}|~\s*\d+(?:\s*\.\.\s*\d+)?"),
    "regex": re.compile(_COUNTS),
}
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_MOST_COUNT: Final = (1 << 31) - 1
_MOST_COUNT_DIGITS: Final = len(str(_MOST_COUNT))


def parsed(kind: Kind, spec: str, limits: CompileConfig) -> Json:
    """Return the value of json and of structural tags, and else the text, a choice's without escapes.

    The order of an object's keys is kept, because it is the order of the generated properties.

    Raises
    ------
    GuidedError
        grammar_too_large, grammar_invalid or grammar_unsupported.
    """
    return _PARSED[kind](spec, limits)


def depth(value: Json) -> int:
    """Return how many objects and arrays stand inside each other."""
    deepest = 0
    level = [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        deepest += 1
        level = [child for part in level for child in (part.values() if isinstance(part, dict) else part)]
    return deepest


def shown(value: Json) -> str:
    """Return a value as JSON, short enough to be quoted to its author."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _json(spec: str, what: str, limits: CompileConfig) -> Json:
    try:
        value = msgspec.json.decode(spec)
    except RecursionError as error:
        message = f"{what} is nested too deeply to be read"
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message, path=str(ROOT)) from error
    except ValueError as error:  # of msgspec, and of half a character
        message = f"{what} is not JSON: {error}"
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=str(ROOT)) from error
    if (found := depth(value)) > limits.max_depth:
        raise GuidedError(
            ErrorCode.GRAMMAR_TOO_LARGE,
            f"{what} nests objects and arrays {found} levels deep; the limit is {limits.max_depth}",
        )
    return value


def _excesses(schema: Json, limits: CompileConfig, base: JsonPath = ROOT) -> Iterator[GuidedError]:
    """Yield too many properties, values of an enum and characters of a pattern, with the keyword's path."""
    properties = 0
    for part in subschemas.within(schema):
        for keyword, value in part.items():
            count, most, what = 0, 0, ""
            if keyword in ("properties", "patternProperties") and isinstance(value, dict):
                before, properties = properties, properties + len(value)
                if before <= limits.max_properties:
                    count, most, what = properties, limits.max_properties, "properties"
            elif keyword == "enum" and isinstance(value, list):
                count, most, what = len(value), limits.max_enum, "values"
            elif keyword == "pattern" and isinstance(value, str):
                count, most, what = len(value), limits.max_regex_chars, "characters"
            if count > most:  # only then does it matter where
                place = next(place for place in subschemas.places(schema) if place.schema is part)
                yield from _excess(count, most, what, subschemas.below(str(base), place.at(keyword)))


def _excess(count: int, most: int, what: str, path: str | None) -> Iterator[GuidedError]:
    if count > most:
        where = f"{path}: " if path else ""
        message = f"{where}{count} {what} exceed the limit of {most}"
        yield GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message, path=path)


def _schema(spec: str, limits: CompileConfig) -> Json:
    value = _json(spec, "the JSON schema", limits)
    if not isinstance(value, dict | bool):
        raise faults.fault("$", "a JSON schema must be an object, true or false")
    faults.refuse(_excesses(value, limits))
    return value


def _choice(spec: str, limits: CompileConfig) -> str:
    value = _json(spec, "the choice", limits)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise faults.fault("$", "a choice must be a list of at least one string")
    faults.refuse(_excess(len(value), limits.max_enum, "strings", "$"))
    _refuse_replacement("".join(value))
    return json.dumps(value)


def _structural_tag(spec: str, limits: CompileConfig) -> Json:
    value = _json(spec, "the structural tag", limits)
    if not isinstance(value, dict):
        raise faults.fault("$", "a structural tag must be a JSON object")
    subschemas.with_each_of_tag(value, lambda way, schema: faults.refuse(_excesses(schema, limits, way)))
    return value


def _regex(spec: str, limits: CompileConfig) -> str:
    if "\x00" in spec:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "a regex must not contain a NUL character")
    faults.refuse(_excess(len(spec), limits.max_regex_chars, "characters", None))
    _refuse_long_repeats("regex", spec)
    _refuse_replacement(spec)
    return spec


def _grammar(spec: str, limits: CompileConfig) -> str:  # noqa: ARG001 - a table's function
    if not spec.strip():
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "the grammar is empty")
    faults.refuse(_excess(len(_LARK_RULE.findall(spec)), _MOST_LARK_RULES, "rules", None))
    _refuse_long_repeats("grammar", spec)
    _refuse_replacement(spec)
    return spec


def _json_object(spec: str, limits: CompileConfig) -> str:  # noqa: ARG001 - a table's function
    return ""


def _refuse_replacement(text: str) -> None:
    """Refuse the character that vLLM takes for a part of one, and drops at the end of a text."""
    if "\ufffd" in text:
        message = "the grammar contains U+FFFD, which vLLM drops from the end of output; remove it"
        raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message)


def long_repeat(kind: str, text: str) -> str | None:
    """Return why a repetition is too long: a 32-bit integer holds another number."""
    if kind == "grammar":
        text = _QUOTED.sub('""', text)
    for found in _REPEATS[kind].finditer(text):
        counts = (count.lstrip("0") for count in re.findall(r"\d+", found[0]))
        if any(len(count) > _MOST_COUNT_DIGITS or int(count or 0) > _MOST_COUNT for count in counts):
            return f"a repetition of more than {_MOST_COUNT} times is not supported: {shown(found[0])}"
    return None


def _refuse_long_repeats(kind: Kind, text: str) -> None:
    if (reason := long_repeat(kind, text)) is not None:
        raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, reason)


_PARSED: Final[dict[Kind, Callable[[str, CompileConfig], Json]]] = {
    "json": _schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}
