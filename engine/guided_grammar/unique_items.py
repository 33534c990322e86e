"""Arrays whose items differ, followed along a text of JSON, or with JSON in it, from its bytes.

Items are strings, numbers and words alone (the sidecar sees to it). Strings and numbers can be made longer:
where the end of one is forbidden, something else may follow. A word cannot be made longer, nor a number that
can but be 0: they are not begun a second time. Items are compared by their values: an escape is the character
that it stands for, and 1.0 is 1.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from guided_contract.counting import Position
from guided_grammar.bounds import OUTSIDE, TEXT, Bounds, Where

_QUOTE, _OPEN = b'"['
_BEHIND: Final = frozenset(b",] \t\n\r")  # what stands between items
_ZEROS: Final = (b"0", b"-0")
_WORDS: Final = {word[:1]: word for word in (b"true", b"false", b"null")}


class ItemsState(NamedTuple):
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
    """Follows texts through Positions as Bounds does, lengths of strings included."""

    def __init__(self, positions: Sequence[Position]) -> None:
        self._bounds = Bounds(positions)
        self.start = ItemsState(self._bounds.start)
        self._are_unique = [position.unique_items for position in positions] + [False]
        self._are_whole = [position.whole_items for position in positions] + [False]

    def is_inside(self, where: Where) -> bool:
        """Return whether the innermost open array or object is an array whose items differ."""
        frame = where.frame
        return frame is not None and frame[2] and self._are_unique[frame[1]]

    def advance(self, state: ItemsState, data: bytes) -> ItemsState | None:
        """Return where the text stands after more bytes, None if an item is there twice or a bound is broken.

        `data` must continue a valid JSON text; invalid JSON is not detected.
        """
        where, seen, text = state
        if not self.is_inside(where):
            if _OPEN not in data:
                after = self._bounds.advance(where, data)
                return None if after is None else ItemsState(after)
        elif where.mode >= TEXT and _QUOTE not in data:
            after = self._bounds.advance(where, data)
            return None if after is None else ItemsState(after, seen, text + data)
        current: ItemsState | None = state
        for byte in data:
            if current is None:
                return None
            current = self._after(current, byte)
        return current

    def _after(self, state: ItemsState, byte: int) -> ItemsState | None:
        where, seen, text = state
        after = self._bounds.advance(where, bytes([byte]))
        if after is None or not self.is_inside(where):
            return None if after is None else ItemsState(after)
        if where.mode >= TEXT or byte not in _BEHIND:
            text += bytes([byte])
            is_over = where.mode >= TEXT and after.mode == OUTSIDE
            if not is_over and self._can_but_be(text, where) in seen:
                return None
        else:
            is_over = bool(text)
        if is_over:
            item = value(text)
            if item in seen:
                return None
            seen, text = seen | {item}, b""
        return ItemsState(after, seen, text) if self.is_inside(after) else ItemsState(after)

    def _can_but_be(self, text: bytes, where: Where) -> Any:
        """Return the only value that an item can have which begins so; None: it can have others."""
        if text in _WORDS:
            return _WORDS[text]
        is_bound = self._are_whole[where.frame[1]] if text in _ZEROS else text[-1:] in b"eE"
        return Decimal() if is_bound and not text.strip(b"-.0eE") else None


def value(text: bytes) -> Any:
    """Return what an item is told from others by: a string, a Decimal, or the bytes of a word.

    What is no UTF-8 comes to a client as another character. A number that none can hold is what is written.
    """
    try:
        if text[:1] == b'"':
            return json.loads(text.decode(errors="replace"), strict=False)
        return Decimal(text.decode())
    except (ArithmeticError, ValueError):
        return text
