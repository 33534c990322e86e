"""What is looked at in a request's body before the application reads it.

vLLM ignores keys that it does not know. A constraint in its own words, present or former or misspelt, is
read on this route or refused, and told what to write. In an object that is nothing but a constraint, so is
every unknown key. What vLLM's own classes refuse is left to them.
"""

import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from guided_contract import names
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import request_tools
from guided_engine.admission.request_body import LONGEST_KEY, at, fault, like
from guided_engine.admission.request_routes import HOLDERS, NO_TOOLS, ROUTES, Route
from guided_engine.admission.request_tools import is_forced, is_strict

# What asks for a constraint, without case, hyphens, underscores and blanks, and what to write instead, if not
# as the route says; misspelt words do too, and all that begins with `guided`.
_WORDS: Final = {
    **dict.fromkeys(("responseformat", "structuredoutputs", "outputformat"), ""),
    **dict.fromkeys(("guidedjson", "guidedregex", "guidedchoice", "guidedgrammar"), ""),
    "toolchoice": "tool_choice",
    **dict.fromkeys(("guidedbackend", "guideddecodingbackend"), f"{{}}.{names.OPTION_ARGS['Backend']}"),
    **dict.fromkeys(
        ("guidedwhitespace", "guidedwhitespacepattern"), f"{{}}.{names.OPTION_ARGS['Whitespace']}"
    ),
}
# What routes read constraints in, and what asks for one in them alone. OpenAI's client sends the content of
# `extra_body`; others send it as it is.
_HOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("vllmxargs", "samplingparams", "extraargs", "extrabody"), ()),
    **dict.fromkeys(("text", "outputconfig"), ("format", "schema", "jsonschema")),
}
_LIKELY: Final = (*_WORDS, *_HOLDERS)
_LIKENESS: Final = 0.82  # of a misspelt word
_MOST_KEYS: Final = 200  # of all that is looked into; among more, which nobody writes, none is misspelt
_NAMED_SCHEMA: Final = ("name", "description", "schema", "strict")
# vLLM 0.32 has three more, and reads them from the engine's configuration alone.
_STRUCTURED: Final = ("choice", "grammar", "json", "json_object", "regex", "structural_tag")
# Of formats: the keys that they have beside their type, by it; none where it is not listed.
_TAG: Final = ("format", "structures", "triggers")
_FORMATS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "response_format": {"json_schema": ("json_schema",), "structural_tag": _TAG},
    "text.format": {"json_schema": _NAMED_SCHEMA},
    "output_config.format": {"json_schema": ("schema",)},
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
        large, unread = _too_large(body, _TIMES * most_bytes), _unread(known, body)
        tools = request_tools.faults(known, body)
        for found in itertools.chain(large, unread, _constraints(known, body), tools):
            raise found


def asked(route: Route, body: Mapping[str, Any]) -> list[str]:
    """Return the paths at which a request asks for a constraint."""
    return [path for path in route.read if at(body, path) not in _NOTHING]


def _too_large(body: Mapping[str, Any], most: int) -> Iterator[GuidedError]:
    """Yield what is so large that all that reads it would hold up others, and in the end it is refused."""
    for name in filter(body.get, HOLDERS):
        if name == "tools" and not (is_forced(body) or is_strict(body)):
            continue
        if (size := len(json.dumps(body[name]))) > most:
            yield fault(name, f"it has {size} bytes; at most {most} are read", ErrorCode.GRAMMAR_TOO_LARGE)


def _constraints(route: Route, body: Mapping[str, Any]) -> Iterator[GuidedError]:
    for path in route.read:
        if (given := at(body, path)) is not None:
            yield from _of_constraint(route, path, given)
    if len(several := asked(route, body)) > 1:
        yield fault(several[-1], f"only one constraint is possible, not {' and '.join(several)}")


def _unread(route: Route, body: Mapping[str, Any]) -> Iterator[GuidedError]:
    """Yield what asks for a constraint, also in what holds constraints on some route, and is not read."""
    read = (*route.read, *(("tools", "tool_choice") if route.tools else ()))
    arguments = f"{route.arguments}.{names.RESERVED_PREFIX}"  # judged with those of requests without a body
    seen = 0
    left: list[tuple[str, Mapping[str, Any], tuple[str, ...]]] = [("", body, _LIKELY)]
    while left:
        path, holder, likely = left.pop(0)
        if is_strict(holder) and (path or route.tools is None):
            yield fault(f"{path}tools", f"tools are not supported here: {NO_TOOLS}")
        seen += len(holder)
        for key, value in holder.items():
            word, place = like(key[:LONGEST_KEY], likely, _LIKENESS if seen <= _MOST_KEYS else 1), path + key
            if word in _HOLDERS and isinstance(value, dict):
                left.append((f"{place}.", value, (*_LIKELY, *_HOLDERS[word])))
            elif word in ("", *_HOLDERS) or place in read or place.startswith(arguments):
                continue
            elif value not in (*_NOTHING, *(("none", "auto") if _WORDS.get(word) else ())):
                yield fault(place, f"it is ignored here; {_advice(route, word)}")


def _advice(route: Route, word: str) -> str:
    if word == "toolchoice" and route.tools is None:
        return NO_TOOLS
    return f"write {_WORDS.get(word, '').format(route.arguments) or route.write} instead"


def _of_constraint(route: Route, path: str, given: Any) -> Iterator[GuidedError]:
    """Yield what vLLM would ignore in a constraint, or trip over."""
    if not isinstance(given, dict):
        yield fault(path, f"it is not an object; write {route.write}")
        return
    forms = _FORMATS.get(path)
    kind = given.get("type") or "json_schema"
    keys = _STRUCTURED if forms is None else ("type", *forms.get(str(kind), ()))
    yield from _unknown(path, given, keys, route.write)
    yield from _unknown(f"{path}.json_schema", at(given, "json_schema"), _NAMED_SCHEMA, route.write)
    if forms and kind == "json_schema":
        place = "schema" if "schema" in keys else "json_schema.schema"
        schema = at(given, place)
        # Of Messages vLLM takes an empty one for none.
        if not isinstance(schema, dict) or (path == "output_config.format" and not schema):
            yield fault(f"{path}.{place}", f"it is missing, empty or not an object; write {route.write}")


def _unknown(path: str, given: Any, known: Collection[str], write: str) -> Iterator[GuidedError]:
    """Yield the keys of a constraint that are none, or that vLLM ignores."""
    for key in given if isinstance(given, dict) else ():
        if key not in known and given[key] not in _NOTHING:
            yield fault(f"{path}.{key}", f"it is ignored here; write {write}")
