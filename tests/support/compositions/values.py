"""Drawn JSON values, values that are near to one, and the many spellings of a value as a text."""

import json
import random
from collections.abc import Sequence
from typing import Any, Final

NAMES: Final = (
    *("a", "b", "c", "kind", "ab", "é", 'q"t', "a/b", "a~b", "", "x y", "$ref", "type", "a\\", "😀"),
    *("n\nl", "d"),
)
TEXTS: Final = (
    *("", "a", "b", "c", "ab", "abc", "aa", "aab", "ba", "cat", "dog", "A", "AB12", "12", "é", "éé", "😀"),
    *("a b", " ", "\n", "a\nb", '"', "\\", "a/b", "a.b", "a@b", "\u2028", "\x7f", "2020-01-01", "2020-02-30"),
    *("12:00:00Z", "2020-01-01T00:00:00Z", "1.2.3.4", "::1", "a@b.c", "http://a.b/c", "abcd", "12345", "P1D"),
    *("\u00a0", "٣", "123e4567-e89b-12d3-a456-426614174000"),
)
NUMBERS: Final = (
    *(0, 1, 2, 3, -1, 1.5, 2.0, 7, 10, 0.1, 0.5, -2.5, 100, 99, 1e3, 1e20, 12, -0.0, 0.01, 2.5, 1.25),
)
_KINDS: Final = {"null": 0, "boolean": 1, "integer": 2, "number": 3, "string": 4, "object": 6, "array": 8}


def value(chance: random.Random, depth: int, names: Sequence[str], named: str | None = None) -> Any:
    """Return a value with names, texts and numbers of schemas, most often of the type `named`."""
    kind = chance.randrange(9 if depth else 6)
    if named is not None and chance.random() < 0.9:
        kind = _KINDS[named]
    if kind < 1:
        return None
    if kind < 2:
        return chance.choice([True, False])
    if kind < 4:
        return chance.choice(NUMBERS)
    if kind < 6:
        return chance.choice(TEXTS)
    if kind < 8:
        chosen = chance.sample([*names, "d", "zz"], chance.randint(0, 3))
        return {name: value(chance, depth - 1, names) for name in chosen}
    return [value(chance, depth - 1, names) for _ in range(chance.randint(0, 3))]


def near(chance: random.Random, one: Any, names: Sequence[str]) -> Any:
    """Return a value that differs from one in one place."""
    if isinstance(one, dict):
        changed = dict(one)
        if changed and chance.random() < 0.6:
            name = chance.choice(list(changed))
            changed[name] = near(chance, changed[name], names)
        elif changed and chance.random() < 0.4:
            del changed[chance.choice(list(changed))]
        else:
            changed[chance.choice([*names, "zz"])] = value(chance, 1, names)
        return changed
    if isinstance(one, list):
        index = chance.randrange(len(one) + 1)
        if index == len(one):
            return [*one, chance.choice(one) if one else value(chance, 1, names)]
        rest = one[index + 1 :]
        return (
            [*one[:index], near(chance, one[index], names), *rest]
            if chance.random() < 0.6
            else one[:index] + rest
        )
    if isinstance(one, str) and chance.random() < 0.7:
        at = chance.randrange(len(one) + 1)
        return chance.choice([one[:at] + chance.choice("abcA1 é\n") + one[at:], one[:at] + one[at + 1 :]])
    if isinstance(one, int | float) and not isinstance(one, bool) and chance.random() < 0.7:
        return one + chance.choice([1, -1, 0.5, 0.01, -0.25, 10])
    return value(chance, 1, names)


def spelt(chance: random.Random, one: Any) -> str:
    """Return one of a value's texts: escapes, numbers, white space and names twice as JSON allows them."""
    space = chance.choice(["", "", " ", "\n  "]) if chance.random() < 0.3 else ""
    if isinstance(one, dict):
        pairs = list(one.items())
        if chance.random() < 0.2:
            chance.shuffle(pairs)
        if pairs and chance.random() < 0.15:
            name = chance.choice(pairs)[0]
            pairs.insert(chance.randrange(len(pairs)), (name, value(chance, 1, NAMES[:3])))
        members = [f"{_text(chance, name)}:{space}{spelt(chance, part)}" for name, part in pairs]
        return f"{{{space}{f',{space}'.join(members)}{space}}}"
    if isinstance(one, list):
        return f"[{space}{f',{space}'.join(spelt(chance, part) for part in one)}{space}]"
    if isinstance(one, str):
        return _text(chance, one)
    if isinstance(one, int | float) and not isinstance(one, bool) and chance.random() < 0.4:
        return _number(chance, one)
    return json.dumps(one)


def _text(chance: random.Random, text: str) -> str:
    if chance.random() < 0.7:
        return json.dumps(text, ensure_ascii=False)
    parts = []
    for character in text:
        if chance.random() < 0.5:
            units = character.encode("utf-16-be").hex(" ", 2).split()
            parts += [f"\\u{chance.choice((unit, unit.upper()))}" for unit in units]
        elif character == "/":
            parts.append("\\/")
        else:
            parts.append(json.dumps(character, ensure_ascii=chance.random() < 0.5)[1:-1])
    return f'"{"".join(parts)}"'


def _number(chance: random.Random, number: float) -> str:
    if float(number).is_integer():
        whole = int(number)
        return chance.choice(
            [f"{whole}.0", f"{whole}e0", f"{whole}.00", f"{whole}E+0", f"{whole * 10}e-1", f"-{whole}"]
        )
    return chance.choice([f"{number}0", f"{number}e0", f"{number * 10}e-1", repr(number)])
