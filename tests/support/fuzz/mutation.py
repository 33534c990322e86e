"""Changes to an input: to some of its bytes, or to one of the values that it holds."""

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

MOST_BYTES: Final = 1 << 18
_DEEP: Final = 0.03  # the share of inputs with one value far inside others
_DEPTH: Final = 5000
_RUNS: Final = (b"\x00", b"\xff", b"[", b'{"a":', b"\x91", b"\x81\xa1a", b"0", b"9", b"(", b"\xc1")
_NUMBERS: Final = (0, 1, 0x7F, 0x80, 0xFFFF, 1 << 20, 1 << 22, (1 << 22) + 1, 1 << 31, (1 << 32) - 1)
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, -1, 0, 1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)),
    *(0.0, -0.5, 1e308, math.nan, math.inf, "", "a", "\x00", "../x", "é" * 40, "x" * 5000, [], {}, [[]]),
    *([None], {"": 0}, {"type": 0}, ["a", 1], [0] * 300, {str(number): number for number in range(300)}),
)
# As JSON alone can hold them.
_JSON_VALUES: Final[tuple[Any, ...]] = ("\ud800", 1 << 70, 10**4000, "$", "#", "#/$defs/a", "^(a+)+$")

Value = Any
_Place = tuple[Any, Any]  # a container, and the key or index of one of its values


def some_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return a copy with a few bytes changed, dropped, put in or doubled."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(7):
            case 0:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                changed[at : at + 1] = bytes(byte ^ 1 << chance.randrange(8) for byte in changed[at : at + 1])
            case 2:
                del changed[at : at + chance.choice((1, 2, 8, 64, 4096))]
            case 3:
                del changed[at:]
            case 4:
                changed[at:at] = changed[at : at + chance.choice((1, 4, 32, 1024))]
            case 5:
                changed[at:at] = chance.choice(_RUNS) * chance.choice((1, 4, 64, 2000))
            case 6:
                order: Literal["little", "big"] = chance.choice(("little", "big"))
                changed[at : at + 4] = chance.choice(_NUMBERS).to_bytes(4, order)
    return bytes(changed[:MOST_BYTES])


def one_value(value: Value, chance: random.Random, odd: tuple[Any, ...] = _VALUES) -> Value:
    """Return a deep copy in which one value is another one, is gone, or is there twice."""
    whole = [copy.deepcopy(value)]
    places = list(_places(whole))
    container, key = chance.choice(places)
    kind = chance.random()
    if kind < 0.2:
        container[key] = _near(container[key], chance)
    elif kind < 0.5:
        container[key] = copy.deepcopy(chance.choice(odd))
    elif kind < 0.7:
        other, elsewhere = chance.choice(places)
        container[key] = copy.deepcopy(other[elsewhere])
    elif kind < 0.85 and container is not whole:
        del container[key]
    elif isinstance(container, dict):
        container[_another_name(key, chance)] = copy.deepcopy(container[key])
    else:
        container[key : key + 1] = [container[key]] * chance.choice((2, 3, 50))
    return whole[0] if whole else None


def json_value(text: bytes, chance: random.Random) -> bytes:
    """Change one value of a JSON text; bytes of what is none."""
    if chance.random() < _DEEP and text.endswith(b"}"):
        return text[:-1] + b',"x":' + b"[" * _DEPTH + b"]" * _DEPTH + b"}"
    try:
        return json.dumps(one_value(json.loads(text), chance, _VALUES + _JSON_VALUES)).encode()[:MOST_BYTES]
    except (ValueError, RecursionError, TypeError):
        return some_bytes(text, chance)


def either(
    of_value: Callable[[bytes, random.Random], bytes],
) -> Callable[[bytes, random.Random], bytes]:
    """Return a mutation that changes a value mostly, and bytes now and then."""

    def mutate(data: bytes, chance: random.Random) -> bytes:
        return (of_value if chance.random() < 0.75 else some_bytes)(data, chance)

    return mutate


def _places(value: Value) -> Iterator[_Place]:
    stack = [value]
    while stack:
        container = stack.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            yield container, key
            if isinstance(container[key], dict | list):
                stack.append(container[key])


def _near(value: Value, chance: random.Random) -> Value:
    """Return another value of the same type."""
    if isinstance(value, str):
        end = chance.choice(("-", "-00-x", "0", " ", "é", "'", "]", value))
        return chance.choice((value + end, end + value, value[:-1], value[1:], value.upper()))
    if isinstance(value, int | float):
        return chance.choice((value + 1, value - 1, -value, value * 1000))
    return value


def _another_name(key: Any, chance: random.Random) -> Any:
    return key + chance.choice(("2", "", "/", "~", "$", "é", "\ud800")) if isinstance(key, str) else key
