"""What Python's idea of JSON lets through, though it says two things, or nothing that can be generated.

A key twice in one object, where the last one would count; NaN and infinite numbers; halves of surrogate
pairs, which are no text. vLLM fails at them late, or with somebody else's words, or not at all.
"""

import collections
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from guided_contract.errors import ErrorCode
from guided_engine.admission.request_body import Keys, value_of
from guided_engine.admission.request_fault import Fault
from guided_grammar.json_schema import subschemas

# What a constraint may come from.
_LOOKED_INTO: Final = (
    *("tools", "tool_choice", "response_format", "structured_outputs", "text", "output_config"),
    *("sampling_params", "vllm_xargs"),
)
_LONG_NUMBER: Final = re.compile(rb"\d{19}")
_SEPARATORS: Final = ((b",", b":"), (b", ", b": "))  # of nearly all clients


class _Object(list[tuple[str, Any]]):
    """A JSON object as it is written, so also with what stands in it twice."""


def fault(text: bytes, keys: Keys) -> Fault | None:
    """Return what is wrong with a body that json.loads can read; None: nothing is."""
    twice = None if _is_each_key_once(text, keys) else _twice(text, "", is_deep=False)
    if twice is not None:
        return twice
    for name in filter(keys.__contains__, _LOOKED_INTO):
        part = bytes(keys[name])
        value, has_twice = _read(part)
        found = (_twice(part, name) if has_twice else None) or _no_json(value, name)
        if found is not None:
            return found
    if _LONG_NUMBER.search(text) and (found := _too_long(value_of(text))) is not None:
        return found
    return _no_text(value_of(text), "") if _may_hold_surrogates(text) else None


def _is_each_key_once(text: bytes, keys: Keys) -> bool:
    """Return whether the outermost object is its keys written one after the other: soon, however long."""
    written = [(json.dumps(key).encode(), memoryview(value)) for key, value in keys.items()]
    for comma, colon in _SEPARATORS:
        parts = [part for key, value in written for part in (comma, key, colon, value)][1:]
        if sum(map(len, parts)) + 2 == len(text) and text == b"".join((b"{", *parts, b"}")):
            return True
    return False


def _read(text: bytes) -> tuple[Any, bool]:
    """Return a value, and whether a key stands twice in one of its objects."""
    found = False

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        made = dict(pairs)
        found = found or len(made) < len(pairs)
        return made

    try:
        value = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):  # which vLLM refuses
        return None, False
    return value, found


def _twice(text: bytes, path: str, *, is_deep: bool = True) -> Fault | None:
    """Return the first key that stands twice in an object; not `is_deep`: in the outermost."""
    try:
        value = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        return None
    for place, inner in _objects(value, path) if is_deep else [(path, value)]:
        if not isinstance(inner, _Object):
            continue
        counted = collections.Counter(key for key, _ in inner).most_common(1)
        if counted and counted[0][1] > 1:
            key = counted[0][0]
            message = f"the object has the key {_shown(key)} twice; which one counts is undefined"
            return Fault(_step(place, key), message, code=ErrorCode.REQUEST_INVALID)
    return None


def _no_json(value: Any, path: str) -> Fault | None:
    """Return where NaN or an infinite number stands."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        place = next(
            (
                place
                for place, inner in _objects(value, path)
                if isinstance(inner, float) and not abs(inner) < float("inf")
            ),
            path,
        )
        return Fault(
            place, "NaN, Infinity and numbers beyond 1.8e308 are not JSON", code=ErrorCode.REQUEST_INVALID
        )
    except RecursionError:  # whoever compiles it says so
        return None
    return None


def _too_long(value: Any) -> Fault | None:
    """Return where an integer stands that vLLM cannot send to its engine; tools go there as a text."""
    body = {key: one for key, one in value.items() if key != "tools"} if isinstance(value, dict) else value
    for place, inner in _objects(body, ""):
        if isinstance(inner, int) and not -(1 << 63) <= inner < 1 << 64:
            return Fault(place, "an integer of more than 64 bits", code=ErrorCode.REQUEST_INVALID)
    return None


def _may_hold_surrogates(text: bytes) -> bool:
    """Return whether a text may have halves of pairs in it: soon, for what nearly all clients send."""
    if json.detect_encoding(text) != "utf-8":
        return True
    try:
        text.decode()
    except UnicodeDecodeError:  # json.loads lets surrogates pass
        return True
    return b"\\ud" in text or b"\\uD" in text


def _no_text(value: Any, path: str) -> Fault | None:
    """Return where half of a surrogate pair stands."""
    try:
        if _is_text(json.dumps(value, ensure_ascii=False)):
            return None
    except RecursionError:
        return None
    message = "half of a surrogate pair (such as \\ud800 alone) is no text"
    for place, inner in _objects(value, path):
        key = next((key for key in inner if not _is_text(key)), None) if isinstance(inner, dict) else None
        if key is not None or (isinstance(inner, str) and not _is_text(inner)):
            return Fault(place, message, code=ErrorCode.REQUEST_INVALID)
    return None


def _objects(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a value and all that stands in it, with its path."""
    level = [(path, value)]
    while level:
        place, inner = level.pop()
        yield place, inner
        if isinstance(inner, dict | _Object):
            pairs = inner.items() if isinstance(inner, dict) else inner
            level += [(_step(place, key), one) for key, one in reversed(pairs)]
        elif isinstance(inner, list):
            level += [(f"{place}[{number}]", one) for number, one in reversed(list(enumerate(inner)))]


def _step(path: str, key: str) -> str:
    return subschemas.step(path, key) if path else key


def _shown(key: str) -> str:
    return json.dumps(key if len(key) <= 80 else f"{key[:80]}…")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
