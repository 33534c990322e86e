"""Constraints in words that vLLM does not read on a route: found, and told what to write.

vLLM ignores keys that it does not know. A constraint in its own words, present or former or misspelt, is
read on this route or refused. In an object that is nothing but a constraint, so is every unknown key.
"""

import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from guided_contract import names
from guided_contract.errors import GuidedError
from guided_engine.admission.request_body import Body, at
from guided_engine.admission.request_fault import fault
from guided_engine.admission.request_routes import ARGUMENTS, NO_TOOLS, ROUTES, Route

# What asks for a constraint, without case, hyphens, underscores and blanks, as does all with `guided` first.
_LIKELY: Final = ("responseformat", "structuredoutputs", "toolchoice")  # misspelt ones are told, too
_WITH_FORMAT: Final = ("text", "outputconfig")
_WORDS: Final = (*_LIKELY, *_WITH_FORMAT, "outputformat")  # the last was /v1/messages' own
_OPTIONS: Final = {
    "guideddecodingbackend": names.BACKEND_ARG,
    "guidedbackend": names.BACKEND_ARG,
    "guidedwhitespacepattern": names.WHITESPACE_ARG,
    "guidedwhitespace": names.WHITESPACE_ARG,
}
# Objects that a client library, or another route, would have read as the request's own keys.
_CONTAINERS: Final = ("extra_body", "sampling_params", ARGUMENTS, "sampling_params.extra_args")
_STRUCTURED: Final = (
    *("choice", "grammar", "json", "json_object", "regex", "structural_tag"),
    *("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"),
)
_NAMED_SCHEMA: Final = ("name", "description", "schema", "strict")
# Keys beside `type` of formats: those of OpenAI's chat, of its Responses, and of Anthropic.
_FORMATS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "response_format": {
        "text": (),
        "json_object": (),
        "json_schema": ("json_schema",),
        "structural_tag": ("format", "structures", "triggers"),
    },
    "text.format": {"text": (), "json_object": (), "json_schema": _NAMED_SCHEMA},
    "output_config.format": {"json_schema": ("schema",)},
}
_NOTHING: Final[tuple[Any, ...]] = (None, False, "", [], {"type": "text"})
_CLOSE: Final = 0.8  # difflib's ratio from which a key is taken for a misspelt one
# More and longer ones nobody writes, and each takes up to 0.1 ms to be compared.
_MOST_KEYS: Final = 200
_LONGEST: Final = 64


def first(route: str, body: Body) -> GuidedError | None:
    """Return what a request asks for in words that vLLM ignores on its route; None: there is nothing."""
    known = ROUTES.get(route)
    return None if known is None else next(_faults(known, body), None)


def asked(route: Route, body: Mapping[str, Any]) -> list[str]:
    """Return the paths at which a request asks for a constraint."""
    return [path for path in route.read if at(body, path) not in _NOTHING]


def _faults(route: Route, body: Body) -> Iterator[GuidedError]:
    outer = [path.partition(".")[0] for path in route.read]
    likely = (*_LIKELY, *(re.sub("_", "", name) for name in outer))
    yield from _unread(route, body, "", [*outer, *(("tools", "tool_choice") if route.tools else ())], likely)
    holders = [name for name in outer if f"{name}.format" in route.read]
    for holder in (*_CONTAINERS, *holders):
        if isinstance(found := at(body, holder), dict):
            inner = [path.removeprefix(f"{holder}.") for path in route.read if path.startswith(f"{holder}.")]
            more = (*inner, "schema", "jsonschema") if holder in holders else ()
            yield from _unread(route, found, f"{holder}.", inner, (*_LIKELY, *more))
    for name, path in zip(outer, route.read, strict=True):
        for part in (name, path):
            if not isinstance(at(body, part), dict | None):
                yield fault(part, f"it is no object; write {route.write}")
        if (given := at(body, path)) is not None:
            if path in _FORMATS:
                yield from _of_format(route, path, given)
            else:
                yield from _unknown(path, given, _STRUCTURED)
    if len(several := asked(route, body)) > 1:
        yield fault(several[-1], f"only one constraint is possible, not {' and '.join(several)}")


def _unread(
    route: Route, holder: Mapping[str, Any], path: str, read: Sequence[str], likely: tuple[str, ...]
) -> Iterator[GuidedError]:
    """Yield an object's keys that ask for a constraint, and are none of those that are read."""
    few = likely if len(holder) <= _MOST_KEYS else ()
    for key in holder:
        if key in read or (path == f"{route.arguments}." and key.startswith(names.RESERVED_PREFIX)):
            continue
        word = re.sub(r"[-_\s]", "", key).casefold()
        is_certain = word in _WORDS or word.startswith("guided")
        meant = word if is_certain else _near(word, few) if len(key) <= _LONGEST else ""
        if meant and _is_meant(meant, holder[key], is_certain=is_certain):
            yield fault(path + key, f"it has no effect here; {_advice(route, path, meant)}")


@functools.lru_cache(1024)  # clients send the same few keys again and again
def _near(word: str, likely: tuple[str, ...]) -> str:
    """Return the word that a key misspells; "": none."""
    return next(iter(difflib.get_close_matches(word, likely, 1, _CLOSE)), "") if likely else ""


def _is_meant(word: str, value: Any, *, is_certain: bool) -> bool:
    """Return whether the value of such a word asks for anything."""
    if word in _WITH_FORMAT:
        return at(value, "format") not in _NOTHING
    if word == "toolchoice" or word.endswith("backend"):
        return value not in (*_NOTHING, "none", "auto")
    return value not in _NOTHING and (is_certain or (isinstance(value, str | list | dict) and value != {}))


def _advice(route: Route, path: str, word: str) -> str:
    if word == "toolchoice":
        return "write tool_choice instead" if route.tools else NO_TOOLS
    if path == f"{ARGUMENTS}." and word.startswith("guided"):
        return f"write it in {route.arguments}"
    return f"write {f'{route.arguments}.{_OPTIONS[word]}' if word in _OPTIONS else route.write} instead"


def _of_format(route: Route, path: str, given: Mapping[str, Any]) -> Iterator[GuidedError]:
    formats, named = _FORMATS[path], given.get("type", "json_schema")
    if not isinstance(named, str) or named not in formats:
        yield fault(f"{path}.type", f"it is not one of {', '.join(formats)}; write {route.write}")
        return
    yield from _unknown(path, given, ("type", *formats[named]), route.write)
    if named == "json_schema":
        if path == "response_format":
            path, given = f"{path}.json_schema", given.get("json_schema") or {}
            yield from _unknown(path, given, _NAMED_SCHEMA, route.write)
        if not isinstance(at(given, "schema"), dict):
            yield fault(f"{path}.schema", f"it is missing or no object; write {route.write}")


def _unknown(path: str, given: Any, known: Sequence[str], write: str = "") -> Iterator[GuidedError]:
    """Yield the keys of a constraint that are none."""
    advice = f"write {write}" if write else f"the keys are {', '.join(known)}"
    for key in given if isinstance(given, dict) else ():
        if key not in known and given[key] not in _NOTHING:
            yield fault(f"{path}.{key}", f"no such key; {advice}")
