"""JSON of the API server, read to a depth that is bounded.

Whoever may write an object may nest it as deeply as the server takes it, and parsers of Python end with a
RecursionError at about a thousand levels: one object would end every list and watch that it is in. So what
lies deeper than any field of ours is cut off.
"""

import asyncio
import re
import secrets
from typing import Final

# The deepest that is read, spec.logitsProcessors[].params, ends at half of it, in a list and in a revision.
MAX_DEPTH: Final = 100
LARGE_BYTES: Final = 64 << 10  # parsed, a megabyte may take fifty, and most of a second
# What replaces a value that was cut off. Nobody can know it, and so nobody can write it.
_CUT_TEXT: Final = f'"{secrets.token_hex(16)}"'.encode()
_STRUCTURE: Final = bytes.maketrans(b"{}", b"[]")
_NO_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# The next bracket, behind all that is closed at once.
_BRACKET: Final = re.compile(
    rb'(?:[^\[\]{}"]++|' + _STRING + rb'|[\[{](?:[^\[\]{}"]|' + _STRING + rb")*+[\]}])*+([\[\]{}])", re.DOTALL
)
_OPENED: Final = b"[" * (MAX_DEPTH + 1)


async def bounded_beside(text: bytes) -> bytes:
    """Return a text without what lies too deep in it; that takes some seconds, in which others go on."""
    if len(text) < LARGE_BYTES:
        return cut(text) if is_too_deep(text) else text
    return await asyncio.to_thread(lambda: cut(text) if is_too_deep(text) else text)


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
