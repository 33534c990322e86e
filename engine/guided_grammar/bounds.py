"""Counting the characters of bounded strings along a JSON text, from its bytes alone.

Whoever follows a text with Bounds knows, after every byte, in which string it is and how many characters that
string may and must still get. Characters are Unicode code points, as JSON Schema counts them: an escape is
one, two escapes of a surrogate pair are one together.
"""

import bisect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from guided_contract.counting import NOTHING, UNBOUNDED, Position

_NAME_NEXT: Final = -2  # not a Position either: the next string is a property's name
BETWEEN: Final = -1  # in a text that is no JSON: around a structural tag's values, and behind a value

# Where a text stands. The order matters: from TEXT on it is inside a string that is a value.
(
    OUTSIDE,
    NAME,  # inside a property's name
    NAME_ESCAPE,
    TEXT,
    JOIN,  # behind the escape of a high surrogate, which a low one completes
    ESCAPE,  # behind a backslash
    JOIN_ESCAPE,
    HEX,  # behind \u, and then digit by digit; D: a surrogate perhaps, HIGH: a high surrogate
    HEX1,
    HEX1_D,
    HEX2,
    HEX2_HIGH,
    HEX3,
    HEX3_HIGH,
    LOW,  # the same behind a high surrogate, as long as it can still be the low one that completes it
    LOW1,
    LOW2,
    LOW3,
) = range(18)

_QUOTE, _COMMA = b'",'
_OBJECT, _ARRAY = b"{["
_STRUCTURE: Final = re.compile(rb'["{}\[\],]')
_VALUE: Final = re.compile(rb"[^ \t\n\r]")
_LONG: Final = b'"{['  # what begins a value that says where it ends
_NEVER: Final = rb"(?!)"
_MARK: Final = b"\xff"  # begins the bytes of a special token: see guided_grammar.xgrammar.special
_SPECIAL: Final = re.compile(rb'["\\]')
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))  # of UTF-8; every other byte begins a character
_DIGITS: Final = b"0123456789abcdefABCDEF"


def _step(start: int, otherwise: tuple[int, int], *special: tuple[bytes, int, int]) -> list[tuple[int, int]]:
    """Return (next mode, characters begun) for every byte in one mode."""
    row = [otherwise] * 256
    for some, mode, begun in special:
        for byte in some:
            row[byte] = (mode, begun)
    if start == JOIN:
        for byte in _CONTINUATIONS:
            row[byte] = (TEXT, 0)
    return row


# An escape counts at its backslash; behind a high surrogate, as soon as it cannot be the low one.
_STEPS: Final = {
    mode: _step(mode, *row)
    for mode, *row in (
        (JOIN, (TEXT, 1), (b"\\", JOIN_ESCAPE, 0)),
        (ESCAPE, (TEXT, 0), (b"u", HEX, 0)),
        (JOIN_ESCAPE, (TEXT, 1), (b"u", LOW, 0)),
        (HEX, (HEX1, 0), (b"dD", HEX1_D, 0)),
        (HEX1, (HEX2, 0)),
        (HEX1_D, (HEX2, 0), (b"89abAB", HEX2_HIGH, 0)),
        (HEX2, (HEX3, 0)),
        (HEX2_HIGH, (HEX3_HIGH, 0)),
        (HEX3, (TEXT, 0)),
        (HEX3_HIGH, (JOIN, 0)),
        (LOW, (HEX1, 1), (b"dD", LOW1, 0)),
        (LOW1, (HEX2, 1), (b"89abAB", HEX2_HIGH, 1), (b"cdefCDEF", LOW2, 0)),
        (LOW2, (LOW3, 0)),
        (LOW3, (TEXT, 0)),
    )
}
# With which bytes a token can go on in a mode other than TEXT and JOIN, where any can.
STARTS: Final = {
    mode: b'"\\/bfnrtu' if mode in (ESCAPE, JOIN_ESCAPE) else _DIGITS for mode in range(ESCAPE, LOW3 + 1)
}


class Where(NamedTuple):
    """Where a text stands; never changed, so that any earlier state can be returned to."""

    mode: int = OUTSIDE
    characters: int = 0  # begun in this string
    position: int = 0  # of this value or the next one
    name: bytes = b""  # of a property, as far as it is known
    # Of the innermost open object or array: (the frame around it, its Position, whether it is an array).
    frame: Any = None


def scan(mode: int, data: bytes, start: int = 0) -> tuple[int, int, int]:
    """Follow the inside of a string from `start` to its closing quote or the end of `data`.

    Parameters
    ----------
    mode
        Where in the string `start` is: TEXT or one of the modes after it, never OUTSIDE.
    data
        UTF-8, perhaps cut within a character.
    start
        Index in `data`.

    Returns
    -------
    mode, begun, end
        The mode at the end, OUTSIDE if the string was closed; the number of characters begun; the index in
        `data` after the last byte read.
    """
    begun = 0
    while start < len(data):
        if mode == TEXT:
            found = _SPECIAL.search(data, start)
            begun += len(data[start : found.start() if found else None].translate(None, _CONTINUATIONS))
            if found is None:
                return TEXT, begun, len(data)
            start = found.end()
            if data[start - 1] == _QUOTE:
                return OUTSIDE, begun, start
            mode = ESCAPE
            begun += 1
        elif mode == JOIN and data[start] == _QUOTE:
            return OUTSIDE, begun, start + 1
        else:
            mode, new = _STEPS[mode][data[start]]
            begun += new
            start += 1
    return mode, begun, start


class Bounds:
    """Follows texts through Positions, the first of which is the whole text's: JSON, or one with JSON in it.

    `minima` and `maxima` are by Position; their last entry, which is NOTHING's, bounds nothing.
    """

    def __init__(self, positions: Sequence[Position]) -> None:
        begins = positions[0].begins if positions else {}
        self.start = Where(BETWEEN) if begins else Where()
        self._begins = {text.encode(): position for text, position in begins.items()}
        self._sorted = sorted(self._begins)
        self._longest = max(map(len, self._begins), default=0)
        self._first = re.compile(
            b"[%s]" % re.escape(bytes({begin[0] for begin in self._begins})) if begins else _NEVER
        )
        self._any_begin = re.compile(b"|".join(map(re.escape, self._begins)))
        ends = re.escape(bytes({begin[-1] for begin in self._begins}))
        self._behind_begin = re.compile(rb'[%s][ \t\n\r]*["{\[]' % ends if begins else _NEVER)
        self.minima = [position.minimum for position in positions] + [0]
        self.maxima = [UNBOUNDED if p.maximum is None else p.maximum for p in positions] + [UNBOUNDED]
        self._names = [{_written(k): v for k, v in p.properties.items()} for p in positions] + [{}]
        self._others = [position.others for position in positions] + [NOTHING]
        self._items = [position.items for position in positions] + [NOTHING]

    def advance(self, where: Where, data: bytes) -> Where | None:
        """Return where the text stands after more bytes, None if a string got too long or closed too short.

        `data` must continue a valid JSON text; invalid JSON is not detected. A special token is told alone.
        """
        at = 0
        while at < len(data):
            if where.mode == BETWEEN:
                where, at = self._between(where, data, at)
            elif where.mode == OUTSIDE:
                where, at = self._outside(where, data, at)
            elif where.mode < TEXT:
                where, at = self._name(where, data, at)
            else:
                mode, begun, at = scan(where.mode, data, at)
                _, count, position, name, frame = where
                count += begun
                if count > self.maxima[position]:
                    return None
                if mode == OUTSIDE:
                    if count < self.minima[position]:
                        return None
                    position = NOTHING
                    mode = OUTSIDE if frame else BETWEEN
                where = Where(mode, count, position, name, frame)
        return where

    def begun_by(self, tokens: Mapping[int, bytes], mode: int) -> list[int]:
        """Return the tokens, given their bytes, that may begin a value and go on into it; some do not."""
        if not self._begins:
            return []
        finds = (self._behind_begin if mode == BETWEEN else self._any_begin).search
        return [token for token, text in tokens.items() if finds(text)]

    def _between(self, where: Where, data: bytes, at: int) -> tuple[Where, int]:
        """Look for what begins a value; its beginning, as far as it is there, is the name."""
        if not self._begins:
            return where, len(data)
        text = where.name + data[at:].removeprefix(_MARK)
        found = self._any_begin.search(text)
        if found is not None:
            return Where(OUTSIDE, 0, self._begins[found[0]]), len(data) - (len(text) - found.end())
        text = text[-self._longest :]
        for first in self._first.finditer(text):
            begun = text[first.start() :]
            after = bisect.bisect_left(self._sorted, begun)
            if after < len(self._sorted) and self._sorted[after].startswith(begun):
                return Where(BETWEEN, name=begun), len(data)
        return Where(BETWEEN), len(data)

    def _outside(self, where: Where, data: bytes, at: int) -> tuple[Where, int]:
        _, _, position, _, frame = where
        found = (_STRUCTURE if frame else _VALUE).search(data, at)
        if found is None:
            return where, len(data)
        byte = data[found.start()]
        if frame is None and byte not in _LONG:  # a number, or a word
            return Where(BETWEEN), found.start()
        if byte == _QUOTE:
            where = Where(NAME if position == _NAME_NEXT else TEXT, 0, position, b"", frame)
        elif byte == _COMMA:
            where = self._next(frame)
        elif byte == _OBJECT:
            where = self._next((frame, position, False))
        elif byte == _ARRAY:
            where = self._next((frame, position, True))
        else:
            where = Where(OUTSIDE if frame[0] else BETWEEN, 0, NOTHING, b"", frame[0])
        return where, found.end()

    def _next(self, frame: Any) -> Where:
        _, position, is_array = frame
        return Where(OUTSIDE, 0, self._items[position] if is_array else _NAME_NEXT, b"", frame)

    def _name(self, where: Where, data: bytes, at: int) -> tuple[Where, int]:
        mode, _, position, name, frame = where
        names = self._names[frame[1]]
        if mode == NAME_ESCAPE:
            end, mode = at + 1, NAME
        else:
            found = _SPECIAL.search(data, at)
            end = found.end() if found else len(data)
            if found and data[found.start()] == _QUOTE:
                name += data[at : found.start()]
                return Where(OUTSIDE, 0, names.get(name, self._others[frame[1]]), b"", frame), end
            mode = NAME_ESCAPE if found else NAME
        if names:  # else any name will do, and it may be long
            name += data[at:end]
        return Where(mode, 0, position, name, frame), end


def _written(name: str) -> bytes:
    """Return a property's name as both grammar libraries write it; another spelling is another property."""
    return json.dumps(name, ensure_ascii=False)[1:-1].encode()
