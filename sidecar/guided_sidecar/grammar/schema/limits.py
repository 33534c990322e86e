"""What a worker checks before native code sees a grammar: depth, counts, and that JSON is JSON.

Counted are properties, values of an enum and the characters of a regex. The service has bounded the text's
size (prepare/jobs.py), and this is linear in it.
"""

import collections
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NoReturn

from guided_contract.config import CompileConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath, Place
from guided_sidecar.grammar.schema import faults

Json = Any
_SHOWN_CHARACTERS: Final = 80
_MOST_DIGITS: Final = 4300  # as Python reads at most
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
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def canonical(kind: Kind, spec: str, limits: CompileConfig) -> str:
    """Return the text that stands for a grammar: equal where only JSON whitespace and escapes differ.

    The order of an object's keys is kept, because it is the order of the generated properties.

    Raises
    ------
    GuidedError
        grammar_too_large or grammar_invalid.
    """
    return _CANONICAL[kind](spec, limits)


def parse(spec: str, what: str) -> Json:
    """Parse JSON strictly: no NaN, no infinite number, no number of thousands of digits, no key twice.

    Raises
    ------
    GuidedError
        grammar_invalid with line and column, or grammar_too_large for extreme nesting.
    """

    def with_each_key_once(pairs: list[tuple[str, Json]]) -> Json:
        made = dict(pairs)
        if len(made) < len(pairs):
            [(twice, _)] = collections.Counter(key for key, _ in pairs).most_common(1)
            message = f"{what} has an object with the key {shown(twice)} twice; which one counts is undefined"
            raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=str(ROOT))
        return made

    try:
        return json.loads(
            spec,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_short,
            object_pairs_hook=with_each_key_once,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise GuidedError(
            ErrorCode.GRAMMAR_INVALID, f"{what} is not JSON: {error.msg} at {where}", path=str(ROOT)
        ) from error
    except RecursionError as error:
        raise GuidedError(
            ErrorCode.GRAMMAR_TOO_LARGE, f"{what} is nested too deeply to be read", path=str(ROOT)
        ) from error
    except ValueError as error:
        raise GuidedError(
            ErrorCode.GRAMMAR_INVALID, f"{what} is not JSON: {error}", path=str(ROOT)
        ) from error


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


def _short(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; the limit is {_MOST_DIGITS}")
    return int(text)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is out of range")
    return number


def _json(spec: str, what: str, limits: CompileConfig) -> Json:
    value = parse(spec, what)
    if "\\u" in spec:
        _check_characters(value)
    if (found := depth(value)) > limits.max_depth:
        raise GuidedError(
            ErrorCode.GRAMMAR_TOO_LARGE,
            f"{what} nests objects and arrays {found} levels deep; the limit is {limits.max_depth}",
        )
    return value


def _excesses(schema: Json, limits: CompileConfig, base: JsonPath = ROOT) -> Iterator[GuidedError]:
    """Yield too many properties, values of an enum and characters of a pattern, with the keyword's path."""
    properties = 0
    for place in subschemas.walk(schema):
        for keyword, value in place.schema.items():
            at = partial(_path, base, place, keyword)
            if keyword in ("properties", "patternProperties") and isinstance(value, dict):
                before, properties = properties, properties + len(value)
                if before <= limits.max_properties:
                    yield from _excess(properties, limits.max_properties, "properties", at)
            elif keyword == "enum" and isinstance(value, list):
                yield from _excess(len(value), limits.max_enum, "values", at)
            elif keyword == "pattern" and isinstance(value, str):
                yield from _excess(len(value), limits.max_regex_chars, "characters", at)


def _path(base: JsonPath, place: Place, keyword: str) -> str:
    return subschemas.below(str(base), place.at(keyword))


def _excess(count: int, most: int, what: str, at: Callable[[], str | None]) -> Iterator[GuidedError]:
    if count > most:
        path = at()
        where = f"{path}: " if path else ""
        message = f"{where}{count} {what} exceed the limit of {most}"
        yield GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message, path=path)


def _schema(spec: str, limits: CompileConfig) -> str:
    value = _json(spec, "the JSON schema", limits)
    if not isinstance(value, dict | bool):
        raise GuidedError(
            ErrorCode.GRAMMAR_INVALID, "a JSON schema must be an object, true or false", path="$"
        )
    faults.refuse(_excesses(value, limits))
    return json.dumps(value)


def _choice(spec: str, limits: CompileConfig) -> str:
    value = _json(spec, "the choice", limits)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise GuidedError(
            ErrorCode.GRAMMAR_INVALID, "a choice must be a list of at least one string", path="$"
        )
    faults.refuse(_excess(len(value), limits.max_enum, "strings", lambda: "$"))
    _refuse_replacement("".join(value))
    return json.dumps(value)


def _structural_tag(spec: str, limits: CompileConfig) -> str:
    value = _json(spec, "the structural tag", limits)
    if not isinstance(value, dict):
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "a structural tag must be a JSON object", path="$")
    subschemas.with_each_of_tag(value, lambda way, schema: faults.refuse(_excesses(schema, limits, way)))
    return json.dumps(value)


def _regex(spec: str, limits: CompileConfig) -> str:
    if "\x00" in spec:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "a regex must not contain a NUL character")
    faults.refuse(_excess(len(spec), limits.max_regex_chars, "characters", lambda: None))
    _refuse_long_repeats("regex", spec)
    _refuse_replacement(spec)
    return spec


def _grammar(spec: str, limits: CompileConfig) -> str:  # noqa: ARG001 - a table's function
    if not spec.strip():
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "the grammar is empty")
    faults.refuse(_excess(len(_LARK_RULE.findall(spec)), _MOST_LARK_RULES, "rules", lambda: None))
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


def _check_characters(value: Json) -> None:
    """Refuse half a character, which no text that we send on may hold."""
    stack = [(ROOT, value)]
    while stack:
        way, part = stack.pop()
        names = part if isinstance(part, dict) else [part] if isinstance(part, str) else ()
        if any(map(_LONE_SURROGATE.search, names)):
            raise faults.fault(str(way), "half of a surrogate pair is no character")
        if isinstance(part, dict):
            stack += [(JsonPath(way, key), one) for key, one in reversed(part.items())]
        elif isinstance(part, list):
            stack += [(JsonPath(way, index), one) for index, one in reversed([*enumerate(part)])]


def long_repeat(kind: str, text: str) -> str | None:
    """Return why a repetition is too long: a 32-bit integer holds another number."""
    if kind == "grammar":
        text = _QUOTED.sub('""', text)
    for found in _REPEATS[kind].finditer(text):
        counts = (count.lstrip("0") for count in re.findall(r"\d+", found[0]))
        if any(len(count) > _MOST_COUNT_DIGITS or int(count or 0) > _MOST_COUNT for count in counts):
            return f"a repetition of more than {_MOST_COUNT} times is not enforced: {shown(found[0])}"
    return None


def _refuse_long_repeats(kind: Kind, text: str) -> None:
    if (reason := long_repeat(kind, text)) is not None:
        raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, reason)


_CANONICAL: Final[dict[Kind, Callable[[str, CompileConfig], str]]] = {
    "json": _schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}
