"""The body of one HTTP request, looked at while it passes: its keys, without objects of their values."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

# A JSON object's keys, and the JSON text of each value.
Keys = Mapping[str, msgspec.Raw]
MISSING: Final = msgspec.Raw(b"null")

_keys: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RequestBody:
    """Collects a body's chunks as they come, as references to what the application gets too."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def take(self, message: Mapping[str, Any]) -> bytes | None:
        """Take an ASGI message; return the body with the last chunk of it. None: more is to come."""
        if message["type"] != "http.request":
            return None
        self._chunks.append(message.get("body", b""))
        if message.get("more_body"):
            return None
        chunks, self._chunks = self._chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def keys_of(text: bytes | msgspec.Raw) -> Keys | None:
    """Return the keys of a JSON object; None: it is none, which vLLM refuses itself.

    Takes what vLLM takes, which is Python's idea of JSON: NaN, UTF-16 and half surrogate pairs, too.
    """
    try:
        return _keys.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = value_of(text)
    if not isinstance(value, dict):
        return None
    return {key: msgspec.Raw(json.dumps(inner).encode()) for key, inner in value.items()}


def at(keys: Keys, path: str) -> msgspec.Raw:
    """Return what stands at a path of keys, MISSING where nothing does."""
    first, _, rest = path.partition(".")
    found = keys.get(first, MISSING)
    return at(keys_of(found) or {}, rest) if rest else found


def text_of(keys: Keys, name: str, most: int) -> str | None:
    """Return the string that a body has under a key; None: none that is short and printable."""
    written = memoryview(keys.get(name, b""))
    if len(written) > 6 * most + 2:  # each may be written \uXXXX
        return None
    text = value_of(bytes(written))
    return text if isinstance(text, str) and len(text) <= most and text.isprintable() else None


def value_of(text: bytes | msgspec.Raw) -> Any:
    """Return the value of a JSON text; None, too, where it is none."""
    try:
        return json.loads(bytes(text))
    except (ValueError, RecursionError):
        return None
