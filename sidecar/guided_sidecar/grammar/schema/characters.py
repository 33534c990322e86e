"""Sets of characters as ECMA-262 has them, and as a class of a pattern."""

import re
from collections.abc import Iterable
from typing import Any, Final

Ranges = tuple[tuple[int, int], ...]  # of code points, first and last

ANY: Final[Ranges] = ((0, 0xD7FF), (0xE000, 0x10FFFF))
LINE_ENDS: Final[Ranges] = ((10, 10), (13, 13), (0x2028, 0x2029))
_DIGITS: Final[Ranges] = ((48, 57),)
_WORDS: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACES: Final[Ranges] = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
# Of a pattern: an escape, a class (one that is not closed goes to the end, and is read once), a character.
PIECE: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z)|.", re.DOTALL)
_SPECIAL: Final = re.compile(r"[\\^$.|?*+()\[\]{}/-]")


def has(ranges: Ranges, code: int) -> bool:
    """Return whether a character is in one of some ranges."""
    return any(low <= code <= high for low, high in ranges)


def others(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the characters that are in none of some ranges."""
    found, begin = list[tuple[int, int]](), 0
    for low, high in sorted([*ranges, (0xD800, 0xDFFF), (0x110000, 0x110000)]):
        if low > begin:
            found.append((begin, low - 1))
        begin = max(begin, high + 1)
    return tuple(found)


_CATEGORIES: Final[dict[str, Ranges]] = {
    "CATEGORY_DIGIT": _DIGITS,
    "CATEGORY_NOT_DIGIT": others(_DIGITS),
    "CATEGORY_NOT_SPACE": others(SPACES),
    "CATEGORY_NOT_WORD": others(_WORDS),
    "CATEGORY_SPACE": SPACES,
    "CATEGORY_WORD": _WORDS,
}


def read(operator: str, argument: Any) -> Ranges | None:
    """Return the characters that an item of Python's parsed patterns takes; None: it is another kind."""
    match operator:
        case "LITERAL":
            return ((argument, argument),)
        case "NOT_LITERAL":
            return others([(argument, argument)])
        case "ANY":
            return others(LINE_ENDS)
        case "IN":
            found, kinds = list[tuple[int, int]](), {str(kind) for kind, _ in argument}
            for kind, value in argument:
                if str(kind) == "CATEGORY":
                    found += _CATEGORIES[str(value)]
                elif str(kind) != "NEGATE":
                    found.append((value, value) if str(kind) == "LITERAL" else value)
            return others(found) if "NEGATE" in kinds else tuple(found)
    return None


def escaped(character: str) -> str:
    """Return a character as it stands in a pattern, in a class or not."""
    return f"\\{character}" if _SPECIAL.match(character) else character


def spans(ranges: Iterable[tuple[int, int]]) -> str:
    """Return what stands in a class of some ranges."""
    return "".join(_letter(low) if low == high else f"{_letter(low)}-{_letter(high)}" for low, high in ranges)


def class_of(ranges: Iterable[tuple[int, int]]) -> str:
    """Return a class of some ranges, or their one character alone."""
    left = others(ranges)
    if not left:
        return r"[\s\S]"
    if left[-1][1] < ANY[-1][1]:
        return f"[^{spans(left)}]"
    found = others(left)
    is_one = len(found) == 1 and found[0][0] == found[0][1]
    return spans(found) if is_one else f"[{spans(found)}]" if found else r"[^\s\S]"


def _letter(code: int) -> str:
    return f"\\u{code:04x}" if code < 32 or 127 <= code <= 0xFFFF else escaped(chr(code))
