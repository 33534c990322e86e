"""Changes to a JSON text: to some of its bytes, or to one of the values that it holds."""

import copy
import json
import math
import random
from collections.abc import Iterator
from typing import Any, Final

MOST_BYTES: Final = 1 << 18
_DEEP: Final = 0.03  # the share of inputs with one value far inside others
_DEPTH: Final = 5000
_RUNS: Final = (b"\x00", b"\xff", b"[", b'{"a":', b"0", b"9", b"(", b"\xc1")
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, -1, 0, 1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63), 1 << 70),
    *(0.0, -0.5, 1e308, math.nan, math.inf, "", "a", "\x00", "../x", "é" * 40, "x" * 5000, [], {}, [[]]),
    *([None], {"": 0}, {"type": 0}, ["a", 1], [0] * 300, {str(number): number for number in range(300)}),
    *("\ud800", 10**4000, "$", "#", "#/$defs/a", "^(a+)+$"),
)

_Place = tuple[Any, Any]  # a container, and the key or index of one of its values


def changed(text: bytes, chance: random.Random) -> bytes:
    """Return a text with one value changed mostly, and bytes now and then."""
    if chance.random() < 0.2:
        return _some_bytes(text, chance)
    if chance.random() < _DEEP and text.endswith(b"}"):
        return text[:-1] + b',"x":' + b"[" * _DEPTH + b"]" * _DEPTH + b"}"
    try:
        return json.dumps(_one_value(json.loads(text), chance)).encode()[:MOST_BYTES]
    except (ValueError, RecursionError, TypeError):
        return _some_bytes(text, chance)


def _some_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return a copy with a few bytes changed, dropped, put in or doubled."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(5):
            case 0:
                made[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del made[at : at + chance.choice((1, 2, 8, 64, 4096))]
            case 2:
                del made[at:]
            case 3:
                made[at:at] = made[at : at + chance.choice((1, 4, 32, 1024))]
            case 4:
                made[at:at] = chance.choice(_RUNS) * chance.choice((1, 4, 64, 2000))
    return bytes(made[:MOST_BYTES])


def _one_value(value: Any, chance: random.Random) -> Any:
    """Return a deep copy in which one value is another one, is gone, or is there twice."""
    whole = [copy.deepcopy(value)]
    places = list(_places(whole))
    container, key = chance.choice(places)
    kind = chance.random()
    if kind < 0.5:
        container[key] = copy.deepcopy(chance.choice(_VALUES))
    elif kind < 0.7:
        other, elsewhere = chance.choice(places)
        container[key] = copy.deepcopy(other[elsewhere])
    elif kind < 0.85 and container is not whole:
        del container[key]
    elif isinstance(container, dict):
        container[key + chance.choice(("2", "", "/", "~", "$", "é", "\ud800"))] = copy.deepcopy(
            container[key]
        )
    else:
        container[key : key + 1] = [container[key]] * chance.choice((2, 3, 50))
    return whole[0] if whole else None


def _places(value: Any) -> Iterator[_Place]:
    stack = [value]
    while stack:
        container = stack.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            yield container, key
            if isinstance(container[key], dict | list):
                stack.append(container[key])
