"""Constraints in words that vLLM does not read on a route: found, and told what to write.

vLLM ignores keys that it does not know. A constraint in its own words, present or former or misspelt, is
read on this route or refused. In an object that is nothing but a constraint, so is every unknown key.
"""

import difflib
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

import msgspec

from guided_contract import names
from guided_contract.wire import Kind
from guided_engine.admission.request_body import MISSING, Keys, at, keys_of, value_of
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import (
    ANY,
    ARGUMENTS,
    KINDS,
    NO_TOOLS,
    OPTIONS,
    ROUTES,
    UNGUIDED,
    Route,
)

# What asks for what, without case, hyphens, underscores and blanks; other words with `guided` first, for any.
_WORDS: Final[Mapping[str, str]] = {
    "guidedjson": "json",
    "guidedjsonobject": "json_object",
    "guidedregex": "regex",
    "guidedchoice": "choice",
    "guidedgrammar": "grammar",
    "guidedstructuraltag": "structural_tag",
    "guideddecodingbackend": "backend",
    "guidedbackend": "backend",
    "guidedwhitespacepattern": "whitespace",
    "guidedwhitespace": "whitespace",
    "responseformat": ANY,
    "structuredoutputs": ANY,
    "outputformat": "json",  # of /v1/messages, before output_config
    "text": "json",  # with `format`, as `outputconfig`
    "outputconfig": "json",
    "toolchoice": "tool_choice",
}
_WITH_FORMAT: Final = ("text", "outputconfig")
# Objects that a client library, or another route, would have read as the request's own keys.
_CONTAINERS: Final = ("extra_body", "sampling_params")
_STRUCTURED: Final = (
    *sorted(KINDS),
    *("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"),
)
# Keys of formats by their type: those of OpenAI's chat, of its Responses, and of Anthropic.
_FORMATS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "response_format": {
        "text": ("type",),
        "json_object": ("type",),
        "json_schema": ("type", "json_schema"),
        "structural_tag": ("type", "format", "structures", "triggers"),
    },
    "text.format": {
        "text": ("type",),
        "json_object": ("type",),
        "json_schema": ("type", "name", "description", "schema", "strict"),
    },
    "output_config.format": {"json_schema": ("type", "schema")},
}
_NAMED_SCHEMA: Final = ("name", "description", "schema", "strict")
_NOTHING: Final = frozenset([b"null", b"false", b'""', b"[]"])
_DEFAULTS: Final = frozenset([b'"none"', b'"auto"'])  # of a choice among tools or libraries
_CLOSE: Final = 0.8  # difflib's ratio from which a key is taken for a misspelt one
# More and longer ones nobody writes, and each takes up to 0.1 ms to be compared.
_MOST_KEYS: Final = 200
_LONGEST: Final = 64
_STRICT: Final = re.compile(rb'"strict"\s*:(?!\s*(?:false|null))')


def fault(route: str, keys: Keys) -> Fault | None:
    """Return what a request asks for in words that vLLM ignores on its route; None: there is nothing."""
    known = ROUTES.get(route) or UNGUIDED.get(route)
    return None if known is None else next(_faults(known, keys), None)


def is_strict(keys: Keys) -> bool:
    """Return whether a tool of the request may be strict, without reading them all."""
    return _STRICT.search(bytes(keys.get("tools", b""))) is not None


def asked(route: Route, keys: Keys) -> list[str]:
    """Return the paths at which a request asks for a constraint."""
    return [path for path in route.read if _asks(at(keys, path))]


def _faults(route: Route, keys: Keys) -> Iterator[Fault]:
    outer = tuple(path.partition(".")[0] for path in route.read)
    yield from _renamed(route, keys, (*outer, *(("tools", "tool_choice") if route.tools else ())), "")
    for name in _CONTAINERS:
        inner = ("structured_outputs",) if name in outer else ()
        yield from _renamed(route, keys_of(keys.get(name, MISSING)) or {}, inner, f"{name}.")
    yield from _unread(route, keys)
    for path in route.read:
        found = at(keys, path)
        yield from _beside(route, keys, path)
        if bytes(found) == b"null":
            continue
        if (inner_keys := keys_of(found)) is None:
            yield Fault(path, f"it is no object; {route.write(ANY)}")
        elif path.endswith("structured_outputs"):
            yield from _unknown(path, inner_keys, _STRUCTURED, None)
        else:
            yield from _of_format(route, path, inner_keys)
    several = asked(route, keys)
    if len(several) > 1:
        yield Fault(several[-1], f"only one constraint is possible, not {' and '.join(several)}")


def _renamed(route: Route, keys: Keys, read: tuple[str, ...], path: str) -> Iterator[Fault]:
    """Yield an object's keys that ask for a constraint, and are none of those that are read."""
    for key, value in keys.items():
        if key in read:
            continue
        meaning, meant = _meaning(key), ""
        if meaning is None and len(keys) <= _MOST_KEYS and len(key) <= _LONGEST:
            meant = _near(key, read)
            meaning = ("tool_choice" if meant == "tool_choice" else ANY) if meant else None
        if meaning is not None and _is_meant(meaning, key, value, is_certain=not meant):
            kind = cast("Kind", meaning) if meaning in KINDS else None
            meant = f"did you mean {meant}? " if meant else ""
            yield Fault(path + key, f"it has no effect here; {meant}{route.write(meaning)}", kind)


def _meaning(key: str) -> str | None:
    word = _folded(key)
    return _WORDS.get(word, ANY if word.startswith("guided") else None)


def _folded(key: str) -> str:
    return re.sub(r"[-_\s]", "", key).casefold()


@functools.lru_cache(1024)  # clients send the same few keys again and again
def _near(key: str, read: tuple[str, ...]) -> str:
    """Return the word that a key misspells; "": none."""
    words = [*(one for one in read if one != "tools"), "response_format", "structured_outputs", "tool_choice"]
    return next(iter(difflib.get_close_matches(key, words, 1, _CLOSE)), "")


def _is_meant(meaning: str, key: str, value: msgspec.Raw, *, is_certain: bool) -> bool:
    """Return whether the value of such a word asks for anything."""
    text = bytes(value)
    if _folded(key) in _WITH_FORMAT:
        return _asks((keys_of(value) or {}).get("format", MISSING))
    if not _asks(value):
        return False
    if meaning in OPTIONS or meaning == "tool_choice":
        return text not in _DEFAULTS
    return is_certain or (text != b"{}" and text[:1] not in b"-0123456789")


def _unread(route: Route, keys: Keys) -> Iterator[Fault]:
    """Yield constraints among what vLLM gives to plugins, and our own where this route reads none."""
    if not route.tools and is_strict(keys):
        yield Fault("tools", f"they have no effect here: {NO_TOOLS}")
    for path in dict.fromkeys((route.arguments, ARGUMENTS)):
        for key, value in (keys_of(at(keys, path)) or {}).items():
            meaning = _meaning(key)
            if meaning is None or not _asks(value) or _folded(key) in _WITH_FORMAT:
                continue
            if path != route.arguments:
                yield Fault(f"{path}.{key}", f"it has no effect here; write it in {route.arguments}")
            elif not key.startswith(names.RESERVED_PREFIX):
                yield Fault(f"{path}.{key}", f"it has no effect here; {route.write(meaning)}")


def _beside(route: Route, keys: Keys, path: str) -> Iterator[Fault]:
    """Yield what is wrong with what should hold a constraint at a path, or holds it in other words."""
    name, _, inner = path.partition(".")
    holder = keys_of(keys.get(name, MISSING))
    if inner and holder is None and bytes(keys.get(name, MISSING)) != b"null":
        yield Fault(name, f"it is no object; {route.write(ANY)}")
    if inner != "format":  # what holds others is looked into as a container
        return
    yield from _renamed(route, holder or {}, (inner,), f"{name}.")
    for key, value in itertools.islice((holder or {}).items(), _MOST_KEYS):
        word = _folded(key[:_LONGEST]).removeprefix("json")
        if key != inner and _asks(value) and difflib.get_close_matches(word, [inner, "schema"], 1, _CLOSE):
            yield Fault(f"{name}.{key}", f"it has no effect here; {route.write('json')}", "json")


def _of_format(route: Route, path: str, keys: Keys) -> Iterator[Fault]:
    formats = _FORMATS[path]
    named = value_of(keys["type"]) if "type" in keys else "json_schema"
    if not isinstance(named, str) or named not in formats:
        write = route.write(named if isinstance(named, str) and named in KINDS else ANY)
        yield Fault(f"{path}.type", f"it is not one of {', '.join(formats)}; {write}")
        return
    kind = cast("Kind", {"json_schema": "json", "text": None}.get(named, named))
    advice = route.write("json") if named != "structural_tag" else ""
    yield from _unknown(path, keys, formats[named], kind, advice)
    if named != "json_schema":
        return
    if "json_schema" in formats[named]:
        path, keys = f"{path}.json_schema", keys_of(keys.get("json_schema", MISSING)) or {}
        yield from _unknown(path, keys, _NAMED_SCHEMA, kind, advice)
    schema = bytes(keys.get("schema", MISSING))
    if not schema.startswith(b"{"):
        what = "missing" if schema == b"null" else "no object"
        yield Fault(f"{path}.schema", f"it is {what}; {advice}", kind)


def _unknown(
    path: str, keys: Keys, known: Iterable[str], kind: Kind | None, advice: str = ""
) -> Iterator[Fault]:
    """Yield the keys of a constraint that are none."""
    advice = advice or f"the keys are {', '.join(known)}"
    for key, value in keys.items():
        if key not in known and _asks(value):
            yield Fault(f"{path}.{key}", f"no such key; {advice}", kind)


def _asks(value: msgspec.Raw) -> bool:
    """Return whether a value asks for anything; null, false, "", [] and the type `text` do not."""
    text = bytes(value)
    if text in _NOTHING:
        return False
    keys = keys_of(value) if len(text) < 100 and text.startswith(b"{") else None
    return keys is None or len(keys) != 1 or bytes(keys.get("type", MISSING)) != b'"text"'
