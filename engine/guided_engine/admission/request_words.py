"""Constraints that are asked for in other servers' words, or in misspelt ones: found, and told what to write.

vLLM ignores keys that it does not know. Here a key that asks for a constraint is one that vLLM reads on this
route, or a refusal; in an object that is nothing but a constraint, so is every key that is not known.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

import msgspec

from guided_contract import names
from guided_contract.wire import Kind
from guided_engine.admission import foreign_words
from guided_engine.admission.foreign_words import ANY, KINDS, Word
from guided_engine.admission.request_body import MISSING, Keys, at, keys_of, value_of
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import ARGUMENTS, NO_TOOLS, OPTIONS, ROUTES, UNGUIDED, Route

# Only what stands below their `format` is a constraint.
_WITH_FORMAT: Final = ("text", "outputconfig")
# Objects that are read, and hold what clients please.
_THEIR_OWN: Final = frozenset(
    {
        *("chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "vllm_xargs", "logit_bias"),
        *("kv_transfer_params", "ec_transfer_params", "metadata", "prompt", "stream_options"),
        *("repetition_detection", "reasoning", "thinking", "features", "reasoning_parser_kwargs"),
    }
)
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
# Of what type a constraint is, and how its text in JSON begins.
_TYPES: Final[Mapping[str, tuple[str, tuple[bytes, ...]]]] = {
    "json": ("an object, or its JSON as a string", (b"{", b'"')),
    "json_object": ("true, or left out", (b"true",)),
    "regex": ("a string", (b'"',)),
    "choice": ("a list of strings, not empty", (b"[",)),
    "grammar": ("a string, not empty", (b'"',)),
    "structural_tag": ("its JSON as a string, not empty", (b'"',)),
}
_EMPTY: Final = dict.fromkeys(("json", "choice", "grammar", "structural_tag"), (b'""', b"[]"))
# More and longer ones nobody writes, and each takes up to 0.1 ms to be compared.
_MOST_KEYS: Final = 200
_LONGEST: Final = 64
_LEVELS: Final = 4  # of objects that are read by nobody, in each other
_NOTHING: Final = frozenset([b"null", b"false", b'""'])
# What asks for nothing, of words that are no text of a constraint.
_DEFAULTS: Final = frozenset([b'"none"', b'"auto"'])
_PLAIN: Final = frozenset([b'"text"', b'"text/plain"'])
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
    outer = {path.partition(".")[0]: path.partition(".")[2] for path in route.read}
    read = (*outer, *(("tools", "tool_choice") if route.tools else ("tools",)))
    for path, word in _foreign(keys, read, "", _LEVELS):
        yield _told(route, path, word)
    for name in sorted(outer.keys() & keys.keys()):
        inner = keys_of(keys[name])
        if inner is None and bytes(keys[name]) != b"null":
            yield Fault(name, f"it is no object; {route.write(ANY)}")
        if inner and outer[name]:
            for path, word in _foreign(inner, (outer[name],), f"{name}.", 0):
                yield _told(route, path, word)
    yield from _unread(route, keys)
    for path in route.read:
        found = at(keys, path)
        if bytes(found) == b"null":
            continue
        if path.endswith("structured_outputs"):
            yield from _of_structured_outputs(route, path, found)
        else:
            yield from _of_format(route, path, found)
    several = asked(route, keys)
    if len(several) > 1:
        yield Fault(several[-1], f"only one constraint is possible, not {' and '.join(several)}")


def _unread(route: Route, keys: Keys) -> Iterator[Fault]:
    """Yield constraints among what vLLM gives to plugins, and our own where this route reads none."""
    if not route.tools and is_strict(keys):
        yield Fault("tools", f"they have no effect here: {NO_TOOLS}")
    for path in dict.fromkeys((route.arguments, ARGUMENTS)):
        for key, value in (keys_of(at(keys, path)) or {}).items():
            word = foreign_words.exact(key)
            if word is None or not word.is_certain or not _asks(value):
                continue
            if path != route.arguments:
                yield Fault(f"{path}.{key}", f"it has no effect here; write it in {route.arguments}")
            elif not key.startswith(names.RESERVED_PREFIX):
                yield _told(route, f"{path}.{key}", word)


def _foreign(
    keys: Keys, read: tuple[str, ...], path: str, levels: int, *, is_open: bool = True
) -> Iterator[tuple[str, Word]]:
    """Yield paths of an object's keys that ask for a constraint, and are none of those that are read.

    `levels`: how far to look into objects that nobody reads; `is_open`: whether any word counts, not only
    those that mean a constraint wherever they stand.
    """
    for key, value in keys.items():
        if key in read:
            continue
        # Where nothing is read, a misspelling says little, and comparing takes long.
        may_be_near = bool(read) and len(keys) <= _MOST_KEYS and len(key) <= _LONGEST
        word = foreign_words.near(key, read) if may_be_near else foreign_words.exact(key)
        if word is not None and (is_open or word.is_certain):
            if _asks_for(word, key, value):
                yield path + key, word
        elif levels and key not in _THEIR_OWN and bytes(memoryview(value)[:1]) == b"{":
            below = foreign_words.is_container(key)
            yield from _foreign(keys_of(value) or {}, (), f"{path}{key}.", levels - 1, is_open=below)


def _told(route: Route, path: str, word: Word) -> Fault:
    meant = f"did you mean {word.near}? " if word.near else ""
    kind = cast("Kind", word.meaning) if word.meaning in KINDS else None
    return Fault(path, f"it has no effect here; {meant}{route.write(word.meaning)}", kind)


def _asks_for(word: Word, key: str, value: msgspec.Raw) -> bool:
    """Return whether a foreign word's value asks for anything."""
    text = bytes(value)
    if not _asks(value) or text == b"[]" or (text == b"{}" and not word.is_certain):
        return False
    if foreign_words.folded(key) in _WITH_FORMAT:
        return _asks((keys_of(value) or {}).get("format", MISSING))
    if word.meaning in {*OPTIONS, "tools", "tool_choice"}:
        return text not in _DEFAULTS
    if word.meaning == "json" and text in _PLAIN:
        return False
    return word.is_certain or text[:1] not in b"-0123456789"  # a number is no constraint


def _of_structured_outputs(route: Route, path: str, value: msgspec.Raw) -> Iterator[Fault]:
    keys = keys_of(value)
    if keys is None:
        yield Fault(path, f"it is no object; {route.write(ANY)}")
        return
    yield from _unknown(path, keys, _STRUCTURED, None)
    kinds = [key for key in keys if key in KINDS and bytes(keys[key]) != b"null"]
    if not kinds:
        yield Fault(path, f"it holds no constraint; give one of {', '.join(sorted(KINDS))}")
    if len(kinds) > 1:
        yield Fault(path, f"only one constraint is possible, not {' and '.join(kinds)}")
    for kind in kinds:
        what, begins = _TYPES[kind]
        text = bytes(keys[kind])
        if not text.startswith(begins) or text in _EMPTY.get(kind, ()):
            yield Fault(f"{path}.{kind}", f"it must be {what}", cast("Kind", kind))


def _of_format(route: Route, path: str, value: msgspec.Raw) -> Iterator[Fault]:
    keys, formats = keys_of(value), _FORMATS[path]
    if keys is None:
        yield Fault(path, f"it is no object; {route.write(ANY)}")
        return
    named = value_of(keys["type"]) if "type" in keys else "json_schema"
    if not isinstance(named, str) or named not in formats:
        meant = foreign_words.exact(str(named))
        write = route.write(meant.meaning if meant else ANY)
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
    """Yield the keys of a constraint that are none, with one that may have been meant."""
    for key, value in keys.items():
        if key in known or not _asks(value):
            continue
        close = difflib.get_close_matches(key, known, 1)
        what = f"no such key; did you mean {close[0]}?" if close else "no such key;"
        word = foreign_words.exact(key)
        write = OPTIONS.get(word.meaning if word else "") or advice or f"the keys are {', '.join(known)}"
        yield Fault(f"{path}.{key}", f"{what} {write}", kind)


def _asks(value: msgspec.Raw) -> bool:
    """Return whether a value asks for anything: null, false, "" and the type `text` do not."""
    text = bytes(value)
    if text in _NOTHING:
        return False
    keys = keys_of(value) if len(text) < 100 and text.startswith(b"{") else None
    return keys is None or len(keys) != 1 or bytes(keys.get("type", MISSING)) != b'"text"'
