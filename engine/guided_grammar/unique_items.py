"""Arrays whose items differ, followed along a text of JSON, or with JSON in it, from its bytes.

What an item may become is without end as long as anything is open in it: a string or a number can be made
longer, an array or an object that takes any further name can get another part, and so can an object whose
last property is not written yet. Where one byte ends that, and leaves but one way to end the item, as the
quote of a last property or the first letter of `null` does, that byte is forbidden if the item is there: then
something else may follow, and no text comes to a dead end. Where that is so, Position.last and is_whole say.

Items are compared by their values: an escape is the character that it stands for, 1.0 is 1, and the order of
an object's properties says nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Optional, Protocol

from guided_contract.counting import Position
from guided_grammar.bounds import LAST, OUTSIDE, TEXT, Bounds, Where

_QUOTE, _OPEN, _CLOSE = b'"[]'
_ENDS: Final = frozenset(b"}]")
_SPACE: Final = frozenset(b" \t\n\r")
_BEGINS_NUMBER: Final = frozenset(b"-0123456789")
_IN_NUMBERS: Final = frozenset(b"+-.0123456789Ee")
_ZEROS: Final = (b"0", b"-0")
_REST: Final = {word[0]: word[1:] for word in (b"true", b"false", b"null")}


class Level(NamedTuple):
    """An open array whose items differ.

    Attributes
    ----------
    outer
        The one around it.
    seen
        Its items' values.
    strings
        The strings in them.
    head
        Its items as they are written, if there is one around it.
    text
        Of the item that is being written, as far as it is; empty between items.
    """

    outer: Optional["Level"] = None
    seen: frozenset[Any] = frozenset()
    strings: frozenset[str] = frozenset()
    head: bytes = b""
    text: bytes = b""


class Place(NamedTuple):
    """Where a text stands; never changed, so that any earlier state can be returned to.

    Attributes
    ----------
    where
        As Bounds says it.
    level
        The innermost open array whose items differ.
    scalar
        In such an array: of the string or number that is being written, as far as it is.
    """

    where: Where = Where()
    level: Level | None = None
    scalar: bytes = b""


class UniqueItems:
    """Follows texts through Positions as Bounds does, lengths of strings included."""

    def __init__(self, positions: Sequence[Position]) -> None:
        self._bounds = Bounds(positions)
        self.start = Place(self._bounds.start)
        self._are_unique = [position.unique_items for position in positions] + [False]
        self._are_whole = [position.is_whole for position in positions] + [False]

    def is_between(self, where: Where) -> bool:
        """Return whether the innermost open array or object is an array whose items differ."""
        return self._is_unique(where.frame)

    def advance(self, place: Place, data: bytes) -> Place | None:
        """Return where the text stands after more bytes, None if an item is there twice or a bound is broken.

        `data` must continue a valid JSON text; invalid JSON is not detected.
        """
        where, level, scalar = place
        if level is None:
            if _OPEN not in data:
                after = self._bounds.advance(where, data)
                return None if after is None else Place(after)
        elif where.mode != OUTSIDE and _QUOTE not in data:
            after = self._bounds.advance(where, data)
            level = level._replace(text=level.text + data)
            return None if after is None else Place(after, level, scalar + data)
        current: Place | None = place
        for byte in data:
            if current is None:
                return None
            current = self._after(current, byte)
        return current

    def ends_number(self, place: Place) -> bool:
        """Return whether what ends the number that is being written makes of an item one that is there."""
        return bool(place.scalar) and place.level is not None and self._ends(place.level, place.where)

    def is_near(self, place: Place) -> bool:
        """Return whether closing brackets alone make of an item, of any open array, one that is there."""
        frame, level, rest = place.where.frame, place.level, b""
        while level is not None and frame is not None:
            while not self._is_unique(frame):
                frame, rest = frame[0], rest + (b"}" if frame[2] < 0 else b"]")
            if _has(level, rest):
                return True
            rest = b"[%b]" % _joined(level.head, level.text + rest)
            frame, level = frame[0], level.outer
        return False

    def _after(self, place: Place, byte: int) -> Place | None:
        where, level, scalar = place
        after = self._bounds.advance(where, bytes([byte]))
        if after is None:
            return None
        if level is None:
            is_open = byte == _OPEN and where.mode == OUTSIDE and self._is_unique(after.frame)
            return Place(after, Level() if is_open else None)
        if where.mode != OUTSIDE:
            level = level._replace(text=level.text + bytes([byte]))
            is_over = after.mode == OUTSIDE and where.mode >= TEXT and self._ends(level, where)
            scalar = b"" if after.mode == OUTSIDE else scalar + bytes([byte])
            return None if is_over else Place(after, level, scalar)
        if scalar and byte not in _IN_NUMBERS:
            is_over, scalar = self._ends(level, where), b""
            if is_over:
                return None
        return self._outside(place._replace(scalar=scalar), after, byte)

    def _outside(self, place: Place, after: Where, byte: int) -> Place | None:
        """Return the place after a byte that stands in no string."""
        where, level, _ = place
        assert level is not None
        if byte in _SPACE:
            return Place(after, level)
        if self._is_unique(where.frame) and byte in b",]":
            return self._behind_item(after, level, is_last=byte == _CLOSE)
        return self._within(place, after, byte)

    def _within(self, place: Place, after: Where, byte: int) -> Place | None:
        """Return the place after such a byte of an item."""
        where, level, scalar = place
        assert level is not None
        if byte == _OPEN and self._is_unique(after.frame):
            return Place(after, Level(level))
        level = level._replace(text=level.text + bytes([byte]))
        if scalar or byte in _BEGINS_NUMBER:
            scalar += bytes([byte])
            is_over = self._is_zero(scalar, where) and self._ends(
                level, where, b"0" if scalar not in _ZEROS else b""
            )
        else:
            scalar = bytes([byte]) if after.mode >= TEXT else b""
            is_over = byte in _ENDS and self._ends(level, after)
            is_over = is_over or (byte in _REST and self._ends(level, where, _REST[byte]))
        return None if is_over else Place(after, level, scalar)

    def _is_zero(self, scalar: bytes, where: Where) -> bool:
        """Return whether a number can but be 0: an integer, and what has an exponent."""
        is_whole = self._are_whole[where.position] if scalar in _ZEROS else scalar[-1:] in b"eE"
        return is_whole and not scalar.strip(b"-.0eE")

    def _behind_item(self, after: Where, level: Level, *, is_last: bool) -> Place | None:
        outer, seen, strings, head, text = level
        if text:
            item, known = read(text)
            seen, strings = seen | {known}, strings.union(_strings(item))
            head = _joined(head, text) if outer else b""
        if not is_last:
            return Place(after, Level(outer, seen, strings, head))
        if outer is None:
            return Place(after)
        outer = outer._replace(text=b"%b[%b]" % (outer.text, head))
        return None if self._ends(outer, after) else Place(after, outer)

    def _is_unique(self, frame: Any) -> bool:
        return frame is not None and frame[2] >= 0 and self._are_unique[frame[1]]

    def _closing(self, frame: Any) -> bytes | None:
        """Return what an item can but end with behind a value in a frame; None: something else may follow."""
        closed = b""
        while not self._is_unique(frame):
            if frame is None or frame[2] != LAST:
                return None
            frame, closed = frame[0], closed + b"}"
        return closed

    def _ends(self, level: Level, where: Where, rest: bytes = b"") -> bool:
        """Return whether a value that is over, but for its `rest`, makes of an item one that is there."""
        closed = self._closing(where.frame)
        return closed is not None and _has(level, rest + closed)


class Follower(Protocol):
    """What follows texts through Positions: its places are its own, `start` that of an empty text."""

    start: Any

    def advance(self, where: Any, data: bytes, /) -> Any:
        """Return the place after more bytes, None if they may not follow."""


def follower(positions: Sequence[Position]) -> Follower | None:
    """Return what follows texts through Positions; None: there is nothing to follow."""
    if any(position.unique_items for position in positions):
        return UniqueItems(positions)
    return Bounds(positions) if positions else None


def _joined(head: bytes, text: bytes) -> bytes:
    return b",".join(filter(None, (head, text)))


class _Number(NamedTuple):
    """A number as its digits, without zeros at either end, times a power of ten."""

    is_negative: bool = False
    digits: str = ""
    power: int = 0


def read(text: bytes) -> tuple[Any, Any]:
    """Return an item as a client reads it, and by what it is told from others.

    What is no UTF-8 comes to a client as another character. An array or an object has a hash. What is not
    whole, or too deep, or has an exponent of thousands of digits, is what is written.
    """
    written = text.decode(errors="replace")
    try:
        item = json.loads(written, strict=False, parse_int=_number, parse_float=_number)
        if not isinstance(item, dict | list):
            return item, item
        spelt = json.dumps(item, sort_keys=True)  # a number has three parts: none stands alone in an array
    except (ValueError, RecursionError):
        return written, written
    return item, hashlib.blake2b(spelt.encode(), digest_size=16).digest()


def _has(level: Level, rest: bytes) -> bool:
    return bool(level.seen) and read(level.text + rest)[1] in level.seen


def _number(text: str) -> _Number:
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, part = mantissa.lstrip("-").partition(".")
    digits = (whole + part).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return _Number()
    return _Number(text[0] == "-", kept, int(exponent or 0) - len(part) + len(digits) - len(kept))


def _strings(item: Any) -> Iterator[str]:
    stack = [item]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict | list):
            stack += part.values() if isinstance(part, dict) else part
