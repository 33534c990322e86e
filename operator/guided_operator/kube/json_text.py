"""JSON of the API server, read to a depth that is bounded.

Whoever may write an object may nest it as deeply as the server takes it, and parsers of Python end with a
RecursionError at about a thousand levels: one object would end every list and watch that it is in. So what
lies deeper than any field of ours is cut off, and its object is marked.
"""

import re
import secrets
from typing import Any, Final

import msgspec

Object = dict[str, Any]

# The deepest that is read, spec.logitsProcessors[].params, ends at half of it, in a list and in a revision.
MAX_DEPTH: Final = 100
# What replaces a value that was cut off. Nobody can know it, and so nobody can write it.
_CUT: Final = secrets.token_hex(16)
_CUT_TEXT: Final = f'"{_CUT}"'.encode()
_STRUCTURE: Final = bytes.maketrans(b"{}", b"[]")
_NO_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# The next bracket, behind all that is closed at once.
_BRACKET: Final = re.compile(
    rb'(?:[^\[\]{}"]++|' + _STRING + rb'|[\[{](?:[^\[\]{}"]|' + _STRING + rb")*+[\]}])*+([\[\]{}])", re.DOTALL
)
_OPENED: Final = b"[" * (MAX_DEPTH + 1)


class CutObject(dict[str, Any]):
    """An object of which something lay too deep, and is gone."""


class TooDeepError(Exception):
    """An object is nested too deeply to be read whole."""


def decode_cut(text: bytes) -> Any:
    """Return what a text that is too deep says: an object, a list of them, or an event of a watch.

    Raises
    ------
    msgspec.DecodeError
        It is no JSON.
    """
    answer: Object = msgspec.json.decode(cut(text))
    if isinstance(answer.get("items"), list):
        return {**answer, "items": [_marked(item) for item in answer["items"]]}
    if isinstance(answer.get("object"), dict):
        return {**answer, "object": _marked(answer["object"])}
    return _marked(answer)


def bounded(text: bytes) -> bytes:
    """Return a text without what lies too deep in it."""
    return cut(text) if is_too_deep(text) else text


def whole(item: Object) -> Object:
    """Return an object of which nothing was cut off.

    Raises
    ------
    TooDeepError
        Something was.
    """
    if isinstance(item, CutObject):
        raise TooDeepError(f"it is nested deeper than {MAX_DEPTH} levels")
    return item


def is_too_deep(text: bytes) -> bool:
    """Return whether something lies deeper than `MAX_DEPTH` brackets; as fast as bytes are replaced."""
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    text = text.translate(_STRUCTURE, _NO_STRUCTURE).replace(b'""', b"")
    brackets = b"".join(text.split(b'"')[::2])  # what is in strings, whose quotes are left, is none
    for _ in range(MAX_DEPTH):
        if not brackets or _OPENED in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def cut(text: bytes) -> bytes:
    """Return a text with a word of ours for each value that lies too deep."""
    kept, depth, begun, done = [], 0, 0, 0
    for found in _BRACKET.finditer(text):
        at = found.start(1)
        if found[1] in b"[{":
            depth += 1
            if depth == MAX_DEPTH:
                begun = at
        else:
            if depth == MAX_DEPTH:
                kept += [text[done:begun], _CUT_TEXT]
                done = at + 1
            depth -= 1
    return b"".join([*kept, text[done:]])


def _marked(item: Object) -> Object:
    return CutObject(item) if _CUT_TEXT in msgspec.json.encode(item) else item
