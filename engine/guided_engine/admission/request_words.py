"""Constraints in words that vLLM does not read on a route: found, and told what to write.

vLLM ignores keys that it does not know. A constraint in its own words, present or former or misspelt, is
read on this route or refused. In an object that is nothing but a constraint, so is every unknown key. What
vLLM's own classes refuse is left to them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from guided_contract import names
from guided_contract.errors import GuidedError
from guided_engine.admission.request_body import at, fault
from guided_engine.admission.request_routes import NO_TOOLS, ROUTES, Route

# What asks for a constraint, without case, hyphens, underscores and blanks, as does all with `guided` first;
# misspelt words do, too.
_WORDS: Final = ("responseformat", "structuredoutputs", "toolchoice", "outputformat")
_HELD: Final = (*_WORDS, "format", "schema", "jsonschema")  # in what holds a format
_UNPACKED: Final = "extra_body"  # OpenAI's client sends what is in it beside it; others send it as it is
_OPTIONS: Final = {
    "guideddecodingbackend": names.BACKEND_ARG,
    "guidedbackend": names.BACKEND_ARG,
    "guidedwhitespacepattern": names.WHITESPACE_ARG,
    "guidedwhitespace": names.WHITESPACE_ARG,
}
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
_MISSPELT: Final = 2  # letters too many and too few that a misspelt word has at most, in any order
_LONGEST_KEY: Final = 128  # characters that are looked at
_MOST_KEYS: Final = 200  # of an object; among more, which nobody writes, misspelt ones are not looked for


def first(route: str, body: Mapping[str, Any]) -> GuidedError | None:
    """Return what a request asks for in words that vLLM ignores on its route; None: there is nothing."""
    known = ROUTES.get(route)
    return None if known is None else next(_faults(known, body), None)


def asked(route: Route, body: Mapping[str, Any]) -> list[str]:
    """Return the paths at which a request asks for a constraint."""
    return [path for path in route.read if at(body, path) not in _NOTHING]


def _faults(route: Route, body: Mapping[str, Any]) -> Iterator[GuidedError]:
    parts = [path.partition(".") for path in route.read]
    outer = [name for name, _, _ in parts]
    yield from _unread(route, body, "", [*outer, *(("tools", "tool_choice") if route.tools else ())], _WORDS)
    inners = {name: inner for name, _, inner in parts if inner}
    for holder, inner in {route.arguments: "", _UNPACKED: "", **inners}.items():
        if isinstance(found := at(body, holder), dict):
            likely = _HELD if inner == "format" else _WORDS
            yield from _unread(route, found, f"{holder}.", [inner], likely)
    for path in route.read:
        if (given := at(body, path)) is not None:
            yield from _of_constraint(route, path, given)
    if len(several := asked(route, body)) > 1:
        yield fault(several[-1], f"only one constraint is possible, not {' and '.join(several)}")


def _unread(
    route: Route, holder: Mapping[str, Any], path: str, read: Sequence[str], likely: tuple[str, ...]
) -> Iterator[GuidedError]:
    """Yield an object's keys that ask for a constraint, and are none of those that are read."""
    for key in holder:
        if key in read or (path == f"{route.arguments}." and key.startswith(names.RESERVED_PREFIX)):
            continue
        word = re.sub(r"[-_\s]", "", key[:_LONGEST_KEY]).casefold()
        if not word.startswith("guided"):
            is_alike = str.__eq__ if len(holder) > _MOST_KEYS else _is_like
            word = next((one for one in likely if is_alike(word, one)), "")
        is_setting = word in _OPTIONS or word == "toolchoice"
        if word and holder[key] not in (*_NOTHING, *(("none", "auto") if is_setting else ())):
            yield fault(path + key, f"it is ignored here; {_advice(route, word)}")


def _is_like(word: str, known: str) -> bool:
    if abs(len(word) - len(known)) > _MISSPELT:
        return False
    letters, others = Counter(word), Counter(known)
    return (letters - others).total() + (others - letters).total() <= _MISSPELT


def _advice(route: Route, word: str) -> str:
    if word == "toolchoice":
        return "write tool_choice instead" if route.tools else NO_TOOLS
    return f"write {f'{route.arguments}.{_OPTIONS[word]}' if word in _OPTIONS else route.write} instead"


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


def _unknown(path: str, given: Any, known: Sequence[str], write: str) -> Iterator[GuidedError]:
    """Yield the keys of a constraint that are none."""
    for key in given if isinstance(given, dict) else ():
        if key not in known and given[key] not in _NOTHING:
            yield fault(f"{path}.{key}", f"no such key; write {write}")
