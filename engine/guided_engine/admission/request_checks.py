"""What is looked at in a request's body before the application reads it.

vLLM ignores keys that it does not know. A constraint in its own words, present or former or misspelt, is
read on this route or refused, and told what to write. In an object that is nothing but a constraint, so is
every unknown key. What vLLM's own classes refuse is left to them.
"""

import difflib
import functools
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from guided_contract import names
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import request_tools
from guided_engine.admission.request_body import at, fault
from guided_engine.admission.request_routes import HOLDERS, NO_TOOLS, ROUTES, Route

# What asks for a constraint, without case, hyphens, underscores and blanks, and what to write instead, if not
# as the route says; misspelt words do too, and all that begins with `guided`.
_WORDS: Final = {
    **dict.fromkeys(("responseformat", "structuredoutputs", "outputformat"), ""),
    "toolchoice": "tool_choice",
    **dict.fromkeys(("guidedbackend", "guideddecodingbackend"), f"{{}}.{names.OPTION_ARGS['Backend']}"),
    **dict.fromkeys(
        ("guidedwhitespace", "guidedwhitespacepattern"), f"{{}}.{names.OPTION_ARGS['Whitespace']}"
    ),
}
_LIKELY: Final = tuple(_WORDS)
_HELD: Final = (*_LIKELY, "format", "schema", "jsonschema")  # in what holds a format
_LIKENESS: Final = 0.82  # of a misspelt word
_MOST_KEYS: Final = 200  # of an object; among more, which nobody writes, misspelt ones are not looked for
_LONGEST_KEY: Final = 128  # characters that are looked at
_UNPACKED: Final = "extra_body"  # OpenAI's client sends what is in it beside it; others send it as it is
_NAMED_SCHEMA: Final = ("name", "description", "schema", "strict")
_STRUCTURED: Final = (
    *("choice", "grammar", "json", "json_object", "regex", "structural_tag"),
    *("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"),
)
# Of formats: the keys that they have, and where of these the schema stands.
_FORMATS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "response_format": (
        ("type", "json_schema", "format", "structures", "triggers"),
        "json_schema.schema",
    ),
    "text.format": (("type", *_NAMED_SCHEMA), "schema"),
    "output_config.format": (("type", "schema"), "schema"),
}
_NOTHING: Final[tuple[Any, ...]] = (None, False, "", [], {"type": "text"})
_TIMES: Final = 2  # of a schema's size: as written, with what a grammar does not have of it


def check(route: str, body: Mapping[str, Any], most_bytes: int) -> None:
    """Refuse a body that vLLM would trip over, or of which it would ignore what asks for a constraint.

    Raises
    ------
    GuidedError
        Its first fault; grammar_too_large where a schema of `most_bytes` could not be that large.
    """
    if (known := ROUTES.get(route)) is not None:
        large = _too_large(body, _TIMES * most_bytes)
        for found in itertools.chain(large, _words(known, body), request_tools.faults(known, body)):
            raise found


def asked(route: Route, body: Mapping[str, Any]) -> list[str]:
    """Return the paths at which a request asks for a constraint."""
    return [path for path in route.read if at(body, path) not in _NOTHING]


def _too_large(body: Mapping[str, Any], most: int) -> Iterator[GuidedError]:
    """Yield what is so large that all that reads it would hold up others, and in the end it is refused."""
    for name in filter(body.get, HOLDERS):
        if name == "tools" and not (request_tools.is_forced(body) or request_tools.is_strict(body)):
            continue
        if (size := len(json.dumps(body[name]))) > most:
            yield fault(name, f"it has {size} bytes; at most {most} are read", ErrorCode.GRAMMAR_TOO_LARGE)


def _words(route: Route, body: Mapping[str, Any]) -> Iterator[GuidedError]:
    parts = [path.partition(".") for path in route.read]
    outer = [name for name, _, _ in parts]
    yield from _unread(route, body, "", [*outer, *(("tools", "tool_choice") if route.tools else ())], _LIKELY)
    inners = {name: inner for name, _, inner in parts if inner}
    for holder, inner in {route.arguments: "", _UNPACKED: "", **inners}.items():
        if isinstance(found := at(body, holder), dict):
            yield from _unread(route, found, f"{holder}.", [inner], _HELD if inner == "format" else _LIKELY)
    for path in route.read:
        if (given := at(body, path)) is not None:
            yield from _of_constraint(route, path, given)
    if len(several := asked(route, body)) > 1:
        yield fault(several[-1], f"only one constraint is possible, not {' and '.join(several)}")


def _unread(
    route: Route, holder: Mapping[str, Any], path: str, read: Collection[str], likely: tuple[str, ...]
) -> Iterator[GuidedError]:
    """Yield an object's keys that ask for a constraint, and are none of those that are read."""
    likeness = _LIKENESS if len(holder) <= _MOST_KEYS else 1
    for key in holder:
        if key in read or (path == f"{route.arguments}." and key.startswith(names.RESERVED_PREFIX)):
            continue
        word = _word(key[:_LONGEST_KEY], likely, likeness)
        is_setting = bool(_WORDS.get(word))
        if word and holder[key] not in (*_NOTHING, *(("none", "auto") if is_setting else ())):
            yield fault(path + key, f"it is ignored here; {_advice(route, word)}")


@functools.lru_cache(1024)
def _word(key: str, likely: tuple[str, ...], likeness: float) -> str:
    """Return the word that a key is, in any spelling; "": it is none."""
    word = re.sub(r"[-_\s]", "", key).casefold()
    if word in likely or word.startswith("guided"):
        return word
    return next(iter(difflib.get_close_matches(word, likely, 1, likeness) if likeness < 1 else ()), "")


def _advice(route: Route, word: str) -> str:
    if word == "toolchoice" and route.tools is None:
        return NO_TOOLS
    return f"write {_WORDS.get(word, '').format(route.arguments) or route.write} instead"


def _of_constraint(route: Route, path: str, given: Any) -> Iterator[GuidedError]:
    """Yield what vLLM would ignore in a constraint, or trip over."""
    if not isinstance(given, dict):
        yield fault(path, f"it is no object; write {route.write}")
        return
    keys, schema = _FORMATS.get(path, (_STRUCTURED, ""))
    yield from _unknown(path, given, keys, route.write)
    yield from _unknown(f"{path}.json_schema", at(given, "json_schema"), _NAMED_SCHEMA, route.write)
    if schema and given.get("type", "json_schema") != "json_schema" and at(given, schema) is not None:
        yield fault(f"{path}.type", f"it is not json_schema beside a schema; write {route.write}")
    elif schema and given.get("type") in (None, "json_schema") and not isinstance(at(given, schema), dict):
        yield fault(f"{path}.{schema}", f"it is missing or no object; write {route.write}")


def _unknown(path: str, given: Any, known: Collection[str], write: str) -> Iterator[GuidedError]:
    """Yield the keys of a constraint that are none."""
    for key in given if isinstance(given, dict) else ():
        if key not in known and given[key] not in _NOTHING:
            yield fault(f"{path}.{key}", f"no such key; write {write}")
