"""Arrays whose items differ, followed along a JSON text from its bytes.

Items are all strings or all integers, so that an array holds no other one, and any item can be made longer:
where its end is forbidden, something else may follow. 0 cannot, so that a second one is not begun. Items are
compared by their values: an escape is the character that it stands for.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from guided_contract.counting import Position
from guided_grammar.bounds import OUTSIDE, TEXT, Bounds, Where

_QUOTE, _OPEN = b'"['
_IN_NUMBERS: Final = frozenset(b"+-.0123456789Ee")
_ZEROS: Final = (b"0", b"-0")


class Place(NamedTuple):
    """Where a text stands; never changed, so that any earlier state can be returned to.

    Attributes
    ----------
    where
        As Bounds says it.
    seen
        The values of the items that the open array has, if its items differ.
    text
        Of the item that is being written, as far as it is; empty between items.
    """

    where: Where = Where()
    seen: frozenset[Any] = frozenset()
    text: bytes = b""


class UniqueItems:
    """Follows JSON texts through a schema's Positions, lengths of strings included."""

    start = Place()

    def __init__(self, positions: Sequence[Position]) -> None:
        self._bounds = Bounds(positions)
        self._are_unique = [position.unique_items for position in positions] + [False]

    def is_inside(self, where: Where) -> bool:
        """Return whether the innermost open array or object is an array whose items differ."""
        frame = where.frame
        return frame is not None and frame[2] >= 0 and self._are_unique[frame[1]]

    def advance(self, place: Place, data: bytes) -> Place | None:
        """Return where the text stands after more bytes, None if an item is there twice or a bound is broken.

        `data` must continue a valid JSON text; invalid JSON is not detected.
        """
        where, seen, text = place
        if not self.is_inside(where):
            if _OPEN not in data:
                after = self._bounds.advance(where, data)
                return None if after is None else Place(after)
        elif where.mode >= TEXT and _QUOTE not in data:
            after = self._bounds.advance(where, data)
            return None if after is None else Place(after, seen, text + data)
        return self._by_bytes(place, data)

    def _by_bytes(self, place: Place, data: bytes) -> Place | None:
        current: Place | None = place
        for byte in data:
            if current is None:
                return None
            current = self._after(current, byte)
        return current

    def _after(self, place: Place, byte: int) -> Place | None:
        where, seen, text = place
        after = self._bounds.advance(where, bytes([byte]))
        if after is None:
            return None
        if not self.is_inside(where):
            return Place(after)
        is_string = where.mode >= TEXT
        if is_string or byte == _QUOTE or byte in _IN_NUMBERS:
            text += bytes([byte])
            is_over = is_string and after.mode == OUTSIDE
        else:
            is_over = bool(text)
        if text in _ZEROS and 0 in seen:
            return None
        if is_over:
            item = value(text)
            if item in seen:
                return None
            seen, text = seen | {item}, b""
        return Place(after, seen, text) if self.is_inside(after) else Place(after)


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


def value(text: bytes) -> Any:
    """Return an item's value as a client reads it, to whom what is no UTF-8 comes as another character."""
    written = text.decode(errors="replace")
    try:
        return json.loads(written, strict=False)
    except ValueError:  # an integer of more digits than Python reads
        return written
