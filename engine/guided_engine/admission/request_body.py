"""The body of one HTTP request: its keys, and those values that somebody asks for."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_texts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Body(Mapping[str, Any]):
    """A JSON object whose values are made once, when they are asked for: a prompt never is.

    `texts`: the JSON text of each value.
    """

    def __init__(self, texts: Mapping[str, bytes | msgspec.Raw]) -> None:
        self.texts = texts
        self._values: dict[str, Any] = {}

    @classmethod
    def read(cls, text: bytes) -> "Body | None":
        """Return a body; None: it is no JSON object, which vLLM refuses itself.

        Takes what vLLM takes, which is Python's idea of JSON: NaN, UTF-16 and half surrogate pairs, too.
        """
        try:
            return cls(_texts.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = value_of(text)
        if not isinstance(value, dict):
            return None
        return cls({key: json.dumps(inner).encode() for key, inner in value.items()})

    def __getitem__(self, name: str) -> Any:
        """Return the value of a key."""
        if name not in self._values:
            self._values[name] = value_of(self.texts[name])
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a key, without one the default; sooner than Mapping's own."""
        return self[name] if name in self.texts else default

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self.texts)

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self.texts)


def at(value: Any, path: str) -> Any:
    """Return what stands at a path of keys below a value; None: nothing does."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict | Body) else None
    return value


def value_of(text: bytes | msgspec.Raw) -> Any:
    """Return the value of a JSON text; None, too, where it is none."""
    try:
        return json.loads(bytes(text))
    except (ValueError, RecursionError):
        return None
